//! The page of a key: status, limits, credits, permissions, events and activity.

mod parts;

use askama::Template;
use axum::extract::Path;
use foundation::clock::Timestamp;
use foundation::id::{ApiId, KeyId};
use foundation::model::RefillInterval;
use parts::{Done, Event, Gauge, Permission, Role};

use super::super::format::{TimeLabel, count};
use super::super::layout::{Layout, Section};
use super::super::page_request::WorkspaceRequest;
use super::super::{Answer, page};
use super::{May, fields, spoken};
use crate::domain::analytics::recent;
use crate::domain::keys::details::{self, KeyActivity, KeyDetails, KeyStatus};
use crate::domain::permission::Action;

#[derive(Template)]
#[template(path = "keys/show.html")]
struct Show {
    shell: Layout,
    workspace: String,
    id: KeyId,
    name: String,
    start: String,
    state: &'static str,
    is_good: bool,
    why: Vec<String>,
    api_id: ApiId,
    api_name: String,
    external_id: Option<String>,
    facts: Facts,
    gauges: Vec<Gauge>,
    credits: Option<Credits>,
    deeds: Vec<Done>,
    roles: Vec<Role>,
    permissions: Vec<Permission>,
    meta: Option<String>,
    /// The latest verifications; `None` if they cannot be read.
    events: Option<Vec<Event>>,
    is_enabled: bool,
    may: May,
}

struct Facts {
    created: TimeLabel,
    updated: Option<TimeLabel>,
    used: Option<TimeLabel>,
    expires: Option<TimeLabel>,
    environment: Option<String>,
    is_recoverable: bool,
}

struct Credits {
    left: String,
    /// Notes on leased and withheld credits.
    told: Vec<String>,
    refill: Option<String>,
    refills_at: Option<TimeLabel>,
    refilled_at: Option<TimeLabel>,
}

pub async fn show(request: WorkspaceRequest, Path((_, id)): Path<(String, String)>) -> Answer {
    let (app, caller) = (&request.visit.app, &request.caller);
    let looked = details::get_details(app, caller, &KeyId::from(id)).await?;
    let deeds = details::list_activity(app, caller, &looked).await?;
    let stored = looked.found.view.stored();
    let key = &stored.key;
    // Events are stored separately, so they may be unavailable while the rest is available.
    let events = match recent::of_key(app, caller, key).await {
        Ok(events) => Some(events),
        Err(error) => {
            tracing::warn!(error = %error, "failed to read events of a key: {error}");
            None
        }
    };
    let now = app.clock.now();
    let moment = |at: Timestamp| TimeLabel::new(at, now);
    let may_on = |action| caller.may_on(action, &key.api_id);
    page(&Show {
        shell: Layout::of(&request, Section::Keys, "Key").await?,
        workspace: request.membership.workspace_id.to_string(),
        id: key.id.clone(),
        name: key.name.clone().unwrap_or_else(|| "Unnamed key".into()),
        start: key.start.clone(),
        state: spoken(looked.state),
        is_good: looked.state == KeyStatus::Active,
        why: why(&looked, now),
        api_id: looked.api.id.clone(),
        api_name: looked.api.name.clone(),
        external_id: key.owner_id.clone(),
        facts: Facts {
            created: moment(key.created_at),
            updated: key.updated_at.map(moment),
            used: stored.last_used_at.map(moment),
            expires: key.expires_at.map(moment),
            environment: key.environment.clone(),
            is_recoverable: looked.is_recoverable,
        },
        gauges: looked.gauges.iter().map(|gauge| Gauge::new(gauge, now)).collect(),
        credits: credits(&looked, now),
        deeds: deeds.iter().map(|deed: &KeyActivity| Done::new(deed, now)).collect(),
        roles: looked.roles.iter().map(Role::new).collect(),
        permissions: Permission::all(&looked),
        meta: fields::meta(key),
        events: events.map(|events| events.into_iter().map(|e| Event::new(e, now)).collect()),
        is_enabled: key.enabled,
        may: May {
            create: may_on(Action::CreateKey),
            update: may_on(Action::UpdateKey),
            delete: may_on(Action::DeleteKey),
        },
    })
}

/// Explains what a verification returns, as far as the key alone decides.
fn why(looked: &KeyDetails, now: Timestamp) -> Vec<String> {
    let stored = looked.found.view.stored();
    let key = &stored.key;
    let state = match looked.state {
        KeyStatus::Active => "Active".to_owned(),
        KeyStatus::Disabled => {
            "The key is disabled. Verification returns DISABLED until it is enabled.".to_owned()
        }
        KeyStatus::Expired => match key.expires_at {
            Some(at) => format!(
                "The key expired {}. Extend its expiry to use it again.",
                TimeLabel::new(at, now).words
            ),
            None => "The key has expired.".to_owned(),
        },
        KeyStatus::Exhausted => match looked.refills_at {
            Some(at) => {
                format!(
                    "The key has no credits left. The next refill is {}.",
                    TimeLabel::new(at, now).words
                )
            }
            None => {
                "The key has no credits left and no refill. Add credits to use it again.".to_owned()
            }
        },
    };
    let mut notes = vec![state];
    if key.enabled && key.identity_id.is_none() && key.owner_id.is_some() {
        let deleted = "The identity of this key was deleted, and its shared limits with it.";
        notes.push(deleted.to_owned());
    }
    if let Some(networks) = &stored.allowed_networks {
        notes.push(format!("Allowed networks: {}.", networks.texts().join(", ")));
    }
    notes
}

fn credits(looked: &KeyDetails, now: Timestamp) -> Option<Credits> {
    let (left, refill) = looked.found.credits?;
    let number = |number: i64| count(number, i64::MAX);
    let mut notes = Vec::new();
    if let Some(account) = &looked.account {
        for purse in &account.purses {
            let (granted, spent) = (number(purse.granted), number(purse.spent));
            notes.push(match purse.withheld_at {
                None => format!(
                    "{granted} credits are leased to Redis; {spent} of them are known to be spent."
                ),
                Some(_) => format!(
                    "{} credits are withheld after Redis data loss. They return when their spend is known.",
                    number(purse.unspent())
                ),
            });
        }
    }
    let refill_words = refill.map(|refill| match refill.interval {
        RefillInterval::Daily => format!("to {} daily", number(refill.amount)),
        RefillInterval::Monthly { day } => {
            format!("to {} monthly, on day {day}", number(refill.amount))
        }
    });
    Some(Credits {
        left: number(left),
        told: notes,
        refill: refill_words,
        refills_at: looked.refills_at.map(|at| TimeLabel::new(at, now)),
        refilled_at: looked.found.refilled_at.map(|at| TimeLabel::new(at, now)),
    })
}

//! One key: whether it is good and why, what it may do, and what has become of it.

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
    /// Absent: nobody can tell at the moment.
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
    /// Where they are.
    told: Vec<String>,
    refill: Option<String>,
    refills_at: Option<TimeLabel>,
    refilled_at: Option<TimeLabel>,
}

pub async fn show(asked: WorkspaceRequest, Path((_, id)): Path<(String, String)>) -> Answer {
    let (app, caller) = (&asked.visit.app, &asked.caller);
    let looked = details::get_details(app, caller, &KeyId::from(id)).await?;
    let deeds = details::list_activity(app, caller, &looked).await?;
    let stored = looked.found.view.stored();
    let key = &stored.key;
    // Events are kept apart from the rest, and are away alone.
    let events = match recent::of_key(app, caller, key).await {
        Ok(events) => Some(events),
        Err(error) => {
            tracing::warn!(error = %error, "the events of a key cannot be read: {error}");
            None
        }
    };
    let now = app.clock.now();
    let moment = |at: Timestamp| TimeLabel::new(at, now);
    let may_on = |action| caller.may_on(action, &key.api_id);
    page(&Show {
        shell: Layout::of(&asked, Section::Keys, "Key").await?,
        workspace: asked.membership.workspace_id.to_string(),
        id: key.id.clone(),
        name: key.name.clone().unwrap_or_else(|| "Key without a name".into()),
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

/// What a verification of the key comes to, as far as the key alone decides.
fn why(looked: &KeyDetails, now: Timestamp) -> Vec<String> {
    let stored = looked.found.view.stored();
    let key = &stored.key;
    let state = match looked.state {
        KeyStatus::Active => "It verifies, within its limits.".to_owned(),
        KeyStatus::Disabled => {
            "It is disabled: whoever shows it is refused until somebody enables it.".to_owned()
        }
        KeyStatus::Expired => match key.expires_at {
            Some(at) => format!(
                "It expired {}: whoever shows it is refused. Give it another end to use it again.",
                TimeLabel::new(at, now).words
            ),
            None => "It has expired.".to_owned(),
        },
        KeyStatus::Exhausted => match looked.refills_at {
            Some(at) => {
                format!(
                    "Its credits are used up. They come back {}.",
                    TimeLabel::new(at, now).words
                )
            }
            None => {
                "Its credits are used up, and none come back by themselves: add some.".to_owned()
            }
        },
    };
    let mut told = vec![state];
    if key.enabled && key.identity_id.is_none() && key.owner_id.is_some() {
        let gone =
            "The identity that it belonged to is gone, and with it the limits that it shared.";
        told.push(gone.to_owned());
    }
    if let Some(networks) = &stored.allowed_networks {
        told.push(format!("It may be used only from {}.", networks.texts().join(", ")));
    }
    told
}

fn credits(looked: &KeyDetails, now: Timestamp) -> Option<Credits> {
    let (left, refill) = looked.found.credits?;
    let number = |number: i64| count(number, i64::MAX);
    let mut told = Vec::new();
    if let Some(account) = &looked.account {
        for purse in &account.purses {
            let (granted, spent) = (number(purse.granted), number(purse.spent));
            told.push(match purse.withheld_at {
                None => format!(
                    "{granted} have been handed to the counters, of which {spent} are known to be spent."
                ),
                Some(_) => format!(
                    "{} were with counters that are gone, and come back when it is known what was spent.",
                    number(purse.unspent())
                ),
            });
        }
    }
    let refill_words = refill.map(|refill| match refill.interval {
        RefillInterval::Daily => format!("to {} every day", number(refill.amount)),
        RefillInterval::Monthly { day } => {
            format!("to {} on day {day} of every month", number(refill.amount))
        }
    });
    Some(Credits {
        left: number(left),
        told,
        refill: refill_words,
        refills_at: looked.refills_at.map(|at| TimeLabel::new(at, now)),
        refilled_at: looked.found.refilled_at.map(|at| TimeLabel::new(at, now)),
    })
}

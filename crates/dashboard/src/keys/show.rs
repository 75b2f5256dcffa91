//! The page of a key: status, limits, credits, permissions, events and activity.

mod rows;

use askama::Template;
use axum::extract::Path;
use domain::analytics_access;
use domain::keys::details::{self, KeyActivity, KeyDetails, KeyStatus};
use domain::permission::Action;
use foundation::clock::Timestamp;
use foundation::error::Error;
use foundation::id::{ApiId, KeyId, MigrationId};
use foundation::model::{Key, RefillInterval};
pub use rows::VerificationEventRow;
use rows::{ActivityRow, LimitGauge, PermissionSource, Role};

use super::super::analytics::{Selection, UsageSection};
use super::super::format::{TimeLabel, format_count, format_quantity, format_start};
use super::super::imports::import_name;
use super::super::layout::{Layout, Section};
use super::super::page_request::WorkspaceRequest;
use super::super::status_badge::StatusBadge;
use super::super::{PageResult, render_page};
use super::{KeyAccess, deleted, fields, key_title};

#[derive(Template)]
#[template(path = "keys/show.html")]
struct KeyPage {
    layout: Layout,
    workspace: String,
    id: KeyId,
    name: String,
    start: String,
    status: StatusBadge,
    status_notes: Vec<String>,
    api_id: ApiId,
    api_name: String,
    external_id: Option<String>,
    facts: KeyFacts,
    limit_gauges: Vec<LimitGauge>,
    credits: Option<CreditsPanel>,
    usage: UsageSection,
    activity: Vec<ActivityRow>,
    roles: Vec<Role>,
    permissions: Vec<PermissionSource>,
    meta: Option<String>,
    /// The latest verifications; `None` if they cannot be read.
    events: Option<Vec<VerificationEventRow>>,
    is_enabled: bool,
    /// Whether the user may see the key, and it can be shown again.
    may_reveal: bool,
    may: KeyAccess,
}

struct KeyFacts {
    created: TimeLabel,
    import: Option<Import>,
    updated: Option<TimeLabel>,
    last_used: Option<TimeLabel>,
    expires: Option<TimeLabel>,
    environment: Option<String>,
    is_recoverable: bool,
}

/// The import that a key is from.
struct Import {
    id: MigrationId,
    name: String,
}

struct CreditsPanel {
    remaining: String,
    /// Notes on leased and withheld credits.
    notes: Vec<String>,
    refill: Option<String>,
    refills_at: Option<TimeLabel>,
    refilled_at: Option<TimeLabel>,
}

pub async fn show(request: WorkspaceRequest, Path((_, id)): Path<(String, String)>) -> PageResult {
    let (app, caller) = (&request.page_request.app, &request.caller);
    let id = KeyId::from(id);
    let key_details = match details::get_details(&app.keys, caller, &id).await {
        Err(Error::NotFound(_)) => return deleted::show(&request, id).await,
        found => found?,
    };
    let activity = details::list_activity(&app.context, caller, &key_details).await?;
    let stored = &key_details.found_key.stored;
    let key = &stored.key;
    let now = app.context.clock.now();
    let moment = |at: Timestamp| TimeLabel::new(at, now);
    let may_on = |action| caller.is_allowed_on(action, &key.api_id);
    let name = key_title(key.name.clone());
    render_page(&KeyPage {
        layout: Layout::for_workspace(&request, Section::Keys, "Keys").await?.about(&name),
        workspace: request.membership.workspace_id.to_string(),
        id: key.id.clone(),
        name,
        start: format_start(&key.start, &key.id),
        status: key_details.status.into(),
        status_notes: explain_status(&key_details, now),
        api_id: key_details.api.id.clone(),
        api_name: key_details.api.name.clone(),
        external_id: key.owner_id.clone(),
        facts: KeyFacts {
            created: moment(key.created_at),
            import: key_details.migration.as_ref().map(|migration| Import {
                id: migration.id.clone(),
                name: import_name(migration).to_owned(),
            }),
            updated: key.updated_at.map(moment),
            last_used: stored.last_used_at.map(moment),
            expires: key.expires_at.map(moment),
            environment: key.environment.clone(),
            is_recoverable: key_details.is_recoverable,
        },
        limit_gauges: key_details
            .limit_usages
            .iter()
            .map(|gauge| LimitGauge::new(gauge, now))
            .collect(),
        credits: build_credits_panel(&key_details, now),
        usage: UsageSection::load(&request, &Selection::key(&key.id, &key.api_id)).await,
        activity: activity.iter().map(|one: &KeyActivity| ActivityRow::new(one, now)).collect(),
        roles: key_details.roles.iter().map(Role::new).collect(),
        permissions: PermissionSource::list_for_key(&key_details),
        meta: fields::format_meta(key),
        events: list_events(&request, key, now).await,
        is_enabled: key.is_enabled,
        may_reveal: key_details.is_recoverable
            && key_details.api.settings.allows_recoverable_keys
            && may_on(Action::DecryptKey),
        may: KeyAccess {
            create: may_on(Action::CreateKey),
            update: may_on(Action::UpdateKey),
            delete: may_on(Action::DeleteKey),
        },
    })
}

/// Lists the latest verifications of a key. They are stored separately, so they may be unavailable while the rest is available.
async fn list_events(
    request: &WorkspaceRequest,
    key: &Key,
    now: Timestamp,
) -> Option<Vec<VerificationEventRow>> {
    let (app, caller) = (&request.page_request.app, &request.caller);
    match analytics_access::list_recent_by_key(&app.analytics, caller, &key.api_id, &key.id).await {
        Ok(events) => {
            Some(events.into_iter().map(|event| VerificationEventRow::new(event, now)).collect())
        }
        Err(error) => {
            tracing::warn!(error = %error, "failed to read events of a key: {error}");
            None
        }
    }
}

/// Explains what a verification returns, as far as the key alone decides.
fn explain_status(key_details: &KeyDetails, now: Timestamp) -> Vec<String> {
    let stored = &key_details.found_key.stored;
    let key = &stored.key;
    let state = match key_details.status {
        KeyStatus::Active => "Active".to_owned(),
        KeyStatus::Disabled => {
            "The key is disabled. Verification returns DISABLED until it is enabled.".to_owned()
        }
        KeyStatus::Expired => match key.expires_at {
            Some(at) => format!(
                "The key expired {}. Extend its expiry to use it again.",
                TimeLabel::new(at, now).text
            ),
            None => "The key has expired.".to_owned(),
        },
        KeyStatus::Exhausted => match key_details.next_refill_at {
            Some(at) => {
                format!("Credits exhausted. The next refill is {}.", TimeLabel::new(at, now).text)
            }
            None => "Credits exhausted. Add credits to use the key again.".to_owned(),
        },
    };
    let mut notes = vec![state];
    if key.is_enabled && key.identity_id.is_none() && key.owner_id.is_some() {
        let deleted = "The identity of this key was deleted, and its shared limits with it.";
        notes.push(deleted.to_owned());
    }
    if let Some(networks) = &stored.allowed_networks {
        notes.push(format!("Allowed networks: {}.", networks.to_strings().join(", ")));
    }
    notes
}

fn build_credits_panel(key_details: &KeyDetails, now: Timestamp) -> Option<CreditsPanel> {
    let (left, refill) = key_details.found_key.credits?;
    let number = |number: i64| format_count(number, i64::MAX);
    let credits = |number: i64| format_quantity(number, i64::MAX, "credit");
    let mut notes = Vec::new();
    if let Some(account) = &key_details.account {
        for purse in &account.leases {
            notes.push(match purse.withheld_at {
                None => format!(
                    "Leased to Redis: {}, {} known to be spent.",
                    credits(purse.granted),
                    number(purse.spent)
                ),
                Some(_) => format!(
                    "Withheld after Redis data loss: {}, until the spend is known.",
                    credits(purse.unspent_units())
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
    Some(CreditsPanel {
        remaining: number(left),
        notes,
        refill: refill_words,
        refills_at: key_details.next_refill_at.map(|at| TimeLabel::new(at, now)),
        refilled_at: key_details.found_key.refilled_at.map(|at| TimeLabel::new(at, now)),
    })
}

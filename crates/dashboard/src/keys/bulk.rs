//! Bulk actions on keys: confirmed first, then applied to each key separately.

use askama::Template;
use domain::audit::AuditEvent;
use domain::keys::{self, DecryptMode, Deletion, KeyChange, get};
use domain::permission::Action;
use foundation::error::Error;
use foundation::id::{AuditId, KeyId};

use super::super::failure::Failure;
use super::super::format::format_quantity;
use super::super::layout::{Layout, Section};
use super::super::page_request::WorkspaceRequest;
use super::super::{PageResult, redirect_to, render_invalid_page, render_page};
use super::list::filter_query;
use super::{bulk_undo, key_title};

/// The maximum number of keys per bulk action.
pub const BULK_KEYS_MAX: usize = 100;

/// An action on several keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum BulkAction {
    Enable,
    Disable,
    Delete,
}

impl BulkAction {
    fn from_name(name: &str) -> Result<Self, Error> {
        let known = [Self::Enable, Self::Disable, Self::Delete];
        let act = known.into_iter().find(|act| act.as_str() == name);
        act.ok_or_else(|| Error::invalid("act", "select an action"))
    }

    fn as_str(self) -> &'static str {
        match self {
            Self::Enable => "enable",
            Self::Disable => "disable",
            Self::Delete => "delete",
        }
    }

    fn required_action(self) -> Action {
        match self {
            Self::Enable | Self::Disable => Action::UpdateKey,
            Self::Delete => Action::DeleteKey,
        }
    }

    /// Returns the event of the audit entries of the action.
    fn audit_event(self) -> AuditEvent {
        match self {
            Self::Enable | Self::Disable => AuditEvent::KeyUpdated,
            Self::Delete => AuditEvent::KeyDeleted,
        }
    }

    /// Returns the imperative for the confirmation page.
    fn verb(self) -> &'static str {
        match self {
            Self::Enable => "Enable",
            Self::Disable => "Disable",
            Self::Delete => "Delete",
        }
    }

    /// Explains the effect of the action.
    fn consequence(self) -> &'static str {
        match self {
            Self::Enable => "The keys are accepted again, within their limits.",
            Self::Disable => "Verification returns DISABLED until the keys are enabled.",
            Self::Delete => {
                "The keys are rejected immediately. You can undo the deletion in the audit log."
            }
        }
    }

    /// Returns the past participle for the result page.
    fn past_participle(self) -> &'static str {
        match self {
            Self::Enable => "enabled",
            Self::Disable => "disabled",
            Self::Delete => "deleted",
        }
    }
}

#[derive(Template)]
#[template(path = "keys/bulk.html")]
struct BulkConfirmPage {
    layout: Layout,
    workspace: String,
    /// The query of the list in which the keys were selected.
    filter: String,
    heading: String,
    action: BulkAction,
    keys: Vec<BulkKeyRow>,
    /// Why the selection is invalid; `None` if it is valid.
    error: Option<String>,
}

#[derive(Template)]
#[template(path = "keys/bulk_done.html")]
pub struct BulkResultPage {
    pub layout: Layout,
    pub workspace: String,
    pub filter: String,
    pub heading: String,
    /// The list of the user's entries of this kind in the audit log; `None` if there are no new ones.
    pub history_path: Option<String>,
    /// The audit entries that *Undo* undoes.
    pub undoable: Vec<AuditId>,
    pub failed: Vec<(BulkKeyRow, String)>,
}

/// A key in the list of a bulk action.
pub struct BulkKeyRow {
    id: KeyId,
    name: String,
    start: String,
}

fn format_keys(count: usize) -> String {
    format_quantity(i64::try_from(count).unwrap_or(i64::MAX), i64::MAX, "key")
}

/// Returns the selected ids without duplicates, at most one more than the maximum.
fn selected_ids(request: &WorkspaceRequest) -> Vec<KeyId> {
    let mut ids: Vec<KeyId> = Vec::new();
    for id in request.page_request.form.values("key").map(KeyId::from) {
        if !ids.contains(&id) && ids.len() <= BULK_KEYS_MAX {
            ids.push(id);
        }
    }
    ids
}

/// Loads the name of a key. A key that does not exist is shown with its id as name.
pub async fn named(request: &WorkspaceRequest, id: KeyId) -> Result<BulkKeyRow, Error> {
    match get(&request.page_request.app.keys, &request.caller, &id, DecryptMode::None).await {
        Ok(found) => {
            let key = &found.stored.key;
            let name = key_title(key.name.clone());
            Ok(BulkKeyRow { id, name, start: key.start.clone() })
        }
        Err(Error::NotFound(_)) => {
            Ok(BulkKeyRow { name: id.to_string(), id, start: String::new() })
        }
        Err(error) => Err(error),
    }
}

async fn build_confirm_page(
    request: &WorkspaceRequest,
    action: BulkAction,
    ids: Vec<KeyId>,
) -> Result<BulkConfirmPage, Failure> {
    let fault = match ids.len() {
        0 => Some("Select at least one key.".to_owned()),
        many if many > BULK_KEYS_MAX => Some(format!("Select at most {BULK_KEYS_MAX} keys.")),
        _ => None,
    };
    let mut keys = Vec::with_capacity(ids.len());
    if fault.is_none() {
        for id in ids {
            keys.push(named(request, id).await?);
        }
    }
    let heading = match fault {
        None => format!("{} {}", action.verb(), format_keys(keys.len())),
        Some(_) => "Invalid selection".to_owned(),
    };
    Ok(BulkConfirmPage {
        layout: Layout::for_workspace(request, Section::Keys, "Keys").await?.about(&heading),
        workspace: request.membership.workspace_id.to_string(),
        filter: filter_query(&request.page_request.query),
        heading,
        action,
        keys,
        error: fault,
    })
}

/// Shows the confirmation page.
pub async fn confirm(request: WorkspaceRequest) -> PageResult {
    request.caller.require(Action::UpdateKey)?;
    let act = BulkAction::from_name(request.page_request.form.text("act"))?;
    request.caller.require(act.required_action())?;
    let asking = build_confirm_page(&request, act, selected_ids(&request)).await?;
    match asking.error {
        None => render_page(&asking),
        Some(_) => render_invalid_page(&asking),
    }
}

/// Applies the action to each key and shows the results.
pub async fn run(request: WorkspaceRequest) -> PageResult {
    request.caller.require(Action::UpdateKey)?;
    let act = BulkAction::from_name(request.page_request.form.text("act"))?;
    request.caller.require(act.required_action())?;
    let (ids, filter) = (selected_ids(&request), filter_query(&request.page_request.query));
    if ids.is_empty() {
        return redirect_to(&request.workspace_path(&format!("/keys{filter}")));
    }
    if ids.len() > BULK_KEYS_MAX {
        return render_invalid_page(&build_confirm_page(&request, act, ids).await?);
    }
    let started_at = request.page_request.app.context.clock.now();
    let (mut done, mut refused) = (Vec::new(), Vec::new());
    for id in ids {
        match run_one(&request, act, &id).await {
            Ok(()) => done.push(id),
            Err(error) if error.code().status() < 500 => {
                refused.push((named(&request, id).await?, error.to_string()));
            }
            Err(error) => return Err(error.into()),
        }
    }
    let heading = format!("{} {}", format_keys(done.len()), act.past_participle());
    let event = act.audit_event();
    render_page(&BulkResultPage {
        layout: Layout::for_workspace(&request, Section::Keys, "Keys").await?.about(&heading),
        workspace: request.membership.workspace_id.to_string(),
        filter,
        heading,
        history_path: (!done.is_empty()).then(|| bulk_undo::history_path(&request, event)),
        // The keys are changed: the result is shown also if the audit log cannot be read.
        undoable: bulk_undo::list_undoable(&request, event, started_at, &done)
            .await
            .unwrap_or_default(),
        failed: refused,
    })
}

async fn run_one(request: &WorkspaceRequest, act: BulkAction, id: &KeyId) -> Result<(), Error> {
    let (app, caller) = (&request.page_request.app, &request.caller);
    match act {
        BulkAction::Enable | BulkAction::Disable => {
            let enabled = Some(act == BulkAction::Enable);
            let change = KeyChange { enabled, ..KeyChange::default() };
            keys::update(&app.keys, caller, id, change).await
        }
        BulkAction::Delete => keys::delete(&app.context, caller, id, Deletion::Soft).await,
    }
}

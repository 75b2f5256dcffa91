//! Undo of a bulk action on keys: undoes the audit entry of each key.

use domain::audit::{self, AuditEvent, AuditFilter, StoredEntry};
use domain::permission::Action;
use domain::undo::{self, UndoAction};
use foundation::clock::Timestamp;
use foundation::error::Error;
use foundation::id::{AuditId, KeyId};

use super::super::layout::{Layout, Section};
use super::super::page_request::WorkspaceRequest;
use super::super::{PageResult, redirect_to, render_page};
use super::bulk::{BULK_KEYS_MAX, BulkResultPage, named};
use super::list::filter_query;

/// Returns the path of the user's entries of an event in the audit log.
pub fn history_path(request: &WorkspaceRequest, event: AuditEvent) -> String {
    let query = form_urlencoded::Serializer::new(String::new())
        .append_pair("event", event.as_str())
        .append_pair("actor", &request.known.user.email)
        .finish();
    request.workspace_path(&format!("/audit?{query}"))
}

/// Lists the entries that a bulk action has just written and that can be undone, one for each key.
pub async fn list_undoable(
    request: &WorkspaceRequest,
    event: AuditEvent,
    started_at: Timestamp,
    keys: &[KeyId],
) -> Result<Vec<AuditId>, Error> {
    if keys.is_empty() {
        return Ok(Vec::new());
    }
    let filter = AuditFilter {
        event: Some(event.as_str().to_owned()),
        actor: Some(request.known.user.id.to_string()),
        start_at: Some(started_at),
        rows_max: i64::try_from(BULK_KEYS_MAX).unwrap_or(i64::MAX),
        ..AuditFilter::default()
    };
    let context = &request.page_request.app.context;
    let entries = audit::list_for_caller(context, &request.caller, &filter).await?;
    // A key that already was in the state has an entry without changes.
    let entries = entries.iter().filter(|entry| entry.before != entry.after);
    let undoable =
        entries.filter(|entry| changed_key(entry).is_some_and(|key| keys.contains(&key)));
    Ok(undoable.map(|entry| AuditId::from(entry.id.as_str())).collect())
}

/// Returns the key whose change or deletion an entry records, if it can be undone.
fn changed_key(entry: &StoredEntry) -> Option<KeyId> {
    let Ok(UndoAction::RevertKey(key) | UndoAction::RestoreKey(key)) = undo::plan_undo(entry)
    else {
        return None;
    };
    Some(key)
}

/// Undoes the entries of a bulk action and returns to the list, or shows the keys for which this failed.
pub async fn undo(request: WorkspaceRequest) -> PageResult {
    request.caller.require(Action::UpdateKey)?;
    let app = &request.page_request.app;
    let ids = request.page_request.form.values("entry").map(AuditId::from);
    let ids: Vec<AuditId> = ids.take(BULK_KEYS_MAX).collect();
    let (mut undone, mut failed) = (0_usize, Vec::new());
    for id in ids {
        let (entry, _) = audit::get_with_group(&app.context, &request.caller, &id).await?;
        // Only a crafted form has other entries.
        let Some(key) = changed_key(&entry) else { continue };
        match undo::undo(&app.keys, &request.caller, &id).await {
            Ok(_) => undone += 1,
            Err(error) if error.code().status() < 500 => {
                failed.push((named(&request, key).await?, error.to_string()));
            }
            Err(error) => return Err(error.into()),
        }
    }
    let filter = filter_query(&request.page_request.query);
    if failed.is_empty() {
        let separator = if filter.is_empty() { '?' } else { '&' };
        let notice = if undone == 1 { "undone" } else { "all-undone" };
        return redirect_to(
            &request.workspace_path(&format!("/keys{filter}{separator}notice={notice}")),
        );
    }
    let heading = format!("{undone} {} undone", if undone == 1 { "change" } else { "changes" });
    render_page(&BulkResultPage {
        layout: Layout::for_workspace(&request, Section::Keys, "Keys").await?.about(&heading),
        workspace: request.membership.workspace_id.to_string(),
        filter,
        heading,
        history_path: None,
        undoable: Vec::new(),
        failed,
    })
}

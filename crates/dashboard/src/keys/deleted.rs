//! The page of a deleted key: who deleted it and when, and its restoration.

use askama::Template;
use axum::extract::Path;
use axum::http::StatusCode;
use domain::keys::{KeyDeletion, find_deletion};
use domain::permission::Action;
use domain::undo;
use foundation::error::{Error, ResourceRef};
use foundation::id::KeyId;

use super::super::audit::actor_label;
use super::super::format::{TimeLabel, format_start, format_utc};
use super::super::layout::{Layout, Section};
use super::super::page_request::WorkspaceRequest;
use super::super::{PageResult, redirect_to, render_page};
use super::{key_path, key_title};

#[derive(Template)]
#[template(path = "keys/deleted.html")]
struct DeletedKeyPage {
    layout: Layout,
    workspace: String,
    id: KeyId,
    name: String,
    start: String,
    api_name: String,
    /// Whether only the API was deleted, and the key with it.
    is_api_deleted: bool,
    deleted: Option<TimeLabel>,
    exact: String,
    /// The user, root key or command that deleted it; `None` if the audit log has no entry.
    actor: Option<String>,
    entry_path: Option<String>,
    may_restore: bool,
}

/// Shows a deleted key; any other that does not exist is not found.
pub async fn show(request: &WorkspaceRequest, id: KeyId) -> PageResult {
    let context = &request.page_request.app.context;
    let deletion = find_deletion(context, &request.caller, &id).await?;
    let deletion = deletion.ok_or_else(|| Error::not_found(ResourceRef::Key(id)))?;
    let is_restorable = deletion.is_restorable();
    let KeyDeletion { key, entry } = deletion;
    let at = key.deleted_at.or(key.api_deleted_at);
    let now = context.clock.now();
    let name = key_title(key.name);
    let mut answer = render_page(&DeletedKeyPage {
        layout: Layout::for_workspace(request, Section::Keys, "Deleted key").await?.about(&name),
        workspace: request.membership.workspace_id.to_string(),
        may_restore: is_restorable && request.caller.is_allowed_on(Action::CreateKey, &key.api_id),
        name,
        start: format_start(&key.start, &key.id),
        id: key.id,
        api_name: key.api_name,
        is_api_deleted: key.api_deleted_at.is_some(),
        deleted: at.map(|at| TimeLabel::new(at, now)),
        exact: at.map(format_utc).unwrap_or_default(),
        entry_path: entry
            .as_ref()
            .map(|entry| request.workspace_path(&format!("/audit/{}", entry.id))),
        actor: entry.as_ref().map(actor_label),
    })?;
    *answer.status_mut() = StatusCode::GONE;
    Ok(answer)
}

pub async fn restore(
    request: WorkspaceRequest,
    Path((_, id)): Path<(String, String)>,
) -> PageResult {
    request.caller.require(Action::CreateKey)?;
    let id = KeyId::from(id);
    undo::restore_key(&request.page_request.app.keys, &request.caller, &id).await?;
    redirect_to(&key_path(&request, &id, "?notice=key-restored"))
}

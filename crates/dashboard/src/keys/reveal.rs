//! The page that shows a recoverable key again. Each display is recorded in the audit log.

use askama::Template;
use axum::extract::Path;
use domain::keys::{self, DecryptMode};
use domain::permission::Action;
use foundation::id::KeyId;

use super::super::PageResult;
use super::super::layout::{Layout, Section};
use super::super::one_time_form::render_secret_page;
use super::super::page_request::WorkspaceRequest;
use super::key_title;

#[derive(Template)]
#[template(path = "keys/revealed.html")]
struct RevealedKeyPage {
    layout: Layout,
    workspace: String,
    id: KeyId,
    name: String,
    /// The key; `None` if it is not recoverable.
    secret: Option<String>,
}

/// Decrypts a recoverable key and shows it.
pub async fn show(request: WorkspaceRequest, Path((_, id)): Path<(String, String)>) -> PageResult {
    request.caller.require(Action::DecryptKey)?;
    let (keys, id) = (&request.page_request.app.keys, KeyId::from(id));
    let found = keys::get(keys, &request.caller, &id, DecryptMode::Required).await?;
    let secret = found.plaintext.map(|plaintext| plaintext.expose().to_owned());
    let is_shown = secret.is_some();
    let name = key_title(found.stored.key.name);
    let page = RevealedKeyPage {
        layout: Layout::for_workspace(&request, Section::Keys, "Show key").await?.about(&name),
        workspace: request.membership.workspace_id.to_string(),
        id,
        name,
        secret,
    };
    render_secret_page(&page, is_shown)
}

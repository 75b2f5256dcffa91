//! The page of a key that was just created or rotated. It shows the key once.

use askama::Template;
use axum::extract::Path;
use domain::keys::{self, DecryptMode};
use foundation::id::KeyId;
use serde_json::json;

use super::super::PageResult;
use super::super::format::{TimeLabel, curl_command};
use super::super::layout::{Layout, Section};
use super::super::one_time_form::{render_secret_page, take_secret};
use super::super::page_request::WorkspaceRequest;
use super::key_title;

#[derive(Template)]
#[template(path = "keys/created.html")]
struct KeyCreatedPage {
    layout: Layout,
    workspace: String,
    id: KeyId,
    name: String,
    /// The key, or the reason why it cannot be shown.
    secret: Result<CreatedKey, &'static str>,
}

struct CreatedKey {
    text: String,
    example: String,
    /// When the replaced key expires.
    old_expires: Option<TimeLabel>,
}

pub async fn show(
    request: WorkspaceRequest,
    Path((_, id, form_id)): Path<(String, String, String)>,
) -> PageResult {
    let app = &request.page_request.app;
    let id = KeyId::from(id);
    let found = keys::get(&app.keys, &request.caller, &id, DecryptMode::None).await?;
    let now = app.context.clock.now();
    let secret = take_secret(&request, id.as_str(), form_id).await?.map(|secret| {
        let text = secret.plaintext.expose().to_owned();
        let body = json!({ "key": text }).to_string();
        CreatedKey {
            text,
            example: curl_command(&secret.base_url, "keys.verifyKey", &body),
            old_expires: secret.replaced_expires_at.map(|at| TimeLabel::new(at, now)),
        }
    });
    let is_shown = secret.is_ok();
    let name = key_title(found.stored.key.name);
    let page = KeyCreatedPage {
        layout: Layout::for_workspace(&request, Section::Keys, "Your new key").await?.about(&name),
        workspace: request.membership.workspace_id.to_string(),
        name,
        id,
        secret,
    };
    render_secret_page(&page, is_shown)
}

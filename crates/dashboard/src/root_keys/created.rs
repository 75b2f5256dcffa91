//! The page of a root key that was just created or rotated. It shows the root key once.

use askama::Template;
use axum::extract::Path;
use foundation::id::KeyId;

use super::super::PageResult;
use super::super::format::{TimeLabel, curl_command};
use super::super::layout::{Layout, Section};
use super::super::one_time_form::{render_secret_page, take_secret};
use super::super::page_request::WorkspaceRequest;
use super::{load, root_key_title};

#[derive(Template)]
#[template(path = "root_keys/created.html")]
struct RootKeyCreatedPage {
    layout: Layout,
    workspace: String,
    id: KeyId,
    name: String,
    /// The root key, or the reason why it cannot be shown.
    secret: Result<CreatedRootKey, &'static str>,
}

struct CreatedRootKey {
    text: String,
    example: String,
    /// When the replaced root key expires.
    old_expires: Option<TimeLabel>,
}

pub async fn show(
    request: WorkspaceRequest,
    Path((_, id, form_id)): Path<(String, String, String)>,
) -> PageResult {
    let key = load(&request, id).await?.key;
    let now = request.page_request.app.context.clock.now();
    let secret = take_secret(&request, key.id.as_str(), form_id).await?.map(|secret| {
        let example = curl_command(&secret.base_url, "keys.verifyKey", "{\"key\":\"a key\"}");
        CreatedRootKey {
            text: secret.plaintext.expose().to_owned(),
            example,
            old_expires: secret.replaced_expires_at.map(|at| TimeLabel::new(at, now)),
        }
    });
    let is_shown = secret.is_ok();
    let name = root_key_title(key.name);
    let page = RootKeyCreatedPage {
        layout: Layout::for_workspace(&request, Section::RootKeys, "Your new root key")
            .await?
            .about(&name),
        workspace: request.membership.workspace_id.to_string(),
        id: key.id,
        name,
        secret,
    };
    render_secret_page(&page, is_shown)
}

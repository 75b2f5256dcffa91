//! Actions on one key: enable, disable, rotate, delete.

use askama::Template;
use axum::extract::Path;
use domain::keys::{self, DecryptMode, Deletion, FoundKey, KeyChange, get};
use domain::permission::Action;
use foundation::clock::{DAY_MS, HOUR_MS};
use foundation::error::Error;
use foundation::id::KeyId;
use futures_util::TryFutureExt as _;

use super::super::confirm::ConfirmPage;
use super::super::failure::Failure;
use super::super::form::{FormErrors, split_form_errors};
use super::super::format::format_start;
use super::super::layout::{Layout, Section};
use super::super::one_time_form::{create_once, redirect_to_secret};
use super::super::page_request::WorkspaceRequest;
use super::super::{PageResult, redirect_to, render_invalid_page, render_page};
use super::{key_path, key_title};

/// The options for how long the replaced key stays valid.
const GRACE_OPTIONS: [(i64, &str); 5] = [
    (0, "Immediately"),
    (HOUR_MS, "After 1 hour"),
    (DAY_MS, "After 1 day"),
    (7 * DAY_MS, "After 7 days"),
    (30 * DAY_MS, "After 30 days"),
];

#[derive(Template)]
#[template(path = "keys/reroll.html")]
struct RotateKeyPage {
    layout: Layout,
    workspace: String,
    id: KeyId,
    name: String,
    start: String,
    graces: [(i64, &'static str); 5],
    errors: FormErrors,
}

/// Loads a key.
async fn load(request: &WorkspaceRequest, id: &str) -> Result<FoundKey, Error> {
    get(&request.page_request.app.keys, &request.caller, &KeyId::from(id), DecryptMode::None).await
}

fn display_name(found: &FoundKey) -> String {
    key_title(found.stored.key.name.clone())
}

pub async fn set_enabled(
    request: WorkspaceRequest,
    Path((_, id)): Path<(String, String)>,
) -> PageResult {
    let enabled = request.page_request.form.text("enabled") == "true";
    request.caller.require(Action::UpdateKey)?;
    let change = KeyChange { enabled: Some(enabled), ..KeyChange::default() };
    let keys = &request.page_request.app.keys;
    keys::update(keys, &request.caller, &KeyId::from(id.as_str()), change).await?;
    let notice = if enabled { "?notice=key-enabled" } else { "?notice=key-disabled" };
    redirect_to(&key_path(&request, &id, notice))
}

async fn build_rotate_form(
    request: &WorkspaceRequest,
    id: &str,
    errors: FormErrors,
) -> Result<RotateKeyPage, Failure> {
    let found = load(request, id).await?;
    let key = &found.stored.key;
    request.caller.require_on(Action::CreateKey, &key.api_id)?;
    Ok(RotateKeyPage {
        layout: Layout::for_workspace(request, Section::Keys, "Rotate key")
            .await?
            .about(display_name(&found)),
        workspace: request.membership.workspace_id.to_string(),
        id: key.id.clone(),
        name: display_name(&found),
        start: format_start(&key.start, &key.id),
        graces: GRACE_OPTIONS,
        errors,
    })
}

pub async fn show_rotate_form(
    request: WorkspaceRequest,
    Path((_, id)): Path<(String, String)>,
) -> PageResult {
    request.caller.require(Action::CreateKey)?;
    render_page(&build_rotate_form(&request, &id, FormErrors::default()).await?)
}

pub async fn rotate(
    request: WorkspaceRequest,
    Path((_, id)): Path<(String, String)>,
) -> PageResult {
    request.caller.require(Action::CreateKey)?;
    let grace = request.page_request.form.text("grace").parse::<i64>().ok();
    let grace = grace.filter(|ms| GRACE_OPTIONS.iter().any(|(known, _)| known == ms));
    let Some(grace) = grace else {
        let errors = FormErrors::single("grace", "Select when the old key expires.");
        return render_invalid_page(&build_rotate_form(&request, &id, errors).await?);
    };
    let (keys, old) = (&request.page_request.app.keys, KeyId::from(id.as_str()));
    // Boxed: the future is large.
    let rotation = Box::pin(keys::reroll(keys, &request.caller, &old, grace));
    let rotation = rotation.map_ok(|issued| issued.id);
    match split_form_errors(create_once(&request, rotation).await)? {
        Ok(key) => redirect_to_secret(&request, &format!("/keys/{key}")),
        Err(errors) => render_invalid_page(&build_rotate_form(&request, &id, errors).await?),
    }
}

pub async fn confirm_delete(
    request: WorkspaceRequest,
    Path((_, id)): Path<(String, String)>,
) -> PageResult {
    request.caller.require(Action::DeleteKey)?;
    let found = load(&request, &id).await?;
    let key = &found.stored.key;
    render_page(&ConfirmPage {
        layout: Layout::for_workspace(&request, Section::Keys, "Delete key")
            .await?
            .about(display_name(&found)),
        question: format!("Delete {}?", display_name(&found)),
        consequences: vec![
            format!(
                "Requests with {} are rejected immediately.",
                format_start(&key.start, &key.id)
            ),
            "To reject them temporarily, disable the key. To replace the key, rotate it. You can \
            restore the key on its page."
                .to_owned(),
        ],
        action_url: key_path(&request, &key.id, "/delete"),
        fields: Vec::new(),
        button: "Delete key",
        back_url: key_path(&request, &key.id, ""),
        back_label: display_name(&found),
    })
}

pub async fn delete(
    request: WorkspaceRequest,
    Path((_, id)): Path<(String, String)>,
) -> PageResult {
    request.caller.require(Action::DeleteKey)?;
    let (context, id) = (&request.page_request.app.context, KeyId::from(id));
    keys::delete(context, &request.caller, &id, Deletion::Soft).await?;
    redirect_to(&key_path(&request, &id, "?notice=key-deleted"))
}

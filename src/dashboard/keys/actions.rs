//! Actions on one key: enable, disable, rotate, delete.

use askama::Template;
use axum::extract::Path;
use foundation::error::Error;
use foundation::id::KeyId;
use serde_json::json;

use super::super::confirm::Confirm;
use super::super::failure::Failure;
use super::super::form::{FormErrors, split_form_errors};
use super::super::layout::{Layout, Section};
use super::super::page_request::WorkspaceRequest;
use super::super::{Answer, page, redirect_to, refused_page};
use super::{made, path};
use crate::domain::keys::{DecryptMode, FoundKey, get};
use crate::domain::permission::Action;
use crate::rpc::v2::call;
use crate::rpc::v2::keys::delete_key::DeleteKey;
use crate::rpc::v2::keys::reroll_key::RerollKey;
use crate::rpc::v2::keys::update_key::UpdateKey;

const HOUR_MS: i64 = 60 * 60_000;
const DAY_MS: i64 = 24 * HOUR_MS;
/// The options for how long the replaced key stays valid.
const GRACES: [(i64, &str); 5] = [
    (0, "Immediately"),
    (HOUR_MS, "After 1 hour"),
    (DAY_MS, "After 1 day"),
    (7 * DAY_MS, "After 7 days"),
    (30 * DAY_MS, "After 30 days"),
];

#[derive(Template)]
#[template(path = "keys/reroll.html")]
struct AskReroll {
    shell: Layout,
    workspace: String,
    id: KeyId,
    name: String,
    start: String,
    graces: [(i64, &'static str); 5],
    faults: FormErrors,
}

/// Loads a key.
async fn found(request: &WorkspaceRequest, id: &str) -> Result<FoundKey, Error> {
    get(&request.visit.app, &request.caller, &KeyId::from(id), DecryptMode::None).await
}

fn name(found: &FoundKey) -> String {
    let key = &found.view.stored().key;
    key.name.clone().unwrap_or_else(|| format!("key {}…", key.start))
}

pub async fn set_enabled(
    request: WorkspaceRequest,
    Path((_, id)): Path<(String, String)>,
) -> Answer {
    let enabled = request.visit.form.text("enabled") == "true";
    request.caller.require(Action::UpdateKey)?;
    let body = json!({ "keyId": id, "enabled": enabled });
    call::<UpdateKey>(&request.visit.app, &request.caller, &body).await?;
    let notice = if enabled { "?notice=key-enabled" } else { "?notice=key-disabled" };
    redirect_to(&path(&request, &id, notice))
}

async fn rerolling(
    request: &WorkspaceRequest,
    id: &str,
    faults: FormErrors,
) -> Result<AskReroll, Failure> {
    let found = found(request, id).await?;
    let key = &found.view.stored().key;
    request.caller.require_on(Action::CreateKey, &key.api_id)?;
    Ok(AskReroll {
        shell: Layout::of(request, Section::Keys, "Rotate key").await?,
        workspace: request.membership.workspace_id.to_string(),
        id: key.id.clone(),
        name: name(&found),
        start: key.start.clone(),
        graces: GRACES,
        faults,
    })
}

pub async fn ask_reroll(
    request: WorkspaceRequest,
    Path((_, id)): Path<(String, String)>,
) -> Answer {
    request.caller.require(Action::CreateKey)?;
    page(&rerolling(&request, &id, FormErrors::default()).await?)
}

pub async fn reroll(request: WorkspaceRequest, Path((_, id)): Path<(String, String)>) -> Answer {
    request.caller.require(Action::CreateKey)?;
    let grace = request.visit.form.text("grace").parse::<i64>().ok();
    let grace = grace.filter(|ms| GRACES.iter().any(|(known, _)| known == ms));
    let Some(grace) = grace else {
        let faults = FormErrors::one("grace", "Select when the old key expires.");
        return refused_page(&rerolling(&request, &id, faults).await?);
    };
    let body = json!({ "keyId": id, "expiration": grace });
    match split_form_errors(call::<RerollKey>(&request.visit.app, &request.caller, &body).await)? {
        Ok(issued) => {
            let old = found(&request, &id).await?;
            let key = &old.view.stored().key;
            made(&request, &issued, key.name.as_deref().unwrap_or_default(), key.expires_at).await
        }
        Err(faults) => refused_page(&rerolling(&request, &id, faults).await?),
    }
}

pub async fn ask_delete(
    request: WorkspaceRequest,
    Path((_, id)): Path<(String, String)>,
) -> Answer {
    request.caller.require(Action::DeleteKey)?;
    let found = found(&request, &id).await?;
    let key = &found.view.stored().key;
    page(&Confirm {
        shell: Layout::of(&request, Section::Keys, "Delete key").await?,
        question: format!("Delete {}?", name(&found)),
        told: vec![
            format!("Requests with {}… are rejected immediately.", key.start),
            "To reject it temporarily, disable it. To replace it, rotate it. You can undo the deletion in the audit \
            log."
                .to_owned(),
        ],
        act: path(&request, &key.id, "/delete"),
        fields: Vec::new(),
        button: "Delete key",
        back: path(&request, &key.id, ""),
    })
}

pub async fn delete(request: WorkspaceRequest, Path((_, id)): Path<(String, String)>) -> Answer {
    request.caller.require(Action::DeleteKey)?;
    let body = json!({ "keyId": id });
    match call::<DeleteKey>(&request.visit.app, &request.caller, &body).await {
        Ok(_) => redirect_to(&request.path("/keys?notice=key-deleted")),
        // A malformed id in the path is a page that does not exist.
        Err(Error::Invalid(_)) => Err(Error::NoSuchPath.into()),
        Err(error) => Err(error.into()),
    }
}

//! What is done to one key with a button: enabled, disabled, replaced, deleted.

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
/// How long the old one of two keys may be good still.
const GRACES: [(i64, &str); 5] = [
    (0, "At once"),
    (HOUR_MS, "After an hour"),
    (DAY_MS, "After a day"),
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

/// A key, for its name.
async fn found(asked: &WorkspaceRequest, id: &str) -> Result<FoundKey, Error> {
    get(&asked.visit.app, &asked.caller, &KeyId::from(id), DecryptMode::None).await
}

fn name(found: &FoundKey) -> String {
    let key = &found.view.stored().key;
    key.name.clone().unwrap_or_else(|| format!("the key {}…", key.start))
}

pub async fn set_enabled(asked: WorkspaceRequest, Path((_, id)): Path<(String, String)>) -> Answer {
    let enabled = asked.visit.form.text("enabled") == "true";
    asked.caller.require(Action::UpdateKey)?;
    let request = json!({ "keyId": id, "enabled": enabled });
    call::<UpdateKey>(&asked.visit.app, &asked.caller, &request).await?;
    let told = if enabled { "?notice=key-enabled" } else { "?notice=key-disabled" };
    redirect_to(&path(&asked, &id, told))
}

async fn rerolling(
    asked: &WorkspaceRequest,
    id: &str,
    faults: FormErrors,
) -> Result<AskReroll, Failure> {
    let found = found(asked, id).await?;
    let key = &found.view.stored().key;
    asked.caller.require_on(Action::CreateKey, &key.api_id)?;
    Ok(AskReroll {
        shell: Layout::of(asked, Section::Keys, "Re-roll a key").await?,
        workspace: asked.membership.workspace_id.to_string(),
        id: key.id.clone(),
        name: name(&found),
        start: key.start.clone(),
        graces: GRACES,
        faults,
    })
}

pub async fn ask_reroll(asked: WorkspaceRequest, Path((_, id)): Path<(String, String)>) -> Answer {
    asked.caller.require(Action::CreateKey)?;
    page(&rerolling(&asked, &id, FormErrors::default()).await?)
}

pub async fn reroll(asked: WorkspaceRequest, Path((_, id)): Path<(String, String)>) -> Answer {
    asked.caller.require(Action::CreateKey)?;
    let grace = asked.visit.form.text("grace").parse::<i64>().ok();
    let grace = grace.filter(|ms| GRACES.iter().any(|(known, _)| known == ms));
    let Some(grace) = grace else {
        let faults = FormErrors::one("grace", "Choose when the old key ends.");
        return refused_page(&rerolling(&asked, &id, faults).await?);
    };
    let request = json!({ "keyId": id, "expiration": grace });
    match split_form_errors(call::<RerollKey>(&asked.visit.app, &asked.caller, &request).await)? {
        Ok(issued) => {
            let old = found(&asked, &id).await?;
            let key = &old.view.stored().key;
            made(&asked, &issued, key.name.as_deref().unwrap_or_default(), key.expires_at).await
        }
        Err(faults) => refused_page(&rerolling(&asked, &id, faults).await?),
    }
}

pub async fn ask_delete(asked: WorkspaceRequest, Path((_, id)): Path<(String, String)>) -> Answer {
    asked.caller.require(Action::DeleteKey)?;
    let found = found(&asked, &id).await?;
    let key = &found.view.stored().key;
    page(&Confirm {
        shell: Layout::of(&asked, Section::Keys, "Delete a key").await?,
        question: format!("Delete {}?", name(&found)),
        told: vec![
            format!("Whoever uses {}… is refused at once.", key.start),
            "To refuse it for a while only, disable it. To replace it, re-roll it. If it was a mistake, the audit log \
            undoes it."
                .to_owned(),
        ],
        act: path(&asked, &key.id, "/delete"),
        fields: Vec::new(),
        button: "Delete key",
        back: path(&asked, &key.id, ""),
    })
}

pub async fn delete(asked: WorkspaceRequest, Path((_, id)): Path<(String, String)>) -> Answer {
    asked.caller.require(Action::DeleteKey)?;
    let request = json!({ "keyId": id });
    match call::<DeleteKey>(&asked.visit.app, &asked.caller, &request).await {
        Ok(_) => redirect_to(&asked.path("/keys?notice=key-deleted")),
        // What is no id is the name of nothing.
        Err(Error::Invalid(_)) => Err(Error::NoSuchPath.into()),
        Err(error) => Err(error.into()),
    }
}

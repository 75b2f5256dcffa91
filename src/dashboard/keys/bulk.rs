//! Bulk actions on keys: confirmed first, then applied to each key separately.

use askama::Template;
use foundation::error::Error;
use foundation::id::KeyId;
use serde_json::json;

use super::super::failure::Failure;
use super::super::layout::{Layout, Section};
use super::super::page_request::WorkspaceRequest;
use super::super::{Answer, page, redirect_to, refused_page};
use crate::domain::keys::{DecryptMode, get};
use crate::domain::permission::Action;
use crate::rpc::v2::call;
use crate::rpc::v2::keys::delete_key::DeleteKey;
use crate::rpc::v2::keys::update_key::UpdateKey;

/// The maximum number of keys per bulk action.
const KEYS_MAX: usize = 100;

/// An action on several keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum BulkAction {
    Enable,
    Disable,
    Delete,
}

impl BulkAction {
    fn named(name: &str) -> Result<Self, Error> {
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

    fn action(self) -> Action {
        match self {
            Self::Enable | Self::Disable => Action::UpdateKey,
            Self::Delete => Action::DeleteKey,
        }
    }

    /// Explains the effect of the action.
    fn consequence(self) -> &'static str {
        match self {
            Self::Enable => "They can be used again, within their limits.",
            Self::Disable => "Verification returns DISABLED until the keys are enabled.",
            Self::Delete => {
                "They are rejected immediately. You can undo the deletion in the audit log."
            }
        }
    }

    /// Returns the past participle for the result page.
    fn done(self) -> &'static str {
        match self {
            Self::Enable => "enabled",
            Self::Disable => "disabled",
            Self::Delete => "deleted",
        }
    }
}

#[derive(Template)]
#[template(path = "keys/bulk.html")]
struct Ask {
    shell: Layout,
    workspace: String,
    act: BulkAction,
    keys: Vec<Named>,
    /// Why the selection is invalid; `None` if it is valid.
    fault: Option<String>,
}

#[derive(Template)]
#[template(path = "keys/bulk_done.html")]
struct Done {
    shell: Layout,
    workspace: String,
    act: BulkAction,
    done: usize,
    refused: Vec<(Named, String)>,
}

/// A key in the list of a bulk action.
struct Named {
    id: KeyId,
    name: String,
    start: String,
}

/// Returns the selected ids without duplicates, at most one more than the maximum.
fn chosen(request: &WorkspaceRequest) -> Vec<KeyId> {
    let mut ids: Vec<KeyId> = Vec::new();
    for id in request.visit.form.all("key").map(KeyId::from) {
        if !ids.contains(&id) && ids.len() <= KEYS_MAX {
            ids.push(id);
        }
    }
    ids
}

/// Loads the name of a key. A key that does not exist is shown with its id as name.
async fn named(request: &WorkspaceRequest, id: KeyId) -> Result<Named, Error> {
    match get(&request.visit.app, &request.caller, &id, DecryptMode::None).await {
        Ok(found) => {
            let key = &found.view.stored().key;
            let name = key.name.clone().unwrap_or_else(|| "Unnamed".into());
            Ok(Named { id, name, start: key.start.clone() })
        }
        Err(Error::NotFound(_)) => Ok(Named { name: id.to_string(), id, start: String::new() }),
        Err(error) => Err(error),
    }
}

async fn asking(
    request: &WorkspaceRequest,
    act: BulkAction,
    ids: Vec<KeyId>,
) -> Result<Ask, Failure> {
    let fault = match ids.len() {
        0 => Some("Select at least one key.".to_owned()),
        many if many > KEYS_MAX => Some(format!("Select at most {KEYS_MAX} keys.")),
        _ => None,
    };
    let mut keys = Vec::with_capacity(ids.len());
    if fault.is_none() {
        for id in ids {
            keys.push(named(request, id).await?);
        }
    }
    Ok(Ask {
        shell: Layout::of(request, Section::Keys, "Bulk action").await?,
        workspace: request.membership.workspace_id.to_string(),
        act,
        keys,
        fault,
    })
}

/// Shows the confirmation page.
pub async fn ask(request: WorkspaceRequest) -> Answer {
    request.caller.require(Action::UpdateKey)?;
    let act = BulkAction::named(request.visit.form.text("act"))?;
    request.caller.require(act.action())?;
    let asking = asking(&request, act, chosen(&request)).await?;
    match asking.fault {
        None => page(&asking),
        Some(_) => refused_page(&asking),
    }
}

/// Applies the action to each key and shows the results.
pub async fn run(request: WorkspaceRequest) -> Answer {
    request.caller.require(Action::UpdateKey)?;
    let act = BulkAction::named(request.visit.form.text("act"))?;
    request.caller.require(act.action())?;
    let ids = chosen(&request);
    if ids.is_empty() {
        return redirect_to(&request.path("/keys"));
    }
    if ids.len() > KEYS_MAX {
        return refused_page(&asking(&request, act, ids).await?);
    }
    let (mut done, mut refused) = (0, Vec::new());
    for id in ids {
        match run_one(&request, act, &id).await {
            Ok(()) => done += 1,
            Err(error) if error.code().status() < 500 => {
                refused.push((named(&request, id).await?, error.to_string()));
            }
            Err(error) => return Err(error.into()),
        }
    }
    page(&Done {
        shell: Layout::of(&request, Section::Keys, "Bulk action").await?,
        workspace: request.membership.workspace_id.to_string(),
        act,
        done,
        refused,
    })
}

async fn run_one(request: &WorkspaceRequest, act: BulkAction, id: &KeyId) -> Result<(), Error> {
    let (app, caller) = (&request.visit.app, &request.caller);
    match act {
        BulkAction::Enable | BulkAction::Disable => {
            let body = json!({ "keyId": id, "enabled": act == BulkAction::Enable });
            call::<UpdateKey>(app, caller, &body).await.map(drop)
        }
        BulkAction::Delete => {
            call::<DeleteKey>(app, caller, &json!({ "keyId": id })).await.map(drop)
        }
    }
}

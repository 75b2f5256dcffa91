//! One act on several keys: asked first, then done to each as if it were alone.

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

/// How many keys an act takes.
const KEYS_MAX: usize = 100;

/// What is to be done.
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
        act.ok_or_else(|| Error::invalid("act", "choose what to do with the keys"))
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

    /// What it comes to.
    fn consequence(self) -> &'static str {
        match self {
            Self::Enable => "Whoever shows them is let in again, within their limits.",
            Self::Disable => "Whoever shows them is refused until somebody enables them.",
            Self::Delete => {
                "Whoever shows them is refused at once. If it was a mistake, the audit log undoes it."
            }
        }
    }

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
    /// Absent: it can be done.
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

/// A key, by its name.
struct Named {
    id: KeyId,
    name: String,
    start: String,
}

/// The chosen ones, each once.
fn chosen(asked: &WorkspaceRequest) -> Vec<KeyId> {
    let mut ids: Vec<KeyId> = Vec::new();
    for id in asked.visit.form.all("key").map(KeyId::from) {
        if !ids.contains(&id) && ids.len() <= KEYS_MAX {
            ids.push(id);
        }
    }
    ids
}

/// A key that is not there has its id for a name.
async fn named(asked: &WorkspaceRequest, id: KeyId) -> Result<Named, Error> {
    match get(&asked.visit.app, &asked.caller, &id, DecryptMode::None).await {
        Ok(found) => {
            let key = &found.view.stored().key;
            let name = key.name.clone().unwrap_or_else(|| "without a name".into());
            Ok(Named { id, name, start: key.start.clone() })
        }
        Err(Error::NotFound(_)) => Ok(Named { name: id.to_string(), id, start: String::new() }),
        Err(error) => Err(error),
    }
}

async fn asking(
    asked: &WorkspaceRequest,
    act: BulkAction,
    ids: Vec<KeyId>,
) -> Result<Ask, Failure> {
    let fault = match ids.len() {
        0 => Some("Choose one key at least, with the boxes in front of them.".to_owned()),
        many if many > KEYS_MAX => Some(format!("At most {KEYS_MAX} keys go at once.")),
        _ => None,
    };
    let mut keys = Vec::with_capacity(ids.len());
    if fault.is_none() {
        for id in ids {
            keys.push(named(asked, id).await?);
        }
    }
    Ok(Ask {
        shell: Layout::of(asked, Section::Keys, "Several keys").await?,
        workspace: asked.membership.workspace_id.to_string(),
        act,
        keys,
        fault,
    })
}

/// Asks before anything is done.
pub async fn ask(asked: WorkspaceRequest) -> Answer {
    asked.caller.require(Action::UpdateKey)?;
    let act = BulkAction::named(asked.visit.form.text("act"))?;
    asked.caller.require(act.action())?;
    let asking = asking(&asked, act, chosen(&asked)).await?;
    match asking.fault {
        None => page(&asking),
        Some(_) => refused_page(&asking),
    }
}

/// Does it, and tells what came of each.
pub async fn run(asked: WorkspaceRequest) -> Answer {
    asked.caller.require(Action::UpdateKey)?;
    let act = BulkAction::named(asked.visit.form.text("act"))?;
    asked.caller.require(act.action())?;
    let ids = chosen(&asked);
    if ids.is_empty() {
        return redirect_to(&asked.path("/keys"));
    }
    if ids.len() > KEYS_MAX {
        return refused_page(&asking(&asked, act, ids).await?);
    }
    let (mut done, mut refused) = (0, Vec::new());
    for id in ids {
        match run_one(&asked, act, &id).await {
            Ok(()) => done += 1,
            Err(error) if error.code().status() < 500 => {
                refused.push((named(&asked, id).await?, error.to_string()));
            }
            Err(error) => return Err(error.into()),
        }
    }
    page(&Done {
        shell: Layout::of(&asked, Section::Keys, "Several keys").await?,
        workspace: asked.membership.workspace_id.to_string(),
        act,
        done,
        refused,
    })
}

async fn run_one(asked: &WorkspaceRequest, act: BulkAction, id: &KeyId) -> Result<(), Error> {
    let (app, caller) = (&asked.visit.app, &asked.caller);
    match act {
        BulkAction::Enable | BulkAction::Disable => {
            let request = json!({ "keyId": id, "enabled": act == BulkAction::Enable });
            call::<UpdateKey>(app, caller, &request).await.map(drop)
        }
        BulkAction::Delete => {
            call::<DeleteKey>(app, caller, &json!({ "keyId": id })).await.map(drop)
        }
    }
}

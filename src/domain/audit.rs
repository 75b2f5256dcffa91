//! Who changed what: one entry for each change, in the change's own transaction.

use serde::Serialize;

use super::caller::Caller;
use crate::clock::Timestamp;
use crate::error::Result;
use crate::id::{AuditId, WorkspaceId};
use crate::store::{AuditRow, Tx};

/// Who did it.
#[derive(Debug, Clone, Copy)]
pub enum Actor<'a> {
    RootKey(&'a Caller),
    /// Somebody with a shell on the server, by the name of the command.
    Command(&'static str),
}

/// What it was done to.
#[derive(Debug, Serialize)]
pub struct Target<'a> {
    #[serde(rename = "type")]
    pub kind: &'static str,
    pub id: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<&'a str>,
}

impl<'a> Target<'a> {
    pub fn new(kind: &'static str, id: &'a str) -> Self {
        Self { kind, id, name: None }
    }

    pub fn named(self, name: Option<&'a str>) -> Self {
        Self { name, ..self }
    }
}

/// Writes an entry. `event` is a name of the public service's audit log, such as `key.create`.
pub async fn record(
    tx: &mut Tx,
    actor: Actor<'_>,
    workspace: &WorkspaceId,
    now: Timestamp,
    event: &'static str,
    targets: &[Target<'_>],
) -> Result<()> {
    let (actor_type, actor_id, origin) = match actor {
        Actor::RootKey(caller) => {
            ("rootkey", caller.authority.value.key.id.as_str(), Some(&caller.origin))
        }
        Actor::Command(name) => ("system", name, None),
    };
    let address = origin.and_then(|origin| origin.address).map(|address| address.to_string());
    let id = AuditId::random();
    let row = AuditRow {
        id: id.as_str(),
        workspace_id: workspace,
        at: now,
        event,
        actor_type,
        actor_id,
        remote_address: address.as_deref(),
        user_agent: origin.and_then(|origin| origin.user_agent.as_deref()),
        targets: &serde_json::json!(targets).to_string(),
    };
    tx.insert_audit(&row).await
}

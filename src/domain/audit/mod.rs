//! Who changed what: one entry for each change, in the change's own transaction.

mod change;

pub use change::{FieldChanges, Fields, fields, parse_snapshot, read};
pub use store::{AuditFilter, StoredEntry};

use foundation::clock::Timestamp;
use foundation::error::{Error, Refusal, Result, Subject};
use foundation::id::{AuditId, CorrelationId, WorkspaceId};
use foundation::model::User;
use serde::Serialize;
use serde_json::{Value, json};
use store::{AuditContext, AuditEntry, Tx};

use super::caller::{Caller, ClientInfo, PrincipalKind};
use super::permission::Action;
use crate::app::App;

/// How a root key without a name is called.
const ROOT_KEY: &str = "root key";

/// Who did it.
#[derive(Debug, Clone, Copy)]
pub enum Actor<'a> {
    Caller(&'a Caller),
    /// A person, whatever the workspace.
    Person(&'a User, &'a ClientInfo),
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
    #[serde(skip_serializing_if = "Option::is_none")]
    pub meta: Option<Value>,
}

impl<'a> Target<'a> {
    pub fn new(kind: &'static str, id: &'a str) -> Self {
        Self { kind, id, name: None, meta: None }
    }

    pub fn named(self, name: Option<&'a str>) -> Self {
        Self { name, ..self }
    }

    /// With what else there is to say of it.
    pub fn with_meta(self, meta: impl Into<Option<Value>>) -> Self {
        Self { meta: meta.into(), ..self }
    }
}

/// The entries of one act, which are written together.
#[derive(Debug)]
pub struct AuditBatch<'a> {
    actor: Actor<'a>,
    workspace: &'a WorkspaceId,
    at: Timestamp,
    entries: Vec<AuditEntry>,
}

impl<'a> AuditBatch<'a> {
    pub fn new(actor: Actor<'a>, workspace: &'a WorkspaceId, at: Timestamp) -> Self {
        Self { actor, workspace, at, entries: Vec::new() }
    }

    /// Those of an act of a caller in its own workspace.
    pub fn for_caller(caller: &'a Caller, at: Timestamp) -> Self {
        Self::new(Actor::Caller(caller), caller.workspace(), at)
    }

    /// Adds an entry. `event` is a name of the public service's audit log, such as `key.create`.
    pub fn add(&mut self, event: &'static str, targets: &[Target<'_>]) {
        self.add_change(event, targets, FieldChanges::default());
    }

    /// Adds an entry that tells what became of what. At which place it stands among the others.
    pub fn add_change(
        &mut self,
        event: &'static str,
        targets: &[Target<'_>],
        change: FieldChanges,
    ) -> usize {
        let (id, targets) = (AuditId::random(), json!(targets));
        let FieldChanges { before, after } = change;
        self.entries.push(AuditEntry { id, event, targets, before, after, undoes: None });
        self.entries.len() - 1
    }

    /// What became of what, where that is known only now.
    pub fn set_change(&mut self, place: usize, change: FieldChanges) {
        if let Some(entry) = self.entries.get_mut(place) {
            (entry.before, entry.after) = (change.before, change.after);
        }
    }

    /// Fails where the act undoes what has been undone already.
    pub async fn write(mut self, tx: &mut Tx) -> Result<()> {
        let Some(first) = self.entries.first_mut() else { return Ok(()) };
        if let Actor::Caller(caller) = self.actor {
            first.undoes.clone_from(&caller.undoes);
        }
        // The log goes by time and id: those of one moment stay in the order in which they were added.
        let mut ids: Vec<_> = self.entries.iter().map(|entry| entry.id.clone()).collect();
        ids.sort();
        for (entry, id) in self.entries.iter_mut().zip(ids) {
            entry.id = id;
        }
        let (actor_type, actor_id, actor_name, origin) = match self.actor {
            Actor::Caller(caller) => match &caller.authority.value.who {
                PrincipalKind::RootKey(key) => {
                    let name = key.name.as_deref().unwrap_or(ROOT_KEY);
                    ("rootkey", key.id.as_str(), name, Some(&caller.origin))
                }
                PrincipalKind::Person(person) => of_person(person, &caller.origin),
            },
            Actor::Person(person, origin) => of_person(person, origin),
            Actor::Command(name) => ("system", name, name, None),
        };
        let address = origin.and_then(|origin| origin.address).map(|address| address.to_string());
        let act = AuditContext {
            workspace_id: self.workspace,
            at: self.at,
            correlation_id: &CorrelationId::random(),
            actor_type,
            actor_id,
            actor_name,
            remote_address: address.as_deref(),
            user_agent: origin.and_then(|origin| origin.user_agent.as_deref()),
        };
        tx.insert_audit(&act, &self.entries).await.map_err(|e| {
            match e.violates("audit_undoes_unique") {
                true => Error::Refused(Refusal::UndoneAlready),
                false => e,
            }
        })
    }
}

fn of_person<'a>(
    person: &'a User,
    origin: &'a ClientInfo,
) -> (&'static str, &'a str, &'a str, Option<&'a ClientInfo>) {
    ("user", person.id.as_str(), &person.email, Some(origin))
}

/// Entries of a workspace's log, the latest first.
pub async fn list(
    app: &App,
    workspace: &WorkspaceId,
    wanted: &AuditFilter,
) -> Result<Vec<StoredEntry>> {
    app.store.read().await?.audit_entries(workspace, wanted).await
}

/// As [`list`], for a caller who may read the log.
pub async fn list_for_caller(
    app: &App,
    caller: &Caller,
    wanted: &AuditFilter,
) -> Result<Vec<StoredEntry>> {
    caller.require(Action::ReadAudit)?;
    list(app, caller.workspace(), wanted).await
}

/// An entry, and all of the act that it is part of, itself too.
pub async fn get_with_group(
    app: &App,
    caller: &Caller,
    id: &AuditId,
) -> Result<(StoredEntry, Vec<StoredEntry>)> {
    caller.require(Action::ReadAudit)?;
    let mut reader = app.store.read().await?;
    let entry = reader.audit_entry(caller.workspace(), id).await?;
    let entry = entry.ok_or_else(|| Error::not_found(Subject::AuditEntry(id.clone())))?;
    let act = match &entry.correlation_id {
        Some(correlation) => {
            reader.list_audit_group(caller.workspace(), entry.at, correlation).await?
        }
        None => Vec::new(),
    };
    Ok((entry, act))
}

/// Writes the one entry of an act.
pub async fn record(
    tx: &mut Tx,
    actor: Actor<'_>,
    workspace: &WorkspaceId,
    at: Timestamp,
    event: &'static str,
    targets: &[Target<'_>],
) -> Result<()> {
    record_change(tx, actor, workspace, at, event, targets, FieldChanges::default()).await
}

/// As [`record`], of an entry that tells what became of what.
pub async fn record_change(
    tx: &mut Tx,
    actor: Actor<'_>,
    workspace: &WorkspaceId,
    at: Timestamp,
    event: &'static str,
    targets: &[Target<'_>],
    change: FieldChanges,
) -> Result<()> {
    let mut entries = AuditBatch::new(actor, workspace, at);
    entries.add_change(event, targets, change);
    entries.write(tx).await
}

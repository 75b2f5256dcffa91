//! The audit log: one entry for each change, written in the transaction of the change.

mod change;
mod event;
mod undo_rule;

pub use change::{FieldChanges, SnapshotFields, parse_field, parse_fields, parse_snapshot};
pub use event::{AuditEvent, NOTHING_TO_RESTORE};
pub use store::{AuditFilter, StoredEntry};
pub use undo_rule::{UndoAction, UndoRefusal, UndoRule};

use foundation::clock::Timestamp;
use foundation::error::{Error, Refusal, ResourceRef, Result};
use foundation::id::{AuditId, CorrelationId, WorkspaceId};
use foundation::model::User;
use serde::Serialize;
use serde_json::{Value, json};
use store::{AuditContext, AuditEntry, Tx};

use crate::caller::{Caller, ClientInfo, PrincipalKind};
use crate::context::Context;
use crate::permission::Action;

/// The actor name of a root key without a name.
pub const UNNAMED_ROOT_KEY: &str = "root key";

/// The actor of an operator who calls an operation.
pub const OPERATOR: &str = "cli";

/// The actor of an audit entry.
#[derive(Debug, Clone, Copy)]
pub enum Actor<'a> {
    Caller(&'a Caller),
    /// A user, in any workspace.
    User(&'a User, &'a ClientInfo),
    /// An operator with a shell on the server, by the name of the command.
    Command(&'static str),
}

/// A resource that an audit entry is about.
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

    pub fn with_name(self, name: Option<&'a str>) -> Self {
        Self { name, ..self }
    }

    /// Sets the metadata.
    pub fn with_meta(self, meta: impl Into<Option<Value>>) -> Self {
        Self { meta: meta.into(), ..self }
    }
}

/// The entries of one audit group, which are written together.
#[derive(Debug)]
pub struct AuditBatch<'a> {
    actor: Actor<'a>,
    workspace: &'a WorkspaceId,
    recorded_at: Timestamp,
    entries: Vec<AuditEntry>,
}

impl<'a> AuditBatch<'a> {
    pub fn new(actor: Actor<'a>, workspace: &'a WorkspaceId, at: Timestamp) -> Self {
        Self { actor, workspace, recorded_at: at, entries: Vec::new() }
    }

    /// Creates an empty batch for a caller in its own workspace.
    pub fn for_caller(caller: &'a Caller, at: Timestamp) -> Self {
        Self::new(Actor::Caller(caller), caller.workspace_id(), at)
    }

    /// Returns the time of the entries.
    pub fn recorded_at(&self) -> Timestamp {
        self.recorded_at
    }

    /// Adds an entry.
    pub fn add(&mut self, event: AuditEvent, targets: &[Target<'_>]) {
        self.add_change(event, targets, FieldChanges::default());
    }

    /// Adds an entry with the fields that changed. Returns its index in the batch.
    pub fn add_change(
        &mut self,
        event: AuditEvent,
        targets: &[Target<'_>],
        change: FieldChanges,
    ) -> usize {
        let (id, event, targets) = (AuditId::random(), event.as_str(), json!(targets));
        let FieldChanges { before, after } = change;
        self.entries.push(AuditEntry { id, event, targets, before, after, undoes: None });
        self.entries.len() - 1
    }

    /// Sets the changed fields of an entry that was added before they were known.
    pub fn set_change(&mut self, index: usize, change: FieldChanges) {
        if let Some(entry) = self.entries.get_mut(index) {
            (entry.before, entry.after) = (change.before, change.after);
        }
    }

    /// Writes the entries. Returns [`Refusal::AlreadyUndone`] if they undo an entry that has already been undone.
    pub async fn write(mut self, tx: &mut Tx) -> Result<()> {
        let Some(first) = self.entries.first_mut() else { return Ok(()) };
        if let Actor::Caller(caller) = self.actor {
            first.undoes.clone_from(&caller.undone_entry_id);
        }
        // The log is sorted by time and id: with sorted ids, entries of one moment stay in the order of insertion.
        let mut ids: Vec<_> = self.entries.iter().map(|entry| entry.id.clone()).collect();
        ids.sort();
        for (entry, id) in self.entries.iter_mut().zip(ids) {
            entry.id = id;
        }
        let (actor_type, actor_id, actor_name, origin) = match self.actor {
            Actor::Caller(caller) => match &caller.principal.value.kind {
                PrincipalKind::RootKey(key) => {
                    let name = key.name.as_deref().unwrap_or(UNNAMED_ROOT_KEY);
                    ("rootkey", key.id.as_str(), name, Some(&caller.client))
                }
                PrincipalKind::User(user) => user_columns(user, &caller.client),
                PrincipalKind::GatewayPolicy(id) => {
                    ("gatewayPolicy", id.as_str(), id.as_str(), Some(&caller.client))
                }
                PrincipalKind::Operator => ("system", OPERATOR, OPERATOR, None),
            },
            Actor::User(user, origin) => user_columns(user, origin),
            Actor::Command(name) => ("system", name, name, None),
        };
        let address = origin.and_then(|origin| origin.address).map(|address| address.to_string());
        let context = AuditContext {
            workspace_id: self.workspace,
            at: self.recorded_at,
            correlation_id: &CorrelationId::random(),
            actor_type,
            actor_id,
            actor_name,
            remote_address: address.as_deref(),
            user_agent: origin.and_then(|origin| origin.user_agent.as_deref()),
        };
        tx.insert_audit_entries(&context, &self.entries).await.map_err(|e| {
            match e.is_unique_violation_of("audit_undoes_unique") {
                true => Error::PreconditionFailed(Refusal::AlreadyUndone),
                false => e,
            }
        })
    }
}

/// Returns the type, id, name and client of a user, for the columns of an entry.
fn user_columns<'a>(
    user: &'a User,
    origin: &'a ClientInfo,
) -> (&'static str, &'a str, &'a str, Option<&'a ClientInfo>) {
    ("user", user.id.as_str(), &user.email, Some(origin))
}

/// Lists audit entries of a workspace, in the order of the filter.
pub async fn list(
    context: &Context,
    workspace: &WorkspaceId,
    filter: &AuditFilter,
) -> Result<Vec<StoredEntry>> {
    context.store.read().await?.list_audit_entries(workspace, filter).await
}

/// Lists audit entries of the caller's workspace, in the order of the filter.
pub async fn list_for_caller(
    context: &Context,
    caller: &Caller,
    filter: &AuditFilter,
) -> Result<Vec<StoredEntry>> {
    caller.require(Action::ReadAudit)?;
    list(context, caller.workspace_id(), filter).await
}

/// Returns an entry and its whole audit group, which includes the entry.
pub async fn get_with_group(
    context: &Context,
    caller: &Caller,
    id: &AuditId,
) -> Result<(StoredEntry, Vec<StoredEntry>)> {
    caller.require(Action::ReadAudit)?;
    let mut reader = context.store.read().await?;
    let entry = reader.find_audit_entry(caller.workspace_id(), id).await?;
    let entry = entry.ok_or_else(|| Error::not_found(ResourceRef::AuditEntry(id.clone())))?;
    let group = match &entry.correlation_id {
        Some(correlation) => {
            reader.list_audit_group(caller.workspace_id(), entry.at, correlation).await?
        }
        None => Vec::new(),
    };
    Ok((entry, group))
}

/// Writes a single entry as its own audit group.
pub async fn record(
    tx: &mut Tx,
    actor: Actor<'_>,
    workspace: &WorkspaceId,
    at: Timestamp,
    event: AuditEvent,
    targets: &[Target<'_>],
) -> Result<()> {
    record_change(tx, actor, workspace, at, event, targets, FieldChanges::default()).await
}

/// Writes a single entry with the fields that changed. Otherwise like [`record`].
pub async fn record_change(
    tx: &mut Tx,
    actor: Actor<'_>,
    workspace: &WorkspaceId,
    at: Timestamp,
    event: AuditEvent,
    targets: &[Target<'_>],
    change: FieldChanges,
) -> Result<()> {
    let mut entries = AuditBatch::new(actor, workspace, at);
    entries.add_change(event, targets, change);
    entries.write(tx).await
}

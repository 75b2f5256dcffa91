//! What is kept of who did what.

use async_trait::async_trait;
use foundation::clock::Timestamp;
use foundation::error::Result;
use foundation::id::{AuditId, CorrelationId, WorkspaceId};
use serde::Serialize;
use serde_json::Value;

/// What all audit entries of one act share.
#[derive(Debug)]
pub struct AuditContext<'a> {
    pub workspace_id: &'a WorkspaceId,
    pub at: Timestamp,
    pub correlation_id: &'a CorrelationId,
    pub actor_type: &'static str,
    pub actor_id: &'a str,
    pub actor_name: &'a str,
    pub remote_address: Option<&'a str>,
    pub user_agent: Option<&'a str>,
}

/// An audit entry as it is written.
#[derive(Debug, Serialize)]
pub struct AuditEntry {
    pub id: AuditId,
    pub event: &'static str,
    /// A list of what it was done to.
    pub targets: Value,
    /// The fields that it changed, as JSON, as they were. Absent: there was nothing before.
    pub before: Option<String>,
    /// As they became. Absent: there was nothing after it.
    pub after: Option<String>,
    /// The entry that it undid.
    pub undoes: Option<AuditId>,
}

/// Which entries of the audit log are read.
#[derive(Debug, Default)]
pub struct AuditFilter {
    /// Only those before this entry, by its id.
    pub before: Option<String>,
    /// Only those of this event.
    pub event: Option<String>,
    /// Only those that this actor left, by its id or name.
    pub actor: Option<String>,
    /// Only those about the thing of this id or name.
    pub about: Option<String>,
    /// Only those from this moment on.
    pub from: Option<Timestamp>,
    /// Only those before this moment.
    pub until: Option<Timestamp>,
    /// How many at most.
    pub limit: i64,
}

/// An audit entry as it is kept.
#[derive(Debug, sqlx::FromRow)]
pub struct StoredEntry {
    pub id: String,
    pub at: Timestamp,
    pub event: String,
    pub actor_type: String,
    pub actor_id: String,
    pub actor_name: Option<String>,
    pub remote_address: Option<String>,
    pub user_agent: Option<String>,
    /// A list in JSON.
    pub targets: String,
    pub correlation_id: Option<String>,
    /// The fields that it changed, as JSON, as they were and as they became.
    pub before: Option<String>,
    pub after: Option<String>,
    /// The entry that it undid.
    pub undoes: Option<String>,
    /// The entry that undid it.
    pub undone_by: Option<String>,
}

#[async_trait]
pub trait AuditReads: Send {
    /// Entries of a workspace's audit log, the latest first.
    async fn audit_entries(
        &mut self,
        workspace: &WorkspaceId,
        wanted: &AuditFilter,
    ) -> Result<Vec<StoredEntry>>;
    async fn audit_entry(
        &mut self,
        workspace: &WorkspaceId,
        id: &AuditId,
    ) -> Result<Option<StoredEntry>>;
    /// The entries of one act, which are of one moment, in the order in which they were left.
    async fn list_audit_group(
        &mut self,
        workspace: &WorkspaceId,
        at: Timestamp,
        correlation: &str,
    ) -> Result<Vec<StoredEntry>>;
}

#[async_trait]
pub trait AuditWrites: AuditReads {
    async fn insert_audit(&mut self, act: &AuditContext<'_>, entries: &[AuditEntry]) -> Result<()>;
}

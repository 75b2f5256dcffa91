//! Defines reads and writes of the audit log.

use async_trait::async_trait;
use foundation::clock::Timestamp;
use foundation::error::Result;
use foundation::id::{AuditId, CorrelationId, WorkspaceId};
use serde::Serialize;
use serde_json::Value;

/// The data that all entries of one audit group share.
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

/// An audit entry to insert.
#[derive(Debug, Serialize)]
pub struct AuditEntry {
    pub id: AuditId,
    pub event: &'static str,
    /// The targets, a JSON list.
    pub targets: Value,
    /// The changed fields before the change, as JSON. `None` if the entity did not exist before.
    pub before: Option<String>,
    /// The changed fields after the change, as JSON. `None` if the entity no longer exists.
    pub after: Option<String>,
    /// The entry that this one undid.
    pub undoes: Option<AuditId>,
}

/// Selects entries of the audit log.
#[derive(Debug, Default)]
pub struct AuditFilter {
    /// Only entries that follow the entry with this id in the order of the list.
    pub cursor_id: Option<String>,
    /// Lists the oldest entries first, instead of the latest.
    pub is_oldest_first: bool,
    /// Only entries of this event.
    pub event: Option<String>,
    /// Only entries of the actor with this id or name.
    pub actor: Option<String>,
    /// Only entries with a target of this id or name.
    pub target: Option<String>,
    /// Only entries with a target of each of these ids. A name that is equal to an id does not count.
    pub target_ids: Vec<String>,
    /// Only entries at or after this time.
    pub start_at: Option<Timestamp>,
    /// Only entries before this time.
    pub end_at: Option<Timestamp>,
    /// The maximum number of entries.
    pub rows_max: i64,
}

/// A stored audit entry.
#[derive(Debug, sqlx_macros::FromRow)]
pub struct StoredEntry {
    pub id: String,
    pub at: Timestamp,
    pub event: String,
    pub actor_type: String,
    pub actor_id: String,
    pub actor_name: Option<String>,
    pub remote_address: Option<String>,
    pub user_agent: Option<String>,
    /// The targets, a JSON list.
    pub targets: String,
    pub correlation_id: Option<String>,
    /// The changed fields before and after the change, as JSON.
    pub before: Option<String>,
    pub after: Option<String>,
    /// The entry that this one undid.
    pub undoes: Option<String>,
    /// The entry that undid this one.
    pub undone_by: Option<String>,
}

#[async_trait]
pub trait AuditReads: Send {
    /// Returns entries of the audit log of a workspace, in the order of the filter.
    async fn list_audit_entries(
        &mut self,
        workspace: &WorkspaceId,
        filter: &AuditFilter,
    ) -> Result<Vec<StoredEntry>>;
    async fn find_audit_entry(
        &mut self,
        workspace: &WorkspaceId,
        id: &AuditId,
    ) -> Result<Option<StoredEntry>>;
    /// Returns the entries of one audit group, which have the same time, in the order in which they were created.
    async fn list_audit_group(
        &mut self,
        workspace: &WorkspaceId,
        at: Timestamp,
        correlation: &str,
    ) -> Result<Vec<StoredEntry>>;
}

#[async_trait]
pub trait AuditWrites: AuditReads {
    async fn insert_audit_entries(
        &mut self,
        context: &AuditContext<'_>,
        entries: &[AuditEntry],
    ) -> Result<()>;
}

//! Defines reads of workspaces.

use async_trait::async_trait;
use foundation::clock::Timestamp;
use foundation::error::Result;
use foundation::id::WorkspaceId;

/// A workspace.
#[derive(Debug, Clone, sqlx_macros::FromRow)]
pub struct Workspace {
    pub id: WorkspaceId,
    pub name: String,
    #[sqlx(rename = "enabled")]
    pub is_enabled: bool,
    pub created_at: Timestamp,
}

#[async_trait]
pub trait WorkspaceReads: Send {
    /// Returns up to `max` workspaces, sorted by id.
    async fn list_workspaces(&mut self, max: i64) -> Result<Vec<Workspace>>;
    async fn find_workspace(&mut self, id: &WorkspaceId) -> Result<Option<Workspace>>;
}

//! Implements reads of workspaces.

use async_trait::async_trait;
use foundation::error::Result;
use foundation::id::WorkspaceId;
use sqlx::query_as;

use super::Connection;
use crate::workspaces::{Workspace, WorkspaceReads};

#[async_trait]
impl WorkspaceReads for Connection {
    async fn list_workspaces(&mut self, max: i64) -> Result<Vec<Workspace>> {
        let sql = "SELECT id, name, enabled, created_at FROM workspaces ORDER BY id LIMIT $1";
        Ok(query_as(sql).bind(max).fetch_all(self).await?)
    }

    async fn find_workspace(&mut self, id: &WorkspaceId) -> Result<Option<Workspace>> {
        let sql = "SELECT id, name, enabled, created_at FROM workspaces WHERE id = $1";
        Ok(query_as(sql).bind(id).fetch_optional(self).await?)
    }
}

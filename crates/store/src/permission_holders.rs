//! Defines reads of the keys and roles that hold permissions and roles.

use async_trait::async_trait;
use foundation::error::Result;
use foundation::id::{PermissionId, RoleId, WorkspaceId};
use foundation::model::PermissionAssignment;

#[async_trait]
pub trait AssignmentReads: Send {
    /// Counts the roles that hold a permission, and the keys that hold it directly, each up to `max`.
    async fn count_permission_holders(
        &mut self,
        workspace: &WorkspaceId,
        permission: &PermissionId,
        max: i64,
    ) -> Result<(i64, i64)>;
    /// Counts the keys with a role up to `max`.
    async fn count_role_holders(
        &mut self,
        workspace: &WorkspaceId,
        role: &RoleId,
        max: i64,
    ) -> Result<i64>;
    /// Returns how keys hold a permission: directly, and through each role that holds it. For each of these, returns
    /// up to `limit` keys by id, starting at `from`, including deleted keys.
    async fn list_assignments(
        &mut self,
        workspace: &WorkspaceId,
        permission: &PermissionId,
        from: &str,
        limit: i64,
    ) -> Result<Vec<PermissionAssignment>>;
}

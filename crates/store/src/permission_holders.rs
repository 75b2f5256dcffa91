//! Which keys hold what.

use async_trait::async_trait;
use foundation::error::Result;
use foundation::id::{PermissionId, RoleId, WorkspaceId};
use foundation::model::PermissionAssignment;

#[async_trait]
pub trait AssignmentReads: Send {
    /// How many roles and how many keys, of themselves, hold a permission; each counted up to `max`.
    async fn count_holding(
        &mut self,
        workspace: &WorkspaceId,
        permission: &PermissionId,
        max: i64,
    ) -> Result<(i64, i64)>;
    /// How many keys have a role, counted up to `max`.
    async fn count_keys_with(
        &mut self,
        workspace: &WorkspaceId,
        role: &RoleId,
        max: i64,
    ) -> Result<i64>;
    /// In which ways keys hold a permission: of themselves, and through each of the roles that hold it. Of each way up
    /// to `limit` keys whose id is `from` or a later one, by id; deleted ones too.
    async fn holdings(
        &mut self,
        workspace: &WorkspaceId,
        permission: &PermissionId,
        from: &str,
        limit: i64,
    ) -> Result<Vec<PermissionAssignment>>;
}

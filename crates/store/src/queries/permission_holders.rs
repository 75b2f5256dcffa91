//! Implements reads of the keys and roles that hold permissions and roles.

use async_trait::async_trait;
use foundation::error::Result;
use foundation::id::{PermissionId, RoleId, WorkspaceId};
use foundation::model::PermissionAssignment;
use sqlx::{query_as, query_scalar};

use super::{Connection, fetch_all_as};
use crate::AssignmentReads;
use crate::rows::AssignmentRow;

/// Tests whether the key of the assignment `l` exists in the workspace `$1`. The workspace is compared with a value that depends on
/// the assignment: in a join or a condition, a planner without statistics would begin with all keys of the workspace.
macro_rules! has_existing_key {
    () => {
        "(SELECT k.workspace_id FROM keys k CROSS JOIN apis a
            WHERE k.id = l.key_id AND k.deleted_at IS NULL AND a.id = k.api_id AND a.deleted_at IS NULL) = $1"
    };
}

/// Selects the roles of the workspace `$1` that hold the permission `$2`. SQLite joins tables in this order: the roles of the
/// workspace may be many.
macro_rules! roles_of_permission {
    () => {
        "role_permissions rp CROSS JOIN roles r
            WHERE rp.permission_id = $2 AND r.id = rp.role_id AND r.workspace_id = $1"
    };
}

#[async_trait]
impl AssignmentReads for Connection {
    async fn count_permission_holders(
        &mut self,
        workspace: &WorkspaceId,
        permission: &PermissionId,
        max: i64,
    ) -> Result<(i64, i64)> {
        let sql = concat!(
            "SELECT
                (SELECT COUNT(*) FROM (
                    SELECT 1 FROM ",
            roles_of_permission!(),
            " LIMIT $3) AS counted),
                (SELECT COUNT(*) FROM (
                    SELECT 1 FROM key_permissions l WHERE l.permission_id = $2 AND ",
            has_existing_key!(),
            " LIMIT $3) AS counted)"
        );
        Ok(query_as(sql).bind(workspace).bind(permission).bind(max).fetch_one(self).await?)
    }

    async fn count_role_holders(
        &mut self,
        workspace: &WorkspaceId,
        role: &RoleId,
        max: i64,
    ) -> Result<i64> {
        let sql = concat!(
            "SELECT COUNT(*) FROM (SELECT 1 FROM key_roles l WHERE l.role_id = $2 AND ",
            has_existing_key!(),
            " LIMIT $3) AS counted"
        );
        Ok(query_scalar(sql).bind(workspace).bind(role).bind(max).fetch_one(self).await?)
    }

    async fn list_assignments(
        &mut self,
        workspace: &WorkspaceId,
        permission: &PermissionId,
        from: &str,
        limit: i64,
    ) -> Result<Vec<PermissionAssignment>> {
        // Only the first assignments of each source, which an index returns in order, so few rows are read however
        // many exist.
        let sql = concat!(
            "SELECT NULL AS role_id, NULL AS role_name, (SELECT ",
            array!("first.key_id"),
            " FROM (SELECT l.key_id FROM key_permissions l
                WHERE l.permission_id = p.id AND l.key_id >= $3
                ORDER BY l.key_id LIMIT $4) AS first) AS key_ids
            FROM permissions p
            WHERE p.workspace_id = $1 AND p.id = $2
            UNION ALL
            SELECT r.id AS role_id, r.name AS role_name, (SELECT ",
            array!("first.key_id"),
            " FROM (SELECT l.key_id FROM key_roles l
                WHERE l.role_id = r.id AND l.key_id >= $3
                ORDER BY l.key_id LIMIT $4) AS first) AS key_ids
            FROM ",
            roles_of_permission!()
        );
        let query = query_as(sql).bind(workspace).bind(permission).bind(from).bind(limit);
        fetch_all_as::<AssignmentRow, _>(self, query).await
    }
}

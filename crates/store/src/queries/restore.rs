//! Implements the restore of deleted entities.

use async_trait::async_trait;
use foundation::clock::Timestamp;
use foundation::error::Result;
use foundation::id::{ApiId, IdentityId, KeyId, NamespaceId, PermissionId, RoleId, WorkspaceId};
use serde_json::json;
use sqlx::{query, query_as, query_scalar};

use super::Connection;
use crate::{RestoreReads, RestoreWrites};

/// Assigns the entity bound as `$1` to the rows of `$table` in the workspace `$2` with the ids `$3`.
macro_rules! insert_assignments {
    ($links:literal, $from:literal, $to:literal, $table:literal) => {
        concat!(
            "INSERT INTO ",
            $links,
            " (",
            $from,
            ", ",
            $to,
            ") ",
            locked_for_key_share!(concat!(
                "SELECT $1, t.id FROM ",
                $table,
                " t WHERE t.workspace_id = $2 AND t.id ",
                is_one_of!("$3")
            )),
            " ON CONFLICT DO NOTHING"
        )
    };
}

#[async_trait]
impl RestoreReads for Connection {
    async fn list_permission_holders(
        &mut self,
        permission: &PermissionId,
    ) -> Result<(Vec<KeyId>, Vec<RoleId>)> {
        let sql = "SELECT key_id FROM key_permissions WHERE permission_id = $1 ORDER BY key_id";
        let keys = query_scalar(sql).bind(permission).fetch_all(&mut *self).await?;
        let sql = "SELECT role_id FROM role_permissions WHERE permission_id = $1 ORDER BY role_id";
        let roles = query_scalar(sql).bind(permission).fetch_all(self).await?;
        Ok((keys, roles))
    }

    async fn list_role_holders(&mut self, role: &RoleId) -> Result<Vec<KeyId>> {
        let sql = "SELECT key_id FROM key_roles WHERE role_id = $1 ORDER BY key_id";
        Ok(query_scalar(sql).bind(role).fetch_all(self).await?)
    }

    async fn list_keys_without_identity(
        &mut self,
        workspace: &WorkspaceId,
        external_id: &str,
        since: Timestamp,
        event: &str,
    ) -> Result<Vec<(KeyId, String)>> {
        let sql = concat!(
            "SELECT k.id, a.targets
            FROM keys k
            JOIN audit a ON a.workspace_id = $1 AND a.event = $4 AND a.at = k.created_at AND ",
            contains!("a.targets", "k.id"),
            " WHERE k.api_id IN (SELECT id FROM apis WHERE workspace_id = $1)
                AND k.owner_id = $2 AND k.identity_id IS NULL AND k.created_at >= $3
            ORDER BY k.created_at, k.id"
        );
        let query = query_as(sql).bind(workspace).bind(external_id).bind(since).bind(event);
        Ok(query.fetch_all(self).await?)
    }
}

#[async_trait]
impl RestoreWrites for Connection {
    async fn restore_key(
        &mut self,
        workspace: &WorkspaceId,
        id: &KeyId,
    ) -> Result<Option<(ApiId, String)>> {
        let sql = "
            UPDATE keys
            SET deleted_at = NULL
            WHERE workspace_id = $1 AND id = $2 AND deleted_at IS NOT NULL
            RETURNING api_id, hash";
        Ok(query_as(sql).bind(workspace).bind(id).fetch_optional(self).await?)
    }

    async fn restore_api(&mut self, workspace: &WorkspaceId, id: &ApiId) -> Result<bool> {
        let sql = "
            UPDATE apis
            SET deleted_at = NULL
            WHERE workspace_id = $1 AND id = $2 AND deleted_at IS NOT NULL";
        let done = query(sql).bind(workspace).bind(id).execute(self).await?;
        Ok(done.rows_affected() == 1)
    }

    async fn restore_namespace(
        &mut self,
        workspace: &WorkspaceId,
        id: &NamespaceId,
    ) -> Result<bool> {
        let sql = "
            UPDATE namespaces
            SET deleted_at = NULL
            WHERE workspace_id = $1 AND id = $2 AND deleted_at IS NOT NULL";
        let done = query(sql).bind(workspace).bind(id).execute(self).await?;
        Ok(done.rows_affected() == 1)
    }

    async fn restore_root_key(
        &mut self,
        workspace: &WorkspaceId,
        id: &KeyId,
    ) -> Result<Option<String>> {
        let sql = "
            UPDATE root_keys
            SET revoked_at = NULL
            WHERE workspace_id = $1 AND id = $2 AND revoked_at IS NOT NULL
            RETURNING hash";
        Ok(query_scalar(sql).bind(workspace).bind(id).fetch_optional(self).await?)
    }

    async fn assign_permission(
        &mut self,
        workspace: &WorkspaceId,
        permission: &PermissionId,
        keys: &[KeyId],
        roles: &[RoleId],
    ) -> Result<()> {
        query(insert_assignments!("key_permissions", "permission_id", "key_id", "keys"))
            .bind(permission)
            .bind(workspace)
            .bind(json!(keys).to_string())
            .execute(&mut *self)
            .await?;
        query(insert_assignments!("role_permissions", "permission_id", "role_id", "roles"))
            .bind(permission)
            .bind(workspace)
            .bind(json!(roles).to_string())
            .execute(self)
            .await?;
        Ok(())
    }

    async fn assign_role(
        &mut self,
        workspace: &WorkspaceId,
        role: &RoleId,
        keys: &[KeyId],
    ) -> Result<()> {
        query(insert_assignments!("key_roles", "role_id", "key_id", "keys"))
            .bind(role)
            .bind(workspace)
            .bind(json!(keys).to_string())
            .execute(self)
            .await?;
        Ok(())
    }

    async fn link_identity(
        &mut self,
        workspace: &WorkspaceId,
        id: &IdentityId,
        external_id: &str,
        keys: Option<&[KeyId]>,
    ) -> Result<Vec<KeyId>> {
        let Some(keys) = keys else {
            let sql = "
                UPDATE keys
                SET identity_id = $2
                WHERE api_id IN (SELECT id FROM apis WHERE workspace_id = $1)
                    AND owner_id = $3 AND identity_id IS NULL
                RETURNING id";
            let query = query_scalar(sql).bind(workspace).bind(id).bind(external_id);
            return Ok(query.fetch_all(self).await?);
        };
        let sql = concat!(
            "UPDATE keys SET identity_id = $2
            WHERE workspace_id = $1 AND owner_id = $3 AND identity_id IS NULL AND id ",
            is_one_of!("$4"),
            " RETURNING id"
        );
        let query = query_scalar(sql).bind(workspace).bind(id).bind(external_id);
        Ok(query.bind(json!(keys).to_string()).fetch_all(self).await?)
    }
}

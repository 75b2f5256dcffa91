//! Permissions and roles.

use async_trait::async_trait;
use serde_json::json;
use sqlx::{query, query_as, query_scalar};

use super::Connection;
use crate::clock::Timestamp;
use crate::error::Result;
use crate::id::{KeyId, PermissionId, RoleId, WorkspaceId};
use crate::model::{Permission, Role};
use crate::store::rows::{PermissionRow, RoleRow};
use crate::store::{RbacReads, RbacWrites};

macro_rules! roles_where {
    ($condition:expr) => {
        concat!(
            "SELECT r.id, r.name, r.description, ",
            permissions_of!(
                "role_permissions rp ON rp.permission_id = p.id WHERE rp.role_id = r.id"
            ),
            " FROM roles r WHERE r.workspace_id = $1 AND ",
            $condition,
            " ORDER BY r.name"
        )
    };
}

#[async_trait]
impl RbacReads for Connection {
    async fn roles(&mut self, workspace: &WorkspaceId, ids: &[RoleId]) -> Result<Vec<Role>> {
        let sql = roles_where!(concat!("r.id IN (SELECT item FROM ", texts!("$2"), ")"));
        query_as::<_, RoleRow>(sql)
            .bind(workspace)
            .bind(json!(ids).to_string())
            .fetch_all(self)
            .await?
            .into_iter()
            .map(Role::try_from)
            .collect()
    }

    async fn roles_named(
        &mut self,
        workspace: &WorkspaceId,
        names: &[String],
    ) -> Result<Vec<Role>> {
        let sql = roles_where!(concat!("r.name IN (SELECT item FROM ", texts!("$2"), ")"));
        query_as::<_, RoleRow>(sql)
            .bind(workspace)
            .bind(json!(names).to_string())
            .fetch_all(self)
            .await?
            .into_iter()
            .map(Role::try_from)
            .collect()
    }

    async fn permissions_with(
        &mut self,
        workspace: &WorkspaceId,
        slugs: &[String],
    ) -> Result<Vec<Permission>> {
        let sql = concat!(
            "SELECT id, slug, name, description
            FROM permissions
            WHERE workspace_id = $1 AND slug IN (SELECT item FROM ",
            texts!("$2"),
            ") ORDER BY slug"
        );
        let rows: Vec<PermissionRow> =
            query_as(sql).bind(workspace).bind(json!(slugs).to_string()).fetch_all(self).await?;
        Ok(rows.into_iter().map(Permission::from).collect())
    }
}

#[async_trait]
impl RbacWrites for Connection {
    async fn insert_permissions(
        &mut self,
        workspace: &WorkspaceId,
        permissions: &[Permission],
        now: Timestamp,
    ) -> Result<Vec<String>> {
        let rows: Vec<_> = permissions
            .iter()
            .map(|permission| {
                json!({
                    "id": permission.id, "slug": permission.slug, "name": permission.name,
                    "description": permission.description,
                })
            })
            .collect();
        let sql = concat!(
            "INSERT INTO permissions (id, workspace_id, slug, name, description, created_at)
            SELECT item ->> 'id', $1, item ->> 'slug', item ->> 'name', item ->> 'description', $2
            FROM ",
            items!("$3"),
            " WHERE TRUE
            ON CONFLICT (workspace_id, slug) DO NOTHING
            RETURNING slug"
        );
        let rows = json!(rows).to_string();
        Ok(query_scalar(sql).bind(workspace).bind(now).bind(rows).fetch_all(self).await?)
    }

    async fn insert_role(
        &mut self,
        workspace: &WorkspaceId,
        role: &Role,
        now: Timestamp,
    ) -> Result<()> {
        let sql = "
            INSERT INTO roles (id, workspace_id, name, description, created_at)
            VALUES ($1, $2, $3, $4, $5)";
        query(sql)
            .bind(&role.id)
            .bind(workspace)
            .bind(&role.name)
            .bind(&role.description)
            .bind(now)
            .execute(&mut *self)
            .await?;
        let ids: Vec<_> = role.permissions.iter().map(|permission| &permission.id).collect();
        let sql = concat!(
            "INSERT INTO role_permissions (role_id, permission_id) SELECT $1, item FROM ",
            texts!("$2")
        );
        query(sql).bind(&role.id).bind(json!(ids).to_string()).execute(self).await?;
        Ok(())
    }

    async fn set_key_permissions(&mut self, key: &KeyId, ids: &[PermissionId]) -> Result<()> {
        query("DELETE FROM key_permissions WHERE key_id = $1")
            .bind(key)
            .execute(&mut *self)
            .await?;
        let sql = concat!(
            "INSERT INTO key_permissions (key_id, permission_id) SELECT $1, item FROM ",
            texts!("$2")
        );
        query(sql).bind(key).bind(json!(ids).to_string()).execute(self).await?;
        Ok(())
    }

    async fn set_key_roles(&mut self, key: &KeyId, ids: &[RoleId]) -> Result<()> {
        query("DELETE FROM key_roles WHERE key_id = $1").bind(key).execute(&mut *self).await?;
        let sql =
            concat!("INSERT INTO key_roles (key_id, role_id) SELECT $1, item FROM ", texts!("$2"));
        query(sql).bind(key).bind(json!(ids).to_string()).execute(self).await?;
        Ok(())
    }
}

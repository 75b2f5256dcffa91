//! Implements reads and writes of permissions and roles.

use async_trait::async_trait;
use foundation::clock::Timestamp;
use foundation::error::Result;
use foundation::id::{KeyId, PermissionId, RoleId, WorkspaceId};
use foundation::model::{Permission, Role, RoleSummary, RoleWithPermissionCount};
use serde_json::json;
use sqlx::{query, query_as, query_scalar};

use super::{Connection, fetch_all_as, fetch_optional_as};
use crate::rows::{PermissionRow, RoleRow};
use crate::{PageOrder, PageQuery, RbacReads, RbacWrites, to_search_text};

macro_rules! roles_where {
    ($condition:expr) => {
        concat!(
            "SELECT r.id, r.name, r.description, ",
            permissions_of!(
                "role_permissions rp ON rp.permission_id = p.id WHERE rp.role_id = r.id"
            ),
            " FROM roles r WHERE r.workspace_id = $1 AND ",
            $condition
        )
    };
}

macro_rules! permissions_where {
    ($condition:expr) => {
        concat!(
            "SELECT id, slug, name, description FROM permissions WHERE workspace_id = $1 AND ",
            $condition
        )
    };
}

macro_rules! role_summaries_where {
    ($condition:expr) => {
        concat!("SELECT id, name, description FROM roles WHERE workspace_id = $1 AND ", $condition)
    };
}

/// Selects the roles whose `$column` is in the list `$2`, sorted by name.
macro_rules! roles_in {
    ($column:literal) => {
        roles_where!(concat!($column, " ", is_one_of!("$2"), " ORDER BY r.name"))
    };
}

/// Selects the permissions whose `$column` is in the list `$2`, sorted by slug.
macro_rules! permissions_in {
    ($column:literal) => {
        permissions_where!(concat!($column, " ", is_one_of!("$2"), " ORDER BY slug"))
    };
}

/// Replaces the assignments of `$owner` with the existing ids of `$ids`.
macro_rules! replace_assignments {
    ($connection:expr, $table:literal, $from:literal, $to:literal, $target:literal, $owner:expr, $ids:expr) => {{
        let ids = json!($ids).to_string();
        let drop_others = concat!(
            "DELETE FROM ",
            $table,
            " WHERE ",
            $from,
            " = $1 AND ",
            $to,
            " NOT IN (SELECT item FROM ",
            texts!("$2"),
            ")"
        );
        query(drop_others).bind($owner).bind(&ids).execute(&mut *$connection).await?;
        // An id that is deleted concurrently is not assigned, and an assigned one is not deleted concurrently.
        let add = concat!(
            "INSERT INTO ",
            $table,
            " (",
            $from,
            ", ",
            $to,
            ") ",
            locked_for_key_share!(concat!(
                "SELECT $1, t.id FROM ",
                $target,
                " t WHERE t.id ",
                is_one_of!("$2")
            )),
            " ON CONFLICT (",
            $from,
            ", ",
            $to,
            ") DO NOTHING"
        );
        query(add).bind($owner).bind(&ids).execute(&mut *$connection).await?;
        Ok(())
    }};
}

#[async_trait]
impl RbacReads for Connection {
    async fn find_permission(
        &mut self,
        workspace: &WorkspaceId,
        id: &str,
        slug: &str,
    ) -> Result<Option<Permission>> {
        let sql = permissions_where!("(id = $2 OR slug = $3) ORDER BY id = $2 DESC LIMIT 1");
        fetch_optional_as::<PermissionRow, _>(
            self,
            query_as(sql).bind(workspace).bind(id).bind(slug),
        )
        .await
    }

    async fn list_permissions(
        &mut self,
        workspace: &WorkspaceId,
        listing: &PageQuery<'_>,
    ) -> Result<Vec<Permission>> {
        let sql = page_in_order!(permissions_where, listing, "id", "slug", "search");
        fetch_all_as::<PermissionRow, _>(
            self,
            query_as(sql)
                .bind(workspace)
                .bind(listing.start)
                .bind(&listing.search)
                .bind(listing.rows_max),
        )
        .await
    }

    async fn find_role(
        &mut self,
        workspace: &WorkspaceId,
        id: &str,
        name: &str,
    ) -> Result<Option<Role>> {
        let sql = roles_where!("(r.id = $2 OR r.name = $3) ORDER BY r.id = $2 DESC LIMIT 1");
        fetch_optional_as::<RoleRow, _>(self, query_as(sql).bind(workspace).bind(id).bind(name))
            .await
    }

    async fn list_roles(
        &mut self,
        workspace: &WorkspaceId,
        listing: &PageQuery<'_>,
    ) -> Result<Vec<Role>> {
        let sql = page_in_order!(roles_where, listing, "r.id", "r.name", "r.search");
        fetch_all_as::<RoleRow, _>(
            self,
            query_as(sql)
                .bind(workspace)
                .bind(listing.start)
                .bind(&listing.search)
                .bind(listing.rows_max),
        )
        .await
    }

    async fn list_role_summaries(
        &mut self,
        workspace: &WorkspaceId,
        listing: &PageQuery<'_>,
    ) -> Result<Vec<RoleSummary>> {
        let sql = page_in_order!(role_summaries_where, listing, "id", "name", "search");
        let query = query_as(sql).bind(workspace).bind(listing.start).bind(&listing.search);
        Ok(query.bind(listing.rows_max).fetch_all(self).await?)
    }

    async fn list_roles_by_ids(
        &mut self,
        workspace: &WorkspaceId,
        ids: &[RoleId],
    ) -> Result<Vec<Role>> {
        let query = query_as(roles_in!("r.id")).bind(workspace).bind(json!(ids).to_string());
        fetch_all_as::<RoleRow, _>(self, query).await
    }

    async fn list_roles_by_names(
        &mut self,
        workspace: &WorkspaceId,
        names: &[String],
    ) -> Result<Vec<Role>> {
        let query = query_as(roles_in!("r.name")).bind(workspace).bind(json!(names).to_string());
        fetch_all_as::<RoleRow, _>(self, query).await
    }

    async fn list_permissions_by_slugs(
        &mut self,
        workspace: &WorkspaceId,
        slugs: &[String],
    ) -> Result<Vec<Permission>> {
        let query =
            query_as(permissions_in!("slug")).bind(workspace).bind(json!(slugs).to_string());
        fetch_all_as::<PermissionRow, _>(self, query).await
    }

    async fn list_roles_with_permission(
        &mut self,
        workspace: &WorkspaceId,
        permission: &PermissionId,
        listing: &PageQuery<'_>,
    ) -> Result<Vec<RoleWithPermissionCount>> {
        // By the roles of the permission, and not by all of the workspace.
        let sql = concat!(
            "SELECT r.id, r.name, r.description,
                (SELECT COUNT(*) FROM role_permissions rp WHERE rp.role_id = r.id) AS permission_count
            FROM roles r
            WHERE ",
            unindexed!("r.workspace_id"),
            " = $1 AND r.id >= $2
                AND r.id IN (SELECT role_id FROM role_permissions WHERE permission_id = $3)
            ORDER BY r.id
            LIMIT $4"
        );
        let query = query_as(sql).bind(workspace).bind(listing.start).bind(permission);
        Ok(query.bind(listing.rows_max).fetch_all(self).await?)
    }
}

#[async_trait]
impl RbacWrites for Connection {
    async fn lock_permissions(
        &mut self,
        workspace: &WorkspaceId,
        slugs: &[String],
    ) -> Result<Vec<Permission>> {
        let sql = locked_for_key_share!(permissions_in!("slug"));
        let query = query_as(sql).bind(workspace).bind(json!(slugs).to_string());
        fetch_all_as::<PermissionRow, _>(self, query).await
    }

    async fn lock_roles(&mut self, workspace: &WorkspaceId, names: &[String]) -> Result<Vec<Role>> {
        let sql = locked_for_key_share!(roles_in!("r.name"));
        let query = query_as(sql).bind(workspace).bind(json!(names).to_string());
        fetch_all_as::<RoleRow, _>(self, query).await
    }

    async fn lock_permissions_by_ids(
        &mut self,
        workspace: &WorkspaceId,
        ids: &[String],
    ) -> Result<Vec<Permission>> {
        let sql = locked_for_key_share!(permissions_in!("id"));
        let query = query_as(sql).bind(workspace).bind(json!(ids).to_string());
        fetch_all_as::<PermissionRow, _>(self, query).await
    }

    async fn lock_roles_by_ids(
        &mut self,
        workspace: &WorkspaceId,
        ids: &[String],
    ) -> Result<Vec<Role>> {
        let sql = locked_for_key_share!(roles_in!("r.id"));
        let query = query_as(sql).bind(workspace).bind(json!(ids).to_string());
        fetch_all_as::<RoleRow, _>(self, query).await
    }

    async fn lock_permission(&mut self, id: &PermissionId) -> Result<()> {
        let sql = locked!("SELECT id FROM permissions WHERE id = $1");
        query(sql).bind(id).fetch_optional(self).await?;
        Ok(())
    }

    async fn lock_role(&mut self, workspace: &WorkspaceId, id: &RoleId) -> Result<Option<Role>> {
        let sql = locked!("SELECT id FROM roles WHERE workspace_id = $1 AND id = $2");
        query(sql).bind(workspace).bind(id).fetch_optional(&mut *self).await?;
        // Read after the lock, so that writes of its previous holder are visible.
        Ok(self.list_roles_by_ids(workspace, std::slice::from_ref(id)).await?.into_iter().next())
    }

    async fn delete_permission(
        &mut self,
        workspace: &WorkspaceId,
        id: &PermissionId,
    ) -> Result<bool> {
        let sql = "DELETE FROM permissions WHERE workspace_id = $1 AND id = $2";
        let done = query(sql).bind(workspace).bind(id).execute(self).await?;
        Ok(done.rows_affected() == 1)
    }

    async fn delete_role(&mut self, workspace: &WorkspaceId, id: &RoleId) -> Result<bool> {
        let sql = "DELETE FROM roles WHERE workspace_id = $1 AND id = $2";
        let done = query(sql).bind(workspace).bind(id).execute(self).await?;
        Ok(done.rows_affected() == 1)
    }

    async fn set_role_permissions(
        &mut self,
        role: &RoleId,
        permissions: &[Permission],
    ) -> Result<()> {
        let ids: Vec<_> = permissions.iter().map(|permission| &permission.id).collect();
        replace_assignments!(
            self,
            "role_permissions",
            "role_id",
            "permission_id",
            "permissions",
            role,
            ids
        )
    }

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
                    "search": to_search_text([
                        permission.id.as_str(),
                        &permission.slug,
                        &permission.name,
                        permission.description.as_deref().unwrap_or_default(),
                    ]),
                })
            })
            .collect();
        let sql = concat!(
            "INSERT INTO permissions
                (id, workspace_id, slug, name, description, search, created_at)
            SELECT item ->> 'id', $1, item ->> 'slug', item ->> 'name', item ->> 'description',
                item ->> 'search', $2
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
            INSERT INTO roles (id, workspace_id, name, description, search, created_at)
            VALUES ($1, $2, $3, $4, $5, $6)";
        let description = role.description.as_deref().unwrap_or_default();
        query(sql)
            .bind(&role.id)
            .bind(workspace)
            .bind(&role.name)
            .bind(&role.description)
            .bind(to_search_text([role.id.as_str(), &role.name, description]))
            .bind(now)
            .execute(&mut *self)
            .await?;
        self.set_role_permissions(&role.id, &role.permissions).await
    }

    async fn update_role(&mut self, role: &Role) -> Result<()> {
        let sql = "UPDATE roles SET name = $2, description = $3, search = $4 WHERE id = $1";
        let description = role.description.as_deref().unwrap_or_default();
        query(sql)
            .bind(&role.id)
            .bind(&role.name)
            .bind(&role.description)
            .bind(to_search_text([role.id.as_str(), &role.name, description]))
            .execute(self)
            .await?;
        Ok(())
    }

    async fn set_key_permissions(&mut self, key: &KeyId, ids: &[PermissionId]) -> Result<()> {
        replace_assignments!(
            self,
            "key_permissions",
            "key_id",
            "permission_id",
            "permissions",
            key,
            ids
        )
    }

    async fn set_key_roles(&mut self, key: &KeyId, ids: &[RoleId]) -> Result<()> {
        replace_assignments!(self, "key_roles", "key_id", "role_id", "roles", key, ids)
    }
}

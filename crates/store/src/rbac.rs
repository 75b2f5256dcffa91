//! Defines reads and writes of permissions and roles.

use async_trait::async_trait;
use foundation::clock::Timestamp;
use foundation::error::Result;
use foundation::id::{KeyId, PermissionId, RoleId, WorkspaceId};
use foundation::model::{Permission, Role, RoleSummary, RoleWithPermissionCount};

use crate::PageQuery;

#[async_trait]
pub trait RbacReads: Send {
    /// Returns the permission with this id, or else the one with this slug.
    async fn find_permission(
        &mut self,
        workspace: &WorkspaceId,
        id: &str,
        slug: &str,
    ) -> Result<Option<Permission>>;
    /// Returns a page of the permissions of a workspace.
    async fn list_permissions(
        &mut self,
        workspace: &WorkspaceId,
        listing: &PageQuery<'_>,
    ) -> Result<Vec<Permission>>;
    /// Returns the role with this id, or else the one with this name.
    async fn find_role(
        &mut self,
        workspace: &WorkspaceId,
        id: &str,
        name: &str,
    ) -> Result<Option<Role>>;
    /// Returns a page of the roles of a workspace.
    async fn list_roles(
        &mut self,
        workspace: &WorkspaceId,
        listing: &PageQuery<'_>,
    ) -> Result<Vec<Role>>;
    /// Returns a page of the roles of a workspace, without their permissions.
    async fn list_role_summaries(
        &mut self,
        workspace: &WorkspaceId,
        listing: &PageQuery<'_>,
    ) -> Result<Vec<RoleSummary>>;
    /// Returns the existing roles among `ids` by name, with their permissions.
    async fn list_roles_by_ids(
        &mut self,
        workspace: &WorkspaceId,
        ids: &[RoleId],
    ) -> Result<Vec<Role>>;
    /// Returns the existing roles among `names` by name, with their permissions.
    async fn list_roles_by_names(
        &mut self,
        workspace: &WorkspaceId,
        names: &[String],
    ) -> Result<Vec<Role>>;
    /// Returns the existing permissions among `slugs` by slug.
    async fn list_permissions_by_slugs(
        &mut self,
        workspace: &WorkspaceId,
        slugs: &[String],
    ) -> Result<Vec<Permission>>;
    /// Returns a page of the roles that hold a permission.
    async fn list_roles_with_permission(
        &mut self,
        workspace: &WorkspaceId,
        permission: &PermissionId,
        listing: &PageQuery<'_>,
    ) -> Result<Vec<RoleWithPermissionCount>>;
}

#[async_trait]
pub trait RbacWrites: RbacReads {
    /// Returns the existing permissions among `slugs` by slug. No other transaction deletes them until this one ends.
    async fn lock_permissions(
        &mut self,
        workspace: &WorkspaceId,
        slugs: &[String],
    ) -> Result<Vec<Permission>>;
    /// Returns the existing roles among `names` by name, with their permissions. No other transaction deletes them
    /// until this one ends.
    async fn lock_roles(&mut self, workspace: &WorkspaceId, names: &[String]) -> Result<Vec<Role>>;
    /// Returns the existing permissions among `ids` by slug. No other transaction deletes them until this one ends.
    async fn lock_permissions_by_ids(
        &mut self,
        workspace: &WorkspaceId,
        ids: &[String],
    ) -> Result<Vec<Permission>>;
    /// Returns the existing roles among `ids` by name, with their permissions. No other transaction deletes them
    /// until this one ends.
    async fn lock_roles_by_ids(
        &mut self,
        workspace: &WorkspaceId,
        ids: &[String],
    ) -> Result<Vec<Role>>;
    /// Locks a permission until the transaction ends. No other transaction adds it to a key or a role meanwhile.
    async fn lock_permission(&mut self, id: &PermissionId) -> Result<()>;
    /// Returns the role with this id, and locks it until the transaction ends.
    async fn lock_role(&mut self, workspace: &WorkspaceId, id: &RoleId) -> Result<Option<Role>>;
    /// Deletes a permission, and removes it from every key and role. Returns whether it existed.
    async fn delete_permission(
        &mut self,
        workspace: &WorkspaceId,
        id: &PermissionId,
    ) -> Result<bool>;
    /// Deletes a role, and removes it from every key. Returns whether it existed.
    async fn delete_role(&mut self, workspace: &WorkspaceId, id: &RoleId) -> Result<bool>;
    async fn set_role_permissions(
        &mut self,
        role: &RoleId,
        permissions: &[Permission],
    ) -> Result<()>;
    /// Inserts permissions, unless the slug is in use. Returns the slugs of the inserted ones.
    async fn insert_permissions(
        &mut self,
        workspace: &WorkspaceId,
        permissions: &[Permission],
        now: Timestamp,
    ) -> Result<Vec<String>>;
    async fn insert_role(
        &mut self,
        workspace: &WorkspaceId,
        role: &Role,
        now: Timestamp,
    ) -> Result<()>;
    /// Updates the name and the description of a role.
    async fn update_role(&mut self, role: &Role) -> Result<()>;
    async fn set_key_permissions(&mut self, key: &KeyId, ids: &[PermissionId]) -> Result<()>;
    async fn set_key_roles(&mut self, key: &KeyId, ids: &[RoleId]) -> Result<()>;
}

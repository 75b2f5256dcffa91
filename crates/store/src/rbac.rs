//! What is kept of permissions and roles.

use async_trait::async_trait;
use foundation::clock::Timestamp;
use foundation::error::Result;
use foundation::id::{KeyId, PermissionId, RoleId, WorkspaceId};
use foundation::model::{Permission, Role};

use crate::PageQuery;

#[async_trait]
pub trait RbacReads: Send {
    /// The permission that has this id; where none has, the one of this slug.
    async fn permission(
        &mut self,
        workspace: &WorkspaceId,
        named: &str,
    ) -> Result<Option<Permission>>;
    /// A page of a workspace's permissions.
    async fn permissions(
        &mut self,
        workspace: &WorkspaceId,
        listing: &PageQuery<'_>,
    ) -> Result<Vec<Permission>>;
    /// The role that has this id; where none has, the one of this name.
    async fn role(&mut self, workspace: &WorkspaceId, named: &str) -> Result<Option<Role>>;
    /// A page of a workspace's roles.
    async fn roles_page(
        &mut self,
        workspace: &WorkspaceId,
        listing: &PageQuery<'_>,
    ) -> Result<Vec<Role>>;
    /// Those of `ids` that exist, by name, with their permissions.
    async fn roles(&mut self, workspace: &WorkspaceId, ids: &[RoleId]) -> Result<Vec<Role>>;
    /// Those of `names` that exist, by name, with their permissions.
    async fn roles_named(&mut self, workspace: &WorkspaceId, names: &[String])
    -> Result<Vec<Role>>;
    /// Those of `slugs` that exist, by slug.
    async fn permissions_with(
        &mut self,
        workspace: &WorkspaceId,
        slugs: &[String],
    ) -> Result<Vec<Permission>>;
    /// A page of the roles that hold a permission.
    async fn roles_holding(
        &mut self,
        workspace: &WorkspaceId,
        permission: &PermissionId,
        listing: &PageQuery<'_>,
    ) -> Result<Vec<Role>>;
}

#[async_trait]
pub trait RbacWrites: RbacReads {
    /// As [`RbacReads::permissions_with`]; nobody deletes them until the transaction ends.
    async fn lock_permissions(
        &mut self,
        workspace: &WorkspaceId,
        slugs: &[String],
    ) -> Result<Vec<Permission>>;
    /// As [`RbacReads::roles_named`]; nobody deletes them until the transaction ends.
    async fn lock_roles(&mut self, workspace: &WorkspaceId, names: &[String]) -> Result<Vec<Role>>;
    /// Those of `ids` that exist, by slug; likewise.
    async fn hold_permissions_of(
        &mut self,
        workspace: &WorkspaceId,
        ids: &[String],
    ) -> Result<Vec<Permission>>;
    /// Those of `ids` that exist, by name; likewise.
    async fn hold_roles_of(&mut self, workspace: &WorkspaceId, ids: &[String])
    -> Result<Vec<Role>>;
    /// The role of this id, held until the transaction ends.
    async fn lock_role(&mut self, workspace: &WorkspaceId, id: &RoleId) -> Result<Option<Role>>;
    /// Removes it, from every key and role; whether it was there.
    async fn delete_permission(
        &mut self,
        workspace: &WorkspaceId,
        id: &PermissionId,
    ) -> Result<bool>;
    /// Removes it, from every key; whether it was there.
    async fn delete_role(&mut self, workspace: &WorkspaceId, id: &RoleId) -> Result<bool>;
    async fn set_role_permissions(
        &mut self,
        role: &RoleId,
        permissions: &[Permission],
    ) -> Result<()>;
    /// Adds those whose slug is free, and gives back their slugs.
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
    /// Sets its name and its description.
    async fn update_role(&mut self, role: &Role) -> Result<()>;
    async fn set_key_permissions(&mut self, key: &KeyId, ids: &[PermissionId]) -> Result<()>;
    async fn set_key_roles(&mut self, key: &KeyId, ids: &[RoleId]) -> Result<()>;
}

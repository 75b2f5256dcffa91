//! What is kept of permissions and roles.

use async_trait::async_trait;

use crate::clock::Timestamp;
use crate::error::Result;
use crate::id::{KeyId, PermissionId, RoleId, WorkspaceId};
use crate::model::{Permission, Role};

#[async_trait]
pub trait RbacReads: Send {
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
}

#[async_trait]
pub trait RbacWrites: RbacReads {
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
    async fn set_key_permissions(&mut self, key: &KeyId, ids: &[PermissionId]) -> Result<()>;
    async fn set_key_roles(&mut self, key: &KeyId, ids: &[RoleId]) -> Result<()>;
}

//! Bringing back what was deleted, as far as it is still there.

use async_trait::async_trait;
use foundation::error::Result;
use foundation::id::{ApiId, IdentityId, KeyId, NamespaceId, PermissionId, RoleId, WorkspaceId};

#[async_trait]
pub trait RestoreReads: Send {
    /// The keys that have a permission of themselves, and the roles that hold it; by id.
    async fn permission_holders(
        &mut self,
        permission: &PermissionId,
    ) -> Result<(Vec<KeyId>, Vec<RoleId>)>;
    /// The keys that have a role, by id.
    async fn role_holders(&mut self, role: &RoleId) -> Result<Vec<KeyId>>;
}

#[async_trait]
pub trait RestoreWrites: RestoreReads {
    /// Takes from a key the mark that it is deleted; its API, and its hash as it is stored. `None`: there is no
    /// such key with the mark.
    async fn restore_key(
        &mut self,
        workspace: &WorkspaceId,
        id: &KeyId,
    ) -> Result<Option<(ApiId, String)>>;
    /// Takes the mark from an API; whether there was one with it.
    async fn restore_api(&mut self, workspace: &WorkspaceId, id: &ApiId) -> Result<bool>;
    /// Takes the mark from a namespace; whether there was one with it.
    async fn restore_namespace(
        &mut self,
        workspace: &WorkspaceId,
        id: &NamespaceId,
    ) -> Result<bool>;
    /// Lets a revoked root key be good again; its hash as it is stored. `None`: there is no such root key that is
    /// revoked.
    async fn restore_root_key(
        &mut self,
        workspace: &WorkspaceId,
        id: &KeyId,
    ) -> Result<Option<String>>;
    /// Gives a permission to those of these keys and roles that are there still.
    async fn give_permission(
        &mut self,
        workspace: &WorkspaceId,
        permission: &PermissionId,
        keys: &[KeyId],
        roles: &[RoleId],
    ) -> Result<()>;
    /// Gives a role to those of these keys that are there still.
    async fn give_role(
        &mut self,
        workspace: &WorkspaceId,
        role: &RoleId,
        keys: &[KeyId],
    ) -> Result<()>;
    /// Makes an identity that of the keys of its external id that are nobody's now; which they are.
    async fn link_identity(
        &mut self,
        workspace: &WorkspaceId,
        id: &IdentityId,
        external_id: &str,
    ) -> Result<Vec<KeyId>>;
}

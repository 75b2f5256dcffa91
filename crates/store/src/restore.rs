//! Defines how deleted entities are restored, as far as their data still exists.

use async_trait::async_trait;
use foundation::clock::Timestamp;
use foundation::error::Result;
use foundation::id::{ApiId, IdentityId, KeyId, NamespaceId, PermissionId, RoleId, WorkspaceId};

#[async_trait]
pub trait RestoreReads: Send {
    /// Returns the keys that hold a permission directly, and the roles that hold it, by id.
    async fn list_permission_holders(
        &mut self,
        permission: &PermissionId,
    ) -> Result<(Vec<KeyId>, Vec<RoleId>)>;
    /// Returns the keys with a role, by id.
    async fn list_role_holders(&mut self, role: &RoleId) -> Result<Vec<KeyId>>;
    /// Returns the keys with an external id and no identity that were created since a time by an audit event about them, the
    /// oldest first, each with the targets of the event. Deleted ones are included.
    async fn list_keys_without_identity(
        &mut self,
        workspace: &WorkspaceId,
        external_id: &str,
        since: Timestamp,
        event: &str,
    ) -> Result<Vec<(KeyId, String)>>;
}

#[async_trait]
pub trait RestoreWrites: RestoreReads {
    /// Restores a deleted key. Returns its API and its stored hash, or `None` if no such deleted key exists.
    async fn restore_key(
        &mut self,
        workspace: &WorkspaceId,
        id: &KeyId,
    ) -> Result<Option<(ApiId, String)>>;
    /// Restores a deleted API. Returns whether it existed and was deleted.
    async fn restore_api(&mut self, workspace: &WorkspaceId, id: &ApiId) -> Result<bool>;
    /// Restores a deleted namespace. Returns whether it existed and was deleted.
    async fn restore_namespace(
        &mut self,
        workspace: &WorkspaceId,
        id: &NamespaceId,
    ) -> Result<bool>;
    /// Restores a revoked root key. Returns its stored hash, or `None` if no such revoked root key exists.
    async fn restore_root_key(
        &mut self,
        workspace: &WorkspaceId,
        id: &KeyId,
    ) -> Result<Option<String>>;
    /// Assigns a permission to those of these keys and roles that still exist.
    async fn assign_permission(
        &mut self,
        workspace: &WorkspaceId,
        permission: &PermissionId,
        keys: &[KeyId],
        roles: &[RoleId],
    ) -> Result<()>;
    /// Assigns a role to those of these keys that still exist.
    async fn assign_role(
        &mut self,
        workspace: &WorkspaceId,
        role: &RoleId,
        keys: &[KeyId],
    ) -> Result<()>;
    /// Assigns an identity to those of these keys that have its external id and no identity. Without `keys`, all such
    /// keys of the workspace. Returns the keys that have it now.
    async fn link_identity(
        &mut self,
        workspace: &WorkspaceId,
        id: &IdentityId,
        external_id: &str,
        keys: Option<&[KeyId]>,
    ) -> Result<Vec<KeyId>>;
}

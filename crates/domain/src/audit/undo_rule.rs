//! Defines the operations that undo audit entries, and the rules that select them.

use foundation::id::{
    ApiId, GatewayPolicyId, IdentityId, InvitationId, KeyId, MigrationId, NamespaceId,
    PermissionId, RoleId, UserId, WorkspaceId,
};

/// The operation that reverses an audit entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum UndoAction {
    RevertKey(KeyId),
    /// Adds credits, or removes them if the number is negative. Credits that were used since stay used.
    AddCredits(KeyId, i64),
    DeleteKey(KeyId),
    RestoreKey(KeyId),
    /// Removes the keys that the migration has imported into the API by the entry, except those that were used since.
    RemoveImportedKeys(MigrationId, ApiId),
    AddPermission(KeyId, PermissionId),
    RemovePermission(KeyId, PermissionId),
    AddRole(KeyId, RoleId),
    RemoveRole(KeyId, RoleId),
    DeletePermission(PermissionId),
    RestorePermission(PermissionId),
    /// Restores the name and the description.
    RevertRole(RoleId),
    DeleteRole(RoleId),
    RestoreRole(RoleId),
    /// The role and the slug of the permission.
    AddPermissionToRole(RoleId, String),
    RemovePermissionFromRole(RoleId, String),
    RevertIdentity(IdentityId),
    DeleteIdentity(IdentityId),
    RestoreIdentity(IdentityId),
    RevertApi(ApiId),
    DeleteApi(ApiId),
    RestoreApi(ApiId),
    RevertNamespace(NamespaceId),
    DeleteNamespace(NamespaceId),
    RestoreNamespace(NamespaceId),
    RevertOverride(NamespaceId),
    /// The namespace and the identifier.
    DeleteOverride(NamespaceId, String),
    RevertMemberRole(UserId),
    RemoveMember(UserId),
    WithdrawInvitation(InvitationId),
    RevertGatewayPolicy(GatewayPolicyId),
    DeleteGatewayPolicy(GatewayPolicyId),
    RestoreGatewayPolicy(GatewayPolicyId),
    RevokeRootKey(KeyId),
    RestoreRootKey(KeyId),
    RevertWorkspaceName(WorkspaceId),
}

/// The reason why an entry cannot be undone.
pub type UndoRefusal = &'static str;

/// The rule by which the entries of an event are undone. An action is built from the ids and names of the entry's targets.
#[derive(Debug, Clone, Copy)]
pub enum UndoRule {
    /// An action on the first target, by its id.
    ById(fn(&str) -> UndoAction),
    /// An action on the first target, by its id, that applies the previous state in the entry.
    FromPrevious(fn(&str) -> UndoAction),
    /// An action on the first two targets, by their ids.
    ByIds(fn(&str, &str) -> UndoAction),
    /// An action on the first target, by its id, and the second, by its name.
    ByIdAndName(fn(&str, &str) -> UndoAction),
    /// Subtracts the credits that the entry added to a key, or applies the previous state of the key.
    KeyUpdate,
    /// Restores a key that was not deleted permanently.
    KeyDeletion,
    /// Applies the previous state of an override, or deletes an override that did not exist before.
    OverrideUpdate,
    /// No entry of the event can be undone.
    Refused(UndoRefusal),
}

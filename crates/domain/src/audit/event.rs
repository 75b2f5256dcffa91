//! Defines the audit events: the text that an entry stores, the label for users, and how it is undone. A text is part of
//! the contract: events may be added, but never renamed.

use super::undo_rule::{UndoAction, UndoRefusal, UndoRule};

/// The refusal for an event that changes nothing that an undo could restore.
pub const NOTHING_TO_RESTORE: UndoRefusal = "the entry has nothing to restore";
const PART_OF_IDENTITY_CHANGE: UndoRefusal =
    "it is part of a change to an identity; undo that change";
const NEW_KEY_MAY_BE_IN_USE: UndoRefusal =
    "the new key may be in use; delete or revoke one of the two instead";
const NEW_SECRET_MAY_BE_IN_USE: UndoRefusal =
    "the new secret may be in use; rotate the secret again instead";
const MOVE_IT_BACK: UndoRefusal = "move the home back with `keyward region move`";
const IMPORT_AGAIN: UndoRefusal = "the keys were removed permanently; import the file again";
const INVITATION_IS_LOST: UndoRefusal = "a withdrawn invitation cannot be restored";
const INVITATION_IS_NEEDED: UndoRefusal = "a removed member must be invited again";

/// Builds the [`UndoRule`] of a row from the name of the rule and that of the action or the refusal.
macro_rules! undo_rule {
    (ById $action:ident) => {
        UndoRule::ById(|id| UndoAction::$action(id.into()))
    };
    (FromPrevious $action:ident) => {
        UndoRule::FromPrevious(|id| UndoAction::$action(id.into()))
    };
    (ByIds $action:ident) => {
        UndoRule::ByIds(|first, second| UndoAction::$action(first.into(), second.into()))
    };
    (ByIdAndName $action:ident) => {
        UndoRule::ByIdAndName(|id, name| UndoAction::$action(id.into(), name.into()))
    };
    (Refused $refusal:ident) => {
        UndoRule::Refused($refusal)
    };
    ($rule:ident) => {
        UndoRule::$rule
    };
}

macro_rules! events {
    ($($name:ident $text:literal $label:literal $rule:ident $($argument:ident)?,)*) => {
        /// What an audit entry records.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum AuditEvent { $(#[doc = $label] $name,)* }

        impl AuditEvent {
            /// Every event, in the order in which users choose from them.
            pub const ALL: &'static [Self] = &[$(Self::$name,)*];

            /// Parses the text of an entry. `None`: another version wrote the entry, and this one does not know its event.
            pub fn parse(text: &str) -> Option<Self> {
                match text {
                    $($text => Some(Self::$name),)*
                    _ => None,
                }
            }

            /// Returns the text that entries store.
            pub fn as_str(self) -> &'static str {
                match self { $(Self::$name => $text,)* }
            }

            /// Returns the label for users.
            pub fn label(self) -> &'static str {
                match self { $(Self::$name => $label,)* }
            }

            /// Returns how an entry of the event is undone.
            pub fn undo_rule(self) -> UndoRule {
                match self { $(Self::$name => undo_rule!($rule $($argument)?),)* }
            }
        }
    };
}

events! {
    ApiCreated "api.create" "API created" ById DeleteApi,
    ApiUpdated "api.update" "API updated" FromPrevious RevertApi,
    ApiDeleted "api.delete" "API deleted" ById RestoreApi,
    ApiRestored "api.restore" "API restored" ById DeleteApi,
    KeyCreated "key.create" "Key created" ById DeleteKey,
    KeyUpdated "key.update" "Key updated" KeyUpdate,
    KeyDeleted "key.delete" "Key deleted" KeyDeletion,
    KeyRestored "key.restore" "Key restored" ById DeleteKey,
    KeyRotated "key.reroll" "Key rotated" Refused NEW_KEY_MAY_BE_IN_USE,
    KeyImported "key.migrate" "Key imported" ById DeleteKey,
    KeyDecrypted "key.decrypt" "Key decrypted" Refused NOTHING_TO_RESTORE,
    KeyPermissionAdded "authorization.connect_permission_and_key" "Permission assigned to key"
        ByIds RemovePermission,
    KeyPermissionRemoved "authorization.disconnect_permission_and_key" "Permission removed from key"
        ByIds AddPermission,
    KeyRoleAdded "authorization.connect_role_and_key" "Role assigned to key" ByIds RemoveRole,
    KeyRoleRemoved "authorization.disconnect_role_and_key" "Role removed from key" ByIds AddRole,
    RolePermissionAdded "authorization.connect_role_and_permission" "Permission assigned to role"
        ByIdAndName RemovePermissionFromRole,
    RolePermissionRemoved "authorization.disconnect_role_and_permissions" "Permission removed from role"
        ByIdAndName AddPermissionToRole,
    PermissionCreated "permission.create" "Permission created" ById DeletePermission,
    PermissionDeleted "permission.delete" "Permission deleted" FromPrevious RestorePermission,
    PermissionRestored "permission.restore" "Permission restored" ById DeletePermission,
    RoleCreated "role.create" "Role created" ById DeleteRole,
    RoleUpdated "role.update" "Role updated" FromPrevious RevertRole,
    RoleDeleted "role.delete" "Role deleted" FromPrevious RestoreRole,
    RoleRestored "role.restore" "Role restored" ById DeleteRole,
    IdentityCreated "identity.create" "Identity created" ById DeleteIdentity,
    IdentityUpdated "identity.update" "Identity updated" FromPrevious RevertIdentity,
    IdentityDeleted "identity.delete" "Identity deleted" FromPrevious RestoreIdentity,
    IdentityRestored "identity.restore" "Identity restored" ById DeleteIdentity,
    IdentityLimitCreated "ratelimit.create" "Identity limit created" Refused PART_OF_IDENTITY_CHANGE,
    IdentityLimitUpdated "ratelimit.update" "Identity limit updated" Refused PART_OF_IDENTITY_CHANGE,
    IdentityLimitDeleted "ratelimit.delete" "Identity limit deleted" Refused PART_OF_IDENTITY_CHANGE,
    NamespaceCreated "ratelimitNamespace.create" "Namespace created" ById DeleteNamespace,
    NamespaceUpdated "ratelimitNamespace.update" "Namespace updated" FromPrevious RevertNamespace,
    NamespaceDeleted "ratelimitNamespace.delete" "Namespace deleted" ById RestoreNamespace,
    NamespaceRestored "ratelimitNamespace.restore" "Namespace restored" ById DeleteNamespace,
    HomeMoved "home.move" "Home moved" Refused MOVE_IT_BACK,
    OverrideSet "ratelimit.set_override" "Override set" OverrideUpdate,
    OverrideDeleted "ratelimit.delete_override" "Override deleted" FromPrevious RevertOverride,
    GatewayPolicyCreated "gatewayPolicy.create" "Gateway policy created" ById DeleteGatewayPolicy,
    GatewayPolicyUpdated "gatewayPolicy.update" "Gateway policy updated"
        FromPrevious RevertGatewayPolicy,
    GatewayPolicyDeleted "gatewayPolicy.delete" "Gateway policy deleted" ById RestoreGatewayPolicy,
    GatewayPolicyRestored "gatewayPolicy.restore" "Gateway policy restored"
        ById DeleteGatewayPolicy,
    GatewaySecretRotated "gatewayPolicy.rotateSecret" "Gateway secret rotated"
        Refused NEW_SECRET_MAY_BE_IN_USE,
    RootKeyCreated "rootKey.create" "Root key created" ById RevokeRootKey,
    RootKeyRotated "rootKey.reroll" "Root key rotated" Refused NEW_KEY_MAY_BE_IN_USE,
    RootKeyRevoked "rootKey.revoke" "Root key revoked" ById RestoreRootKey,
    RootKeyRestored "rootKey.restore" "Root key restored" ById RevokeRootKey,
    MigrationCreated "migration.create" "Import created" Refused NOTHING_TO_RESTORE,
    KeysImported "migration.import" "Keys imported" ByIds RemoveImportedKeys,
    ImportedKeysRemoved "migration.removeKeys" "Imported keys removed" Refused IMPORT_AGAIN,
    MemberInvited "member.invite" "Member invited" ById WithdrawInvitation,
    InvitationWithdrawn "member.withdrawInvitation" "Invitation withdrawn" Refused INVITATION_IS_LOST,
    MemberJoined "member.join" "Member joined" ById RemoveMember,
    MemberRoleChanged "member.setRole" "Member role changed" FromPrevious RevertMemberRole,
    MemberRemoved "member.remove" "Member removed" Refused INVITATION_IS_NEEDED,
    UserSignedIn "user.login" "Signed in" Refused NOTHING_TO_RESTORE,
    PasswordChanged "user.changePassword" "Password changed" Refused NOTHING_TO_RESTORE,
    SsoLinked "user.linkLogin" "Single sign-on linked" Refused NOTHING_TO_RESTORE,
    SsoUnlinked "user.unlinkLogin" "Single sign-on unlinked" Refused NOTHING_TO_RESTORE,
    SessionEnded "user.endSession" "Session ended" Refused NOTHING_TO_RESTORE,
    OtherSessionsEnded "user.endOtherSessions" "Other sessions ended" Refused NOTHING_TO_RESTORE,
    WorkspaceCreated "workspace.create" "Workspace created" Refused NOTHING_TO_RESTORE,
    WorkspaceRenamed "workspace.rename" "Workspace renamed" FromPrevious RevertWorkspaceName,
    SigningKeyRotated "signingKey.rotate" "Signing key rotated" Refused NOTHING_TO_RESTORE,
    VaultRotated "vault.rotate" "Vault re-encrypted" Refused NOTHING_TO_RESTORE,
}

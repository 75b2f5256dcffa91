//! Permissions of root keys and users. Root keys are granted tuples `<type>.<id or *>.<action>`.

macro_rules! actions {
    (
        root_keys { $($name:ident $resource:literal $action:literal,)* }
        users { $($user:ident $user_resource:literal $user_action:literal,)* }
    ) => {
        /// An action that can be permitted.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum Action { $($name,)* $($user,)* }

        impl Action {
            /// The actions that a root key can be granted.
            pub const ALL: &'static [Self] = &[$(Self::$name,)*];
            /// The actions that only users can be granted, by their role: no tuple grants them.
            pub const USERS_ONLY: &'static [Self] = &[$(Self::$user,)*];

            pub fn resource(self) -> &'static str {
                match self { $(Self::$name => $resource,)* $(Self::$user => $user_resource,)* }
            }

            pub fn action(self) -> &'static str {
                match self { $(Self::$name => $action,)* $(Self::$user => $user_action,)* }
            }
        }
    };
}

// The tuples of the public service, so that a root key's permissions have the same meaning here.
actions! {
    root_keys {
        CreateApi "api" "create_api",
        ReadApi "api" "read_api",
        UpdateApi "api" "update_api",
        DeleteApi "api" "delete_api",
        CreateKey "api" "create_key",
        ReadKey "api" "read_key",
        UpdateKey "api" "update_key",
        DeleteKey "api" "delete_key",
        VerifyKey "api" "verify_key",
        EncryptKey "api" "encrypt_key",
        DecryptKey "api" "decrypt_key",
        ReadApiAnalytics "api" "read_analytics",
        Limit "ratelimit" "limit",
        CreateNamespace "ratelimit" "create_namespace",
        ReadNamespace "ratelimit" "read_namespace",
        UpdateNamespace "ratelimit" "update_namespace",
        DeleteNamespace "ratelimit" "delete_namespace",
        SetOverride "ratelimit" "set_override",
        ReadOverride "ratelimit" "read_override",
        DeleteOverride "ratelimit" "delete_override",
        ListOverrides "ratelimit" "list_overrides",
        ReadRatelimitAnalytics "ratelimit" "read_analytics",
        CreatePermission "rbac" "create_permission",
        ReadPermission "rbac" "read_permission",
        UpdatePermission "rbac" "update_permission",
        DeletePermission "rbac" "delete_permission",
        CreateRole "rbac" "create_role",
        ReadRole "rbac" "read_role",
        UpdateRole "rbac" "update_role",
        DeleteRole "rbac" "delete_role",
        AddPermissionToKey "rbac" "add_permission_to_key",
        RemovePermissionFromKey "rbac" "remove_permission_from_key",
        AddRoleToKey "rbac" "add_role_to_key",
        RemoveRoleFromKey "rbac" "remove_role_from_key",
        AddPermissionToRole "rbac" "add_permission_to_role",
        RemovePermissionFromRole "rbac" "remove_permission_from_role",
        CreateIdentity "identity" "create_identity",
        ReadIdentity "identity" "read_identity",
        UpdateIdentity "identity" "update_identity",
        DeleteIdentity "identity" "delete_identity",
        CreateGatewayPolicy "gateway" "create_policy",
        ReadGatewayPolicy "gateway" "read_policy",
        UpdateGatewayPolicy "gateway" "update_policy",
        DeleteGatewayPolicy "gateway" "delete_policy",
    }
    users {
        ReadRootKey "root_key" "read_root_key",
        CreateRootKey "root_key" "create_root_key",
        RevokeRootKey "root_key" "revoke_root_key",
        ReadMember "workspace" "read_member",
        ManageMembers "workspace" "manage_members",
        RenameWorkspace "workspace" "rename_workspace",
        ReadAudit "workspace" "read_audit",
    }
}

impl Action {
    /// Returns the permission for every instance.
    pub fn to_wildcard_tuple(self) -> String {
        format!("{}.*.{}", self.resource(), self.action())
    }

    /// Returns the permission for one instance.
    pub fn to_tuple(self, id: &str) -> String {
        format!("{}.{id}.{}", self.resource(), self.action())
    }

    fn bit(self) -> u64 {
        1 << (self as u8)
    }
}

/// The actions that one root key or one user may perform.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Grants {
    /// One bit for each action that is granted for every instance.
    wildcard_bits: u64,
    by_instance: Vec<(Action, Box<str>)>,
}

impl Grants {
    /// Returns whether the action is allowed on every instance.
    pub fn is_allowed(&self, action: Action) -> bool {
        self.wildcard_bits & action.bit() != 0
    }

    /// Returns the ids of the instances for which the action is granted individually.
    pub fn allowed_ids(&self, action: Action) -> impl Iterator<Item = &str> {
        self.by_instance.iter().filter(move |(granted, _)| *granted == action).map(|(_, id)| &**id)
    }

    /// Returns whether the action is allowed on this instance.
    pub fn is_allowed_on(&self, action: Action, id: &impl AsRef<str>) -> bool {
        self.is_allowed(action)
            || self
                .by_instance
                .iter()
                .any(|(granted, on)| *granted == action && **on == *id.as_ref())
    }
}

impl<'a> FromIterator<&'a str> for Grants {
    /// Collects the grants of tuples. Tuples that this version does not know grant nothing.
    fn from_iter<I: IntoIterator<Item = &'a str>>(tuples: I) -> Self {
        let mut grants = Self::default();
        for (action, id) in tuples.into_iter().filter_map(|tuple| parse_tuple(tuple).ok()) {
            match id {
                "*" => grants.wildcard_bits |= action.bit(),
                id => grants.by_instance.push((action, id.into())),
            }
        }
        grants
    }
}

impl<'a> FromIterator<(Action, &'a str)> for Grants {
    /// Grants each action on one instance.
    fn from_iter<I: IntoIterator<Item = (Action, &'a str)>>(grants: I) -> Self {
        let by_instance = grants.into_iter().map(|(action, id)| (action, id.into())).collect();
        Self { wildcard_bits: 0, by_instance }
    }
}

impl FromIterator<Action> for Grants {
    /// Grants each action for every instance.
    fn from_iter<I: IntoIterator<Item = Action>>(actions: I) -> Self {
        let everywhere = actions.into_iter().fold(0, |bits, action| bits | action.bit());
        Self { wildcard_bits: everywhere, by_instance: Vec::new() }
    }
}

/// Parses a tuple. The error says what is wrong with it.
pub fn parse_tuple(tuple: &str) -> Result<(Action, &str), String> {
    let mut parts = tuple.split('.');
    let (Some(resource), Some(id), Some(action), None) =
        (parts.next(), parts.next(), parts.next(), parts.next())
    else {
        return Err(format!("permission {tuple} does not have the form <type>.<id or *>.<action>"));
    };
    if id.is_empty() || !(id == "*" || id.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')) {
        return Err(format!(
            "permission {tuple}: the id must be * or consist of letters, digits and _"
        ));
    }
    let known = |known: &&Action| known.resource() == resource && known.action() == action;
    match Action::ALL.iter().find(known) {
        Some(action) => Ok((*action, id)),
        None => Err(format!(
            "unknown permission {tuple}; permissions of type {resource}: {}",
            Action::ALL
                .iter()
                .filter(|action| action.resource() == resource)
                .map(|action| action.action())
                .collect::<Vec<_>>()
                .join(", ")
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grants_allow_every_instance_when_tuple_has_a_wildcard() {
        let grants: Grants = ["api.*.read_key", "api.api_1.verify_key"].into_iter().collect();

        assert!(grants.is_allowed_on(Action::ReadKey, &"api_2"));
        assert!(grants.is_allowed_on(Action::VerifyKey, &"api_1"));
        assert!(!grants.is_allowed_on(Action::VerifyKey, &"api_2"));
        assert!(!grants.is_allowed(Action::VerifyKey));
    }

    #[test]
    fn every_action_has_a_unique_bit_and_parses() {
        assert!(Action::ALL.len() + Action::USERS_ONLY.len() <= 64);
        for action in Action::ALL {
            assert_eq!(parse_tuple(&action.to_wildcard_tuple()), Ok((*action, "*")));
        }
    }

    #[test]
    fn parse_fails_when_action_is_for_users_only() {
        for action in Action::USERS_ONLY {
            assert!(parse_tuple(&action.to_wildcard_tuple()).is_err());
        }
    }

    #[test]
    fn parse_returns_the_reason_when_tuple_is_invalid() {
        assert!(
            parse_tuple("api.create_key").is_err_and(|e| e.contains("<type>.<id or *>.<action>"))
        );
        assert!(parse_tuple("api.*.fly").is_err_and(|e| e.contains("create_key")));
        assert!(parse_tuple("api.a b.create_key").is_err_and(|e| e.contains("the id must be")));
    }
}

use domain::rbac;
use foundation::id::RoleId;

use crate::prelude::*;
use crate::schemas::{PermissionReply, into_strings};
use crate::v2::schemas::Slugs;

/// Set the permissions of a role.
///
/// Replaces the permissions of the role. A missing permission is created if the root key has
/// `rbac.*.create_permission`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SetRolePermissions {
    pub role_id: Text<3, 255, IdChars>,
    /// Permission slugs. An empty list removes all permissions of the role.
    pub permissions: Slugs,
}

impl Operation for SetRolePermissions {
    const NAME: &'static str = "permissions.setRolePermissions";
    const ACCESS: AccessRule =
        AccessRule::Permission(&[Action::AddPermissionToRole, Action::RemovePermissionFromRole]);
    const WRITES: bool = true;
    type Reply = Vec<PermissionReply>;

    fn example() -> Value {
        json!({ "roleId": example::ROLE_ID, "permissions": ["documents.write"] })
    }

    async fn run(self, app: &App, caller: &Caller) -> Result<Vec<PermissionReply>> {
        let id = RoleId::from(self.role_id.into_string());
        let set =
            rbac::set_role_permissions(&app.context, caller, &id, into_strings(self.permissions))
                .await?;
        Ok(set.into_iter().map(PermissionReply::from).collect())
    }
}

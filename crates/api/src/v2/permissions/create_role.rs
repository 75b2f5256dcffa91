use domain::bounds::{DESCRIPTION_MAX, ROLE_NAME_MAX};
use domain::rbac::{self, NewRole};
use foundation::id::RoleId;

use crate::prelude::*;
use crate::v2::schemas::Slugs;

/// Create a role.
///
/// A role is a named set of permissions. A missing permission is created if the root key has
/// `rbac.*.create_permission`. A role with permissions also requires `rbac.*.add_permission_to_role`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CreateRole {
    pub name: Text<1, ROLE_NAME_MAX, Printable>,
    #[serde(default)]
    pub description: Optional<Text<0, DESCRIPTION_MAX>>,
    /// Permission slugs.
    #[serde(default)]
    pub permissions: Optional<Slugs>,
}

/// The new role.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CreateRoleReply {
    role_id: RoleId,
}

impl Operation for CreateRole {
    const NAME: &'static str = "permissions.createRole";
    const ACCESS: AccessRule = AccessRule::Permission(&[Action::CreateRole]);
    const WRITES: bool = true;
    type Reply = CreateRoleReply;

    fn example() -> Value {
        json!({ "name": "reader", "permissions": [example::PERMISSION] })
    }

    async fn run(self, app: &App, caller: &Caller) -> Result<CreateRoleReply> {
        let permissions = self.permissions.0.map_or_else(Vec::new, |list| list.0);
        let new = NewRole {
            name: self.name.into_string(),
            description: self.description.0.map(Text::into_string).filter(|text| !text.is_empty()),
            permissions: permissions.into_iter().map(Text::into_string).collect(),
        };
        let role_id = rbac::create_role(&app.context, caller, new).await?;
        Ok(CreateRoleReply { role_id })
    }
}

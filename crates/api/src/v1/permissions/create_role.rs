use domain::rbac::{self, NewRole};
use foundation::id::RoleId;

use super::schemas::{Description, validate_description};
use crate::prelude::*;

/// Create a role.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CreateRole {
    pub name: Text<3, 256, Printable>,
    #[serde(default)]
    pub description: Optional<Description>,
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
        json!({ "name": "archivist", "description": "Keeps what is old." })
    }

    async fn run(self, app: &App, caller: &Caller) -> Result<CreateRoleReply> {
        let description = validate_description(self.description)?;
        let new = NewRole { name: self.name.into_string(), description, permissions: Vec::new() };
        Ok(CreateRoleReply { role_id: rbac::create_role(&app.context, caller, new).await? })
    }
}

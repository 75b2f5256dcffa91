use domain::rbac::{self, RbacRef};

use crate::prelude::*;
use crate::v2::schemas::{RoleName, RoleReply};

/// Get a role.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct GetRole {
    /// The id or name of the role.
    pub role: RoleName,
}

impl Operation for GetRole {
    const NAME: &'static str = "permissions.getRole";
    const ACCESS: AccessRule = AccessRule::Permission(&[Action::ReadRole]);
    type Reply = RoleReply;

    fn example() -> Value {
        json!({ "role": example::ROLE })
    }

    async fn run(self, app: &App, caller: &Caller) -> Result<RoleReply> {
        let reference = RbacRef::IdOrName(self.role.as_str());
        Ok(rbac::get_role(&app.context, caller, reference).await?.into())
    }
}

use domain::rbac::{self, RbacRef};

use crate::prelude::*;
use crate::schemas::Empty;
use crate::v2::schemas::RoleName;

/// Delete a role.
///
/// The role is removed from every key, together with the permissions that a key had only through this role.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct DeleteRole {
    /// The id or name of the role.
    pub role: RoleName,
}

impl Operation for DeleteRole {
    const NAME: &'static str = "permissions.deleteRole";
    const ACCESS: AccessRule = AccessRule::Permission(&[Action::DeleteRole]);
    const WRITES: bool = true;
    type Reply = Empty;

    fn example() -> Value {
        json!({ "role": example::ROLE })
    }

    async fn run(self, app: &App, caller: &Caller) -> Result<Empty> {
        let reference = RbacRef::IdOrName(self.role.as_str());
        rbac::delete_role(&app.context, caller, reference).await?;
        Ok(Empty {})
    }
}

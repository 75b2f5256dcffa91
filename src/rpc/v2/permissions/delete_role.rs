use crate::domain::rbac;
use crate::rpc::prelude::*;
use crate::rpc::schemas::Empty;
use crate::rpc::v2::schemas::RoleName;

/// Delete a role.
///
/// Every key loses it, and the permissions that it had through it alone.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct DeleteRole {
    /// Its id or its name.
    pub role: RoleName,
}

impl Operation for DeleteRole {
    const NAME: &'static str = "permissions.deleteRole";
    const NEEDS: AccessRule = AccessRule::Permission(&[Action::DeleteRole]);
    const WRITES: bool = true;
    type Reply = Empty;

    fn example() -> Value {
        json!({ "role": example::ROLE })
    }

    async fn run(self, app: &App, caller: &Caller) -> Result<Empty> {
        rbac::delete_role(app, caller, self.role.as_str()).await?;
        Ok(Empty {})
    }
}

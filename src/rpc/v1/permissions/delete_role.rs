use crate::domain::rbac;
use crate::rpc::prelude::*;
use crate::rpc::reply::Nothing;
use crate::rpc::v1::shapes::Name;

/// Delete a role.
///
/// It is taken from every key.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DeleteRole {
    pub role_id: Name,
}

impl Operation for DeleteRole {
    const NAME: &'static str = "permissions.deleteRole";
    const NEEDS: Needs = Needs::Permission(&[Action::DeleteRole]);
    const WRITES: bool = true;
    type Reply = Nothing;

    fn example() -> Value {
        json!({ "roleId": example::ROLE_ID })
    }

    async fn run(self, app: &App, caller: &Caller) -> Result<Nothing> {
        rbac::delete_role(app, caller, self.role_id.as_str()).await?;
        Ok(Nothing)
    }
}

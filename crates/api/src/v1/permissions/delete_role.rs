use domain::rbac::{self, RbacRef};

use crate::prelude::*;
use crate::reply::EmptyReply;
use crate::v1::schemas::IdOrName;

/// Delete a role.
///
/// The role is removed from every key.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DeleteRole {
    pub role_id: IdOrName,
}

impl Operation for DeleteRole {
    const NAME: &'static str = "permissions.deleteRole";
    const ACCESS: AccessRule = AccessRule::Permission(&[Action::DeleteRole]);
    const WRITES: bool = true;
    type Reply = EmptyReply;

    fn example() -> Value {
        json!({ "roleId": example::ROLE_ID })
    }

    async fn run(self, app: &App, caller: &Caller) -> Result<EmptyReply> {
        let reference = RbacRef::Id(self.role_id.as_str());
        rbac::delete_role(&app.context, caller, reference).await?;
        Ok(EmptyReply)
    }
}

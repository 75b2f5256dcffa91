use domain::rbac::{self, RbacRef};

use super::schemas::RoleReply;
use crate::prelude::*;
use crate::v1::schemas::IdOrName;

/// Get a role.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct GetRole {
    pub role_id: IdOrName,
}

impl Operation for GetRole {
    const NAME: &'static str = "permissions.getRole";
    const METHOD: HttpMethod = HttpMethod::Get;
    const ACCESS: AccessRule = AccessRule::Permission(&[Action::ReadRole]);
    type Reply = RoleReply;

    fn example() -> Value {
        json!({ "roleId": example::ROLE_ID })
    }

    async fn run(self, app: &App, caller: &Caller) -> Result<RoleReply> {
        let reference = RbacRef::Id(self.role_id.as_str());
        Ok(rbac::get_role(&app.context, caller, reference).await?.into())
    }
}

use domain::rbac::{self, RbacRef};

use crate::prelude::*;
use crate::schemas::PermissionReply;
use crate::v1::schemas::IdOrName;

/// Get a permission.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct GetPermission {
    pub permission_id: IdOrName,
}

impl Operation for GetPermission {
    const NAME: &'static str = "permissions.getPermission";
    const METHOD: HttpMethod = HttpMethod::Get;
    const ACCESS: AccessRule = AccessRule::Permission(&[Action::ReadPermission]);
    type Reply = PermissionReply;

    fn example() -> Value {
        json!({ "permissionId": example::PERMISSION_ID })
    }

    async fn run(self, app: &App, caller: &Caller) -> Result<PermissionReply> {
        let reference = RbacRef::Id(self.permission_id.as_str());
        Ok(rbac::get_permission(&app.context, caller, reference).await?.into())
    }
}

use domain::rbac::{self, RbacRef};

use crate::prelude::*;
use crate::reply::EmptyReply;
use crate::v1::schemas::IdOrName;

/// Delete a permission.
///
/// The permission is removed from every key and role.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DeletePermission {
    pub permission_id: IdOrName,
}

impl Operation for DeletePermission {
    const NAME: &'static str = "permissions.deletePermission";
    const ACCESS: AccessRule = AccessRule::Permission(&[Action::DeletePermission]);
    const WRITES: bool = true;
    type Reply = EmptyReply;

    fn example() -> Value {
        json!({ "permissionId": example::PERMISSION_ID })
    }

    async fn run(self, app: &App, caller: &Caller) -> Result<EmptyReply> {
        let reference = RbacRef::Id(self.permission_id.as_str());
        rbac::delete_permission(&app.context, caller, reference).await?;
        Ok(EmptyReply)
    }
}

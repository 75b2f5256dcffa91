use domain::rbac::{self, RbacRef};

use crate::prelude::*;
use crate::schemas::PermissionReply;

/// Get a permission.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct GetPermission {
    /// The id or slug of the permission.
    pub permission: Slug,
}

impl Operation for GetPermission {
    const NAME: &'static str = "permissions.getPermission";
    const ACCESS: AccessRule = AccessRule::Permission(&[Action::ReadPermission]);
    type Reply = PermissionReply;

    fn example() -> Value {
        json!({ "permission": example::PERMISSION })
    }

    async fn run(self, app: &App, caller: &Caller) -> Result<PermissionReply> {
        let reference = RbacRef::IdOrName(self.permission.as_str());
        Ok(rbac::get_permission(&app.context, caller, reference).await?.into())
    }
}

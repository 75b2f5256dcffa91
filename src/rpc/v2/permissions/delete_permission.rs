use crate::domain::rbac;
use crate::rpc::prelude::*;
use crate::rpc::schemas::Empty;

/// Delete a permission.
///
/// Every key and every role loses it.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct DeletePermission {
    /// Its id or its slug.
    pub permission: Slug,
}

impl Operation for DeletePermission {
    const NAME: &'static str = "permissions.deletePermission";
    const NEEDS: AccessRule = AccessRule::Permission(&[Action::DeletePermission]);
    const WRITES: bool = true;
    type Reply = Empty;

    fn example() -> Value {
        json!({ "permission": example::PERMISSION })
    }

    async fn run(self, app: &App, caller: &Caller) -> Result<Empty> {
        rbac::delete_permission(app, caller, self.permission.as_str()).await?;
        Ok(Empty {})
    }
}

use domain::rbac::{self, RbacRef};

use crate::prelude::*;
use crate::schemas::Empty;

/// Delete a permission.
///
/// The permission is removed from every key and role.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct DeletePermission {
    /// The id or slug of the permission.
    pub permission: Slug,
}

impl Operation for DeletePermission {
    const NAME: &'static str = "permissions.deletePermission";
    const ACCESS: AccessRule = AccessRule::Permission(&[Action::DeletePermission]);
    const WRITES: bool = true;
    type Reply = Empty;

    fn example() -> Value {
        json!({ "permission": example::PERMISSION })
    }

    async fn run(self, app: &App, caller: &Caller) -> Result<Empty> {
        let reference = RbacRef::IdOrName(self.permission.as_str());
        rbac::delete_permission(&app.context, caller, reference).await?;
        Ok(Empty {})
    }
}

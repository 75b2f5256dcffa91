use domain::rbac;

use super::schemas::list_all;
use crate::prelude::*;
use crate::schemas::PermissionReply;

/// List all permissions.
#[derive(Debug, Deserialize, JsonSchema)]
pub struct ListPermissions {}

impl Operation for ListPermissions {
    const NAME: &'static str = "permissions.listPermissions";
    const METHOD: HttpMethod = HttpMethod::Get;
    const ACCESS: AccessRule = AccessRule::Permission(&[Action::ReadPermission]);
    type Reply = Vec<PermissionReply>;

    fn example() -> Value {
        json!({})
    }

    async fn run(self, app: &App, caller: &Caller) -> Result<Vec<PermissionReply>> {
        let page =
            |paging| async move { rbac::list_permissions(&app.context, caller, &paging).await };
        Ok(list_all(page).await?.into_iter().map(PermissionReply::from).collect())
    }
}

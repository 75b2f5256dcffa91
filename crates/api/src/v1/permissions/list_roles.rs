use domain::rbac;

use super::schemas::{RoleReply, list_all};
use crate::prelude::*;

/// List all roles.
#[derive(Debug, Deserialize, JsonSchema)]
pub struct ListRoles {}

impl Operation for ListRoles {
    const NAME: &'static str = "permissions.listRoles";
    const METHOD: HttpMethod = HttpMethod::Get;
    const ACCESS: AccessRule = AccessRule::Permission(&[Action::ReadRole]);
    type Reply = Vec<RoleReply>;

    fn example() -> Value {
        json!({})
    }

    async fn run(self, app: &App, caller: &Caller) -> Result<Vec<RoleReply>> {
        let page =
            |paging| async move { rbac::list_role_summaries(&app.context, caller, &paging).await };
        Ok(list_all(page).await?.into_iter().map(RoleReply::from).collect())
    }
}

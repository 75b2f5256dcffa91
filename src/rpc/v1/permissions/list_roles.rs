use super::schemas::{RoleReply, whole};
use crate::domain::rbac;
use crate::rpc::prelude::*;

/// List all roles.
#[derive(Debug, Deserialize, JsonSchema)]
pub struct ListRoles {}

impl Operation for ListRoles {
    const NAME: &'static str = "permissions.listRoles";
    const VERB: Verb = Verb::Get;
    const NEEDS: AccessRule = AccessRule::Permission(&[Action::ReadRole]);
    type Reply = Vec<RoleReply>;

    fn example() -> Value {
        json!({})
    }

    async fn run(self, app: &App, caller: &Caller) -> Result<Vec<RoleReply>> {
        let page = |paging| async move { rbac::list_roles(app, caller, &paging).await };
        Ok(whole(page).await?.into_iter().map(RoleReply::from).collect())
    }
}

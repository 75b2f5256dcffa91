use domain::rbac;

use crate::prelude::*;
use crate::reply::PageReply;
use crate::v2::schemas::{Cursor, PageLimit, RoleReply, Search, to_search_paging};

/// List roles.
///
/// Returns pages of the roles of the workspace with their permissions, sorted by id.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ListRoles {
    /// The maximum number of items per page. Default: 100.
    #[serde(default)]
    pub limit: Optional<PageLimit>,
    /// The `pagination.cursor` of the previous page. Default: the first page.
    #[serde(default)]
    pub cursor: Optional<Cursor>,
    /// Returns only roles whose id, name or description contains this text, ignoring case.
    #[serde(default)]
    pub search: Optional<Search>,
}

impl Operation for ListRoles {
    const NAME: &'static str = "permissions.listRoles";
    const ACCESS: AccessRule = AccessRule::Permission(&[Action::ReadRole]);
    type Reply = PageReply<RoleReply>;

    fn example() -> Value {
        json!({ "limit": 20, "search": "edit" })
    }

    async fn run(self, app: &App, caller: &Caller) -> Result<PageReply<RoleReply>> {
        let paging = to_search_paging(self.limit, self.cursor, self.search);
        let page = rbac::list_roles(&app.context, caller, &paging).await?;
        Ok(PageReply::new(page))
    }
}

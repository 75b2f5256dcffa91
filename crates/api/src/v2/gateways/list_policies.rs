use domain::gateways;

use super::policy::PolicyReply;
use crate::prelude::*;
use crate::reply::PageReply;
use crate::v2::schemas::{Cursor, PageLimit, Search, to_search_paging};

/// List gateway policies.
///
/// Returns pages of the workspace's policies, sorted by id.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ListPolicies {
    /// The maximum number of items per page. Default: 100.
    #[serde(default)]
    pub limit: Optional<PageLimit>,
    /// The `pagination.cursor` of the previous page. Default: the first page.
    #[serde(default)]
    pub cursor: Optional<Cursor>,
    /// Returns only policies whose id or name contains this text.
    #[serde(default)]
    pub search: Optional<Search>,
}

impl Operation for ListPolicies {
    const NAME: &'static str = "gateways.listPolicies";
    const ACCESS: AccessRule = AccessRule::Permission(&[Action::ReadGatewayPolicy]);
    type Reply = PageReply<PolicyReply>;

    fn example() -> Value {
        json!({ "limit": 20 })
    }

    async fn run(self, app: &App, caller: &Caller) -> Result<PageReply<PolicyReply>> {
        let paging = to_search_paging(self.limit, self.cursor, self.search);
        Ok(PageReply::new(gateways::list(&app.context, caller, &paging).await?))
    }
}

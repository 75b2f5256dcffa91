use domain::identities;

use crate::prelude::*;
use crate::reply::PageReply;
use crate::v2::schemas::{Cursor, IdentityReply, PageLimit, Search, to_search_paging};

/// List identities.
///
/// Returns pages of the identities that the root key may read, sorted by id.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ListIdentities {
    /// The maximum number of items per page. Default: 100.
    #[serde(default)]
    pub limit: Optional<PageLimit>,
    /// The `pagination.cursor` of the previous page. Default: the first page.
    #[serde(default)]
    pub cursor: Optional<Cursor>,
    /// Returns only identities whose id or externalId contains this text, ignoring case.
    #[serde(default)]
    pub search: Optional<Search>,
}

impl Operation for ListIdentities {
    const NAME: &'static str = "identities.listIdentities";
    const ACCESS: AccessRule = AccessRule::Permission(&[Action::ReadIdentity]);
    type Reply = PageReply<IdentityReply>;

    fn example() -> Value {
        json!({ "limit": 20, "search": "user_" })
    }

    async fn run(self, app: &App, caller: &Caller) -> Result<PageReply<IdentityReply>> {
        let paging = to_search_paging(self.limit, self.cursor, self.search);
        let page = identities::list(&app.context, caller, None, &paging).await?;
        Ok(PageReply::new(page))
    }
}

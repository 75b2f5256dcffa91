use domain::ratelimits::overrides;

use crate::prelude::*;
use crate::reply::PageReply;
use crate::v2::schemas::{Cursor, NamespaceOrIdentifier, OverrideReply, PageLimit, to_paging};

/// List overrides.
///
/// Returns pages of the overrides of one namespace, sorted by id. Expired overrides are included.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ListOverrides {
    /// A namespace id or name.
    pub namespace: NamespaceOrIdentifier,
    /// The maximum number of items per page. Default: 10.
    #[serde(default)]
    pub limit: Optional<PageLimit>,
    /// The `pagination.cursor` of the previous page. Default: the first page.
    #[serde(default)]
    pub cursor: Optional<Cursor>,
}

impl Operation for ListOverrides {
    const NAME: &'static str = "ratelimit.listOverrides";
    const ACCESS: AccessRule = AccessRule::Permission(&[Action::ReadOverride]);
    type Reply = PageReply<OverrideReply>;

    fn example() -> Value {
        json!({ "namespace": example::NAMESPACE_ID, "limit": 20 })
    }

    async fn run(self, app: &App, caller: &Caller) -> Result<PageReply<OverrideReply>> {
        let paging = to_paging(self.limit, 10, self.cursor);
        let page = overrides::list(&app.context, caller, self.namespace.as_str(), &paging).await?;
        Ok(PageReply::new(page))
    }
}

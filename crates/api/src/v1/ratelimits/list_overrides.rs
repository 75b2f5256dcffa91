use domain::ratelimits::overrides;

use super::schemas::{OverrideReply, parse_namespace};
use crate::prelude::*;
use crate::v1::schemas::{PageLimit, to_paging};

/// List the overrides of a namespace.
///
/// Returns pages sorted by id.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ListOverrides {
    /// The namespace id. It takes precedence over `namespaceName`.
    #[serde(default)]
    pub namespace_id: Optional<Text<0, 512>>,
    #[serde(default)]
    pub namespace_name: Optional<Text<0, 512>>,
    /// The maximum number of items per page. Default: 100.
    #[serde(default)]
    pub limit: Optional<PageLimit>,
    /// The `cursor` of the previous page. Default: the first page.
    #[serde(default)]
    pub cursor: Optional<Text<0, 1024>>,
}

/// A page of overrides.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ListOverridesReply {
    overrides: Vec<OverrideReply>,
    /// The total number of items on all pages.
    total: i64,
    /// The cursor of the next page; omitted on the last page.
    #[serde(skip_serializing_if = "Option::is_none")]
    cursor: Option<String>,
}

impl Operation for ListOverrides {
    const NAME: &'static str = "ratelimits.listOverrides";
    const METHOD: HttpMethod = HttpMethod::Get;
    const ACCESS: AccessRule = AccessRule::Permission(&[Action::ReadOverride]);
    type Reply = ListOverridesReply;

    fn example() -> Value {
        json!({ "namespaceName": example::NAMESPACE, "limit": 20 })
    }

    async fn run(self, app: &App, caller: &Caller) -> Result<ListOverridesReply> {
        let namespace = parse_namespace(self.namespace_id, self.namespace_name)?;
        let total = overrides::count(&app.context, caller, &namespace).await?;
        let paging = to_paging(self.limit, self.cursor);
        let page = overrides::list(&app.context, caller, &namespace, &paging).await?;
        let cursor = page.find_last_id(|found| &found.id);
        let overrides = page.items.into_iter().map(OverrideReply::from).collect();
        Ok(ListOverridesReply { overrides, total, cursor })
    }
}

use super::schemas::{OverrideReply, namespace};
use crate::domain::ratelimits::overrides;
use crate::rpc::prelude::*;
use crate::rpc::v1::schemas::{PageLimit, paging};

/// List the overrides of a namespace.
///
/// By id, page by page.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ListOverrides {
    /// Counts where `namespaceName` is given too.
    #[serde(default)]
    pub namespace_id: Optional<Text<0, 512>>,
    #[serde(default)]
    pub namespace_name: Optional<Text<0, 512>>,
    /// How many a page may have. Left out: 100.
    #[serde(default)]
    pub limit: Optional<PageLimit>,
    /// As the page before told it.
    #[serde(default)]
    pub cursor: Optional<Text<0, 1024>>,
}

/// A page of overrides.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Overrides {
    overrides: Vec<OverrideReply>,
    /// How many there are in all.
    total: i64,
    /// Left out on the last page.
    #[serde(skip_serializing_if = "Option::is_none")]
    cursor: Option<String>,
}

impl Operation for ListOverrides {
    const NAME: &'static str = "ratelimits.listOverrides";
    const VERB: Verb = Verb::Get;
    const NEEDS: AccessRule = AccessRule::Permission(&[Action::ReadOverride]);
    type Reply = Overrides;

    fn example() -> Value {
        json!({ "namespaceName": example::NAMESPACE, "limit": 20 })
    }

    async fn run(self, app: &App, caller: &Caller) -> Result<Overrides> {
        let namespace = namespace(self.namespace_id, self.namespace_name)?;
        let total = overrides::count(app, caller, &namespace).await?;
        let paging = paging(self.limit, self.cursor);
        let page = overrides::list(app, caller, &namespace, &paging).await?;
        let cursor = page.last(|known| &known.id);
        let overrides = page.items.into_iter().map(OverrideReply::from).collect();
        Ok(Overrides { overrides, total, cursor })
    }
}

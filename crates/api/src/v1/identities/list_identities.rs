use domain::identities::{self, DEFAULT_ENVIRONMENT};
use foundation::id::IdentityId;
use foundation::model;

use super::schemas::{SharedRatelimitReply, to_limit_replies};
use crate::prelude::*;
use crate::v1::schemas::{PageLimit, to_paging};

/// List identities.
///
/// Returns pages sorted by id.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ListIdentities {
    /// Accepted but ignored.
    #[serde(default)]
    #[expect(dead_code, reason = "identities have no environment")]
    pub environment: Optional<Text<0, 256>>,
    /// The maximum number of items per page. Default: 100.
    #[serde(default)]
    pub limit: Optional<PageLimit>,
    /// The `cursor` of the previous page. Default: the first page.
    #[serde(default)]
    pub cursor: Optional<Text<0, 1024>>,
}

/// A page of identities.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ListIdentitiesReply {
    identities: Vec<IdentityListItem>,
    /// The total number of items on all pages.
    total: i64,
    /// The cursor of the next page; omitted on the last page.
    #[serde(skip_serializing_if = "Option::is_none")]
    cursor: Option<String>,
}

/// An identity, which represents one of your users.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct IdentityListItem {
    id: IdentityId,
    external_id: String,
    ratelimits: Vec<SharedRatelimitReply>,
}

impl From<model::Identity> for IdentityListItem {
    fn from(identity: model::Identity) -> Self {
        let model::Identity { id, external_id, ratelimits, meta: _, home: _ } = identity;
        Self { id, external_id, ratelimits: to_limit_replies(ratelimits) }
    }
}

impl Operation for ListIdentities {
    const NAME: &'static str = "identities.listIdentities";
    const METHOD: HttpMethod = HttpMethod::Get;
    const ACCESS: AccessRule = AccessRule::Permission(&[Action::ReadIdentity]);
    type Reply = ListIdentitiesReply;

    fn example() -> Value {
        json!({ "limit": 20 })
    }

    async fn run(self, app: &App, caller: &Caller) -> Result<ListIdentitiesReply> {
        let total = identities::count(&app.context, caller, DEFAULT_ENVIRONMENT).await?;
        let paging = to_paging(self.limit, self.cursor);
        let page =
            identities::list(&app.context, caller, Some(DEFAULT_ENVIRONMENT), &paging).await?;
        let cursor = page.find_last_id(|identity| &identity.id);
        let identities = page.items.into_iter().map(IdentityListItem::from).collect();
        Ok(ListIdentitiesReply { identities, total, cursor })
    }
}

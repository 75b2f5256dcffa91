use foundation::id::IdentityId;
use foundation::model;

use super::schemas::{SharedRatelimitReply, shared_replies};
use crate::domain::identities::{self, ENVIRONMENT};
use crate::rpc::prelude::*;
use crate::rpc::v1::schemas::{PageLimit, paging};

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
pub struct Identities {
    identities: Vec<Listed>,
    /// The total number of items on all pages.
    total: i64,
    /// The cursor of the next page; omitted on the last page.
    #[serde(skip_serializing_if = "Option::is_none")]
    cursor: Option<String>,
}

/// An identity, which represents one of your users.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct Listed {
    id: IdentityId,
    external_id: String,
    ratelimits: Vec<SharedRatelimitReply>,
}

impl From<model::Identity> for Listed {
    fn from(identity: model::Identity) -> Self {
        let model::Identity { id, external_id, ratelimits, meta: _ } = identity;
        Self { id, external_id, ratelimits: shared_replies(ratelimits) }
    }
}

impl Operation for ListIdentities {
    const NAME: &'static str = "identities.listIdentities";
    const VERB: Verb = Verb::Get;
    const NEEDS: AccessRule = AccessRule::Permission(&[Action::ReadIdentity]);
    type Reply = Identities;

    fn example() -> Value {
        json!({ "limit": 20 })
    }

    async fn run(self, app: &App, caller: &Caller) -> Result<Identities> {
        let total = identities::count(app, caller, ENVIRONMENT).await?;
        let paging = paging(self.limit, self.cursor);
        let page = identities::list(app, caller, Some(ENVIRONMENT), &paging).await?;
        let cursor = page.last(|identity| &identity.id);
        let identities = page.items.into_iter().map(Listed::from).collect();
        Ok(Identities { identities, total, cursor })
    }
}

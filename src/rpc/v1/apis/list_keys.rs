use foundation::id::ApiId;

use crate::domain::keys::{self, DecryptMode, KeyOwner, WantedKeys};
use crate::rpc::prelude::*;
use crate::rpc::v1::schemas::{KeyReply, Name, OwnerId, PageLimit, paging};

/// List the keys of an API.
///
/// By id, page by page; disabled and expired ones too.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ListKeys {
    pub api_id: Name,
    /// How many a page may have. Left out: 100.
    #[serde(default)]
    pub limit: Optional<PageLimit>,
    /// As the page before told it.
    #[serde(default)]
    pub cursor: Optional<Text<0, 1024>>,
    /// Deprecated for `externalId`, which counts.
    #[serde(default)]
    pub owner_id: Optional<OwnerId>,
    /// Only the keys of this user.
    #[serde(default)]
    pub external_id: Optional<OwnerId>,
    /// Whether to show the keys themselves, where they are recoverable.
    #[serde(default)]
    pub decrypt: Optional<bool>,
    /// Accepted and of no effect: a list is always read from the database.
    #[serde(default)]
    #[expect(dead_code, reason = "a list is always read from the database")]
    pub revalidate_keys_cache: Optional<bool>,
}

/// A page of keys.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Keys {
    keys: Vec<KeyReply>,
    /// How many keys the API has; with very many, how many it had a few minutes ago. 0 for an unknown `externalId`.
    total: i64,
    /// Left out on the last page.
    #[serde(skip_serializing_if = "Option::is_none")]
    cursor: Option<String>,
}

impl Operation for ListKeys {
    const NAME: &'static str = "apis.listKeys";
    const VERB: Verb = Verb::Get;
    const NEEDS: AccessRule =
        AccessRule::HiddenUnlessPermitted(&[Action::ReadKey, Action::ReadApi]);
    const MAY_WRITE: bool = true;
    type Reply = Keys;

    fn example() -> Value {
        json!({ "apiId": example::API, "limit": 20, "externalId": example::EXTERNAL_ID })
    }

    async fn run(self, app: &App, caller: &Caller) -> Result<Keys> {
        let api_id = ApiId::from(self.api_id.into_string());
        let external_id = self.external_id.0.map(|id| KeyOwner::ExternalId(id.into_string()));
        let of = external_id.or(self.owner_id.0.map(|id| KeyOwner::OwnerId(id.into_string())));
        let wanted = WantedKeys {
            api_id: api_id.clone(),
            of: of.clone(),
            plaintexts: match self.decrypt.unwrap_or(false) {
                true => DecryptMode::IfAvailable,
                false => DecryptMode::None,
            },
            paging: paging(self.limit, self.cursor),
        };
        let page = keys::list(app, caller, wanted).await?;
        let total = keys::count(app, caller, &api_id, of.as_ref()).await?;
        let cursor = page.last(|found| &found.view.stored().key.id);
        let keys = page.items.into_iter().map(KeyReply::from).collect();
        Ok(Keys { keys, total, cursor })
    }
}

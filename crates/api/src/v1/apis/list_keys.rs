use domain::keys::{self, DecryptMode, KeyFilter, KeyOwner};
use foundation::id::ApiId;

use crate::prelude::*;
use crate::v1::schemas::{IdOrName, KeyReply, OwnerId, PageLimit, to_paging};

/// List the keys of an API.
///
/// Returns pages sorted by id. Disabled and expired keys are included.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ListKeys {
    pub api_id: IdOrName,
    /// The maximum number of items per page. Default: 100.
    #[serde(default)]
    pub limit: Optional<PageLimit>,
    /// The `cursor` of the previous page. Default: the first page.
    #[serde(default)]
    pub cursor: Optional<Text<0, 1024>>,
    /// Deprecated: use `externalId`, which takes precedence.
    #[serde(default)]
    pub owner_id: Optional<OwnerId>,
    /// Returns only keys of this user.
    #[serde(default)]
    pub external_id: Optional<OwnerId>,
    /// Whether to return the keys themselves, if they are recoverable.
    #[serde(default)]
    pub decrypt: Optional<bool>,
    /// Accepted but ignored: a list is always read from the database.
    #[serde(default)]
    #[expect(dead_code, reason = "a list is always read from the database")]
    pub revalidate_keys_cache: Optional<bool>,
}

/// A page of keys.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ListKeysReply {
    keys: Vec<KeyReply>,
    /// The number of keys of the API. If it is very large, the value may be a few minutes old. 0 for an unknown
    /// `externalId`.
    total: i64,
    /// The cursor of the next page; omitted on the last page.
    #[serde(skip_serializing_if = "Option::is_none")]
    cursor: Option<String>,
}

impl Operation for ListKeys {
    const NAME: &'static str = "apis.listKeys";
    const METHOD: HttpMethod = HttpMethod::Get;
    const ACCESS: AccessRule =
        AccessRule::HiddenUnlessPermitted(&[Action::ReadKey, Action::ReadApi]);
    const MAY_WRITE: bool = true;
    type Reply = ListKeysReply;

    fn example() -> Value {
        json!({ "apiId": example::API, "limit": 20, "externalId": example::EXTERNAL_ID })
    }

    async fn run(self, app: &App, caller: &Caller) -> Result<ListKeysReply> {
        let api_id = ApiId::from(self.api_id.into_string());
        let external_id = self.external_id.0.map(|id| KeyOwner::ExternalId(id.into_string()));
        let owner = external_id.or(self.owner_id.0.map(|id| KeyOwner::OwnerId(id.into_string())));
        let filter = KeyFilter {
            api_id: api_id.clone(),
            owner: owner.clone(),
            decrypt_mode: match self.decrypt.unwrap_or(false) {
                true => DecryptMode::IfAvailable,
                false => DecryptMode::None,
            },
            requires_leases: false,
            paging: to_paging(self.limit, self.cursor),
        };
        let page = keys::list(&app.context, caller, filter).await?;
        let total = keys::count(&app.keys, caller, &api_id, owner.as_ref()).await?;
        let cursor = page.find_last_id(|found| &found.stored.key.id);
        let keys = page.items.into_iter().map(KeyReply::from).collect();
        Ok(ListKeysReply { keys, total, cursor })
    }
}

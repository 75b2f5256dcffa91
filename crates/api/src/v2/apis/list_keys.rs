use domain::keys::{self, DecryptMode, KeyFilter, KeyOwner};
use foundation::id::ApiId;

use crate::prelude::*;
use crate::reply::PageReply;
use crate::v2::schemas::{Cursor, KeyReply, PageLimit, to_paging};

/// List the keys of an API.
///
/// Returns pages sorted by id. Disabled and expired keys are included, deleted keys are not.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ListKeys {
    pub api_id: Text<1, 255>,
    /// The maximum number of items per page. Default: 100.
    #[serde(default)]
    pub limit: Optional<PageLimit>,
    /// The `pagination.cursor` of the previous page. Default: the first page.
    #[serde(default)]
    pub cursor: Optional<Cursor>,
    /// Returns only keys of this user.
    #[serde(default)]
    pub external_id: Optional<Text<1, 255>>,
    /// Whether to return the keys themselves, which requires recoverable keys.
    #[serde(default)]
    pub decrypt: Optional<bool>,
    /// Accepted but ignored: a list is always read from the database.
    #[serde(default)]
    pub revalidate_keys_cache: Optional<bool>,
}

impl Operation for ListKeys {
    const NAME: &'static str = "apis.listKeys";
    const ACCESS: AccessRule =
        AccessRule::HiddenUnlessPermitted(&[Action::ReadKey, Action::ReadApi]);
    const MAY_WRITE: bool = true;
    type Reply = PageReply<KeyReply>;

    fn example() -> Value {
        json!({ "apiId": example::API, "limit": 20, "externalId": example::EXTERNAL_ID })
    }

    async fn run(self, app: &App, caller: &Caller) -> Result<PageReply<KeyReply>> {
        let filter = KeyFilter {
            api_id: ApiId::from(self.api_id.into_string()),
            owner: self.external_id.0.map(|id| KeyOwner::ExternalId(id.into_string())),
            decrypt_mode: match self.decrypt.unwrap_or(false) {
                true => DecryptMode::Required,
                false => DecryptMode::None,
            },
            requires_leases: false,
            paging: to_paging(self.limit, 100, self.cursor),
        };
        Ok(PageReply::new(keys::list(&app.context, caller, filter).await?))
    }
}

use foundation::id::ApiId;

use crate::domain::keys::{self, DecryptMode, KeyOwner, WantedKeys};
use crate::domain::page::Page;
use crate::rpc::prelude::*;
use crate::rpc::v2::schemas::{Cursor, KeyReply, PageLimit, paging};

/// List the keys of an API.
///
/// By id; disabled and expired keys too, not deleted ones.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ListKeys {
    pub api_id: Text<1, 255>,
    /// How many to list. Left out: 100.
    #[serde(default)]
    pub limit: Optional<PageLimit>,
    /// Where the page begins: `pagination.cursor` of the one before. Left out: the first page.
    #[serde(default)]
    pub cursor: Optional<Cursor>,
    /// Only the keys of this user.
    #[serde(default)]
    pub external_id: Optional<Text<1, 255>>,
    /// Whether to show the keys themselves; only recoverable ones can be.
    #[serde(default)]
    pub decrypt: Optional<bool>,
    /// Accepted and of no effect: a list is always read from the database.
    #[serde(default)]
    pub revalidate_keys_cache: Optional<bool>,
}

impl Operation for ListKeys {
    const NAME: &'static str = "apis.listKeys";
    const NEEDS: AccessRule =
        AccessRule::HiddenUnlessPermitted(&[Action::ReadKey, Action::ReadApi]);
    const MAY_WRITE: bool = true;
    type Reply = Page<KeyReply>;

    fn example() -> Value {
        json!({ "apiId": example::API, "limit": 20, "externalId": example::EXTERNAL_ID })
    }

    async fn run(self, app: &App, caller: &Caller) -> Result<Page<KeyReply>> {
        let wanted = WantedKeys {
            api_id: ApiId::from(self.api_id.into_string()),
            of: self.external_id.0.map(|id| KeyOwner::ExternalId(id.into_string())),
            plaintexts: match self.decrypt.unwrap_or(false) {
                true => DecryptMode::Required,
                false => DecryptMode::None,
            },
            paging: paging(self.limit, 100, self.cursor),
        };
        Ok(keys::list(app, caller, wanted).await?.map(KeyReply::from))
    }
}

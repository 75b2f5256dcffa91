use domain::keys::{self, DuplicatePolicy};
use foundation::id::{ApiId, KeyId};

use super::schemas::KeyToImport;
use crate::prelude::*;
use crate::v1::schemas::IdOrName;

/// Import keys that were issued elsewhere.
///
/// Imports keys by their hash or in plaintext, either all of them or none. Permissions and roles must exist.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct CreateKeys(List<Object<KeyToImport<ApiIdField>>, 0, 100>);

/// The API that a key is imported to.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ApiIdField {
    pub api_id: IdOrName,
}

/// The ids of the imported keys, in the order of the request.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CreateKeysReply {
    key_ids: Vec<KeyId>,
}

impl Operation for CreateKeys {
    const NAME: &'static str = "migrations.createKeys";
    const ACCESS: AccessRule = AccessRule::Permission(&[Action::CreateKey]);
    const WRITES: bool = true;
    type Reply = CreateKeysReply;

    fn parse(body: &[u8]) -> serde_json::Result<Self> {
        serde_json::from_slice(body)
    }

    fn example() -> Value {
        json!([{
            "apiId": example::API,
            "hash": {
                "value": "iTQdVVXdZ8CC/1wM4TkXO3GcjdrRZBEHPZLDJfUmj60=",
                "variant": "sha256_base64"
            },
            "start": "old_4Fk",
            "externalId": example::EXTERNAL_ID
        }])
    }

    async fn run(self, app: &App, caller: &Caller) -> Result<CreateKeysReply> {
        let keys = self.0.0.into_iter().enumerate().map(|(at, Object(key))| {
            let api_id = ApiId::from(key.operation_fields.api_id.as_str());
            key.validate(&at.to_string(), api_id)
        });
        let keys = keys.collect::<Result<Vec<_>>>()?;
        Ok(CreateKeysReply {
            key_ids: keys::import(&app.context, caller, None, keys, DuplicatePolicy::Reject)
                .await?,
        })
    }
}

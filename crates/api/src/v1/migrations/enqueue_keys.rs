use domain::keys::{self, DuplicatePolicy};
use foundation::id::ApiId;

use super::schemas::KeyToImport;
use crate::prelude::*;
use crate::reply::EmptyReply;
use crate::v1::schemas::IdOrName;

/// Import keys that were issued elsewhere, in the order of the requests.
///
/// The import is complete when the response arrives. Keys that already exist are skipped.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct EnqueueKeys {
    /// Your own name for the migration. It has no effect.
    #[expect(dead_code, reason = "imports are not queued, so there is nothing to identify")]
    pub migration_id: IdOrName,
    pub api_id: IdOrName,
    pub keys: List<Object<KeyToImport<NoFields>>, 0, 100>,
}

/// Has no fields, because the request names the API.
#[derive(Debug, Deserialize, JsonSchema)]
pub struct NoFields {}

impl Operation for EnqueueKeys {
    const NAME: &'static str = "migrations.enqueueKeys";
    const STATUS: u16 = 202;
    const ACCESS: AccessRule = AccessRule::Permission(&[Action::CreateKey]);
    const WRITES: bool = true;
    type Reply = EmptyReply;

    fn example() -> Value {
        json!({
            "migrationId": "from the old shop",
            "apiId": example::API,
            "keys": [{ "hash": {
                "value": "iTQdVVXdZ8CC/1wM4TkXO3GcjdrRZBEHPZLDJfUmj60=",
                "variant": "sha256_base64"
            } }]
        })
    }

    async fn run(self, app: &App, caller: &Caller) -> Result<EmptyReply> {
        let api_id = ApiId::from(self.api_id.into_string());
        let keys = self.keys.0.into_iter().enumerate();
        let keys =
            keys.map(|(at, Object(key))| key.validate(&format!("keys.{at}"), api_id.clone()));
        let keys = keys.collect::<Result<Vec<_>>>()?;
        keys::import(&app.context, caller, Some(&api_id), keys, DuplicatePolicy::Skip).await?;
        Ok(EmptyReply)
    }
}

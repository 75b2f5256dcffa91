use domain::keys::{self, DecryptMode};
use foundation::id::KeyId;

use crate::prelude::*;
use crate::v1::schemas::{IdOrName, KeyReply};

/// Get a key.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct GetKey {
    pub key_id: IdOrName,
    /// Whether to return the key itself, if it is recoverable.
    #[serde(default)]
    pub decrypt: Optional<bool>,
}

impl Operation for GetKey {
    const NAME: &'static str = "keys.getKey";
    const METHOD: HttpMethod = HttpMethod::Get;
    const ACCESS: AccessRule = AccessRule::Permission(&[Action::ReadKey]);
    const MAY_WRITE: bool = true;
    type Reply = KeyReply;

    fn example() -> Value {
        json!({ "keyId": example::KEY_ID })
    }

    async fn run(self, app: &App, caller: &Caller) -> Result<KeyReply> {
        let id = KeyId::from(self.key_id.into_string());
        let decrypt = match self.decrypt.unwrap_or(false) {
            true => DecryptMode::IfAvailable,
            false => DecryptMode::None,
        };
        Ok(keys::get(&app.keys, caller, &id, decrypt).await?.into())
    }
}

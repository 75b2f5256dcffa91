use domain::keys::{self, DecryptMode};
use foundation::id::KeyId;

use crate::prelude::*;
use crate::v2::schemas::KeyReply;

/// Get a key.
///
/// Disabled and expired keys are found, deleted keys are not.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct GetKey {
    pub key_id: Id,
    /// Whether to return the key itself, which requires a recoverable key.
    #[serde(default)]
    pub decrypt: Optional<bool>,
}

impl Operation for GetKey {
    const NAME: &'static str = "keys.getKey";
    const ACCESS: AccessRule = AccessRule::Permission(&[Action::ReadKey]);
    const MAY_WRITE: bool = true;
    type Reply = KeyReply;

    fn example() -> Value {
        json!({ "keyId": example::KEY_ID })
    }

    async fn run(self, app: &App, caller: &Caller) -> Result<KeyReply> {
        let id = KeyId::from(self.key_id.into_string());
        let decrypt = match self.decrypt.unwrap_or(false) {
            true => DecryptMode::Required,
            false => DecryptMode::None,
        };
        let found = keys::get(&app.keys, caller, &id, decrypt).await?;
        Ok(KeyReply::from(found))
    }
}

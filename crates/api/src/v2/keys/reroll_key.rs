use domain::keys;
use foundation::id::KeyId;

use crate::prelude::*;
use crate::schemas::IssuedReply;
use crate::v2::schemas::Expires;

/// Re-roll a key.
///
/// Issues a new key with the same configuration: prefix and length, name and meta, identity, rate limits, permissions,
/// roles, expiry and remaining credits. Window counts are not copied. The old key stays valid for `expiration`, but not
/// beyond its own expiry. A key that has expired cannot be re-rolled.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RerollKey {
    pub key_id: Id,
    /// The time for which the old key stays valid, in milliseconds, rounded up to a full minute. 0: it expires
    /// immediately.
    pub expiration: Expires,
}

impl Operation for RerollKey {
    const NAME: &'static str = "keys.rerollKey";
    const ACCESS: AccessRule = AccessRule::Permission(&[Action::CreateKey]);
    const WRITES: bool = true;
    const ACCEPTS_IDEMPOTENCY_KEY: bool = true;
    type Reply = IssuedReply;

    fn example() -> Value {
        json!({ "keyId": example::KEY_ID, "expiration": 86_400_000 })
    }

    async fn run(self, app: &App, caller: &Caller) -> Result<IssuedReply> {
        let id = KeyId::from(self.key_id.into_string());
        Ok(keys::reroll(&app.keys, caller, &id, self.expiration.0).await?.into())
    }
}

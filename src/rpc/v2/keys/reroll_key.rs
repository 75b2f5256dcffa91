use foundation::id::KeyId;

use crate::domain::keys;
use crate::rpc::prelude::*;
use crate::rpc::schemas::IssuedReply;
use crate::rpc::v2::schemas::Expires;

/// Re-roll a key.
///
/// Issues another key with the same configuration: prefix and length, name and meta, identity, limits,
/// permissions, roles, expiry and what is left of the credits. Nothing that has been counted passes to it.
/// The old key goes on for a while, and never longer than it would have.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RerollKey {
    pub key_id: Id,
    /// For how long the old key stays valid, in milliseconds, rounded up to a full minute; 0: it ends at once.
    pub expiration: Expires,
}

impl Operation for RerollKey {
    const NAME: &'static str = "keys.rerollKey";
    const NEEDS: AccessRule = AccessRule::Permission(&[Action::CreateKey]);
    const WRITES: bool = true;
    const REPEATABLE: bool = true;
    type Reply = IssuedReply;

    fn example() -> Value {
        json!({ "keyId": example::KEY_ID, "expiration": 86_400_000 })
    }

    async fn run(self, app: &App, caller: &Caller) -> Result<IssuedReply> {
        let id = KeyId::from(self.key_id.into_string());
        Ok(keys::reroll(app, caller, &id, self.expiration.0).await?.into())
    }
}

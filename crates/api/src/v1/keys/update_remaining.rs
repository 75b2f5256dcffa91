use domain::keys::{self, CreditsUpdate, IdleRefill, UpdatedAtPolicy};
use foundation::error::Error;
use foundation::id::KeyId;

use crate::prelude::*;
use crate::v1::schemas::{AnyInt, IdOrName};

/// Update the remaining credits of a key.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct UpdateRemaining {
    pub key_id: IdOrName,
    pub op: OneOf<CreditsOperation>,
    /// The number of credits. Null, only for `set`, makes the key unlimited; the refill schedule is kept for
    /// when the credits are limited again.
    pub value: Nullable<AnyInt>,
}

/// The change of the credits. They never fall below 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
pub enum CreditsOperation {
    Increment,
    Decrement,
    Set,
}

/// The credits after the change.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct UpdateRemainingReply {
    /// The remaining credits; null if unlimited.
    remaining: Option<i64>,
}

impl Operation for UpdateRemaining {
    const NAME: &'static str = "keys.updateRemaining";
    const ACCESS: AccessRule = AccessRule::Permission(&[Action::UpdateKey]);
    const WRITES: bool = true;
    const ACCEPTS_IDEMPOTENCY_KEY: bool = true;
    type Reply = UpdateRemainingReply;

    fn example() -> Value {
        json!({ "keyId": example::KEY_ID, "op": "set", "value": 1000 })
    }

    async fn run(self, app: &App, caller: &Caller) -> Result<UpdateRemainingReply> {
        let id = KeyId::from(self.key_id.into_string());
        let value = self.value.0.map(|value| value.0);
        let missing = || Error::invalid("value", "value: increment and decrement require a number");
        let update = match self.op.0 {
            CreditsOperation::Set => match value {
                Some(value) => CreditsUpdate::Set(value.max(0)),
                None => CreditsUpdate::Unlimited(IdleRefill::Keep),
            },
            CreditsOperation::Increment => to_credits_update(value.ok_or_else(missing)?),
            CreditsOperation::Decrement => {
                to_credits_update(value.ok_or_else(missing)?.saturating_neg())
            }
        };
        let credits =
            keys::update_credits(&app.keys, caller, &id, update, UpdatedAtPolicy::Set).await?;
        Ok(UpdateRemainingReply { remaining: credits.map(|(remaining, _)| remaining) })
    }
}

/// Converts a signed amount to an increment or a decrement.
fn to_credits_update(amount: i64) -> CreditsUpdate {
    match amount {
        0.. => CreditsUpdate::Increment(amount),
        _ => CreditsUpdate::Decrement(amount.saturating_neg()),
    }
}

use foundation::error::Error;
use foundation::id::KeyId;

use crate::domain::keys::{self, CreditsUpdate, IdleRefill, UpdatedAtPolicy};
use crate::rpc::prelude::*;
use crate::rpc::v1::schemas::{Anything, Name};

/// Change how many uses a key has left.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct UpdateRemaining {
    pub key_id: Name,
    pub op: Op,
    /// Null: unlimited, for `set` only; the refill stays for when it is not.
    pub value: Nullable<Anything>,
}

/// What to do with the uses. They never fall below 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
pub enum Op {
    Increment,
    Decrement,
    Set,
}

/// What is left.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Remaining {
    /// Null: unlimited.
    remaining: Option<i64>,
}

impl Operation for UpdateRemaining {
    const NAME: &'static str = "keys.updateRemaining";
    const NEEDS: AccessRule = AccessRule::Permission(&[Action::UpdateKey]);
    const WRITES: bool = true;
    const REPEATABLE: bool = true;
    type Reply = Remaining;

    fn example() -> Value {
        json!({ "keyId": example::KEY_ID, "op": "set", "value": 1000 })
    }

    async fn run(self, app: &App, caller: &Caller) -> Result<Remaining> {
        let id = KeyId::from(self.key_id.into_string());
        let value = self.value.0.map(|value| value.0);
        let missing =
            || Error::invalid("value", "value: a number is needed to increment or decrement");
        let update = match self.op {
            Op::Set => match value {
                Some(value) => CreditsUpdate::Set(value.max(0)),
                None => CreditsUpdate::Unlimited(IdleRefill::Kept),
            },
            Op::Increment => change(value.ok_or_else(missing)?),
            Op::Decrement => change(value.ok_or_else(missing)?.saturating_neg()),
        };
        let left = keys::update_credits(app, caller, &id, update, UpdatedAtPolicy::Set).await?;
        Ok(Remaining { remaining: left.map(|(remaining, _)| remaining) })
    }
}

/// By so many, up or down.
fn change(by: i64) -> CreditsUpdate {
    match by {
        0.. => CreditsUpdate::Increment(by),
        _ => CreditsUpdate::Decrement(by.saturating_neg()),
    }
}

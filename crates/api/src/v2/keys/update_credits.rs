use domain::keys::{self, CreditsUpdate, IdleRefill, UpdatedAtPolicy};
use foundation::error::Error;
use foundation::id::KeyId;

use crate::prelude::*;
use crate::schemas::UnsignedInt;
use crate::v2::schemas::KeyCredits;

/// Update the remaining credits of a key.
///
/// The update is exact while verifications run: credits spent before it are counted, and none is counted twice. `set`
/// with null makes the key unlimited and removes the refill schedule.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct UpdateCredits {
    pub key_id: Id,
    pub operation: OneOf<CreditsOperation>,
    /// The number of credits. Required for `increment` and for `decrement`, which stops at 0.
    #[serde(default)]
    pub value: Patch<UnsignedInt>,
}

/// The change of the credits.
#[derive(Debug, Clone, Copy, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
pub enum CreditsOperation {
    Set,
    Increment,
    Decrement,
}

impl Operation for UpdateCredits {
    const NAME: &'static str = "keys.updateCredits";
    const ACCESS: AccessRule = AccessRule::Permission(&[Action::UpdateKey]);
    const WRITES: bool = true;
    const ACCEPTS_IDEMPOTENCY_KEY: bool = true;
    type Reply = KeyCredits;

    fn example() -> Value {
        json!({ "keyId": example::KEY_ID, "operation": "set", "value": 1000 })
    }

    async fn run(self, app: &App, caller: &Caller) -> Result<KeyCredits> {
        let id = KeyId::from(self.key_id.as_str());
        let credits = keys::update_credits(
            &app.keys,
            caller,
            &id,
            self.to_credits_update()?,
            UpdatedAtPolicy::Keep,
        )
        .await?;
        Ok(KeyCredits::from(credits))
    }
}

impl UpdateCredits {
    fn to_credits_update(&self) -> Result<CreditsUpdate> {
        let value = match &self.value {
            Patch::Set(value) => Some(value.0),
            Patch::Clear | Patch::Keep => None,
        };
        let required = |operation: &str| {
            value.ok_or_else(|| {
                let message = format!("value is missing: {operation} requires a number from 0");
                Error::invalid("/properties/value", message)
            })
        };
        Ok(match self.operation.0 {
            CreditsOperation::Set => {
                value.map_or(CreditsUpdate::Unlimited(IdleRefill::Drop), CreditsUpdate::Set)
            }
            CreditsOperation::Increment => CreditsUpdate::Increment(required("increment")?),
            CreditsOperation::Decrement => CreditsUpdate::Decrement(required("decrement")?),
        })
    }
}

use super::schemas::{IdentityReply, SharedRatelimits, called, identity_meta, shared};
use crate::domain::identities::{self, IdentityChange};
use crate::rpc::prelude::*;
use crate::rpc::v1::schemas::Name;

/// Change an identity.
///
/// What is left out stays as it is. The reply tells the whole identity.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct UpdateIdentity {
    /// Counts where `externalId` is given too.
    #[serde(default)]
    pub identity_id: Optional<Name>,
    #[serde(default)]
    pub external_id: Optional<Name>,
    /// Accepted and of no effect.
    #[serde(default)]
    #[expect(dead_code, reason = "identities have no environment")]
    pub environment: Optional<Text<0, 256>>,
    /// Replaces the whole object; `{}` clears it.
    #[serde(default)]
    pub meta: Optional<Meta>,
    /// Replaces all limits; those of the same name keep their id and their count.
    #[serde(default)]
    pub ratelimits: Optional<SharedRatelimits>,
}

impl Operation for UpdateIdentity {
    const NAME: &'static str = "identities.updateIdentity";
    const NEEDS: AccessRule = AccessRule::Permission(&[Action::UpdateIdentity]);
    const WRITES: bool = true;
    type Reply = IdentityReply;

    fn example() -> Value {
        json!({
            "externalId": example::EXTERNAL_ID,
            "meta": { "plan": "pro" },
            "ratelimits": [{ "name": "requests", "limit": 1200, "duration": 60_000 }]
        })
    }

    async fn run(self, app: &App, caller: &Caller) -> Result<IdentityReply> {
        let called = called(self.identity_id, self.external_id)?;
        let ratelimits = self.ratelimits.0.map(shared).transpose()?;
        let change = IdentityChange { meta: identity_meta(self.meta)?, ratelimits };
        Ok(identities::update(app, caller, &called, change).await?.into())
    }
}

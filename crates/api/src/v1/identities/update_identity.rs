use domain::identities::{self, IdentityChange};

use super::schemas::{
    IdentityReply, SharedRatelimits, to_identity_ref, to_new_limits, validate_identity_meta,
};
use crate::prelude::*;
use crate::v1::schemas::IdOrName;

/// Update an identity.
///
/// Omitted fields keep their values. The reply contains the complete identity.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct UpdateIdentity {
    /// The identity id. It takes precedence over `externalId`.
    #[serde(default)]
    pub identity_id: Optional<IdOrName>,
    #[serde(default)]
    pub external_id: Optional<IdOrName>,
    /// Accepted but ignored.
    #[serde(default)]
    #[expect(dead_code, reason = "identities have no environment")]
    pub environment: Optional<Text<0, 256>>,
    /// Replaces the whole object; `{}` clears it.
    #[serde(default)]
    pub meta: Optional<Meta>,
    /// Replaces all rate limits. Limits with the same name keep their id and their count.
    #[serde(default)]
    pub ratelimits: Optional<SharedRatelimits>,
}

impl Operation for UpdateIdentity {
    const NAME: &'static str = "identities.updateIdentity";
    const ACCESS: AccessRule = AccessRule::Permission(&[Action::UpdateIdentity]);
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
        let identity = to_identity_ref(self.identity_id, self.external_id)?;
        let ratelimits = self.ratelimits.0.map(to_new_limits).transpose()?;
        let change = IdentityChange { meta: validate_identity_meta(self.meta)?, ratelimits };
        Ok(identities::update(&app.context, caller, &identity, change).await?.into())
    }
}

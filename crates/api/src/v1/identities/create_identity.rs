use domain::identities::{self, NewIdentity};
use foundation::id::IdentityId;

use super::schemas::{SharedRatelimits, to_new_limits, validate_identity_meta};
use crate::prelude::*;

/// Create an identity.
///
/// An identity represents one of your users, under your own id. All keys of an identity share its rate limits.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CreateIdentity {
    /// Your id for the user. It is unique among identities.
    pub external_id: Text<3, 256>,
    /// Custom JSON object; verification returns it.
    #[serde(default)]
    pub meta: Optional<Meta>,
    /// Rate limits that a verification checks when its request names them.
    #[serde(default)]
    pub ratelimits: Optional<SharedRatelimits>,
}

/// The new identity.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CreateIdentityReply {
    identity_id: IdentityId,
}

impl Operation for CreateIdentity {
    const NAME: &'static str = "identities.createIdentity";
    const ACCESS: AccessRule = AccessRule::Permission(&[Action::CreateIdentity]);
    const WRITES: bool = true;
    type Reply = CreateIdentityReply;

    fn example() -> Value {
        json!({
            "externalId": "user_5678",
            "meta": { "plan": "pro" },
            "ratelimits": [{ "name": "requests", "limit": 600, "duration": 60_000 }]
        })
    }

    async fn run(self, app: &App, caller: &Caller) -> Result<CreateIdentityReply> {
        let new = NewIdentity {
            external_id: self.external_id.into_string(),
            meta: validate_identity_meta(self.meta)?,
            ratelimits: self.ratelimits.0.map_or_else(|| Ok(Vec::new()), to_new_limits)?,
        };
        Ok(CreateIdentityReply {
            identity_id: identities::create(&app.context, caller, new).await?,
        })
    }
}

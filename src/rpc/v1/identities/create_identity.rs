use foundation::id::IdentityId;

use super::schemas::{SharedRatelimits, identity_meta, shared};
use crate::domain::identities::{self, NewIdentity};
use crate::rpc::prelude::*;

/// Create an identity.
///
/// One of your own users, by your name for it. All keys that carry the identity share its limits.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CreateIdentity {
    /// Your name for the user; there is one identity of it.
    pub external_id: Text<3, 256>,
    /// Your own JSON object; verification gives it back.
    #[serde(default)]
    pub meta: Optional<Meta>,
    /// Limits that verification checks when it is asked to.
    #[serde(default)]
    pub ratelimits: Optional<SharedRatelimits>,
}

/// The new identity.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Created {
    identity_id: IdentityId,
}

impl Operation for CreateIdentity {
    const NAME: &'static str = "identities.createIdentity";
    const NEEDS: AccessRule = AccessRule::Permission(&[Action::CreateIdentity]);
    const WRITES: bool = true;
    type Reply = Created;

    fn example() -> Value {
        json!({
            "externalId": "user_5678",
            "meta": { "plan": "pro" },
            "ratelimits": [{ "name": "requests", "limit": 600, "duration": 60_000 }]
        })
    }

    async fn run(self, app: &App, caller: &Caller) -> Result<Created> {
        let new = NewIdentity {
            external_id: self.external_id.into_string(),
            meta: identity_meta(self.meta)?,
            ratelimits: self.ratelimits.0.map_or_else(|| Ok(Vec::new()), shared)?,
        };
        Ok(Created { identity_id: identities::create(app, caller, new).await? })
    }
}

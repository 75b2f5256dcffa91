use foundation::id::IdentityId;

use crate::domain::identities::{self, NewIdentity};
use crate::rpc::prelude::*;
use crate::rpc::v2::schemas::BESIDE_META_MAX_BYTES;
use crate::rpc::v2::schemas::Ratelimit;

/// Create an identity.
///
/// One of your own users, by your name for it. All keys that carry the identity share its limits.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CreateIdentity {
    /// Your name for the user; there is one identity of it.
    pub external_id: ExternalId,
    /// Your own JSON object; verification gives it back.
    #[serde(default)]
    pub meta: Optional<Meta>,
    /// Limits for verification to check, counted over all keys of the identity. Of two with one name the
    /// last counts.
    #[serde(default)]
    pub ratelimits: Optional<List<Object<Ratelimit>, 0, 50>>,
}

/// The new identity.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Created {
    pub identity_id: IdentityId,
}

impl Operation for CreateIdentity {
    const NAME: &'static str = "identities.createIdentity";
    const NEEDS: AccessRule = AccessRule::Permission(&[Action::CreateIdentity]);
    const WRITES: bool = true;
    const BODY_MAX_BYTES: usize = identities::META_MAX_BYTES + BESIDE_META_MAX_BYTES;
    type Reply = Created;

    fn example() -> Value {
        json!({
            "externalId": "user_5678",
            "meta": { "plan": "pro" },
            "ratelimits": [
                { "name": "requests", "limit": 600, "duration": 60_000, "autoApply": true }
            ]
        })
    }

    async fn run(self, app: &App, caller: &Caller) -> Result<Created> {
        let limits = self.ratelimits.0.map_or_else(Vec::new, |list| list.0);
        let new = NewIdentity {
            external_id: self.external_id.into_string(),
            meta: self.meta.0,
            ratelimits: limits.into_iter().map(|Object(limit)| limit.into()).collect(),
        };
        Ok(Created { identity_id: identities::create(app, caller, new).await? })
    }
}

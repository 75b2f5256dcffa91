use domain::identities::{self, NewIdentity};
use foundation::id::IdentityId;

use crate::prelude::*;
use crate::v2::schemas::{NON_META_MAX_BYTES, Ratelimits};

/// Create an identity.
///
/// An identity represents one of your users, under your own id. All keys of an identity share its rate limits.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CreateIdentity {
    /// Your id for the user. It is unique among identities.
    pub external_id: ExternalId,
    /// Custom JSON object; verification returns it.
    #[serde(default)]
    pub meta: Optional<BoundedMeta>,
    /// Rate limits for verification, shared by all keys of the identity. If two limits have the same name, the last
    /// one applies.
    #[serde(default)]
    pub ratelimits: Optional<Ratelimits>,
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
    const BODY_MAX_BYTES: usize = identities::META_MAX_BYTES + NON_META_MAX_BYTES;
    type Reply = CreateIdentityReply;

    fn example() -> Value {
        json!({
            "externalId": "user_5678",
            "meta": { "plan": "pro" },
            "ratelimits": [
                { "name": "requests", "limit": 600, "duration": 60_000, "autoApply": true }
            ]
        })
    }

    async fn run(self, app: &App, caller: &Caller) -> Result<CreateIdentityReply> {
        let limits = self.ratelimits.0.map_or_else(Vec::new, |list| list.0);
        let new = NewIdentity {
            external_id: self.external_id.into_string(),
            meta: self.meta.0.map(Meta::from),
            ratelimits: limits.into_iter().map(|Object(limit)| limit.into()).collect(),
        };
        Ok(CreateIdentityReply {
            identity_id: identities::create(&app.context, caller, new).await?,
        })
    }
}

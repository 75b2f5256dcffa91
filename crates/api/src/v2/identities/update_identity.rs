use domain::identities::{self, IdentityChange, IdentityRef};
use domain::keys::NewRatelimit;
use foundation::error::Error;

use crate::prelude::*;
use crate::v2::schemas::{IdentityIdOrExternalId, IdentityReply, NON_META_MAX_BYTES, Ratelimits};

/// Update an identity.
///
/// Omitted fields keep their values. The reply contains the complete identity.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct UpdateIdentity {
    /// The id or externalId of the identity.
    pub identity: IdentityIdOrExternalId,
    /// Replaces the whole object; `{}` clears it.
    #[serde(default)]
    pub meta: Optional<BoundedMeta>,
    /// Replaces all rate limits. Limits with the same name keep their id and their count.
    #[serde(default)]
    pub ratelimits: Optional<Ratelimits>,
}

impl Operation for UpdateIdentity {
    const NAME: &'static str = "identities.updateIdentity";
    const ACCESS: AccessRule = AccessRule::Permission(&[Action::UpdateIdentity]);
    const WRITES: bool = true;
    const BODY_MAX_BYTES: usize = identities::META_MAX_BYTES + NON_META_MAX_BYTES;
    type Reply = IdentityReply;

    fn example() -> Value {
        json!({
            "identity": example::EXTERNAL_ID,
            "meta": { "plan": "pro" },
            "ratelimits": [{ "name": "requests", "limit": 1200, "duration": 60_000 }]
        })
    }

    async fn run(self, app: &App, caller: &Caller) -> Result<IdentityReply> {
        let limits = self.ratelimits.0.map(to_new_limits).transpose()?;
        let meta = self.meta.0.map(Meta::from);
        let change = IdentityChange { meta, ratelimits: limits };
        Ok(identities::update(
            &app.context,
            caller,
            &IdentityRef::IdOrExternalId(self.identity.into_string()),
            change,
        )
        .await?
        .into())
    }
}

fn to_new_limits(list: Ratelimits) -> Result<Vec<NewRatelimit>> {
    let mut limits: Vec<NewRatelimit> = Vec::with_capacity(list.0.len());
    for Object(limit) in list.0 {
        let name = limit.name.as_str();
        if limits.iter().any(|other| other.name == name) {
            return Err(Error::invalid(
                "/properties/ratelimits",
                format!("ratelimits has two limits with the name {name}"),
            ));
        }
        limits.push(limit.into());
    }
    Ok(limits)
}

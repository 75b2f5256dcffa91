use foundation::clock::Timestamp;
use foundation::error::Error;
use foundation::id::KeyId;

use crate::domain::keys::{
    self, AssignmentPolicy, CreditsChange, IdleRefill, KeyChange, RatelimitsChange,
};
use crate::domain::rbac::{MissingPolicy, Selector};
use crate::rpc::prelude::*;
use crate::rpc::schemas::{Empty, Unsigned, texts};
use crate::rpc::v2::schemas::{Expires, Ratelimit, Refill};

/// Change a key.
///
/// What is left out stays as it is; null clears it. All of it happens, or nothing.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct UpdateKey {
    pub key_id: Id,
    #[serde(default)]
    pub name: Patch<Text<1, 255, Printable>>,
    /// Null: the key is nobody's.
    #[serde(default)]
    pub external_id: Patch<ExternalId>,
    #[serde(default)]
    pub meta: Patch<Meta>,
    /// Unix milliseconds. Null: never.
    #[serde(default)]
    pub expires: Patch<Expires>,
    /// Null: unlimited.
    #[serde(default)]
    pub credits: Patch<Object<Credits>>,
    /// Replaces all limits; those of the same name keep their id and their count.
    #[serde(default)]
    pub ratelimits: Optional<List<Object<Ratelimit>, 0, 50>>,
    #[serde(default)]
    pub enabled: Optional<bool>,
    /// Replaces all roles, by name; each must exist.
    #[serde(default)]
    pub roles: Optional<List<Text<1, 128>, 0, 100>>,
    /// Replaces all permissions of the key itself, by slug. A missing one is made when the root key
    /// holds `rbac.*.create_permission`.
    #[serde(default)]
    pub permissions: Optional<List<Slug, 0, 1000>>,
}

/// Uses, and when they come back.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Credits {
    /// Null: unlimited, and nothing comes back.
    #[serde(default)]
    pub remaining: Patch<Unsigned>,
    /// Null: nothing comes back.
    #[serde(default)]
    pub refill: Patch<Object<Refill>>,
}

impl Operation for UpdateKey {
    const NAME: &'static str = "keys.updateKey";
    const NEEDS: AccessRule = AccessRule::Permission(&[Action::UpdateKey]);
    const WRITES: bool = true;
    type Reply = Empty;

    fn example() -> Value {
        json!({ "keyId": example::KEY_ID, "name": "for billing", "expires": null, "enabled": true })
    }

    async fn run(self, app: &App, caller: &Caller) -> Result<Empty> {
        let id = KeyId::from(self.key_id.as_str());
        keys::update(app, caller, &id, self.try_into()?).await?;
        Ok(Empty {})
    }
}

impl TryFrom<UpdateKey> for KeyChange {
    type Error = Error;

    fn try_from(request: UpdateKey) -> Result<Self> {
        let limits = |list: List<Object<Ratelimit>, 0, 50>| {
            list.0.into_iter().map(|Object(limit)| limit.into()).collect()
        };
        Ok(Self {
            name: request.name.map(Text::into_string),
            external_id: request.external_id.map(Text::into_string),
            meta: request.meta,
            expires_at: request.expires.map(|at| Timestamp(at.0)),
            credits: credits(request.credits)?,
            ratelimits: match request.ratelimits.0 {
                None => RatelimitsChange::Keep,
                Some(list) => RatelimitsChange::All(limits(list)),
            },
            enabled: request.enabled.0,
            roles: request.roles.0.map(|list| Selector::named(texts(list), MissingPolicy::Refused)),
            permissions: request
                .permissions
                .0
                .map(|list| Selector::permissions(texts(list), MissingPolicy::Made)),
            links: AssignmentPolicy::OfKey,
        })
    }
}

fn credits(credits: Patch<Object<Credits>>) -> Result<Patch<CreditsChange>> {
    let credits = match credits {
        Patch::Keep => return Ok(Patch::Keep),
        Patch::Clear => return Ok(Patch::Clear),
        Patch::Set(Object(credits)) => credits,
    };
    let refill = match credits.refill {
        Patch::Keep => Patch::Keep,
        Patch::Clear => Patch::Clear,
        Patch::Set(Object(refill)) => Patch::Set(refill.check()?),
    };
    let remaining = credits.remaining.map(|remaining| remaining.0);
    if remaining == Patch::Clear && matches!(refill, Patch::Set(_)) {
        return Err(Error::invalid(
            "/properties/credits/properties/refill",
            "credits.refill needs a number in credits.remaining: null means unlimited",
        ));
    }
    Ok(Patch::Set(CreditsChange { remaining, refill, idle: IdleRefill::Dropped }))
}

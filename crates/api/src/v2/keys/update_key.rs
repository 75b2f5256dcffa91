use domain::keys::{
    self, AssignmentPolicy, CreditsChange, IdleRefill, KeyChange, RatelimitsChange,
};
use domain::rbac::{MissingPolicy, Selector};
use foundation::clock::Timestamp;
use foundation::error::Error;
use foundation::id::KeyId;

use crate::prelude::*;
use crate::schemas::{Empty, UnsignedInt, into_strings};
use crate::v2::schemas::{Expires, KeyName, Ratelimits, Refill, RoleNames, Slugs};

/// Update a key.
///
/// Omitted fields keep their values; null clears a field. Either all changes are applied or none.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct UpdateKey {
    pub key_id: Id,
    #[serde(default)]
    pub name: Patch<KeyName>,
    /// Your id for the user who owns the key. Null removes the identity from the key.
    #[serde(default)]
    pub external_id: Patch<ExternalId>,
    #[serde(default)]
    pub meta: Patch<BoundedMeta>,
    /// The expiry time in Unix milliseconds. Null: the key does not expire.
    #[serde(default)]
    pub expires: Patch<Expires>,
    /// The credits and their refill schedule. Null makes the key unlimited.
    #[serde(default)]
    pub credits: Patch<Object<Credits>>,
    /// Replaces all rate limits. Limits with the same name keep their id and their count.
    #[serde(default)]
    pub ratelimits: Optional<Ratelimits>,
    #[serde(default)]
    pub enabled: Optional<bool>,
    /// Replaces all roles, by name. Each role must exist.
    #[serde(default)]
    pub roles: Optional<RoleNames>,
    /// Replaces all direct permissions, by slug. A missing permission is created if the root key has
    /// `rbac.*.create_permission`.
    #[serde(default)]
    pub permissions: Optional<Slugs>,
}

/// Credits and their refill schedule.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Credits {
    /// The remaining credits. Null makes the key unlimited and removes the refill schedule.
    #[serde(default)]
    pub remaining: Patch<UnsignedInt>,
    /// The refill schedule. Null removes it.
    #[serde(default)]
    pub refill: Patch<Object<Refill>>,
}

impl Operation for UpdateKey {
    const NAME: &'static str = "keys.updateKey";
    const ACCESS: AccessRule = AccessRule::Permission(&[Action::UpdateKey]);
    const WRITES: bool = true;
    type Reply = Empty;

    fn example() -> Value {
        json!({ "keyId": example::KEY_ID, "name": "for billing", "expires": null, "enabled": true })
    }

    async fn run(self, app: &App, caller: &Caller) -> Result<Empty> {
        let id = KeyId::from(self.key_id.as_str());
        keys::update(&app.keys, caller, &id, self.try_into()?).await?;
        Ok(Empty {})
    }
}

impl TryFrom<UpdateKey> for KeyChange {
    type Error = Error;

    fn try_from(request: UpdateKey) -> Result<Self> {
        let limits =
            |list: Ratelimits| list.0.into_iter().map(|Object(limit)| limit.into()).collect();
        Ok(Self {
            name: request.name.map(Text::into_string),
            external_id: request.external_id.map(Text::into_string),
            meta: request.meta.map(Meta::from),
            expires_at: request.expires.map(|at| Timestamp(at.0)),
            credits: to_credits_change(request.credits)?,
            ratelimits: match request.ratelimits.0 {
                None => RatelimitsChange::Keep,
                Some(list) => RatelimitsChange::All(limits(list)),
            },
            enabled: request.enabled.0,
            roles: request
                .roles
                .0
                .map(|list| Selector::from_names(into_strings(list), MissingPolicy::Reject)),
            permissions: request
                .permissions
                .0
                .map(|list| Selector::from_ids_or_slugs(into_strings(list), MissingPolicy::Create)),
            assignment_policy: AssignmentPolicy::KeyUpdate,
        })
    }
}

fn to_credits_change(credits: Patch<Object<Credits>>) -> Result<Patch<CreditsChange>> {
    let credits = match credits {
        Patch::Keep => return Ok(Patch::Keep),
        Patch::Clear => return Ok(Patch::Clear),
        Patch::Set(Object(credits)) => credits,
    };
    let refill = match credits.refill {
        Patch::Keep => Patch::Keep,
        Patch::Clear => Patch::Clear,
        Patch::Set(Object(refill)) => Patch::Set(refill.validate()?),
    };
    let remaining = credits.remaining.map(|remaining| remaining.0);
    if remaining == Patch::Clear && matches!(refill, Patch::Set(_)) {
        return Err(Error::invalid(
            "/properties/credits/properties/refill",
            "credits.refill requires a number in credits.remaining; null means unlimited",
        ));
    }
    Ok(Patch::Set(CreditsChange { remaining, refill, idle_refill: IdleRefill::Drop }))
}

use domain::bounds::{KEY_ROLES_MAX, PERMISSIONS_MAX};
use domain::keys::{
    self, AssignmentPolicy, CreditsChange, IdleRefill, KeyChange, RatelimitsChange,
};
use domain::rbac::MissingPolicy;
use foundation::clock::Timestamp;
use foundation::error::Error;
use foundation::id::KeyId;

use crate::prelude::*;
use crate::reply::EmptyReply;
use crate::v1::schemas::{
    AnyInt, AssignmentItem, DEFAULT_LIMIT_NAME, IdOrName, KeyOwnerId, Ratelimit, Refill,
    to_selectors,
};

/// Update a key.
///
/// Omitted fields keep their values; null clears a field. Either all changes are applied or none.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct UpdateKey {
    pub key_id: IdOrName,
    #[serde(default)]
    pub name: Patch<Text<0, 256, Printable>>,
    /// Your id for the user who owns the key. Null or an empty text removes the identity from the key.
    #[serde(default)]
    pub external_id: Patch<KeyOwnerId>,
    /// Deprecated: use `externalId`, which takes precedence.
    #[serde(default)]
    pub owner_id: Patch<KeyOwnerId>,
    #[serde(default)]
    pub meta: Patch<Meta>,
    /// The expiry time in Unix milliseconds. Null or 0: the key does not expire.
    #[serde(default)]
    pub expires: Patch<AnyInt>,
    /// The remaining credits. A negative value means 0. Null makes the key unlimited; the refill schedule is kept
    /// for when the credits are limited again.
    #[serde(default)]
    pub remaining: Patch<AnyInt>,
    /// The refill schedule. Null removes it.
    #[serde(default)]
    pub refill: Patch<Object<Refill>>,
    /// The rate limit named `default`. Null removes it. Other rate limits are kept.
    #[serde(default)]
    pub ratelimit: Patch<Object<Ratelimit<1>>>,
    #[serde(default)]
    pub enabled: Optional<bool>,
    /// Replaces all roles.
    #[serde(default)]
    pub roles: Optional<List<Object<AssignmentItem>, 0, KEY_ROLES_MAX>>,
    /// Replaces all direct permissions.
    #[serde(default)]
    pub permissions: Optional<List<Object<AssignmentItem>, 0, PERMISSIONS_MAX>>,
}

impl Operation for UpdateKey {
    const NAME: &'static str = "keys.updateKey";
    const ACCESS: AccessRule = AccessRule::Permission(&[Action::UpdateKey]);
    const WRITES: bool = true;
    type Reply = EmptyReply;

    fn example() -> Value {
        json!({ "keyId": example::KEY_ID, "name": "for billing", "expires": null, "enabled": true })
    }

    async fn run(self, app: &App, caller: &Caller) -> Result<EmptyReply> {
        let id = KeyId::from(self.key_id.as_str());
        keys::update(&app.keys, caller, &id, self.try_into()?).await?;
        Ok(EmptyReply)
    }
}

impl TryFrom<UpdateKey> for KeyChange {
    type Error = Error;

    fn try_from(request: UpdateKey) -> Result<Self> {
        let external_id = match request.external_id {
            Patch::Keep => request.owner_id,
            external_id => external_id,
        };
        let external_id = match external_id.map(Text::into_string) {
            Patch::Set(id) if id.is_empty() => Patch::Clear,
            external_id => external_id,
        };
        let expires_at = match request.expires {
            Patch::Set(Int(0)) => Patch::Clear,
            expires => expires.map(|at| Timestamp(at.0)),
        };
        let ratelimits = match request.ratelimit {
            Patch::Keep => RatelimitsChange::Keep,
            Patch::Clear => {
                RatelimitsChange::One { name: DEFAULT_LIMIT_NAME.to_owned(), limit: None }
            }
            Patch::Set(Object(limit)) => RatelimitsChange::One {
                name: DEFAULT_LIMIT_NAME.to_owned(),
                limit: Some(limit.validate()?),
            },
        };
        let (roles, permissions) = (request.roles.0, request.permissions.0);
        let roles = roles.map(|items| to_selectors("roles", items, MissingPolicy::Reject));
        let permissions =
            permissions.map(|items| to_selectors("permissions", items, MissingPolicy::Reject));
        Ok(Self {
            name: request.name.map(Text::into_string),
            external_id,
            meta: request.meta,
            expires_at,
            credits: to_credits_change(request.remaining, request.refill)?,
            ratelimits,
            enabled: request.enabled.0,
            roles: roles.transpose()?,
            permissions: permissions.transpose()?,
            assignment_policy: AssignmentPolicy::AssignmentActions,
        })
    }
}

fn to_credits_change(
    remaining: Patch<AnyInt>,
    refill: Patch<Object<Refill>>,
) -> Result<Patch<CreditsChange>> {
    let refill = match refill {
        Patch::Keep => Patch::Keep,
        Patch::Clear => Patch::Clear,
        Patch::Set(Object(refill)) => Patch::Set(refill.validate()?),
    };
    match (&remaining, &refill) {
        (Patch::Keep, Patch::Keep) => return Ok(Patch::Keep),
        (Patch::Clear, Patch::Set(_)) => {
            return Err(Error::invalid(
                "refill",
                "refill: requires remaining; null means unlimited",
            ));
        }
        _ => {}
    }
    let remaining = remaining.map(|remaining| remaining.0.max(0));
    Ok(Patch::Set(CreditsChange { remaining, refill, idle_refill: IdleRefill::Keep }))
}

use domain::bounds::{DURATION_MIN_MS, KEY_PREFIX_MAX, KEY_ROLES_MAX, PERMISSIONS_MAX};
use domain::keys::{self, NewKey};
use domain::rbac::{MissingPolicy, Selector};
use foundation::clock::Timestamp;
use foundation::error::Error;
use foundation::id::ApiId;

use crate::prelude::*;
use crate::schemas::{ByteLength, IssuedReply, into_strings};
use crate::v1::schemas::{
    AnyInt, IdOrName, KeyOwnerId, Ratelimit, Refill, resolve_external_id, validate_credits,
};

/// The number of characters that `start` shows of a key without a prefix.
const START_LENGTH_WITHOUT_PREFIX: usize = 5;

/// Create a key.
///
/// The key itself is returned only in this reply: the server stores only its hash.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CreateKey {
    pub api_id: IdOrName,
    /// The prefix of the key, followed by an underscore. Default: the setting of the API. Empty: no prefix.
    #[serde(default)]
    pub prefix: Optional<Text<0, KEY_PREFIX_MAX>>,
    /// Your name for the key. Your customer does not see it.
    #[serde(default)]
    pub name: Optional<Text<0, 256, Printable>>,
    /// The number of random bytes in the key. Default: the setting of the API, or 16.
    #[serde(default)]
    pub byte_length: Optional<ByteLength>,
    /// Deprecated: use `externalId`, which takes precedence.
    #[serde(default)]
    pub owner_id: Optional<KeyOwnerId>,
    /// Your id for the user who owns the key; verification returns it. Empty: none.
    #[serde(default)]
    pub external_id: Optional<KeyOwnerId>,
    /// Custom JSON object; verification returns it.
    #[serde(default)]
    pub meta: Optional<Meta>,
    /// Names of the key's roles. Each role must exist.
    #[serde(default)]
    pub roles: Optional<List<Text<1, 512>, 0, KEY_ROLES_MAX>>,
    /// Slugs of the key's permissions. Each permission must exist.
    #[serde(default)]
    pub permissions: Optional<List<Text<1, 512>, 0, PERMISSIONS_MAX>>,
    /// The expiry time in Unix milliseconds. 0: the key does not expire.
    #[serde(default)]
    pub expires: Optional<AnyInt>,
    /// The remaining credits. 0 is rejected; a negative value means 0. Default: unlimited.
    #[serde(default)]
    pub remaining: Optional<AnyInt>,
    /// The schedule on which credits are refilled.
    #[serde(default)]
    pub refill: Optional<Object<Refill>>,
    /// A rate limit that every verification checks.
    #[serde(default)]
    pub ratelimit: Optional<Object<Ratelimit<DURATION_MIN_MS>>>,
    /// Whether the key is enabled. Default: true.
    #[serde(default)]
    pub enabled: Optional<bool>,
    /// Whether to store an encrypted copy of the key, so that it can be shown again.
    #[serde(default)]
    pub recoverable: Optional<bool>,
    /// Your own label; verification returns it.
    #[serde(default)]
    pub environment: Optional<Text<0, 256>>,
}

impl Operation for CreateKey {
    const NAME: &'static str = "keys.createKey";
    const ACCESS: AccessRule = AccessRule::HiddenUnlessPermitted(&[Action::CreateKey]);
    const WRITES: bool = true;
    const ACCEPTS_IDEMPOTENCY_KEY: bool = true;
    type Reply = IssuedReply;

    fn example() -> Value {
        json!({
            "apiId": example::API,
            "prefix": "prod",
            "externalId": "user_1234",
            "remaining": 100,
            "refill": { "interval": "daily", "amount": 100 },
            "ratelimit": { "limit": 60, "duration": 60_000 }
        })
    }

    async fn run(self, app: &App, caller: &Caller) -> Result<IssuedReply> {
        Ok(keys::create(&app.context, caller, self.try_into()?).await?.into())
    }
}

impl TryFrom<CreateKey> for NewKey {
    type Error = Error;

    fn try_from(request: CreateKey) -> Result<Self> {
        let limit = request.ratelimit.0.map(|Object(limit)| limit.validate()).transpose()?;
        Ok(Self {
            api_id: ApiId::from(request.api_id.into_string()),
            prefix: request.prefix.0.map(Text::into_string),
            unprefixed_start_length: START_LENGTH_WITHOUT_PREFIX,
            name: request.name.0.map(Text::into_string),
            byte_length: request.byte_length.0.and_then(|length| u8::try_from(length.0).ok()),
            external_id: resolve_external_id(request.external_id, request.owner_id),
            meta: request.meta.0,
            environment: request.environment.0.map(Text::into_string),
            roles: request.roles.0.map_or_else(Vec::new, into_strings),
            permissions: Selector::from_names(
                request.permissions.0.map_or_else(Vec::new, into_strings),
                MissingPolicy::Reject,
            ),
            expires_at: request.expires.0.filter(|at| at.0 != 0).map(|at| Timestamp(at.0)),
            credits: validate_credits(validate_remaining(request.remaining)?, request.refill)?,
            ratelimits: limit.into_iter().collect(),
            enabled: request.enabled.unwrap_or(true),
            is_recoverable: request.recoverable.unwrap_or(false),
        })
    }
}

/// Validates the credits of a new key. A caller that wants a key with 0 credits sends a negative value.
fn validate_remaining(value: Optional<AnyInt>) -> Result<Option<i64>> {
    match value.0 {
        Some(Int(0)) => Err(Error::invalid(
            "remaining",
            "remaining: must not be 0; omit it for an unlimited key, or send enabled: false",
        )),
        value => Ok(value.map(|remaining| remaining.0.max(0))),
    }
}

use foundation::clock::Timestamp;
use foundation::error::Error;
use foundation::id::ApiId;

use crate::domain::keys::{self, NewKey};
use crate::domain::rbac::{MissingPolicy, Selector};
use crate::rpc::prelude::*;
use crate::rpc::schemas::{DURATION_MIN_MS, IssuedReply, texts};
use crate::rpc::v1::schemas::{Anything, Name, OwnerId, Ratelimit, Refill, credits, user};

/// How many characters are shown of a key that has no prefix.
const BARE_START: usize = 5;

/// Create a key.
///
/// The key itself is in this reply and nowhere else: only its hash is kept.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CreateKey {
    pub api_id: Name,
    /// Put before the key with an underscore. Left out: as the API is set; empty: none.
    #[serde(default)]
    pub prefix: Optional<Text<0, 16>>,
    /// Your name for the key; the customer does not see it.
    #[serde(default)]
    pub name: Optional<Text<0, 256, Printable>>,
    /// Random bytes in the key. Left out: as the API is set, or 16.
    #[serde(default)]
    pub byte_length: Optional<Int<16, 255>>,
    /// Deprecated for `externalId`, which counts.
    #[serde(default)]
    pub owner_id: Optional<OwnerId>,
    /// Your name for the user whose key it is; verification gives it back.
    #[serde(default)]
    pub external_id: Optional<OwnerId>,
    /// Your own JSON object; verification gives it back.
    #[serde(default)]
    pub meta: Optional<Meta>,
    /// Names of roles that the key gets; each must exist.
    #[serde(default)]
    pub roles: Optional<List<Text<1, 512>, 0, 100>>,
    /// Slugs of permissions that the key gets; each must exist.
    #[serde(default)]
    pub permissions: Optional<List<Text<1, 512>, 0, 1000>>,
    /// When the key stops being valid, in unix milliseconds; 0: never.
    #[serde(default)]
    pub expires: Optional<Anything>,
    /// Uses left; 0 is refused, and less than 0 is none. Left out: unlimited.
    #[serde(default)]
    pub remaining: Optional<Anything>,
    /// When uses come back.
    #[serde(default)]
    pub refill: Optional<Object<Refill>>,
    /// A limit for every verification to check.
    #[serde(default)]
    pub ratelimit: Optional<Object<Ratelimit<DURATION_MIN_MS>>>,
    /// Whether the key may be used. Left out: yes.
    #[serde(default)]
    pub enabled: Optional<bool>,
    /// Whether a sealed copy of the key is kept, so that it can be shown again.
    #[serde(default)]
    pub recoverable: Optional<bool>,
    /// Your own label; verification gives it back.
    #[serde(default)]
    pub environment: Optional<Text<0, 256>>,
}

impl Operation for CreateKey {
    const NAME: &'static str = "keys.createKey";
    const NEEDS: AccessRule = AccessRule::HiddenUnlessPermitted(&[Action::CreateKey]);
    const WRITES: bool = true;
    const REPEATABLE: bool = true;
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
        Ok(keys::create(app, caller, self.try_into()?).await?.into())
    }
}

impl TryFrom<CreateKey> for NewKey {
    type Error = Error;

    fn try_from(request: CreateKey) -> Result<Self> {
        let limit = request.ratelimit.0.map(|Object(limit)| limit.check()).transpose()?;
        Ok(Self {
            api_id: ApiId::from(request.api_id.into_string()),
            prefix: request.prefix.0.map(Text::into_string),
            bare_start: BARE_START,
            name: request.name.0.map(Text::into_string),
            byte_length: request.byte_length.0.and_then(|length| u8::try_from(length.0).ok()),
            external_id: user(request.external_id, request.owner_id),
            meta: request.meta.0,
            environment: request.environment.0.map(Text::into_string),
            roles: request.roles.0.map_or_else(Vec::new, texts),
            permissions: Selector::named(
                request.permissions.0.map_or_else(Vec::new, texts),
                MissingPolicy::Refused,
            ),
            expires_at: request.expires.0.filter(|at| at.0 != 0).map(|at| Timestamp(at.0)),
            credits: credits(remaining(request.remaining)?, request.refill)?,
            ratelimits: limit.into_iter().collect(),
            enabled: request.enabled.unwrap_or(true),
            recoverable: request.recoverable.unwrap_or(false),
        })
    }
}

/// A key that is to have none at once says so with less than none.
fn remaining(given: Optional<Anything>) -> Result<Option<i64>> {
    match given.0 {
        Some(Int(0)) => Err(Error::invalid(
            "remaining",
            "remaining: must not be 0; leave it out for an unlimited key, or send enabled: false",
        )),
        given => Ok(given.map(|remaining| remaining.0.max(0))),
    }
}

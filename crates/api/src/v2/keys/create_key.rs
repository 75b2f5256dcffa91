use domain::bounds::KEY_PREFIX_MAX;
use domain::keys::{self, NewKey};
use domain::rbac::{MissingPolicy, Selector};
use foundation::clock::Timestamp;
use foundation::error::Error;
use foundation::id::ApiId;
use foundation::secret::START_LENGTH;

use crate::bounds::WordChars;
use crate::prelude::*;
use crate::schemas::{ByteLength, IssuedReply, into_strings};
use crate::v2::schemas::{Credits, Expires, KeyName, Ratelimits, RoleNames, Slugs};

/// Create a key.
///
/// Issues a new key in an API. The key itself is returned only in this reply: the server stores only its hash.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CreateKey {
    /// The API in which the key is created.
    pub api_id: Id,
    /// The prefix of the key, followed by an underscore: `prod` results in `prod_…`. Default: the setting of the API.
    #[serde(default)]
    pub prefix: Optional<Text<1, KEY_PREFIX_MAX, WordChars>>,
    /// Your name for the key. Your customer does not see it.
    #[serde(default)]
    pub name: Optional<KeyName>,
    /// The number of random bytes in the key. Default: the setting of the API, or 16.
    #[serde(default)]
    pub byte_length: Optional<ByteLength>,
    /// Your id for the user who owns the key; verification returns it.
    #[serde(default)]
    pub external_id: Optional<ExternalId>,
    /// Custom JSON object; verification returns it.
    #[serde(default)]
    pub meta: Optional<BoundedMeta>,
    /// Names of the key's roles. Each role must exist.
    #[serde(default)]
    pub roles: Optional<RoleNames>,
    /// Slugs of the key's permissions. A missing permission is created if the root key has
    /// `rbac.*.create_permission`; otherwise, nothing is created.
    #[serde(default)]
    pub permissions: Optional<Slugs>,
    /// The expiry time in Unix milliseconds.
    #[serde(default)]
    pub expires: Optional<Expires>,
    /// The credits and their refill schedule. Default: unlimited.
    #[serde(default)]
    pub credits: Optional<Object<Credits>>,
    /// Rate limits for verification.
    #[serde(default)]
    pub ratelimits: Optional<Ratelimits>,
    /// Whether the key is enabled. Default: true.
    #[serde(default)]
    pub enabled: Optional<bool>,
    /// Whether to store an encrypted copy of the key, so that it can be shown again.
    #[serde(default)]
    pub recoverable: Optional<bool>,
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
            "credits": { "remaining": 100, "refill": { "interval": "daily", "amount": 100 } },
            "ratelimits": [
                { "name": "requests", "limit": 60, "duration": 60_000, "autoApply": true }
            ]
        })
    }

    async fn run(self, app: &App, caller: &Caller) -> Result<IssuedReply> {
        Ok(keys::create(&app.context, caller, self.try_into()?).await?.into())
    }
}

impl TryFrom<CreateKey> for NewKey {
    type Error = Error;

    fn try_from(request: CreateKey) -> Result<Self> {
        let roles = request.roles.0.map_or_else(Vec::new, |list| list.0);
        let permissions = request.permissions.0.map_or_else(Vec::new, into_strings);
        let ratelimits = request.ratelimits.0.map_or_else(Vec::new, |list| list.0);
        let credits = request.credits.0.map(|Object(credits)| credits.validate());
        let byte_length = request.byte_length.0.and_then(|length| u8::try_from(length.0).ok());
        Ok(Self {
            api_id: ApiId::from(request.api_id.into_string()),
            prefix: request.prefix.0.map(Text::into_string),
            unprefixed_start_length: START_LENGTH,
            name: request.name.0.map(Text::into_string),
            byte_length,
            external_id: request.external_id.0.map(Text::into_string),
            meta: request.meta.0.map(Meta::from),
            environment: None,
            roles: roles.into_iter().map(Text::into_string).collect(),
            permissions: Selector::from_ids_or_slugs(permissions, MissingPolicy::Create),
            expires_at: request.expires.0.map(|at| Timestamp(at.0)),
            credits: credits.transpose()?.flatten(),
            ratelimits: ratelimits.into_iter().map(|Object(limit)| limit.into()).collect(),
            enabled: request.enabled.unwrap_or(true),
            is_recoverable: request.recoverable.unwrap_or(false),
        })
    }
}

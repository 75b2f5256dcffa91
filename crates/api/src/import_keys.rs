//! Importing keys for an operator, from what `keyward export` has written.
//!
//! It does what `keys.migrateKeys` does, and has no route. Version 1 has some fields that version 2 does not have, and accepts others
//! beyond the bounds of version 2. Here these fields and the wider bounds apply, so that every key can be exported and imported.

use domain::bounds::{IMPORTED_KEYS_MAX, KEY_CHARS_MAX, RATELIMIT_NAME_MAX, RATELIMIT_NAME_MIN};
use domain::keys::{ImportedKeyFields, IssuerSettings, NewRatelimit};
use foundation::clock::Timestamp;
use foundation::error::Error;
use request::json_depth::DEPTH_MAX;

use crate::prelude::*;
use crate::schemas::{ByteLength, PositiveInt, into_strings};
use crate::v2::keys::migrate_keys::{MigrateKeysReply, import_keys};
use crate::v2::schemas::Credits;

/// The name or the environment of a key, or the external id of its user.
const TEXT_MAX: usize = 256;
/// The name of a role, or the slug of a permission.
const NAME_MAX: usize = 512;
/// The roles, permissions or rate limits of a key. It can have more than one request gives it: an undo restores what others have
/// replaced meanwhile.
const ITEMS_MAX: usize = 10_000;

/// Import keys.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ImportKeys {
    pub migration_id: Text<3, 255>,
    pub api_id: Text<3, 255>,
    pub keys: List<Object<KeyToImport>, 1, IMPORTED_KEYS_MAX>,
}

/// A key to import.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct KeyToImport {
    hash: Text<3, 256>,
    #[serde(default)]
    name: Optional<Text<1, TEXT_MAX, Printable>>,
    #[serde(default)]
    external_id: Optional<Text<1, TEXT_MAX>>,
    #[serde(default)]
    meta: Optional<Meta>,
    #[serde(default)]
    environment: Optional<Text<0, TEXT_MAX>>,
    #[serde(default)]
    roles: Optional<List<Text<1, NAME_MAX>, 0, ITEMS_MAX>>,
    #[serde(default)]
    permissions: Optional<List<Text<1, NAME_MAX>, 0, ITEMS_MAX>>,
    #[serde(default)]
    expires: Optional<Int<{ i64::MIN }, { i64::MAX }>>,
    #[serde(default)]
    enabled: Optional<bool>,
    #[serde(default)]
    credits: Optional<Object<Credits>>,
    #[serde(default)]
    ratelimits: Optional<List<Object<RatelimitToImport>, 0, ITEMS_MAX>>,
    /// That of a key of `prefixed-api-key` can be almost as long as the key.
    #[serde(default)]
    prefix: Optional<Text<1, KEY_CHARS_MAX>>,
    #[serde(default)]
    byte_length: Optional<ByteLength>,
}

/// A rate limit of a key to import. Version 1 has windows of less than a second, and limits that are marked approximate.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct RatelimitToImport {
    name: Text<RATELIMIT_NAME_MIN, RATELIMIT_NAME_MAX, Printable>,
    limit: PositiveInt,
    duration: PositiveInt,
    #[serde(default)]
    auto_apply: Optional<bool>,
    #[serde(default)]
    r#async: Optional<bool>,
}

impl Operation for ImportKeys {
    const NAME: &'static str = "keys.importKeys";
    const ACCESS: AccessRule = AccessRule::Permission(&[Action::CreateKey]);
    const WRITES: bool = true;
    /// A key may have a request to itself: its metadata of 1 MiB, and 2.3 MB of names, if its permissions and roles are as many and as
    /// long as version 1 accepts, in characters of four bytes.
    const BODY_MAX_BYTES: usize = 8 * 1024 * 1024;
    /// The metadata is two levels deeper than in the request that created the key.
    const BODY_DEPTH_MAX: usize = DEPTH_MAX + 2;
    type Reply = MigrateKeysReply;

    fn example() -> Value {
        json!({
            "migrationId": example::MIGRATION_ID,
            "apiId": example::API,
            "keys": [{ "hash": "ungWv48Bz+pBQUDeXa4iI7ADYaOWF3qctBD/YfIAFa0=" }]
        })
    }

    async fn run(self, app: &App, caller: &Caller) -> Result<MigrateKeysReply> {
        import_keys(app, caller, self.migration_id, self.api_id, self.keys.0).await
    }
}

impl TryFrom<KeyToImport> for ImportedKeyFields {
    type Error = Error;

    fn try_from(key: KeyToImport) -> Result<Self> {
        let limits = key.ratelimits.0.map_or_else(Vec::new, |list| list.0);
        let (credits, idle_refill) = match key.credits.0 {
            None => (None, None),
            // Version 1 has keys without credits whose refill applies once they have some.
            Some(Object(Credits { remaining: Nullable(None), refill })) => {
                (None, refill.0.map(|Object(refill)| refill.validate()).transpose()?)
            }
            Some(Object(credits)) => (credits.validate()?, None),
        };
        Ok(Self {
            hash: key.hash.into_string(),
            start: None,
            name: key.name.0.map(Text::into_string),
            external_id: key.external_id.0.map(Text::into_string),
            meta: key.meta.0,
            environment: key.environment.0.map(Text::into_string),
            roles: key.roles.0.map_or_else(Vec::new, into_strings),
            permissions: key.permissions.0.map_or_else(Vec::new, into_strings),
            expires_at: key.expires.0.map(|at| Timestamp(at.0)),
            enabled: key.enabled.unwrap_or(true),
            credits,
            ratelimits: limits.into_iter().map(|Object(limit)| limit.into()).collect(),
            issuer_settings: IssuerSettings {
                prefix: key.prefix.0.map(Text::into_string),
                byte_length: key.byte_length.0.and_then(|length| u8::try_from(length.0).ok()),
                idle_refill,
            },
        })
    }
}

impl From<RatelimitToImport> for NewRatelimit {
    fn from(limit: RatelimitToImport) -> Self {
        Self {
            name: limit.name.into_string(),
            limit: limit.limit.0,
            duration_ms: limit.duration.0,
            auto_apply: limit.auto_apply.unwrap_or(false),
            is_async: limit.r#async.unwrap_or(false),
        }
    }
}

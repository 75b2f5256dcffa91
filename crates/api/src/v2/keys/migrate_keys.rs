use domain::bounds::{EXTERNAL_ID_MAX, IMPORTED_KEYS_MAX};
use domain::keys::{self, ImportedKeyFields, IssuerSettings, MigrationResult};
use foundation::clock::Timestamp;
use foundation::error::Error;
use foundation::id::{ApiId, KeyId, MigrationId};

use crate::prelude::*;
use crate::schemas::into_strings;
use crate::v2::schemas::{Credits, Expires, KeyName, Ratelimits, RoleNames, Slugs};

/// Import keys that were issued elsewhere.
///
/// Imports keys by their hashes. The migration defines the hash algorithm; `keyward migration create` creates a
/// migration. Keys whose hash already exists are reported as failed; all others are imported together. Missing
/// identities, permissions and roles are created. Send about 100 keys per request.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct MigrateKeys {
    pub migration_id: Text<3, 255>,
    /// The API in which the keys are created.
    pub api_id: Text<3, 255>,
    pub keys: List<Object<KeyToMigrate>, 1, IMPORTED_KEYS_MAX>,
}

/// A key to import.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct KeyToMigrate {
    /// The hash of the key, by the algorithm of the migration; SHA-256 in base64 or hex.
    pub hash: Text<3, 256>,
    #[serde(default)]
    pub name: Optional<KeyName>,
    #[serde(default)]
    pub external_id: Optional<Text<1, EXTERNAL_ID_MAX>>,
    #[serde(default)]
    pub meta: Optional<BoundedMeta>,
    /// Role names.
    #[serde(default)]
    pub roles: Optional<RoleNames>,
    /// Permission slugs.
    #[serde(default)]
    pub permissions: Optional<Slugs>,
    /// The expiry time in Unix milliseconds.
    #[serde(default)]
    pub expires: Optional<Expires>,
    /// Whether the key is enabled. Default: true.
    #[serde(default)]
    pub enabled: Optional<bool>,
    #[serde(default)]
    pub credits: Optional<Object<Credits>>,
    #[serde(default)]
    pub ratelimits: Optional<Ratelimits>,
}

/// The result of an import.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MigrateKeysReply {
    migrated: Vec<MigratedKey>,
    /// Hashes that already existed or occur twice in the request.
    failed: Vec<String>,
}

/// A key that was imported.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(inline)]
pub struct MigratedKey {
    hash: String,
    key_id: KeyId,
}

impl Operation for MigrateKeys {
    const NAME: &'static str = "keys.migrateKeys";
    const ACCESS: AccessRule = AccessRule::Permission(&[Action::CreateKey]);
    const WRITES: bool = true;
    type Reply = MigrateKeysReply;

    fn example() -> Value {
        json!({
            "migrationId": example::MIGRATION_ID,
            "apiId": example::API,
            "keys": [{
                "hash": "ungWv48Bz+pBQUDeXa4iI7ADYaOWF3qctBD/YfIAFa0=",
                "externalId": "user_1234",
                "permissions": ["documents.read"]
            }]
        })
    }

    async fn run(self, app: &App, caller: &Caller) -> Result<MigrateKeysReply> {
        import_keys(app, caller, self.migration_id, self.api_id, self.keys.0).await
    }
}

/// Imports the keys of a request. An error names the key by its position in the request.
pub async fn import_keys<K>(
    app: &App,
    caller: &Caller,
    migration_id: Text<3, 255>,
    api_id: Text<3, 255>,
    keys: Vec<Object<K>>,
) -> Result<MigrateKeysReply>
where
    ImportedKeyFields: TryFrom<K, Error = Error>,
{
    let migration = MigrationId::from(migration_id.into_string());
    let api = ApiId::from(api_id.into_string());
    let keys = keys.into_iter().enumerate().map(|(at, Object(key))| {
        ImportedKeyFields::try_from(key)
            .map_err(|e| e.nest_under("/properties/keys/items", &format!("keys[{at}].")))
    });
    let keys = keys.collect::<Result<_>>()?;
    Ok(keys::migrate(&app.context, caller, &migration, &api, keys, 0).await?.into())
}

impl TryFrom<KeyToMigrate> for ImportedKeyFields {
    type Error = Error;

    fn try_from(key: KeyToMigrate) -> Result<Self> {
        let limits = key.ratelimits.0.map_or_else(Vec::new, |list| list.0);
        let credits = key.credits.0.map(|Object(credits)| credits.validate()).transpose()?;
        Ok(Self {
            hash: key.hash.into_string(),
            start: None,
            name: key.name.0.map(Text::into_string),
            external_id: key.external_id.0.map(Text::into_string),
            meta: key.meta.0.map(Meta::from),
            environment: None,
            roles: key.roles.0.map_or_else(Vec::new, into_strings),
            permissions: key.permissions.0.map_or_else(Vec::new, into_strings),
            expires_at: key.expires.0.map(|at| Timestamp(at.0)),
            enabled: key.enabled.unwrap_or(true),
            credits: credits.flatten(),
            ratelimits: limits.into_iter().map(|Object(limit)| limit.into()).collect(),
            issuer_settings: IssuerSettings::default(),
        })
    }
}

impl From<MigrationResult> for MigrateKeysReply {
    fn from(result: MigrationResult) -> Self {
        let to_reply = |(hash, key_id)| MigratedKey { hash, key_id };
        let migrated = result.migrated.into_iter().map(to_reply).collect();
        let failed = result.failed.into_iter().map(|(hash, _)| hash).collect();
        Self { migrated, failed }
    }
}

//! Schema types of imported keys, which both operations share.

use domain::bounds::{KEY_ROLES_MAX, PERMISSIONS_MAX};
use domain::keys::{ImportedKeyFields, IssuerSettings, KeyImport, NewRatelimit};
use foundation::clock::Timestamp;
use foundation::error::{Error, Result};
use foundation::id::ApiId;
use foundation::secret::{KeyHash, Plaintext};

use crate::prelude::*;
use crate::schemas::{PositiveInt, into_strings};
use crate::v1::schemas::{AnyInt, KeyOwnerId, Ratelimit, Refill, non_empty, validate_credits};

/// A key that was issued elsewhere.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct KeyToImport<Of> {
    /// Additional fields of each key that one operation requires.
    #[serde(flatten)]
    pub operation_fields: Of,
    /// The key itself. It is stored encrypted if the API stores recoverable keys.
    #[serde(default)]
    pub plaintext: Optional<Text<1, 512>>,
    /// The hash of the key, if `plaintext` is omitted.
    #[serde(default)]
    pub hash: Optional<Object<Hash>>,
    /// The first characters of the key, which may be shown.
    #[serde(default)]
    pub start: Optional<Text<0, 32>>,
    /// Accepted but ignored.
    #[serde(default)]
    #[expect(dead_code, reason = "the key has already been issued")]
    pub prefix: Optional<Text<0, 8>>,
    #[serde(default)]
    pub name: Optional<Text<0, 256, Printable>>,
    /// Your id for the user. No identity is created.
    #[serde(default)]
    pub owner_id: Optional<KeyOwnerId>,
    /// Your id for the user who owns the key.
    #[serde(default)]
    pub external_id: Optional<KeyOwnerId>,
    #[serde(default)]
    pub meta: Optional<Meta>,
    /// Role names. Each role must exist.
    #[serde(default)]
    pub roles: Optional<List<Text<1, 512>, 0, KEY_ROLES_MAX>>,
    /// Permission slugs. Each permission must exist.
    #[serde(default)]
    pub permissions: Optional<List<Text<1, 512>, 0, PERMISSIONS_MAX>>,
    /// The expiry time in Unix milliseconds. 0: the key does not expire.
    #[serde(default)]
    pub expires: Optional<AnyInt>,
    /// The remaining credits. Default: unlimited.
    #[serde(default)]
    pub remaining: Optional<PositiveInt>,
    #[serde(default)]
    pub refill: Optional<Object<Refill>>,
    #[serde(default)]
    pub ratelimit: Optional<Object<Ratelimit<1>>>,
    #[serde(default)]
    pub enabled: Optional<bool>,
    #[serde(default)]
    pub environment: Optional<Text<0, 256>>,
}

/// The hash of a key.
#[derive(Debug, Deserialize, JsonSchema)]
pub struct Hash {
    value: Text<1, 512>,
    #[expect(dead_code, reason = "there is only one variant")]
    variant: OneOf<HashVariant>,
}

/// The hash algorithm and encoding: SHA-256 of the complete key, in base64.
#[derive(Debug, Deserialize, JsonSchema)]
#[schemars(inline)]
enum HashVariant {
    #[serde(rename = "sha256_base64")]
    Sha256Base64,
}

impl<Of> KeyToImport<Of> {
    /// Validates the key and converts it to an import. `path` is the path of the key in the request.
    pub fn validate(self, path: &str, api_id: ApiId) -> Result<KeyImport> {
        let path = format!("{path}.");
        self.into_import(api_id).map_err(|e| e.nest_under(&path, &path))
    }

    fn into_import(self, api_id: ApiId) -> Result<KeyImport> {
        let plaintext = self.plaintext.0.map(|key| Plaintext::from(key.into_string()));
        let hash = match (&plaintext, self.hash.0) {
            (Some(key), _) => key.hash().to_base64(),
            (None, Some(Object(hash))) => {
                let message = "hash: value must be the 32 bytes of SHA-256 in base64";
                let parsed = KeyHash::from_base64(hash.value.as_str());
                parsed.ok_or_else(|| Error::invalid("hash", message))?.to_base64()
            }
            (None, None) => {
                return Err(Error::invalid("hash", "hash: requires a hash or a plaintext"));
            }
        };
        let limit: Option<NewRatelimit> =
            self.ratelimit.0.map(|Object(limit)| limit.validate()).transpose()?;
        Ok(KeyImport {
            api_id,
            plaintext,
            owner_id: non_empty(self.owner_id),
            key: ImportedKeyFields {
                hash,
                start: self.start.0.map(Text::into_string),
                name: self.name.0.map(Text::into_string),
                external_id: non_empty(self.external_id),
                meta: self.meta.0,
                environment: self.environment.0.map(Text::into_string),
                roles: self.roles.0.map_or_else(Vec::new, into_strings),
                permissions: self.permissions.0.map_or_else(Vec::new, into_strings),
                expires_at: self.expires.0.filter(|at| at.0 != 0).map(|at| Timestamp(at.0)),
                enabled: self.enabled.unwrap_or(true),
                credits: validate_credits(
                    self.remaining.0.map(|remaining| remaining.0),
                    self.refill,
                )?,
                ratelimits: limit.into_iter().collect(),
                issuer_settings: IssuerSettings::default(),
            },
        })
    }
}

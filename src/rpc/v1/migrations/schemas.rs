//! A key that was issued elsewhere, as both operations take it.

use foundation::clock::Timestamp;
use foundation::error::{Error, Result};
use foundation::id::ApiId;
use foundation::secret::{KeyHash, Plaintext};

use crate::domain::keys::{ImportedKeyFields, KeyImport, NewRatelimit};
use crate::rpc::prelude::*;
use crate::rpc::schemas::{Positive, texts};
use crate::rpc::v1::schemas::{Anything, OwnerId, Ratelimit, Refill, credits};

/// A key that was issued elsewhere.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Migrated<Of> {
    /// What an operation asks of each key besides.
    #[serde(flatten)]
    pub of: Of,
    /// The key itself; kept sealed where the API keeps recoverable keys.
    #[serde(default)]
    pub plaintext: Optional<Text<1, 512>>,
    /// Its hash, where the key itself is not given.
    #[serde(default)]
    pub hash: Optional<Object<Hash>>,
    /// The leading characters that may be shown.
    #[serde(default)]
    pub start: Optional<Text<0, 32>>,
    /// Accepted and of no effect.
    #[serde(default)]
    #[expect(dead_code, reason = "the key has been made already")]
    pub prefix: Optional<Text<0, 8>>,
    #[serde(default)]
    pub name: Optional<Text<0, 256, Printable>>,
    /// Your name for the user, of whom no identity is made.
    #[serde(default)]
    pub owner_id: Optional<OwnerId>,
    /// Your name for the user whose key it is.
    #[serde(default)]
    pub external_id: Optional<OwnerId>,
    #[serde(default)]
    pub meta: Optional<Meta>,
    /// Names; each must exist.
    #[serde(default)]
    pub roles: Optional<List<Text<1, 512>, 0, 100>>,
    /// Slugs; each must exist.
    #[serde(default)]
    pub permissions: Optional<List<Text<1, 512>, 0, 1000>>,
    /// Unix milliseconds; 0: never.
    #[serde(default)]
    pub expires: Optional<Anything>,
    /// Uses left. Left out: unlimited.
    #[serde(default)]
    pub remaining: Optional<Positive>,
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
    #[expect(dead_code, reason = "there is one")]
    variant: Variant,
}

/// How a hash was made: SHA-256 of the whole key, in base64.
#[derive(Debug, Deserialize, JsonSchema)]
#[schemars(inline)]
enum Variant {
    #[serde(rename = "sha256_base64")]
    Sha256Base64,
}

impl<Of> Migrated<Of> {
    /// The key, to be taken in. `place` is where it stands in the request.
    pub fn check(self, place: &str, api_id: ApiId) -> Result<KeyImport> {
        let place = format!("{place}.");
        self.brought(api_id).map_err(|e| e.within(&place, &place))
    }

    fn brought(self, api_id: ApiId) -> Result<KeyImport> {
        let plaintext = self.plaintext.0.map(|key| Plaintext::from(key.into_string()));
        let hash = match (&plaintext, self.hash.0) {
            (Some(key), _) => key.hash().base64(),
            (None, Some(Object(hash))) => {
                let message = "hash: value must be the 32 bytes of SHA-256 in base64";
                let known = KeyHash::from_base64(hash.value.as_str());
                known.ok_or_else(|| Error::invalid("hash", message))?.base64()
            }
            (None, None) => {
                return Err(Error::invalid("hash", "hash: needs a hash or a plaintext"));
            }
        };
        let limit: Option<NewRatelimit> =
            self.ratelimit.0.map(|Object(limit)| limit.check()).transpose()?;
        Ok(KeyImport {
            api_id,
            plaintext,
            start: self.start.0.map(Text::into_string),
            owner_id: self.owner_id.0.map(Text::into_string),
            environment: self.environment.0.map(Text::into_string),
            key: ImportedKeyFields {
                hash,
                name: self.name.0.map(Text::into_string),
                external_id: self.external_id.0.map(Text::into_string),
                meta: self.meta.0,
                roles: self.roles.0.map_or_else(Vec::new, texts),
                permissions: self.permissions.0.map_or_else(Vec::new, texts),
                expires_at: self.expires.0.filter(|at| at.0 != 0).map(|at| Timestamp(at.0)),
                enabled: self.enabled.unwrap_or(true),
                credits: credits(self.remaining.0.map(|remaining| remaining.0), self.refill)?,
                ratelimits: limit.into_iter().collect(),
            },
        })
    }
}

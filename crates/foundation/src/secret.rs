//! Creates and hashes secrets: the plaintexts of keys. Their `Debug` output is redacted.
//!
//! Only `SHA-256(key)` is ever stored. A fast hash is right for keys of 128 random bits and more: they cannot be
//! guessed.

use std::fmt::Write as _;
use std::hash::{Hash, Hasher};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rand::Rng as _;
use serde::{Serialize, Serializer};
use sha2::{Digest, Sha256};

/// How many characters of the random part `start` contains.
pub const START_LENGTH: usize = 4;

/// The plaintext of a key. It can only be hashed, or written to the single reply that returns it.
#[derive(Clone)]
pub struct Plaintext(String);

impl Plaintext {
    /// Returns a new key: `byte_length` random bytes in base58, after `prefix` and an underscore.
    #[expect(clippy::disallowed_methods, reason = "one of the places that generate secrets")]
    pub fn generate(prefix: Option<&str>, byte_length: u8) -> Self {
        let mut bytes = vec![0; usize::from(byte_length)];
        rand::rng().fill_bytes(&mut bytes);
        let random = bs58::encode(bytes).into_string();
        Self(match prefix {
            Some(prefix) => format!("{prefix}_{random}"),
            None => random,
        })
    }

    /// Returns the leading characters that may be shown: the prefix and four characters.
    pub fn start(&self, prefix: Option<&str>) -> String {
        let prefix = prefix.map_or(0, |prefix| prefix.chars().count() + 1);
        self.leading_chars(prefix + START_LENGTH)
    }

    pub fn leading_chars(&self, length: usize) -> String {
        self.0.chars().take(length).collect()
    }

    pub fn hash(&self) -> KeyHash {
        KeyHash::compute(&self.0)
    }

    /// Returns the key itself, for the reply that returns it.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl From<String> for Plaintext {
    fn from(text: String) -> Self {
        Self(text)
    }
}

impl Serialize for Plaintext {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0)
    }
}

impl schemars::JsonSchema for Plaintext {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Plaintext".into()
    }
    fn inline_schema() -> bool {
        true
    }
    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({ "type": "string" })
    }
}

impl std::fmt::Debug for Plaintext {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Plaintext(…)")
    }
}

/// Returns a random salt, which makes two hashes of one password differ.
#[expect(clippy::disallowed_methods, reason = "one of the places that generate secrets")]
pub fn generate_salt() -> [u8; 16] {
    let mut salt = [0; 16];
    rand::rng().fill_bytes(&mut salt);
    salt
}

/// The `SHA-256` of a whole key. Two keys are equal if their hashes are. Comparing hashes leaks nothing to an attacker,
/// because a hash cannot be steered toward another.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct KeyHash([u8; 32]);

impl KeyHash {
    pub fn compute(key: impl AsRef<[u8]>) -> Self {
        Self(Sha256::digest(key).into())
    }

    /// Returns the stored form: standard base64 with padding, 44 characters.
    pub fn to_base64(&self) -> String {
        STANDARD.encode(self.0)
    }

    pub fn to_bytes(self) -> [u8; 32] {
        self.0
    }

    /// Returns lower-case hex, the form that other systems store.
    pub fn to_hex(&self) -> String {
        self.0.iter().fold(String::with_capacity(64), |mut hex, byte| {
            // Writing to a string does not fail.
            let _ = write!(hex, "{byte:02x}");
            hex
        })
    }

    /// Parses 64 hex digits in either case.
    pub fn from_hex(text: &str) -> Option<Self> {
        decode_hex(text)?.try_into().ok().map(Self)
    }

    /// Parses the stored form. Returns `None` if it is not a Keyward hash.
    pub fn from_base64(text: &str) -> Option<Self> {
        STANDARD.decode(text).ok()?.try_into().ok().map(Self)
    }

    /// Returns the first eight bytes: enough to find a cache entry, useless for anything else.
    pub fn fingerprint(&self) -> u64 {
        self.0[..8].iter().fold(0, |number, byte| number << 8 | u64::from(*byte))
    }
}

/// Decodes an even number of hex digits.
pub fn decode_hex(text: &str) -> Option<Vec<u8>> {
    if text.len() % 2 == 1 || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return None;
    }
    (0..text.len()).step_by(2).map(|at| u8::from_str_radix(&text[at..at + 2], 16).ok()).collect()
}

/// Returns the prefix, the short and the long token of a key of `prefixed-api-key`. Returns `None` if it has fewer than
/// three parts between underscores.
pub fn split_prefixed_key(key: &str) -> Option<(&str, &str, &str)> {
    let (head, long) = key.rsplit_once('_')?;
    let (prefix, short) = head.rsplit_once('_')?;
    Some((prefix, short, long))
}

/// The fingerprint is already uniformly distributed, so it serves as the hash.
impl Hash for KeyHash {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.fingerprint());
    }
}

impl std::fmt::Debug for KeyHash {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("KeyHash(…)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn random_key_has_prefix_underscore_and_base58() {
        let key = Plaintext::generate(Some("prod"), 16);

        let random = key.expose().strip_prefix("prod_").expect("the prefix");
        assert_eq!(bs58::decode(random).into_vec().map(|bytes| bytes.len()), Ok(16));
        assert_eq!(key.start(Some("prod")), key.expose()[..9]);
        assert_eq!(key.start(Some("prod")).len(), "prod_".len() + 4);
    }

    #[test]
    fn key_hash_is_base64_of_sha256() {
        assert_eq!(
            KeyHash::compute("abc").to_base64(),
            "ungWv48Bz+pBQUDeXa4iI7ADYaOWF3qctBD/YfIAFa0="
        );
    }

    #[test]
    fn key_hash_is_parsed_from_hex_and_base64() {
        let hash = KeyHash::compute("abc");

        assert_eq!(
            hash.to_hex(),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
        );
        assert_eq!(KeyHash::from_hex(&hash.to_hex().to_uppercase()), Some(hash));
        assert_eq!(KeyHash::from_base64(&hash.to_base64()), Some(hash));
        for wrong in ["", "ba", "zz", "+1", &"ü".repeat(32)] {
            assert_eq!(KeyHash::from_hex(wrong), None);
            assert_eq!(KeyHash::from_base64(wrong), None);
        }
    }

    #[test]
    fn debug_output_shows_no_secret() {
        let key = Plaintext::from("prod_secret".to_owned());

        let shown = format!("{key:?} {:?}", key.hash());

        assert_eq!(shown, "Plaintext(…) KeyHash(…)");
    }
}

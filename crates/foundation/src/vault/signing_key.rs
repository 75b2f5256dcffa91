//! Signing keys: Ed25519 keys that sign assertions. The private key is stored sealed with the master key.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::signature::{Ed25519KeyPair, KeyPair as _};

use super::{KEY_BYTES, MasterKey, MasterKeys, Sealer, random_bytes};
use crate::id::SigningKeyId;

/// A signing key as it is stored.
#[derive(Debug, Clone, sqlx_macros::FromRow)]
pub struct SealedSigningKey {
    pub id: SigningKeyId,
    /// The public key in base64url, as in a JSON Web Key.
    pub public_key: String,
    /// The ID of the master key that sealed it.
    pub master_id: String,
    pub sealed: String,
}

impl SealedSigningKey {
    /// Creates a key. It must be stored before it is used.
    pub fn generate(master: &MasterKey) -> Self {
        let seed = random_bytes::<KEY_BYTES>();
        let pair = Ed25519KeyPair::from_seed_unchecked(&seed).expect("a seed has 32 bytes");
        let public_key = URL_SAFE_NO_PAD.encode(pair.public_key());
        seal(master, &seed, SigningKeyId::random(), public_key)
    }

    /// Seals the same key with the current master key. Returns `None` if no master key opens it.
    pub fn reseal(&self, master_keys: &MasterKeys) -> Option<Self> {
        let seed = self.open_seed(master_keys)?;
        Some(seal(&master_keys.current_key, &seed, self.id.clone(), self.public_key.clone()))
    }

    /// Opens the key. Returns `None` if none of the master keys opens it, or the public key is not its own.
    pub fn open(&self, master_keys: &MasterKeys) -> Option<SigningKey> {
        let seed = self.open_seed(master_keys)?;
        let public_key = URL_SAFE_NO_PAD.decode(&self.public_key).ok()?;
        let pair = Ed25519KeyPair::from_seed_and_public_key(&seed, &public_key).ok()?;
        // An ID needs no escaping.
        let header = format!(r#"{{"alg":"EdDSA","typ":"JWT","kid":"{}"}}"#, self.id);
        Some(SigningKey { encoded_header: URL_SAFE_NO_PAD.encode(header), pair })
    }

    fn open_seed(&self, master_keys: &MasterKeys) -> Option<[u8; KEY_BYTES]> {
        let sealer = Sealer::new(master_keys.find(&self.master_id)?.bytes);
        sealer.open(&self.sealed, &context_of(&self.id))?.try_into().ok()
    }
}

/// A signing key that is ready to sign.
pub struct SigningKey {
    /// The header of every token that it signs, in base64url.
    encoded_header: String,
    pair: Ed25519KeyPair,
}

impl SigningKey {
    /// Returns a JSON Web Token (RFC 7519) with these claims, which are JSON.
    pub fn sign_token(&self, claims: &[u8]) -> String {
        /// The length of a signature in base64url.
        const SIGNATURE_CHARS: usize = 86;
        let header = &self.encoded_header;
        let claims_chars = claims.len().div_ceil(3) * 4;
        let mut token = String::with_capacity(header.len() + claims_chars + SIGNATURE_CHARS + 2);
        token.push_str(header);
        token.push('.');
        URL_SAFE_NO_PAD.encode_string(claims, &mut token);
        let signature = self.pair.sign(token.as_bytes());
        token.push('.');
        URL_SAFE_NO_PAD.encode_string(signature, &mut token);
        token
    }
}

impl std::fmt::Debug for SigningKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "SigningKey({})", self.encoded_header)
    }
}

fn seal(
    master: &MasterKey,
    seed: &[u8; KEY_BYTES],
    id: SigningKeyId,
    public_key: String,
) -> SealedSigningKey {
    let sealed = Sealer::new(master.bytes).seal(seed, &context_of(&id));
    SealedSigningKey { master_id: master.id.clone(), sealed, public_key, id }
}

fn context_of(id: &SigningKeyId) -> String {
    format!("signing key {id}")
}

#[cfg(test)]
mod tests {
    use ring::signature::{ED25519, UnparsedPublicKey};

    use super::*;

    fn master_keys(current: &MasterKey, previous: Option<&MasterKey>) -> MasterKeys {
        MasterKeys { current_key: current.clone(), previous_key: previous.cloned() }
    }

    #[test]
    fn resealed_key_signs_as_before() {
        let (old, new) = (MasterKey::generate(), MasterKey::generate());
        let stored = SealedSigningKey::generate(&old);

        let resealed = stored.reseal(&master_keys(&new, Some(&old))).expect("both are known");

        assert!(stored.open(&master_keys(&new, None)).is_none());
        assert!(stored.reseal(&master_keys(&new, None)).is_none());
        let key = resealed.open(&master_keys(&new, None)).expect("the key opens");
        let token = key.sign_token(b"{}");
        let (signed, signature) = token.rsplit_once('.').expect("three parts");
        let public_key = URL_SAFE_NO_PAD.decode(&stored.public_key).expect("base64url");
        let signature = URL_SAFE_NO_PAD.decode(signature).expect("base64url");
        let verifier = UnparsedPublicKey::new(&ED25519, public_key);
        assert!(verifier.verify(signed.as_bytes(), &signature).is_ok());
    }

    #[test]
    fn key_does_not_open_when_it_was_stored_as_another() {
        let masters = master_keys(&MasterKey::generate(), None);
        let stored = SealedSigningKey::generate(&masters.current_key);
        let other = SealedSigningKey::generate(&masters.current_key);

        let moved = SealedSigningKey { id: other.id, ..stored.clone() };
        let published = SealedSigningKey { public_key: other.public_key, ..stored.clone() };

        assert!(stored.open(&masters).is_some());
        assert!(moved.open(&masters).is_none());
        assert!(published.open(&masters).is_none());
    }
}

//! Seals secrets so that only the holder of the master key can read them.
//!
//! It uses envelope encryption. Each workspace has a data key, which is stored sealed with the master key; the data key
//! seals the workspace's recoverable keys. A sealed value is bound to what it belongs to, so that it opens only there.
//! The cipher is AES-256-GCM with random nonces, which is sound for four billion seals with one data key.

pub mod file;
mod signing_key;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rand::Rng as _;
use ring::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use sha2::{Digest, Sha256};

use crate::id::{DataKeyId, KeyId, WorkspaceId};
use crate::secret::{Plaintext, decode_hex};
pub use signing_key::{SealedSigningKey, SigningKey};

/// The number of bytes in a master key.
pub const KEY_BYTES: usize = 32;

/// A cipher with its key.
pub struct Sealer(LessSafeKey);

impl Sealer {
    pub fn new(bytes: [u8; KEY_BYTES]) -> Self {
        let key = UnboundKey::new(&AES_256_GCM, &bytes).expect("the key has the cipher's length");
        Self(LessSafeKey::new(key))
    }

    /// Seals a secret. Returns base64, the nonce first. `context` identifies what the secret belongs to, and is needed
    /// to open it.
    pub fn seal(&self, secret: &[u8], context: &str) -> String {
        let nonce = random_bytes::<NONCE_LEN>();
        let mut sealed = secret.to_vec();
        let unique = Nonce::assume_unique_for_key(nonce);
        let done = self.0.seal_in_place_append_tag(unique, Aad::from(context), &mut sealed);
        done.expect("a secret is far shorter than the cipher's limit");
        STANDARD.encode([&nonce[..], &sealed].concat())
    }

    /// Opens a sealed secret. Returns `None` if it was sealed with another key or context, or was changed.
    pub fn open(&self, sealed: &str, context: &str) -> Option<Vec<u8>> {
        let mut bytes = STANDARD.decode(sealed).ok()?;
        let (nonce, sealed) = bytes.split_at_mut_checked(NONCE_LEN)?;
        let nonce = Nonce::try_assume_unique_for_key(nonce).ok()?;
        self.0.open_in_place(nonce, Aad::from(context), sealed).ok().map(|secret| secret.to_vec())
    }
}

#[expect(clippy::disallowed_methods, reason = "one of the places that generate secrets")]
fn random_bytes<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    rand::rng().fill_bytes(&mut bytes);
    bytes
}

/// A master key, which seals the data keys. With it and the database, every recoverable key can be read.
#[derive(Clone)]
pub struct MasterKey {
    /// Identifies the key without revealing anything about it.
    pub id: String,
    bytes: [u8; KEY_BYTES],
}

impl MasterKey {
    fn new(bytes: [u8; KEY_BYTES]) -> Self {
        let hash = Sha256::new().chain_update("keyward master key").chain_update(bytes).finalize();
        let id = bs58::encode(&hash[..8]).into_string();
        Self { id, bytes }
    }

    pub fn generate() -> Self {
        Self::new(random_bytes())
    }

    /// Parses base64 or hex. The error describes the expected format.
    pub fn parse(text: &str) -> Result<Self, String> {
        let text = text.trim();
        let bytes = match text.len() {
            64 => decode_hex(text),
            _ => STANDARD.decode(text).ok(),
        };
        let key = bytes.and_then(|bytes| <[u8; KEY_BYTES]>::try_from(bytes).ok());
        key.map(Self::new).ok_or_else(|| {
            format!("must be {KEY_BYTES} bytes in base64 (44 characters) or hex (64), such as the output of `openssl rand -base64 32`")
        })
    }

    /// Returns the key in the format that [`MasterKey::parse`] reads.
    pub fn expose(&self) -> String {
        STANDARD.encode(self.bytes)
    }
}

impl std::fmt::Debug for MasterKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "MasterKey({})", self.id)
    }
}

/// The master keys of a server: the current one seals, all open.
#[derive(Debug, Clone)]
pub struct MasterKeys {
    pub current_key: MasterKey,
    /// The previous key, while data keys that it sealed still exist.
    pub previous_key: Option<MasterKey>,
}

impl MasterKeys {
    /// Returns the key with this ID.
    pub fn find(&self, id: &str) -> Option<&MasterKey> {
        std::iter::once(&self.current_key).chain(&self.previous_key).find(|key| key.id == id)
    }
}

/// A data key as it is stored.
#[derive(Debug, Clone, sqlx_macros::FromRow)]
pub struct SealedDataKey {
    pub id: DataKeyId,
    pub workspace_id: WorkspaceId,
    /// The ID of the master key that sealed it.
    pub master_id: String,
    pub sealed: String,
}

/// A data key, which seals the recoverable keys of a workspace.
pub struct DataKey {
    pub id: DataKeyId,
    workspace_id: WorkspaceId,
    sealer: Sealer,
}

impl DataKey {
    /// Creates a data key. It must be stored before it is used.
    pub fn generate_sealed(master: &MasterKey, workspace: &WorkspaceId) -> SealedDataKey {
        let id = DataKeyId::random();
        seal_data_key(master, &random_bytes::<KEY_BYTES>(), id, workspace)
    }

    /// Opens a data key. Returns `None` if none of the master keys opens it.
    pub fn open(master_keys: &MasterKeys, stored: &SealedDataKey) -> Option<Self> {
        let bytes = open_data_key(master_keys, stored)?;
        let (id, workspace_id) = (stored.id.clone(), stored.workspace_id.clone());
        Some(Self { id, workspace_id, sealer: Sealer::new(bytes) })
    }

    pub fn seal(&self, key: &KeyId, secret: &Plaintext) -> String {
        self.sealer.seal(secret.expose().as_bytes(), &self.key_context(key))
    }

    /// Unseals a key. Returns `None` if it was sealed as another key, or was changed.
    pub fn unseal(&self, key: &KeyId, sealed: &str) -> Option<Plaintext> {
        let secret = self.sealer.open(sealed, &self.key_context(key))?;
        String::from_utf8(secret).ok().map(Plaintext::from)
    }

    fn key_context(&self, key: &KeyId) -> String {
        format!("key {} {key}", self.workspace_id)
    }
}

/// Seals the same data key with the current master key. Returns `None` if no master key opens it.
pub fn reseal(master_keys: &MasterKeys, stored: &SealedDataKey) -> Option<SealedDataKey> {
    let bytes = open_data_key(master_keys, stored)?;
    Some(seal_data_key(&master_keys.current_key, &bytes, stored.id.clone(), &stored.workspace_id))
}

fn open_data_key(master_keys: &MasterKeys, stored: &SealedDataKey) -> Option<[u8; KEY_BYTES]> {
    let sealer = Sealer::new(master_keys.find(&stored.master_id)?.bytes);
    sealer
        .open(&stored.sealed, &data_key_context(&stored.id, &stored.workspace_id))?
        .try_into()
        .ok()
}

fn seal_data_key(
    master: &MasterKey,
    bytes: &[u8; KEY_BYTES],
    id: DataKeyId,
    workspace: &WorkspaceId,
) -> SealedDataKey {
    let sealed = Sealer::new(master.bytes).seal(bytes, &data_key_context(&id, workspace));
    SealedDataKey { master_id: master.id.clone(), sealed, workspace_id: workspace.clone(), id }
}

fn data_key_context(id: &DataKeyId, workspace: &WorkspaceId) -> String {
    format!("data key {workspace} {id}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn master_keys(current: &MasterKey, previous: Option<&MasterKey>) -> MasterKeys {
        MasterKeys { current_key: current.clone(), previous_key: previous.cloned() }
    }

    #[test]
    fn sealed_key_opens_only_in_its_own_context() {
        let master_keys = master_keys(&MasterKey::generate(), None);
        let (ours, theirs) = (WorkspaceId::from("ws_a"), WorkspaceId::from("ws_b"));
        let stored = DataKey::generate_sealed(&master_keys.current_key, &ours);
        let data_key = DataKey::open(&master_keys, &stored).expect("the data key opens");
        let (key, other) = (KeyId::from("key_a"), KeyId::from("key_b"));
        let secret = Plaintext::from("prod_secret".to_owned());

        let sealed = data_key.seal(&key, &secret);

        let shown = |found: Option<Plaintext>| found.map(|secret| secret.expose().to_owned());
        assert_eq!(shown(data_key.unseal(&key, &sealed)).as_deref(), Some("prod_secret"));
        assert_eq!(shown(data_key.unseal(&other, &sealed)), None);
        assert_ne!(sealed, data_key.seal(&key, &secret), "the nonce differs each time");
        let moved = SealedDataKey { workspace_id: theirs, ..stored };
        assert!(DataKey::open(&master_keys, &moved).is_none());
    }

    #[test]
    fn open_returns_none_when_sealed_value_was_changed() {
        let sealer = Sealer::new([7; KEY_BYTES]);
        let sealed = STANDARD.decode(sealer.seal(b"secret", "a")).expect("base64");
        for at in 0..sealed.len() {
            let mut changed = sealed.clone();
            changed[at] ^= 1;
            assert_eq!(sealer.open(&STANDARD.encode(changed), "a"), None, "byte {at}");
        }
        for broken in ["", "AAAA", "not base64!"] {
            assert_eq!(sealer.open(broken, "a"), None);
        }
    }

    #[test]
    fn resealed_data_key_opens_earlier_secrets() {
        let (old, new) = (MasterKey::generate(), MasterKey::generate());
        let workspace = WorkspaceId::from("ws_a");
        let stored = DataKey::generate_sealed(&old, &workspace);
        let key = KeyId::from("key_a");
        let before = DataKey::open(&master_keys(&old, None), &stored).expect("the data key opens");
        let sealed = before.seal(&key, &Plaintext::from("secret".to_owned()));

        let resealed = reseal(&master_keys(&new, Some(&old)), &stored).expect("both are known");

        assert!(DataKey::open(&master_keys(&new, None), &stored).is_none());
        let after = DataKey::open(&master_keys(&new, None), &resealed).expect("the data key opens");
        assert!(after.unseal(&key, &sealed).is_some_and(|secret| secret.expose() == "secret"));
    }

    #[test]
    fn master_key_is_parsed_from_base64_and_hex() {
        let bytes = [0xa5; KEY_BYTES];
        let both = [STANDARD.encode(bytes), "a5".repeat(KEY_BYTES), "A5".repeat(KEY_BYTES)];
        let ids = both.map(|text| MasterKey::parse(&text).expect("a key").id);

        assert_eq!(ids, [ids[0].clone(), ids[0].clone(), ids[0].clone()]);
        for wrong in ["", "short", &"g5".repeat(32), &STANDARD.encode([1; 31]), &"ü".repeat(32)] {
            assert!(MasterKey::parse(wrong).is_err_and(|error| error.contains("32 bytes")));
        }
        assert!(!format!("{:?}", MasterKey::new(bytes)).contains("a5a5"));
    }
}

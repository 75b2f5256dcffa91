//! Sealing: what only the holder of the master key can read.
//!
//! Envelope encryption. Each workspace has a data key, which is kept sealed with the master key; the data key
//! seals the workspace's recoverable keys. What is sealed says what it is of, so that it opens in its own place
//! only. AES-256-GCM, whose nonces are random: that is sound for four thousand million seals with one data key.

pub mod file;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rand::Rng as _;
use ring::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use sha2::{Digest, Sha256};

use crate::id::{DataKeyId, KeyId, WorkspaceId};
use crate::secret::{Plaintext, hex};

/// The bytes of a master key.
pub const KEY_BYTES: usize = 32;

/// A key that seals.
pub struct Sealer(LessSafeKey);

impl Sealer {
    pub fn new(bytes: [u8; KEY_BYTES]) -> Self {
        let key = UnboundKey::new(&AES_256_GCM, &bytes).expect("the key has the cipher's length");
        Self(LessSafeKey::new(key))
    }

    /// In base64, the nonce first. `of` says what it is of, and is needed to open it.
    pub fn seal(&self, secret: &[u8], of: &str) -> String {
        let nonce = random::<NONCE_LEN>();
        let mut sealed = secret.to_vec();
        let unique = Nonce::assume_unique_for_key(nonce);
        let done = self.0.seal_in_place_append_tag(unique, Aad::from(of), &mut sealed);
        done.expect("a secret is far shorter than the cipher's bound");
        STANDARD.encode([&nonce[..], &sealed].concat())
    }

    /// `None`: it was sealed with another key, or as something else, or has been changed.
    pub fn open(&self, sealed: &str, of: &str) -> Option<Vec<u8>> {
        let mut bytes = STANDARD.decode(sealed).ok()?;
        let (nonce, sealed) = bytes.split_at_mut_checked(NONCE_LEN)?;
        let nonce = Nonce::try_assume_unique_for_key(nonce).ok()?;
        self.0.open_in_place(nonce, Aad::from(of), sealed).ok().map(|secret| secret.to_vec())
    }
}

#[expect(clippy::disallowed_methods, reason = "secrets are made here")]
fn random<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    rand::rng().fill_bytes(&mut bytes);
    bytes
}

/// What seals the data keys. Whoever has it and the database can read every recoverable key.
#[derive(Clone)]
pub struct MasterKey {
    /// Tells it from others, and tells nothing of it.
    pub id: String,
    bytes: [u8; KEY_BYTES],
}

impl MasterKey {
    fn new(bytes: [u8; KEY_BYTES]) -> Self {
        let hash = Sha256::new().chain_update("keyward master key").chain_update(bytes).finalize();
        let id = bs58::encode(&hash[..8]).into_string();
        Self { id, bytes }
    }

    pub fn random() -> Self {
        Self::new(random())
    }

    /// From base64 or hex. The error says what is due.
    pub fn parse(text: &str) -> Result<Self, String> {
        let text = text.trim();
        let bytes = match text.len() {
            64 => hex(text),
            _ => STANDARD.decode(text).ok(),
        };
        let key = bytes.and_then(|bytes| <[u8; KEY_BYTES]>::try_from(bytes).ok());
        key.map(Self::new).ok_or_else(|| {
            format!("must be {KEY_BYTES} bytes in base64 (44 characters) or hex (64), such as `openssl rand -base64 32` prints")
        })
    }

    /// As [`MasterKey::parse`] reads it.
    pub fn expose(&self) -> String {
        STANDARD.encode(self.bytes)
    }
}

impl std::fmt::Debug for MasterKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "MasterKey({})", self.id)
    }
}

/// The master keys of a server: one seals, all open.
#[derive(Debug, Clone)]
pub struct MasterKeys {
    pub current: MasterKey,
    /// The one before, while data keys that it sealed are still there.
    pub previous: Option<MasterKey>,
}

impl MasterKeys {
    /// The key of this id.
    pub fn of(&self, id: &str) -> Option<&MasterKey> {
        std::iter::once(&self.current).chain(&self.previous).find(|key| key.id == id)
    }
}

/// A data key as it is kept.
#[derive(Debug, Clone, sqlx::FromRow)]
pub struct SealedDataKey {
    pub id: DataKeyId,
    pub workspace_id: WorkspaceId,
    /// The master key that sealed it.
    pub master_id: String,
    pub sealed: String,
}

/// What seals the recoverable keys of a workspace.
pub struct DataKey {
    pub id: DataKeyId,
    workspace_id: WorkspaceId,
    sealer: Sealer,
}

impl DataKey {
    /// A new one, to be used once it is kept.
    pub fn random(master: &MasterKey, workspace: &WorkspaceId) -> SealedDataKey {
        let id = DataKeyId::random();
        sealed(master, &random::<KEY_BYTES>(), id, workspace)
    }

    /// `None`: none of the master keys opens it.
    pub fn open(masters: &MasterKeys, kept: &SealedDataKey) -> Option<Self> {
        let bytes = opened(masters, kept)?;
        let (id, workspace_id) = (kept.id.clone(), kept.workspace_id.clone());
        Some(Self { id, workspace_id, sealer: Sealer::new(bytes) })
    }

    pub fn seal(&self, key: &KeyId, secret: &Plaintext) -> String {
        self.sealer.seal(secret.expose().as_bytes(), &self.of(key))
    }

    /// `None`: it was sealed as another key, or has been changed.
    pub fn unseal(&self, key: &KeyId, sealed: &str) -> Option<Plaintext> {
        let secret = self.sealer.open(sealed, &self.of(key))?;
        String::from_utf8(secret).ok().map(Plaintext::from)
    }

    fn of(&self, key: &KeyId) -> String {
        format!("key {} {key}", self.workspace_id)
    }
}

/// The same data key, sealed with the current master key. `None`: no master key opens it.
pub fn resealed(masters: &MasterKeys, kept: &SealedDataKey) -> Option<SealedDataKey> {
    let bytes = opened(masters, kept)?;
    Some(sealed(&masters.current, &bytes, kept.id.clone(), &kept.workspace_id))
}

fn opened(masters: &MasterKeys, kept: &SealedDataKey) -> Option<[u8; KEY_BYTES]> {
    let sealer = Sealer::new(masters.of(&kept.master_id)?.bytes);
    sealer.open(&kept.sealed, &of(&kept.id, &kept.workspace_id))?.try_into().ok()
}

fn sealed(
    master: &MasterKey,
    bytes: &[u8; KEY_BYTES],
    id: DataKeyId,
    workspace: &WorkspaceId,
) -> SealedDataKey {
    let sealed = Sealer::new(master.bytes).seal(bytes, &of(&id, workspace));
    SealedDataKey { master_id: master.id.clone(), sealed, workspace_id: workspace.clone(), id }
}

fn of(id: &DataKeyId, workspace: &WorkspaceId) -> String {
    format!("data key {workspace} {id}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn masters(current: &MasterKey, previous: Option<&MasterKey>) -> MasterKeys {
        MasterKeys { current: current.clone(), previous: previous.cloned() }
    }

    #[test]
    fn what_is_sealed_opens_in_its_own_place_only() {
        let masters = masters(&MasterKey::random(), None);
        let (ours, theirs) = (WorkspaceId::from("ws_a"), WorkspaceId::from("ws_b"));
        let kept = DataKey::random(&masters.current, &ours);
        let data_key = DataKey::open(&masters, &kept).expect("it opens");
        let (key, other) = (KeyId::from("key_a"), KeyId::from("key_b"));
        let secret = Plaintext::from("prod_secret".to_owned());

        let sealed = data_key.seal(&key, &secret);

        let shown = |found: Option<Plaintext>| found.map(|secret| secret.expose().to_owned());
        assert_eq!(shown(data_key.unseal(&key, &sealed)).as_deref(), Some("prod_secret"));
        assert_eq!(shown(data_key.unseal(&other, &sealed)), None);
        assert_ne!(sealed, data_key.seal(&key, &secret), "the nonce is another one each time");
        let moved = SealedDataKey { workspace_id: theirs, ..kept };
        assert!(DataKey::open(&masters, &moved).is_none());
    }

    #[test]
    fn what_has_been_changed_does_not_open() {
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
    fn a_resealed_data_key_opens_what_it_sealed_before() {
        let (old, new) = (MasterKey::random(), MasterKey::random());
        let workspace = WorkspaceId::from("ws_a");
        let kept = DataKey::random(&old, &workspace);
        let key = KeyId::from("key_a");
        let before = DataKey::open(&masters(&old, None), &kept).expect("it opens");
        let sealed = before.seal(&key, &Plaintext::from("secret".to_owned()));

        let resealed = resealed(&masters(&new, Some(&old)), &kept).expect("both are known");

        assert!(DataKey::open(&masters(&new, None), &kept).is_none());
        let after = DataKey::open(&masters(&new, None), &resealed).expect("it opens");
        assert!(after.unseal(&key, &sealed).is_some_and(|secret| secret.expose() == "secret"));
    }

    #[test]
    fn a_master_key_is_read_from_base64_and_from_hex() {
        let bytes = [0xa5; KEY_BYTES];
        let both = [STANDARD.encode(bytes), "a5".repeat(KEY_BYTES), "A5".repeat(KEY_BYTES)];
        let ids = both.map(|text| MasterKey::parse(&text).expect("a key").id);

        assert_eq!(ids, [ids[0].clone(), ids[0].clone(), ids[0].clone()]);
        for wrong in ["", "short", &"g5".repeat(32), &STANDARD.encode([1; 31]), &"ü".repeat(32)] {
            assert!(MasterKey::parse(wrong).is_err_and(|fault| fault.contains("32 bytes")));
        }
        assert!(!format!("{:?}", MasterKey::new(bytes)).contains("a5a5"));
    }
}

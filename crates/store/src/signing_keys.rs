//! Defines reads and writes of signing keys.

use async_trait::async_trait;
use foundation::clock::Timestamp;
use foundation::error::Result;
use foundation::vault::SealedSigningKey;
use sqlx_macros::FromRow;

/// A signing key and its lifetime.
#[derive(Debug, Clone, FromRow)]
pub struct StoredSigningKey {
    #[sqlx(flatten)]
    pub key: SealedSigningKey,
    pub created_at: Timestamp,
    /// The time from which it signs.
    pub activated_at: Option<Timestamp>,
    /// The time from which it no longer signs.
    pub retired_at: Option<Timestamp>,
}

/// What a signing key is used for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SigningKeyState {
    /// It is published, and signs after the next rotation.
    Next,
    /// It signs.
    Current,
    /// It signed until a rotation.
    Retired,
}

impl StoredSigningKey {
    /// Returns what the key is used for.
    pub fn state(&self) -> SigningKeyState {
        match (self.activated_at, self.retired_at) {
            (None, _) => SigningKeyState::Next,
            (Some(_), None) => SigningKeyState::Current,
            (Some(_), Some(_)) => SigningKeyState::Retired,
        }
    }
}

/// A place that one signing key has at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SigningKeySlot {
    Current,
    Next,
}

#[async_trait]
pub trait SigningKeyReads: Send {
    /// Returns the keys, the oldest first. Rotations bound their number.
    async fn list_signing_keys(&mut self) -> Result<Vec<StoredSigningKey>>;
}

#[async_trait]
pub trait SigningKeyWrites: SigningKeyReads {
    /// Like [`SigningKeyReads::list_signing_keys`], and no other transaction changes them until this one ends.
    async fn lock_signing_keys(&mut self) -> Result<Vec<StoredSigningKey>>;
    /// Inserts a key, unless the slot is in use.
    async fn insert_signing_key(
        &mut self,
        key: &SealedSigningKey,
        slot: SigningKeySlot,
        now: Timestamp,
    ) -> Result<()>;
    /// Retires the current key, and makes the next one the current one.
    async fn promote_next_signing_key(&mut self, now: Timestamp) -> Result<()>;
    /// Deletes the keys that were retired before a time.
    async fn delete_signing_keys(&mut self, retired_before: Timestamp) -> Result<()>;
    /// Updates the sealed form of a key.
    async fn reseal_signing_key(&mut self, key: &SealedSigningKey) -> Result<()>;
}

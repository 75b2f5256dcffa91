//! What is kept of root keys.

use async_trait::async_trait;
use foundation::clock::Timestamp;
use foundation::error::Result;
use foundation::id::{KeyId, WorkspaceId};
use foundation::model::RootKey;

use crate::PageQuery;

/// A root key, and when it was last used, as far as that has been noted.
#[derive(Debug, Clone)]
pub struct StoredRootKey {
    pub key: RootKey,
    pub last_used_at: Option<Timestamp>,
}

#[async_trait]
pub trait RootKeyReads: Send {
    async fn root_key_by_hash(&mut self, hash: &str) -> Result<Option<RootKey>>;
    /// All of a workspace, by id; there are few.
    async fn root_keys(&mut self, workspace: &WorkspaceId) -> Result<Vec<RootKey>>;
    /// A page of a workspace's root keys, the latest first: those that are good at `live_at`, or all.
    async fn root_keys_page(
        &mut self,
        workspace: &WorkspaceId,
        live_at: Option<Timestamp>,
        listing: &PageQuery<'_>,
    ) -> Result<Vec<StoredRootKey>>;
    async fn root_key(
        &mut self,
        workspace: &WorkspaceId,
        id: &KeyId,
    ) -> Result<Option<StoredRootKey>>;
    /// Those of every workspace that are not revoked and never expire, by id; up to `max`.
    async fn list_non_expiring_root_keys(&mut self, max: i64) -> Result<Vec<RootKey>>;
}

#[async_trait]
pub trait RootKeyWrites: RootKeyReads {
    async fn insert_root_key(&mut self, key: &RootKey, hash: &str) -> Result<()>;
    /// The workspace of the key, if there was one to revoke.
    async fn revoke_root_key(&mut self, id: &KeyId, now: Timestamp) -> Result<Option<WorkspaceId>>;
    /// As [`RootKeyReads::root_key`], held until the transaction ends.
    async fn lock_root_key(
        &mut self,
        workspace: &WorkspaceId,
        id: &KeyId,
    ) -> Result<Option<RootKey>>;
    async fn set_root_key_expiry(&mut self, id: &KeyId, expires_at: Timestamp) -> Result<()>;
    /// Notes when root keys were used, where that is later than what is known.
    async fn note_root_key_uses(&mut self, uses: &[(KeyId, Timestamp)]) -> Result<()>;
}

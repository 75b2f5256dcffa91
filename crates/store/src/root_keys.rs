//! Defines reads and writes of root keys.

use async_trait::async_trait;
use foundation::clock::Timestamp;
use foundation::error::Result;
use foundation::id::{KeyId, WorkspaceId};
use foundation::model::RootKey;

use crate::PageQuery;

/// A root key, with the time of its last use that was written to the database.
#[derive(Debug, Clone)]
pub struct StoredRootKey {
    pub key: RootKey,
    pub last_used_at: Option<Timestamp>,
}

#[async_trait]
pub trait RootKeyReads: Send {
    async fn find_root_key_by_hash(&mut self, hash: &str) -> Result<Option<RootKey>>;
    /// Returns the root keys of a workspace by id. Their number is small, so there are no pages.
    async fn list_all_root_keys(&mut self, workspace: &WorkspaceId) -> Result<Vec<RootKey>>;
    /// Returns a page of the root keys of a workspace, the latest or the oldest first: those that are valid at `live_at`, or all
    /// if it is `None`.
    async fn list_root_keys(
        &mut self,
        workspace: &WorkspaceId,
        live_at: Option<Timestamp>,
        is_latest_first: bool,
        listing: &PageQuery<'_>,
    ) -> Result<Vec<StoredRootKey>>;
    async fn find_root_key(
        &mut self,
        workspace: &WorkspaceId,
        id: &KeyId,
    ) -> Result<Option<StoredRootKey>>;
    /// Returns up to `max` root keys of all workspaces that are not revoked and never expire, by id.
    async fn list_non_expiring_root_keys(&mut self, max: i64) -> Result<Vec<RootKey>>;
}

#[async_trait]
pub trait RootKeyWrites: RootKeyReads {
    async fn insert_root_key(&mut self, key: &RootKey, hash: &str) -> Result<()>;
    /// Revokes a root key. Returns its workspace, or `None` if no unrevoked root key has this id.
    async fn revoke_root_key(&mut self, id: &KeyId, now: Timestamp) -> Result<Option<WorkspaceId>>;
    /// Returns a root key, and locks it until the transaction ends.
    async fn lock_root_key(
        &mut self,
        workspace: &WorkspaceId,
        id: &KeyId,
    ) -> Result<Option<RootKey>>;
    async fn set_root_key_expiry(&mut self, id: &KeyId, expires_at: Timestamp) -> Result<()>;
    /// Records the last use of root keys, if it is later than the stored one.
    async fn record_root_key_uses(&mut self, uses: &[(KeyId, Timestamp)]) -> Result<()>;
}

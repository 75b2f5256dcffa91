//! What is kept of the vault: data keys, and recoverable keys that they sealed.

use async_trait::async_trait;
use foundation::clock::Timestamp;
use foundation::error::Result;
use foundation::id::{KeyId, WorkspaceId};
use foundation::vault::SealedDataKey;

#[async_trait]
pub trait VaultReads: Send {
    async fn data_key(&mut self, workspace: &WorkspaceId) -> Result<Option<SealedDataKey>>;
    /// Those of every workspace.
    async fn data_keys(&mut self) -> Result<Vec<SealedDataKey>>;
    /// Of these keys, those that are recoverable, sealed with the data key of the workspace.
    async fn sealed_keys(
        &mut self,
        workspace: &WorkspaceId,
        keys: &[KeyId],
    ) -> Result<Vec<(KeyId, String)>>;
}

#[async_trait]
pub trait VaultWrites: VaultReads {
    /// Adds it where the workspace has none.
    async fn insert_data_key(&mut self, key: &SealedDataKey, now: Timestamp) -> Result<()>;
    /// Writes it as it is sealed now.
    async fn reseal_data_key(&mut self, key: &SealedDataKey) -> Result<()>;
    async fn insert_sealed_keys(
        &mut self,
        workspace: &WorkspaceId,
        sealed: &[(KeyId, String)],
    ) -> Result<()>;
}

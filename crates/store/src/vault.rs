//! Defines reads and writes of data keys, and of recoverable keys sealed with them.

use async_trait::async_trait;
use foundation::clock::Timestamp;
use foundation::error::Result;
use foundation::id::{KeyId, WorkspaceId};
use foundation::vault::SealedDataKey;

#[async_trait]
pub trait VaultReads: Send {
    async fn find_data_key(&mut self, workspace: &WorkspaceId) -> Result<Option<SealedDataKey>>;
    /// Returns the data keys of all workspaces.
    async fn list_data_keys(&mut self) -> Result<Vec<SealedDataKey>>;
    /// Returns those of these keys that are recoverable, sealed with the data key of the workspace.
    async fn list_sealed_keys(
        &mut self,
        workspace: &WorkspaceId,
        keys: &[KeyId],
    ) -> Result<Vec<(KeyId, String)>>;
}

#[async_trait]
pub trait VaultWrites: VaultReads {
    /// Inserts a data key, unless the workspace has one.
    async fn insert_data_key(&mut self, key: &SealedDataKey, now: Timestamp) -> Result<()>;
    /// Updates the sealed form of a data key.
    async fn reseal_data_key(&mut self, key: &SealedDataKey) -> Result<()>;
    async fn insert_sealed_keys(
        &mut self,
        workspace: &WorkspaceId,
        sealed: &[(KeyId, String)],
    ) -> Result<()>;
}

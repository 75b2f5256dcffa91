//! Holds the store for requests, from the end of startup on.

use std::sync::OnceLock;
use std::time::Duration;

use foundation::error::{Error, Result};

use super::{Reader, Store, Tx};

const CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// Gives access to the store. It is empty until the store has been opened and migrated and contains the rows that a
/// first start creates, so no request sees an incomplete database.
#[derive(Debug, Default)]
pub struct StoreHandle(OnceLock<Store>);

impl StoreHandle {
    /// Sets the store, which admits requests. Only the first call has an effect; a second store is dropped.
    pub fn set(&self, store: Store) {
        let _ = self.0.set(store);
    }

    /// Waits until the store is set. For tasks beside the requests, which begin a moment later.
    pub async fn wait_until_set(&self) {
        while self.0.get().is_none() {
            tokio::time::sleep(CHECK_INTERVAL).await;
        }
    }

    /// Returns the store. This and every other method fails with [`Error::StoreNotReady`] until the store is set.
    pub fn store(&self) -> Result<&Store> {
        self.0.get().ok_or(Error::StoreNotReady)
    }

    /// Returns a connection for reads.
    pub async fn read(&self) -> Result<Reader> {
        self.store()?.read().await
    }

    /// Returns a connection for reads of balances. The debits in the journal of an embedded server are subtracted
    /// from the balances first, unless the file cannot be written.
    pub async fn read_balances(&self) -> Result<Reader> {
        let store = self.store()?;
        if let Err(e) = store.fold_debits().await {
            tracing::warn!(error = %e, "failed to fold the journal of debits: {e}");
        }
        store.read().await
    }

    pub async fn begin(&self) -> Result<Tx> {
        self.store()?.begin().await
    }

    /// Begins a transaction as [`Store::begin_within`] does.
    pub async fn begin_within(&self, within: Duration) -> Result<Tx> {
        self.store()?.begin_within(within).await
    }

    /// Waits for calls in progress and closes every connection.
    pub async fn close(&self) {
        if let Some(store) = self.0.get() {
            store.close().await;
        }
    }
}

//! The store as requests meet it: behind a gate that opens once.

use std::sync::OnceLock;
use std::time::Duration;

use foundation::error::{Error, Result};

use super::{Reader, Store, Tx};

/// No request sees a database that is half made: until the store has been opened and migrated and
/// holds what a first start makes, there is none.
#[derive(Debug, Default)]
pub struct StoreHandle(OnceLock<Store>);

impl StoreHandle {
    /// Lets requests in. It is opened once; a second store is dropped.
    pub fn set(&self, store: Store) {
        let _ = self.0.set(store);
    }

    /// Fails, as everything here, with [`Error::StoreUnopened`] until it is open.
    pub fn store(&self) -> Result<&Store> {
        self.0.get().ok_or(Error::StoreNotReady)
    }

    /// A connection that only reads.
    pub async fn read(&self) -> Result<Reader> {
        self.store()?.read().await
    }

    /// As [`Gate::read`], of balances: what the journal of an embedded server holds has been taken off them, unless the
    /// file cannot be written to.
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

    /// As [`Store::begin_within`].
    pub async fn begin_within(&self, within: Duration) -> Result<Tx> {
        self.store()?.begin_within(within).await
    }

    /// Waits for what is under way and closes every connection.
    pub async fn close(&self) {
        if let Some(store) = self.0.get() {
            store.close().await;
        }
    }
}

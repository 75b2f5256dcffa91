//! Connections and transactions, of either engine.

use std::ops::{Deref, DerefMut};

use foundation::error::Result;
use sqlx::pool::PoolConnection;
use sqlx::{Postgres, Sqlite, Transaction};

use super::freshness::CacheTag;
use super::writer::WriterTransaction;
use super::{Reads, Writes};

/// A connection on which only [`Reads`] can be called.
pub enum Reader {
    Postgres(PoolConnection<Postgres>),
    Sqlite(PoolConnection<Sqlite>),
}

impl Deref for Reader {
    type Target = dyn Reads;
    fn deref(&self) -> &Self::Target {
        match self {
            Self::Postgres(connection) => &**connection,
            Self::Sqlite(connection) => &**connection,
        }
    }
}

impl DerefMut for Reader {
    fn deref_mut(&mut self) -> &mut Self::Target {
        match self {
            Self::Postgres(connection) => &mut **connection,
            Self::Sqlite(connection) => &mut **connection,
        }
    }
}

/// A transaction, and what it changes that somebody may have cached. Dropped, it is undone.
pub struct Tx {
    pub(super) inner: Inner,
    changed: Vec<CacheTag>,
    /// The position of the first row in the change log, once it is there.
    logged: Option<i64>,
}

/// A transaction of either engine.
pub(super) enum Inner {
    Postgres(Transaction<'static, Postgres>),
    Sqlite(WriterTransaction),
}

impl Inner {
    pub(super) async fn commit(self) -> Result<()> {
        match self {
            Self::Postgres(tx) => tx.commit().await?,
            Self::Sqlite(tx) => tx.commit().await?,
        }
        Ok(())
    }
}

impl Tx {
    pub(super) fn new(inner: Inner) -> Self {
        Self { inner, changed: Vec::new(), logged: None }
    }

    /// Says that a cache may hold something that this transaction makes untrue.
    pub fn changed(&mut self, subject: CacheTag) {
        self.changed.push(subject);
    }

    /// What this transaction makes untrue.
    pub fn changes(&self) -> &[CacheTag] {
        &self.changed
    }

    /// Writes what has changed into the change log; the position of the first row. `None`: nothing has.
    pub async fn log_changes(&mut self) -> Result<Option<i64>> {
        if self.logged.is_none() && !self.changed.is_empty() {
            let subjects: Vec<_> = self.changed.iter().map(ToString::to_string).collect();
            self.logged = Some(self.insert_changes(&subjects).await?);
        }
        Ok(self.logged)
    }

    /// Commits, the change log included, and gives back what has changed. The caller tells the
    /// caches, its own first.
    pub async fn commit(mut self) -> Result<Vec<CacheTag>> {
        self.log_changes().await?;
        self.inner.commit().await?;
        Ok(self.changed)
    }
}

impl Deref for Tx {
    type Target = dyn Writes;
    fn deref(&self) -> &Self::Target {
        match &self.inner {
            Inner::Postgres(tx) => &**tx,
            Inner::Sqlite(tx) => &**tx,
        }
    }
}

impl DerefMut for Tx {
    fn deref_mut(&mut self) -> &mut Self::Target {
        match &mut self.inner {
            Inner::Postgres(tx) => &mut **tx,
            Inner::Sqlite(tx) => &mut **tx,
        }
    }
}

//! Wraps connections and transactions of both engines.

use std::ops::{Deref, DerefMut};

use foundation::error::Result;
use foundation::id::KeyId;
use futures_util::future::BoxFuture;
use sqlx::pool::PoolConnection;
use sqlx::{Database, Postgres, Transaction};

use super::freshness::CacheTag;
use super::writer::WriterTransaction;
use super::{Reads, Writes};

/// The maximum number of keys whose changes are recorded one by one. With more, it costs replicas less to reload every
/// cached value than to read the changes.
const KEY_CHANGES_MAX: usize = 1_000;

/// A connection on which only the functions of the trait `T` can be called.
///
/// Dropping a connection may close it or open another one. As an object it is dropped, and the drivers are compiled, in
/// this crate alone and not in every crate that drops one.
pub struct ReadConnection<T: ?Sized + 'static>(Box<dyn Connection<T>>);

/// A connection on which only [`Reads`] can be called.
pub type Reader = ReadConnection<dyn Reads>;

/// A connection as the trait `T`.
pub(super) trait Connection<T: ?Sized>: Send + Sync {
    fn get(&self) -> &T;
    fn get_mut(&mut self) -> &mut T;
}

impl<DB: Database> Connection<dyn Reads> for PoolConnection<DB>
where
    DB::Connection: Reads + Sync,
{
    fn get(&self) -> &(dyn Reads + 'static) {
        &**self
    }

    fn get_mut(&mut self) -> &mut (dyn Reads + 'static) {
        &mut **self
    }
}

impl<T: ?Sized> ReadConnection<T> {
    pub(super) fn new(connection: impl Connection<T> + 'static) -> Self {
        Self(Box::new(connection))
    }
}

impl<T: ?Sized> Deref for ReadConnection<T> {
    type Target = T;
    fn deref(&self) -> &T {
        self.0.get()
    }
}

impl<T: ?Sized> DerefMut for ReadConnection<T> {
    fn deref_mut(&mut self) -> &mut T {
        self.0.get_mut()
    }
}

/// A transaction, with the cache tags of the entities that it changes. It is rolled back when dropped.
pub struct Tx {
    pub(super) inner: EngineTransaction,
    changed_tags: Vec<CacheTag>,
    /// The position of its first row in the change log, once written.
    log_position: Option<i64>,
}

/// A transaction of one of the engines.
pub(super) enum EngineTransaction {
    Postgres(Box<dyn PostgresTransaction>),
    Sqlite(WriterTransaction),
}

/// A transaction of Postgres as an object, for the reason of [`ReadConnection`].
pub(super) trait PostgresTransaction: Send + Sync {
    fn writes(&self) -> &(dyn Writes + 'static);
    fn writes_mut(&mut self) -> &mut (dyn Writes + 'static);
    fn commit(self: Box<Self>) -> BoxFuture<'static, sqlx::Result<()>>;
}

impl PostgresTransaction for Transaction<'static, Postgres> {
    fn writes(&self) -> &(dyn Writes + 'static) {
        &**self
    }

    fn writes_mut(&mut self) -> &mut (dyn Writes + 'static) {
        &mut **self
    }

    fn commit(self: Box<Self>) -> BoxFuture<'static, sqlx::Result<()>> {
        Box::pin(Transaction::commit(*self))
    }
}

impl EngineTransaction {
    pub(super) fn postgres(transaction: Transaction<'static, Postgres>) -> Self {
        Self::Postgres(Box::new(transaction))
    }

    async fn commit(self) -> Result<()> {
        match self {
            Self::Postgres(tx) => tx.commit().await?,
            Self::Sqlite(tx) => tx.commit().await?,
        }
        Ok(())
    }
}

impl Tx {
    pub(super) fn new(inner: EngineTransaction) -> Self {
        Self { inner, changed_tags: Vec::new(), log_position: None }
    }

    /// Records that this transaction changes the entity of a cache tag.
    pub fn record_change(&mut self, tag: CacheTag) {
        self.changed_tags.push(tag);
    }

    /// Records that this transaction changes these keys. If they are very many, one change stands for all of them.
    pub fn record_key_changes(&mut self, keys: Vec<KeyId>) {
        match keys.len() <= KEY_CHANGES_MAX {
            true => self.changed_tags.extend(keys.into_iter().map(CacheTag::Key)),
            false => self.record_change(CacheTag::All),
        }
    }

    /// Returns the cache tags of the entities that this transaction changes.
    pub fn changed_tags(&self) -> &[CacheTag] {
        &self.changed_tags
    }

    /// Writes the changes to the change log. Returns the position of the first row, or `None` if nothing has changed.
    pub async fn log_changes(&mut self) -> Result<Option<i64>> {
        if self.log_position.is_none() && !self.changed_tags.is_empty() {
            let tags: Vec<_> = self.changed_tags.iter().map(ToString::to_string).collect();
            self.log_position = Some(self.insert_changes(&tags).await?);
        }
        Ok(self.log_position)
    }

    /// Writes the change log and commits. Returns the cache tags that changed. The caller passes them to the caches,
    /// first to those of its own process.
    pub async fn commit(mut self) -> Result<Vec<CacheTag>> {
        self.log_changes().await?;
        self.inner.commit().await?;
        Ok(self.changed_tags)
    }
}

impl Deref for Tx {
    type Target = dyn Writes;
    fn deref(&self) -> &Self::Target {
        match &self.inner {
            EngineTransaction::Postgres(tx) => tx.writes(),
            EngineTransaction::Sqlite(tx) => &**tx,
        }
    }
}

impl DerefMut for Tx {
    fn deref_mut(&mut self) -> &mut Self::Target {
        match &mut self.inner {
            EngineTransaction::Postgres(tx) => tx.writes_mut(),
            EngineTransaction::Sqlite(tx) => &mut **tx,
        }
    }
}

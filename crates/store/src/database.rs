//! Opens, migrates, reads and writes the main database, which does not contain the analytics events.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use foundation::error::{Error, Result};
use futures_util::future::BoxFuture;
use sqlx::SqlitePool;

use super::postgres::{LossTime, Pool};
use super::schema::{self, MigrationPlan};
use super::tx::EngineTransaction;
use super::writer::Writer;
use super::{POSTGRES, Reader, SQLITE, SchemaError, Tx, postgres, sqlite};

/// Awaits a database call. Fails with [`Error::StoreTimeout`] if it takes longer than `time`.
pub async fn with_timeout<T>(time: Duration, call: impl Future<Output = Result<T>>) -> Result<T> {
    tokio::time::timeout(time, call).await.unwrap_or(Err(Error::StoreTimeout(time.as_secs())))
}

/// The database: Postgres, or one SQLite file.
#[derive(Debug, Clone)]
pub enum Store {
    Postgres {
        pool: Arc<Pool>,
        /// Connections reserved for the change feed and the heartbeats of the replica.
        reserved: Arc<Pool>,
    },
    Sqlite {
        /// Connections for reads.
        pool: SqlitePool,
        /// `None` if the file was opened read-only.
        writer: Option<Writer>,
    },
}

// Connections are opened in boxed futures, so that the drivers are compiled once, here, and not in every crate that
// awaits one.
impl Store {
    /// Waits until Postgres accepts a connection. Fails at once if Postgres rejects it.
    pub async fn wait_until_reachable(url: &str, within: Duration) -> Result<()> {
        Ok(postgres::wait_until_reachable(url, within).await?)
    }

    /// Connects to Postgres. Fails within four seconds if Postgres is unreachable.
    pub async fn connect(url: &str, connections_max: u32) -> Result<Self> {
        let loss_time = LossTime::default();
        let reserved = Arc::new(postgres::reserved_pool(url, loss_time.clone())?);
        let pool = Arc::new(postgres::connect(url, connections_max, loss_time).await?);
        Ok(Self::Postgres { pool, reserved })
    }

    /// Opens the file. Creates it if it does not exist.
    pub async fn open(path: &Path) -> Result<Self> {
        let options = sqlite::options(path);
        let pool = sqlite::open(options.clone()).await?;
        Ok(Self::Sqlite { pool, writer: Some(Writer::start(options)) })
    }

    /// Migrates the schema. Several replicas may call it at the same time, while others use the database.
    pub fn migrate(&self) -> BoxFuture<'_, std::result::Result<(), SchemaError>> {
        // Boxed, so that the drivers are compiled once, here.
        Box::pin(async move {
            if self.load_schema().await.is_ok_and(|schema| schema.is_current()) {
                return Ok(());
            }
            match self {
                Self::Postgres { pool, .. } => {
                    let plan = MigrationPlan::for_postgres(&POSTGRES);
                    schema::postgres::migrate(&pool.get().connect_options(), &plan).await
                }
                Self::Sqlite { pool, .. } => {
                    let plan = MigrationPlan::for_sqlite(&SQLITE);
                    schema::sqlite::migrate(&pool.connect_options(), &plan).await
                }
            }
        })
    }

    /// Records that a connection to Postgres was found to be lost. Those that are idle now may be lost too, and are checked
    /// before they are used again.
    pub fn record_lost_connection(&self) {
        if let Self::Postgres { pool, .. } = self {
            pool.record_lost_connection();
        }
    }

    /// Returns a connection for reads.
    pub fn read(&self) -> BoxFuture<'_, Result<Reader>> {
        Box::pin(async move {
            Ok(match self {
                Self::Postgres { pool, .. } => Reader::new(pool.acquire().await?),
                Self::Sqlite { pool, writer } => {
                    if let Some(writer) = writer {
                        writer.wait_until_visible().await;
                    }
                    Reader::new(pool.acquire().await?)
                }
            })
        })
    }

    /// Returns a connection for reads that is reserved for the change feed and the heartbeats of the replica.
    pub fn read_reserved(&self) -> BoxFuture<'_, Result<Reader>> {
        Box::pin(async move {
            match self {
                Self::Postgres { reserved, .. } => Ok(Reader::new(reserved.acquire().await?)),
                Self::Sqlite { .. } => self.read().await,
            }
        })
    }

    pub fn begin(&self) -> BoxFuture<'_, Result<Tx>> {
        Box::pin(async move {
            let mut tx = Tx::new(match self {
                Self::Postgres { pool, .. } => {
                    EngineTransaction::postgres(postgres::begin(pool).await?)
                }
                Self::Sqlite { .. } => EngineTransaction::Sqlite(self.writer()?.begin().await?),
            });
            tx.fold_debits().await?;
            Ok(tx)
        })
    }

    /// Returns the writer of the SQLite file of an embedded server.
    pub(super) fn writer(&self) -> Result<&Writer> {
        match self {
            Self::Sqlite { writer: Some(writer), .. } => Ok(writer),
            Self::Sqlite { writer: None, .. } => {
                Err(Error::Internal("this database was opened read-only".into()))
            }
            Self::Postgres { .. } => Err(Error::Internal("Postgres has no single writer".into())),
        }
    }

    /// Begins a transaction on a connection that is reserved for the change feed and the heartbeats of the replica.
    pub fn begin_reserved(&self) -> BoxFuture<'_, Result<Tx>> {
        Box::pin(async move {
            match self {
                Self::Postgres { reserved, .. } => {
                    Ok(Tx::new(EngineTransaction::postgres(postgres::begin(reserved).await?)))
                }
                Self::Sqlite { .. } => self.begin().await,
            }
        })
    }

    /// Begins a transaction. In Postgres, no statement waits longer than `within` for a lock, and the transaction
    /// ends when it is idle for a second.
    pub fn begin_within(&self, within: Duration) -> BoxFuture<'_, Result<Tx>> {
        Box::pin(async move {
            match self {
                Self::Postgres { pool, .. } => Ok(Tx::new(EngineTransaction::postgres(
                    postgres::begin_within(pool, within).await?,
                ))),
                Self::Sqlite { .. } => self.begin().await,
            }
        })
    }

    /// Makes Postgres count and sample the rows of keys and of what belongs to them, so that its plans suit tables that have
    /// just grown. Returns the estimated number of keys. SQLite plans without such statistics, and this does nothing.
    pub fn analyze_keys(&self) -> BoxFuture<'_, Result<u64>> {
        Box::pin(async move {
            match self {
                Self::Postgres { pool, .. } => Ok(postgres::analyze_keys(pool).await?),
                Self::Sqlite { .. } => Ok(0),
            }
        })
    }

    /// Returns the numbers of connections in use and idle.
    pub fn connections(&self) -> (u32, u32) {
        let (total, idle) = match self {
            Self::Postgres { pool, .. } => (pool.get().size(), pool.get().num_idle()),
            Self::Sqlite { pool, .. } => (pool.size(), pool.num_idle()),
        };
        let idle = u32::try_from(idle).unwrap_or(total).min(total);
        (total - idle, idle)
    }

    /// Replaces all connections once Postgres accepts a new one. Fails if Postgres rejects it.
    pub fn reconnect(&self) -> BoxFuture<'_, Result<()>> {
        // Boxed, so that the drivers are compiled once, here.
        Box::pin(async move {
            if let Self::Postgres { pool, reserved } = self {
                pool.wait_until_reachable().await?;
                pool.replace();
                reserved.replace();
            }
            Ok(())
        })
    }

    /// Waits for calls in progress and closes every connection.
    pub fn close(&self) -> BoxFuture<'_, ()> {
        // Boxed, so that the drivers are compiled once, here.
        Box::pin(async move {
            match self {
                Self::Postgres { pool, reserved } => {
                    pool.close().await;
                    reserved.close().await;
                }
                Self::Sqlite { pool, writer } => {
                    if let Some(writer) = writer {
                        writer.close().await;
                    }
                    pool.close().await;
                }
            }
        })
    }
}

//! The database that Keyward decides by: how it is opened, migrated, read and written.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use foundation::error::{Error, Result};
use sqlx::SqlitePool;

use super::postgres::Pool;
use super::schema::{self, Plan};
use super::tx::Inner;
use super::writer::Writer;
use super::{POSTGRES, Reader, SQLITE, SchemaError, Tx, postgres, sqlite};

/// What asking the database comes to, if that takes no longer than this.
pub async fn bounded<T>(time: Duration, asking: impl Future<Output = Result<T>>) -> Result<T> {
    tokio::time::timeout(time, asking).await.unwrap_or(Err(Error::StoreTimeout(time.as_secs())))
}

/// The database: Postgres, or one SQLite file.
#[derive(Debug, Clone)]
pub enum Store {
    Postgres {
        pool: Arc<Pool>,
        /// Connections that only the change feed and the presence of the replica use.
        reserved: Arc<Pool>,
    },
    Sqlite {
        /// Connections that read.
        pool: SqlitePool,
        /// Absent: the file is only looked at.
        writer: Option<Writer>,
    },
}

impl Store {
    /// Waits until Postgres lets a connection in; fails at once where it refuses one.
    pub async fn wait_until_reachable(url: &str, within: Duration) -> Result<()> {
        Ok(postgres::reach(url, within).await?)
    }

    /// Connects to Postgres; fails within three seconds when it is not there.
    pub async fn connect(url: &str, connections_max: u32) -> Result<Self> {
        let reserved = Arc::new(postgres::reserved_pool(url)?);
        let pool = Arc::new(postgres::connect(url, connections_max).await?);
        Ok(Self::Postgres { pool, reserved })
    }

    /// Opens the file, and makes it when there is none.
    pub async fn open(path: &Path) -> Result<Self> {
        let options = sqlite::options(path);
        let pool = sqlite::open(options.clone()).await?;
        Ok(Self::Sqlite { pool, writer: Some(Writer::start(options)) })
    }

    /// Brings the schema up to date. Several replicas may call it at once, and others use it meanwhile.
    pub async fn migrate(&self) -> std::result::Result<(), SchemaError> {
        if self.schema().await.is_ok_and(|schema| schema.is_current()) {
            return Ok(());
        }
        match self {
            Self::Postgres { pool, .. } => {
                let plan = Plan::of_postgres(&POSTGRES);
                schema::postgres::migrate(&pool.get().connect_options(), &plan).await
            }
            Self::Sqlite { pool, .. } => {
                schema::sqlite::migrate(&pool.connect_options(), &Plan::of(&SQLITE)).await
            }
        }
    }

    /// A connection that only reads.
    pub async fn read(&self) -> Result<Reader> {
        Ok(match self {
            Self::Postgres { pool, .. } => Reader::Postgres(pool.get().acquire().await?),
            Self::Sqlite { pool, writer } => {
                if let Some(writer) = writer {
                    writer.visible().await;
                }
                Reader::Sqlite(pool.acquire().await?)
            }
        })
    }

    /// As [`Store::read`], on a connection that nothing but the change feed and the presence of the replica uses.
    pub async fn read_reserved(&self) -> Result<Reader> {
        match self {
            Self::Postgres { reserved, .. } => {
                Ok(Reader::Postgres(reserved.get().acquire().await?))
            }
            Self::Sqlite { .. } => self.read().await,
        }
    }

    pub async fn begin(&self) -> Result<Tx> {
        let mut tx = Tx::new(match self {
            Self::Postgres { pool, .. } => Inner::Postgres(postgres::begin(&pool.get()).await?),
            Self::Sqlite { .. } => Inner::Sqlite(self.writer()?.begin().await?),
        });
        tx.fold_debits().await?;
        Ok(tx)
    }

    /// The writer of the file of an embedded server.
    pub(super) fn writer(&self) -> Result<&Writer> {
        match self {
            Self::Sqlite { writer: Some(writer), .. } => Ok(writer),
            Self::Sqlite { writer: None, .. } => {
                Err(Error::Internal("this database was opened to be looked at".into()))
            }
            Self::Postgres { .. } => Err(Error::Internal("Postgres has no single writer".into())),
        }
    }

    /// As [`Store::begin`], on a connection that nothing but the change feed and the presence of the replica uses.
    pub async fn begin_reserved(&self) -> Result<Tx> {
        match self {
            Self::Postgres { reserved, .. } => {
                Ok(Tx::new(Inner::Postgres(postgres::begin(&reserved.get()).await?)))
            }
            Self::Sqlite { .. } => self.begin().await,
        }
    }

    /// As [`Store::begin`]; in Postgres no statement waits longer than this for a lock, and one that rests for a second ends.
    pub async fn begin_within(&self, within: Duration) -> Result<Tx> {
        match self {
            Self::Postgres { pool, .. } => {
                Ok(Tx::new(Inner::Postgres(postgres::begin_within(&pool.get(), within).await?)))
            }
            Self::Sqlite { .. } => self.begin().await,
        }
    }

    /// How many connections are in use, and how many are not.
    pub fn connections(&self) -> (u32, u32) {
        let (all, idle) = match self {
            Self::Postgres { pool, .. } => (pool.get().size(), pool.get().num_idle()),
            Self::Sqlite { pool, .. } => (pool.size(), pool.num_idle()),
        };
        let idle = u32::try_from(idle).unwrap_or(all).min(all);
        (all - idle, idle)
    }

    /// Has other connections take the place of all, once Postgres lets one in. Fails where it refuses one.
    pub async fn reconnect(&self) -> Result<()> {
        if let Self::Postgres { pool, reserved } = self {
            pool.reach().await?;
            pool.renew();
            reserved.renew();
        }
        Ok(())
    }

    /// Waits for what is under way and closes every connection.
    pub async fn close(&self) {
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
    }
}

//! What happened: events, and their sums per minute, hour, day and month, in tables of their own.
//!
//! They are not what Keyward decides by. So they have connections of their own, in an embedded server a file of their
//! own too: nothing that is verified or changed ever waits for them.

mod batch;
mod rollups;

use std::ops::{Deref, DerefMut};
use std::path::Path;
use std::sync::Arc;

use async_trait::async_trait;
use sqlx::migrate::Migrator;
use sqlx::pool::PoolConnection;
use sqlx::{Postgres, Sqlite, SqlitePool, Transaction};
use url::Url;

pub use batch::*;
pub use rollups::*;

use foundation::clock::Timestamp;
use foundation::error::Result;
use foundation::model::{DeliverySnapshot, EventKind, Retention, RollupUnit};

use super::clickhouse::{self, ClickHouse};
use super::outbox::{DeliveryReads, DeliveryWrites};
use super::postgres::Pool;
use super::recent::RecentReads;
use super::schema::{self, Plan};
use super::{SchemaError, partitions, postgres, sqlite};

/// Where the tables are in Postgres.
pub const SCHEMA: &str = "keyward_events";

pub(super) static POSTGRES: Migrator = sqlx::migrate!("../../migrations/events/postgres");
pub(super) static SQLITE: Migrator = sqlx::migrate!("../../migrations/events/sqlite");

#[async_trait]
pub trait EventReads: RecentReads {
    /// What events came to by API or namespace; there as soon as the events are.
    async fn totals(&mut self, wanted: &TotalsFilter<'_>) -> Result<Vec<TotalRow>>;
    /// What verifications came to, those that have not been summed up yet among them.
    async fn verification_sums(&mut self, wanted: &RollupFilter<'_>) -> Result<Vec<RollupRow>>;
}

#[async_trait]
pub trait EventWrites: DeliveryWrites {
    /// Writes what a replica has seen, and adds it to the totals; nothing, where a batch of this name is there. The
    /// number of the batch.
    async fn insert_batch(&mut self, batch: &Batch, now: Timestamp) -> Result<BatchId>;
    /// Those of the batches that have not been summed up. They are locked.
    async fn lock_pending_batches(&mut self, batches: &[BatchId]) -> Result<Vec<BatchId>>;
    /// Up to `max` batches that were written before a moment and have not been summed up. They are locked.
    async fn lock_overdue_batches(&mut self, before: Timestamp, max: usize)
    -> Result<Vec<BatchId>>;
    /// What is to be summed up of the events of batches.
    async fn events_of(
        &mut self,
        kind: EventKind,
        batches: &[BatchId],
    ) -> Result<Vec<EventAmounts>>;
    /// Adds to the sums of a unit. `sums` are in order.
    async fn add_sums(
        &mut self,
        kind: EventKind,
        unit: RollupUnit,
        sums: &[SeriesRollup],
    ) -> Result<()>;
    async fn mark_rolled_up(&mut self, batches: &[BatchId]) -> Result<()>;
    /// Forgets what is older than it is kept, apart from whole partitions.
    async fn forget(&mut self, kind: EventKind, kept: &Retention, now: Timestamp) -> Result<()>;
    /// Forgets batches of before one moment that have been summed up, and series that have not been written to since
    /// another.
    async fn forget_names(&mut self, batches: Timestamp, series: Timestamp) -> Result<()>;
}

/// The database of events: a schema of its own in Postgres, or a file of its own. It is opened when it is first
/// needed. Where there is a ClickHouse, events only pass through it, and are read there.
#[derive(Debug, Clone)]
pub struct EventStore {
    pub tables: EventDatabase,
    clickhouse: Option<ClickHouse>,
}

/// The tables of Keyward's own.
#[derive(Debug, Clone)]
pub enum EventDatabase {
    Postgres { write: Arc<Pool>, read: Arc<Pool>, ask: Arc<Pool> },
    Sqlite { write: SqlitePool, read: SqlitePool, ask: SqlitePool },
}

impl EventStore {
    /// In the Postgres at `url`; `analytics_url` is the same as the role for analytics queries, if there is one.
    pub fn connect(url: &str, analytics_url: Option<&str>) -> Result<Self> {
        let pools = postgres::event_pools(url, analytics_url.unwrap_or(url))?;
        let [write, read, ask] = pools.map(Arc::new);
        Ok(Self::of(EventDatabase::Postgres { write, read, ask }))
    }

    /// In this file, which is made when there is none.
    pub fn open(path: &Path) -> Self {
        let [write, read, ask] = sqlite::event_pools(path);
        Self::of(EventDatabase::Sqlite { write, read, ask })
    }

    pub(super) fn of(tables: EventDatabase) -> Self {
        Self { tables, clickhouse: None }
    }

    /// Passing on to the ClickHouse at `url`, if there is one.
    pub fn with_clickhouse(self, url: Option<&Url>) -> Result<Self> {
        let clickhouse = url.map(ClickHouse::new).transpose()?;
        Ok(Self { clickhouse, ..self })
    }

    /// Where events are passed on to.
    pub fn clickhouse(&self) -> Option<&ClickHouse> {
        self.clickhouse.as_ref()
    }

    /// Brings the schema up to date. Several replicas may call it at once, and others use it meanwhile.
    pub async fn migrate(&self) -> std::result::Result<(), SchemaError> {
        if self.schema().await.is_ok_and(|schema| schema.is_current()) {
            return Ok(());
        }
        match &self.tables {
            EventDatabase::Postgres { write, .. } => {
                let table = format!("{SCHEMA}._sqlx_migrations");
                let plan = Plan { table, schema: Some(SCHEMA), ..Plan::of(&POSTGRES) };
                schema::postgres::migrate(&write.get().connect_options(), &plan).await
            }
            EventDatabase::Sqlite { write, .. } => {
                schema::sqlite::migrate(&write.connect_options(), &Plan::of(&SQLITE)).await
            }
        }
    }

    pub async fn begin(&self) -> Result<EventTx> {
        Ok(match &self.tables {
            EventDatabase::Postgres { write, .. } => {
                EventTx::Postgres(postgres::begin(&write.get()).await?)
            }
            EventDatabase::Sqlite { write, .. } => EventTx::Sqlite(sqlite::begin(write).await?),
        })
    }

    /// What reads events, wherever they are.
    pub async fn read(&self) -> Result<EventReader> {
        let mut own = self.read_local().await?;
        Ok(match &self.clickhouse {
            None => EventReader::Own(own),
            Some(clickhouse) => EventReader::ClickHouse(clickhouse.reader(own.delivered().await?)),
        })
    }

    /// Which events in ClickHouse count; without one, nothing is said.
    pub async fn delivered(&self) -> Result<DeliverySnapshot> {
        match &self.clickhouse {
            None => Ok(DeliverySnapshot::default()),
            Some(_) => self.read_local().await?.delivered().await,
        }
    }

    /// A connection to Keyward's own tables that only reads.
    pub async fn read_local(&self) -> Result<OwnReader> {
        Ok(match &self.tables {
            EventDatabase::Postgres { read, .. } => {
                OwnReader::Postgres(read.get().acquire().await?)
            }
            EventDatabase::Sqlite { read, .. } => OwnReader::Sqlite(read.acquire().await?),
        })
    }

    /// Makes room for the days to come, and drops what is older than it is kept where whole parts can be dropped.
    pub async fn keep_parts(
        &self,
        kind: EventKind,
        kept: &Retention,
        now: Timestamp,
    ) -> Result<()> {
        match &self.tables {
            EventDatabase::Postgres { write, .. } => {
                partitions::keep(&write.get(), kind, kept, now).await
            }
            EventDatabase::Sqlite { .. } => Ok(()),
        }
    }

    /// Has other connections take the place of all.
    pub fn reconnect(&self) {
        if let EventDatabase::Postgres { write, read, ask } = &self.tables {
            for pool in [write, read, ask] {
                pool.renew();
            }
        }
    }

    /// Waits for what is under way and closes every connection.
    pub async fn close(&self) {
        match &self.tables {
            EventDatabase::Postgres { write, read, ask } => {
                write.close().await;
                read.close().await;
                ask.close().await;
            }
            EventDatabase::Sqlite { write, read, ask } => {
                write.close().await;
                read.close().await;
                ask.close().await;
            }
        }
    }
}

/// What reads events.
pub enum EventReader {
    Own(OwnReader),
    ClickHouse(clickhouse::Reader),
}

impl Deref for EventReader {
    type Target = dyn EventReads;
    fn deref(&self) -> &Self::Target {
        match self {
            Self::Own(own) => &**own,
            Self::ClickHouse(reader) => reader,
        }
    }
}

impl DerefMut for EventReader {
    fn deref_mut(&mut self) -> &mut Self::Target {
        match self {
            Self::Own(own) => &mut **own,
            Self::ClickHouse(reader) => reader,
        }
    }
}

/// What is read from Keyward's own tables.
pub trait OwnReads: EventReads + DeliveryReads {}

impl<T: EventReads + DeliveryReads> OwnReads for T {}

/// A connection on which only [`OwnReads`] can be called.
pub enum OwnReader {
    Postgres(PoolConnection<Postgres>),
    Sqlite(PoolConnection<Sqlite>),
}

impl Deref for OwnReader {
    type Target = dyn OwnReads;
    fn deref(&self) -> &Self::Target {
        match self {
            Self::Postgres(connection) => &**connection,
            Self::Sqlite(connection) => &**connection,
        }
    }
}

impl DerefMut for OwnReader {
    fn deref_mut(&mut self) -> &mut Self::Target {
        match self {
            Self::Postgres(connection) => &mut **connection,
            Self::Sqlite(connection) => &mut **connection,
        }
    }
}

/// A transaction on events. Dropped, it is undone.
pub enum EventTx {
    Postgres(Transaction<'static, Postgres>),
    Sqlite(Transaction<'static, Sqlite>),
}

impl EventTx {
    pub async fn commit(self) -> Result<()> {
        match self {
            Self::Postgres(tx) => tx.commit().await?,
            Self::Sqlite(tx) => tx.commit().await?,
        }
        Ok(())
    }
}

impl Deref for EventTx {
    type Target = dyn EventWrites;
    fn deref(&self) -> &Self::Target {
        match self {
            Self::Postgres(tx) => &**tx,
            Self::Sqlite(tx) => &**tx,
        }
    }
}

impl DerefMut for EventTx {
    fn deref_mut(&mut self) -> &mut Self::Target {
        match self {
            Self::Postgres(tx) => &mut **tx,
            Self::Sqlite(tx) => &mut **tx,
        }
    }
}

//! Stores analytics events, and their rollups per minute, hour, day and month, in tables of their own.
//!
//! No decision depends on them. So they have connections of their own, and on an embedded server a file of their
//! own: no verification or change ever waits for them.

mod batch;
mod expiry;
mod latencies;
mod rollups;

use std::ops::{Deref, DerefMut};
use std::path::Path;
use std::sync::Arc;

use async_trait::async_trait;
use futures_util::future::BoxFuture;
use sqlx::migrate::Migrator;
use sqlx::pool::PoolConnection;
use sqlx::{Database, Postgres, Sqlite, SqlitePool, Transaction};
use url::Url;

pub use batch::*;
pub use expiry::{EventExpiry, ExpiredRows};
pub use latencies::{Bucket, LatencyHistogram, bucket_of, buckets_of_older_versions};
pub use rollups::*;

use foundation::clock::Timestamp;
use foundation::error::Result;
use foundation::model::{DeliverySnapshot, EventKind, RollupUnit};

use super::clickhouse::{self, ClickHouse};
use super::event_log::LogReads;
use super::outbox::{DeliveryReads, DeliveryWrites};
use super::postgres::Pool;
use super::recent::{RecentReads, TailReads};
use super::schema::{self, MigrationPlan};
use super::tx::{Connection, ReadConnection};
use super::{SchemaError, partitions, postgres, sqlite};

/// The schema that contains the tables in Postgres.
pub const SCHEMA: &str = "keyward_events";

pub(super) static POSTGRES_MIGRATIONS: Migrator =
    sqlx_macros::migrate!("../../migrations/events/postgres");
pub(super) static SQLITE_MIGRATIONS: Migrator =
    sqlx_macros::migrate!("../../migrations/events/sqlite");

#[async_trait]
pub trait EventReads: RecentReads + LogReads {
    /// Returns the totals of events by API or namespace, which include an event as soon as it is written.
    async fn list_totals(&mut self, filter: &TotalsFilter<'_>) -> Result<Vec<TotalRow>>;
    /// Returns the latencies of the same events by unit of time.
    async fn list_latencies(
        &mut self,
        filter: &TotalsFilter<'_>,
    ) -> Result<Vec<(Timestamp, LatencyHistogram)>>;
    /// Returns the start of the first unit of time that has totals of an API or namespace, or `None` if there are none.
    async fn find_first_total(&mut self, filter: &TotalsFilter<'_>) -> Result<Option<Timestamp>>;
    /// Returns the number of keys with at least one selected verification.
    async fn count_verified_keys(&mut self, filter: &RollupFilter<'_>) -> Result<i64>;
    /// Returns the rollups of verifications, including those that are not rolled up yet.
    async fn list_verification_rollups(
        &mut self,
        filter: &RollupFilter<'_>,
    ) -> Result<Vec<RollupRow>>;
    /// Returns the number of the same verifications by region, the region with the most first.
    async fn count_by_region(&mut self, filter: &RollupFilter<'_>) -> Result<Vec<RegionCount>>;
    /// Returns the same verifications, grouped by nothing but time, with their latencies.
    async fn list_rollups_with_latencies(
        &mut self,
        filter: &RollupFilter<'_>,
    ) -> Result<Vec<(RollupRow, LatencyHistogram)>>;
    /// Returns the identifiers with the most limit checks, including those that are not rolled up yet.
    async fn list_top_identifiers(
        &mut self,
        filter: &TopIdentifiersFilter<'_>,
    ) -> Result<Vec<IdentifierRow>>;
}

#[async_trait]
pub trait EventWrites: DeliveryWrites {
    /// Inserts the events of a replica, and adds them to the totals. Does nothing if a batch with this name exists.
    /// Returns the id of the batch.
    async fn insert_batch(&mut self, batch: &EventBatch, now: Timestamp) -> Result<BatchId>;
    /// Locks those of the batches that are not rolled up, and returns them.
    async fn lock_pending_batches(&mut self, batches: &[BatchId]) -> Result<Vec<BatchId>>;
    /// Locks up to `max` batches that were written before a time and are not rolled up, and returns them.
    async fn lock_overdue_batches(&mut self, before: Timestamp, max: usize)
    -> Result<Vec<BatchId>>;
    /// Returns the time of the first event of the batches that are not rolled up, or `None` if all are.
    async fn find_first_pending_event(&mut self) -> Result<Option<Timestamp>>;
    /// Returns the amounts to roll up from the events of batches.
    async fn list_event_amounts(
        &mut self,
        kind: EventKind,
        batches: &[BatchId],
    ) -> Result<Vec<EventAmounts>>;
    /// Adds to the rollups of a unit. `rollups` are in order.
    async fn add_rollups(
        &mut self,
        kind: EventKind,
        unit: RollupUnit,
        rollups: &[SeriesRollup],
    ) -> Result<()>;
    async fn mark_rolled_up(&mut self, batches: &[BatchId]) -> Result<()>;
    /// Deletes about `max` of the rows, or fewer if there are no more. Returns how many were deleted.
    async fn delete_expired(&mut self, rows: &ExpiredRows, max: u64) -> Result<u64>;
}

/// The event database: a schema of its own in Postgres, or a file of its own. It is opened when it is first used. If
/// ClickHouse is configured, events only pass through it, and are read in ClickHouse.
#[derive(Debug, Clone)]
pub struct EventStore {
    pub database: EventDatabase,
    clickhouse: Option<ClickHouse>,
}

/// The connections to Keyward's own tables.
#[derive(Debug, Clone)]
pub enum EventDatabase {
    Postgres { write: Arc<Pool>, read: Arc<Pool>, analytics: Arc<Pool> },
    Sqlite { write: SqlitePool, read: SqlitePool, analytics: SqlitePool },
}

impl EventStore {
    /// Connects to the Postgres at `url`. `analytics_url` is the same with the role for analytics queries, if there
    /// is one.
    pub fn connect(url: &str, analytics_url: Option<&str>) -> Result<Self> {
        let pools = postgres::event_pools(url, analytics_url.unwrap_or(url))?;
        let [write, read, ask] = pools.map(Arc::new);
        Ok(Self::from_database(EventDatabase::Postgres { write, read, analytics: ask }))
    }

    /// Opens this file, which is created if it does not exist.
    pub fn open(path: &Path) -> Self {
        let [write, read, ask] = sqlite::event_pools(path);
        Self::from_database(EventDatabase::Sqlite { write, read, analytics: ask })
    }

    pub(super) fn from_database(tables: EventDatabase) -> Self {
        Self { database: tables, clickhouse: None }
    }

    /// Adds the ClickHouse at `url`, if there is one. Events are delivered to it.
    pub fn with_clickhouse(self, url: Option<&Url>) -> Result<Self> {
        let clickhouse = url.map(ClickHouse::new).transpose()?;
        Ok(Self { clickhouse, ..self })
    }

    /// Returns the ClickHouse to which events are delivered.
    pub fn clickhouse(&self) -> Option<&ClickHouse> {
        self.clickhouse.as_ref()
    }

    /// Migrates the schema. Several replicas may do so at once, while others use the database.
    pub fn migrate(&self) -> BoxFuture<'_, std::result::Result<(), SchemaError>> {
        // Boxed, so that the drivers are compiled once, here.
        Box::pin(async move {
            if self.load_schema().await.is_ok_and(|schema| schema.is_current()) {
                return Ok(());
            }
            match &self.database {
                EventDatabase::Postgres { write, .. } => {
                    let table = format!("{SCHEMA}._sqlx_migrations");
                    let plan = MigrationPlan {
                        table,
                        schema: Some(SCHEMA),
                        ..MigrationPlan::new(&POSTGRES_MIGRATIONS)
                    };
                    schema::postgres::migrate(&write.get().connect_options(), &plan).await
                }
                EventDatabase::Sqlite { write, .. } => {
                    schema::sqlite::migrate(
                        &write.connect_options(),
                        &MigrationPlan::new(&SQLITE_MIGRATIONS),
                    )
                    .await
                }
            }
        })
    }

    pub fn begin(&self) -> BoxFuture<'_, Result<EventTx>> {
        // Boxed, so that the drivers are compiled once, here.
        Box::pin(async move {
            Ok(match &self.database {
                EventDatabase::Postgres { write, .. } => {
                    EventTx::Postgres(postgres::begin(write).await?)
                }
                EventDatabase::Sqlite { write, .. } => EventTx::Sqlite(sqlite::begin(write).await?),
            })
        })
    }

    /// Returns a reader of events, wherever they are stored.
    pub async fn read(&self) -> Result<EventReader> {
        let mut local = self.read_local().await?;
        Ok(match &self.clickhouse {
            None => EventReader::Local(local),
            Some(clickhouse) => {
                EventReader::ClickHouse(clickhouse.reader_at(local.delivery_snapshot().await?))
            }
        })
    }

    /// Returns which events in ClickHouse count. Without ClickHouse it is the default.
    pub async fn delivery_snapshot(&self) -> Result<DeliverySnapshot> {
        match &self.clickhouse {
            None => Ok(DeliverySnapshot::default()),
            Some(_) => self.read_local().await?.delivery_snapshot().await,
        }
    }

    /// Returns a connection to Keyward's own tables that only reads.
    pub fn read_local(&self) -> BoxFuture<'_, Result<LocalReader>> {
        // Boxed, so that the drivers are compiled once, here.
        Box::pin(async move {
            Ok(match &self.database {
                EventDatabase::Postgres { read, .. } => LocalReader::new(read.acquire().await?),
                EventDatabase::Sqlite { read, .. } => LocalReader::new(read.acquire().await?),
            })
        })
    }

    /// Creates partitions for the days after `now`, and drops whole partitions that are past their retention.
    pub async fn maintain_partitions(&self, expiry: &EventExpiry, now: Timestamp) -> Result<()> {
        match &self.database {
            EventDatabase::Postgres { write, .. } => partitions::maintain(write, expiry, now).await,
            EventDatabase::Sqlite { .. } => Ok(()),
        }
    }

    /// Replaces all connections.
    pub fn reconnect(&self) {
        if let EventDatabase::Postgres { write, read, analytics: ask } = &self.database {
            for pool in [write, read, ask] {
                pool.replace();
            }
        }
    }

    /// Waits for running statements, and closes every connection.
    pub fn close(&self) -> BoxFuture<'_, ()> {
        // Boxed, so that the drivers are compiled once, here.
        Box::pin(async move {
            match &self.database {
                EventDatabase::Postgres { write, read, analytics: ask } => {
                    write.close().await;
                    read.close().await;
                    ask.close().await;
                }
                EventDatabase::Sqlite { write, read, analytics: ask } => {
                    write.close().await;
                    read.close().await;
                    ask.close().await;
                }
            }
        })
    }
}

/// Reads events.
pub enum EventReader {
    Local(LocalReader),
    ClickHouse(clickhouse::ClickHouseReader),
}

impl Deref for EventReader {
    type Target = dyn EventReads;
    fn deref(&self) -> &Self::Target {
        match self {
            Self::Local(local) => &**local,
            Self::ClickHouse(reader) => reader,
        }
    }
}

impl DerefMut for EventReader {
    fn deref_mut(&mut self) -> &mut Self::Target {
        match self {
            Self::Local(local) => &mut **local,
            Self::ClickHouse(reader) => reader,
        }
    }
}

/// The reads of Keyward's own tables.
pub trait LocalReads: EventReads + DeliveryReads + TailReads {}

impl<T: EventReads + DeliveryReads + TailReads> LocalReads for T {}

/// A connection on which only [`LocalReads`] can be called.
pub type LocalReader = ReadConnection<dyn LocalReads>;

impl<DB: Database> Connection<dyn LocalReads> for PoolConnection<DB>
where
    DB::Connection: LocalReads + Sync,
{
    fn get(&self) -> &(dyn LocalReads + 'static) {
        &**self
    }

    fn get_mut(&mut self) -> &mut (dyn LocalReads + 'static) {
        &mut **self
    }
}

/// A transaction on events. It is rolled back if it is dropped.
pub enum EventTx {
    Postgres(Transaction<'static, Postgres>),
    Sqlite(Transaction<'static, Sqlite>),
}

impl EventTx {
    pub fn commit(self) -> BoxFuture<'static, Result<()>> {
        // Boxed, so that the drivers are compiled once, here.
        Box::pin(async move {
            match self {
                Self::Postgres(tx) => tx.commit().await?,
                Self::Sqlite(tx) => tx.commit().await?,
            }
            Ok(())
        })
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

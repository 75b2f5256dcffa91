//! What happened: events, and their sums per minute, hour, day and month, in tables of their own.
//!
//! They are not what Keyward decides by. So they have connections of their own, in an embedded server a file of their
//! own too: nothing that is verified or changed ever waits for them.

use std::ops::{Deref, DerefMut};
use std::path::Path;

use async_trait::async_trait;
use serde::Serialize;
use sqlx::migrate::Migrator;
use sqlx::pool::PoolConnection;
use sqlx::{PgPool, Postgres, Sqlite, SqlitePool};

use super::{Inner, Unmigrated, parts, postgres, sqlite};
use crate::clock::Timestamp;
use crate::error::Result;
use crate::id::{ApiId, KeyId, WorkspaceId};
use crate::model::{EventKind, Retention, Unit};

/// Where the tables are in Postgres.
pub const SCHEMA: &str = "keyward_events";

static POSTGRES: Migrator = sqlx::migrate!("migrations/events/postgres");
static SQLITE: Migrator = sqlx::migrate!("migrations/events/sqlite");

/// The upper ends of the buckets that latencies are counted in, in microseconds. What took longer is in none.
pub const LATENCY_BUCKETS_US: [i64; 6] = [100, 500, 1_000, 5_000, 25_000, 100_000];

/// The name of what many events have in common.
pub type SeriesId = String;

/// What many verifications have in common.
#[derive(Debug, Clone, Serialize)]
pub struct VerificationSeries {
    pub id: SeriesId,
    pub workspace_id: String,
    pub api_id: String,
    pub key_id: String,
    /// Empty: the key has none.
    pub identity_id: String,
    pub external_id: String,
    pub outcome: &'static str,
    /// A JSON list, sorted and without doubles.
    pub tags: String,
    /// The beginning of the day.
    pub seen_at: Timestamp,
}

/// A verification that found a key.
#[derive(Debug, Serialize)]
pub struct VerificationEvent {
    pub time: Timestamp,
    pub series: SeriesId,
    pub request_id: String,
    pub spent_credits: i64,
    pub latency_us: i64,
    /// Why it was refused; empty for what was not.
    pub reason: String,
}

/// What many checks of the standalone limiter have in common.
#[derive(Debug, Clone, Serialize)]
pub struct RatelimitSeries {
    pub id: SeriesId,
    pub workspace_id: String,
    pub namespace_id: String,
    pub identifier: String,
    pub passed: bool,
    /// The beginning of the day.
    pub seen_at: Timestamp,
}

/// A check of the standalone limiter.
#[derive(Debug, Serialize)]
pub struct RatelimitEvent {
    pub time: Timestamp,
    pub series: SeriesId,
    pub request_id: String,
    pub latency_us: i64,
    /// Empty: none applied.
    pub override_id: String,
    pub limit: i64,
    pub remaining: i64,
    pub reset_at: Timestamp,
    pub tokens: i64,
}

/// What events come to.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Sum {
    pub count: i64,
    /// Credits spent, or tokens asked for.
    pub amount: i64,
    pub latency_us: i64,
    /// How many latencies fell into each of [`LATENCY_BUCKETS_US`].
    pub latencies: [i64; 6],
}

impl Sum {
    pub fn join(&mut self, other: &Self) {
        self.count += other.count;
        self.amount = self.amount.saturating_add(other.amount);
        self.latency_us = self.latency_us.saturating_add(other.latency_us);
        for (here, there) in self.latencies.iter_mut().zip(other.latencies) {
            *here += there;
        }
    }

    pub fn add(&mut self, amount: i64, latency_us: i64) {
        self.count += 1;
        self.amount = self.amount.saturating_add(amount);
        self.latency_us = self.latency_us.saturating_add(latency_us);
        if let Some(at) = LATENCY_BUCKETS_US.iter().position(|end| latency_us <= *end) {
            self.latencies[at] += 1;
        }
    }
}

/// Which sums of an API, or of a namespace of the limiter.
#[derive(Debug, Serialize, PartialEq, Eq, PartialOrd, Ord, Clone, Hash)]
pub struct TotalOf {
    pub workspace_id: String,
    /// The API's id, or the namespace's.
    pub id: String,
    pub unit: &'static str,
    pub time: Timestamp,
    /// The outcome, or whether the checks passed.
    pub outcome: &'static str,
}

/// What is added to them.
#[derive(Debug, Serialize)]
pub struct Total {
    #[serde(flatten)]
    pub of: TotalOf,
    #[serde(flatten)]
    pub sum: Sum,
}

/// What one replica has seen since its last batch. The lists are sorted, so that replicas that write at once wait for
/// each other instead of holding each other up.
#[derive(Debug, Default)]
pub struct Batch {
    /// No two batches have the same. One that may have been written, and is sent once more, is called as before.
    pub name: String,
    pub region: String,
    pub verifications: Vec<VerificationEvent>,
    /// The new ones of this process's day.
    pub verification_series: Vec<VerificationSeries>,
    pub verification_totals: Vec<Total>,
    pub ratelimits: Vec<RatelimitEvent>,
    pub ratelimit_series: Vec<RatelimitSeries>,
    pub ratelimit_totals: Vec<Total>,
}

impl Batch {
    /// The times of its first and of its last event.
    pub fn span(&self) -> (Timestamp, Timestamp) {
        let times = || {
            let verifications = self.verifications.iter().map(|event| event.time);
            verifications.chain(self.ratelimits.iter().map(|event| event.time))
        };
        (times().min().unwrap_or(Timestamp(0)), times().max().unwrap_or(Timestamp(0)))
    }
}

/// Which sums of verifications are read.
#[derive(Debug)]
pub struct WantedSums<'a> {
    pub workspace: &'a WorkspaceId,
    /// Only of these.
    pub apis: &'a [ApiId],
    /// Only of the identity of this external id.
    pub external_id: Option<&'a str>,
    /// Only of these keys; empty: of any.
    pub keys: &'a [KeyId],
    /// Only with all of these tags.
    pub tags: &'a [String],
    /// Only those that begin at this moment or later.
    pub from: Timestamp,
    /// Only those that begin at this moment or earlier.
    pub to: Timestamp,
    /// Which sums.
    pub unit: Unit,
    /// Whether each unit of time is told for itself.
    pub by_time: bool,
    pub by: SumsBy,
    /// How many rows at most.
    pub max: usize,
}

/// What is told for itself.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SumsBy {
    pub key: bool,
    pub identity: bool,
    pub tags: bool,
}

/// Verifications by their outcome.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, sqlx::FromRow)]
pub struct Counts {
    pub valid: i64,
    pub forbidden: i64,
    pub usage_exceeded: i64,
    pub rate_limited: i64,
    pub disabled: i64,
    pub insufficient_permissions: i64,
    pub expired: i64,
    pub total: i64,
}

impl Counts {
    pub fn join(&mut self, other: &Self) {
        self.valid += other.valid;
        self.forbidden += other.forbidden;
        self.usage_exceeded += other.usage_exceeded;
        self.rate_limited += other.rate_limited;
        self.disabled += other.disabled;
        self.insufficient_permissions += other.insufficient_permissions;
        self.expired += other.expired;
        self.total += other.total;
    }
}

/// What was not told for itself is empty, or 0.
#[derive(Debug, sqlx::FromRow)]
pub struct SumRow {
    pub time: Timestamp,
    pub key_id: String,
    pub identity_id: String,
    pub external_id: String,
    /// A JSON list.
    pub tags: String,
    #[sqlx(flatten)]
    pub counts: Counts,
}

#[async_trait]
pub trait EventReads: Send {
    /// What verifications came to, those that have not been summed up yet among them.
    async fn verification_sums(&mut self, wanted: &WantedSums<'_>) -> Result<Vec<SumRow>>;
}

#[async_trait]
pub trait EventWrites: Send {
    /// Writes what a replica has seen, and adds it to the totals; nothing, where a batch of this name is there.
    async fn insert_batch(&mut self, batch: &Batch, now: Timestamp) -> Result<()>;
    /// Sums up to `max` batches that have not been; how many there were.
    async fn sum_up(&mut self, max: usize) -> Result<usize>;
    /// Forgets what is older than it is kept, apart from whole partitions.
    async fn forget(&mut self, kind: EventKind, kept: &Retention, now: Timestamp) -> Result<()>;
    /// Forgets batches of before one moment that have been summed up, and series that have not been written to since
    /// another.
    async fn forget_names(&mut self, batches: Timestamp, series: Timestamp) -> Result<()>;
}

/// The database of events: a schema of its own in Postgres, or a file of its own. It is opened when it is first
/// needed.
#[derive(Debug, Clone)]
pub enum Events {
    Postgres { write: PgPool, read: PgPool, ask: PgPool },
    Sqlite { write: SqlitePool, read: SqlitePool, ask: SqlitePool },
}

impl Events {
    /// In the Postgres at `url`.
    pub fn connect(url: &str) -> Result<Self> {
        let [write, read, ask] = postgres::event_pools(url)?;
        Ok(Self::Postgres { write, read, ask })
    }

    /// In this file, which is made when there is none.
    pub fn open(path: &Path) -> Self {
        let [write, read, ask] = sqlite::event_pools(path);
        Self::Sqlite { write, read, ask }
    }

    /// Brings the schema up to date. Several replicas may call it at once.
    pub async fn migrate(&self) -> std::result::Result<(), Unmigrated> {
        let done = match self {
            Self::Postgres { write, .. } => {
                let mut migrator = Migrator::with_migrations(POSTGRES.iter().cloned().collect());
                migrator.dangerous_set_table_name(format!("{SCHEMA}._sqlx_migrations"));
                migrator.create_schema(SCHEMA);
                migrator.run(write).await
            }
            Self::Sqlite { write, .. } => SQLITE.run(write).await,
        };
        done.map_err(Unmigrated::from)
    }

    pub async fn begin(&self) -> Result<EventTx> {
        Ok(EventTx(match self {
            Self::Postgres { write, .. } => Inner::Postgres(postgres::begin(write).await?),
            Self::Sqlite { write, .. } => Inner::Sqlite(sqlite::begin(write).await?),
        }))
    }

    /// A connection that only reads.
    pub async fn read(&self) -> Result<EventReader> {
        Ok(match self {
            Self::Postgres { read, .. } => EventReader::Postgres(read.acquire().await?),
            Self::Sqlite { read, .. } => EventReader::Sqlite(read.acquire().await?),
        })
    }

    /// Makes room for the days to come, and drops what is older than it is kept where whole parts can be dropped.
    pub async fn keep_parts(
        &self,
        kind: EventKind,
        kept: &Retention,
        now: Timestamp,
    ) -> Result<()> {
        match self {
            Self::Postgres { write, .. } => parts::keep(write, kind, kept, now).await,
            Self::Sqlite { .. } => Ok(()),
        }
    }

    /// Waits for what is under way and closes every connection.
    pub async fn close(&self) {
        match self {
            Self::Postgres { write, read, ask } => {
                write.close().await;
                read.close().await;
                ask.close().await;
            }
            Self::Sqlite { write, read, ask } => {
                write.close().await;
                read.close().await;
                ask.close().await;
            }
        }
    }
}

/// A connection on which only [`EventReads`] can be called.
pub enum EventReader {
    Postgres(PoolConnection<Postgres>),
    Sqlite(PoolConnection<Sqlite>),
}

impl Deref for EventReader {
    type Target = dyn EventReads;
    fn deref(&self) -> &Self::Target {
        match self {
            Self::Postgres(connection) => &**connection,
            Self::Sqlite(connection) => &**connection,
        }
    }
}

impl DerefMut for EventReader {
    fn deref_mut(&mut self) -> &mut Self::Target {
        match self {
            Self::Postgres(connection) => &mut **connection,
            Self::Sqlite(connection) => &mut **connection,
        }
    }
}

/// A transaction on events. Dropped, it is undone.
pub struct EventTx(Inner);

impl EventTx {
    pub async fn commit(self) -> Result<()> {
        self.0.commit().await
    }
}

impl Deref for EventTx {
    type Target = dyn EventWrites;
    fn deref(&self) -> &Self::Target {
        match &self.0 {
            Inner::Postgres(tx) => &**tx,
            Inner::Sqlite(tx) => &**tx,
        }
    }
}

impl DerefMut for EventTx {
    fn deref_mut(&mut self) -> &mut Self::Target {
        match &mut self.0 {
            Inner::Postgres(tx) => &mut **tx,
            Inner::Sqlite(tx) => &mut **tx,
        }
    }
}

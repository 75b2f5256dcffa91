//! The change log, and how far each replica relies on it.

use async_trait::async_trait;
use foundation::error::Result;

/// How many rows of the change log are read at once.
pub const PAGE_ROWS: usize = 10_000;

/// A row of the change log.
#[derive(Debug, Clone, PartialEq, Eq, sqlx::FromRow)]
pub struct ChangeRow {
    /// Its position in the log.
    pub seq: i64,
    /// The database's own time, in unix milliseconds.
    pub at: i64,
    pub subject: String,
}

/// How the database stood when a reading of the change log began.
#[derive(Debug, Clone, PartialEq, Eq, Default, sqlx::FromRow)]
pub struct LogHead {
    /// The database's own time, in unix milliseconds.
    pub now: i64,
    /// The last position that was given out, committed or not; 0: none was.
    pub top: i64,
    /// Every transaction below this one that may have written into the change log has ended, and what it has committed is
    /// seen.
    pub ended_below: i64,
    /// Transactions that begin later have a number of at least this.
    pub next: i64,
    /// The position from which on rows are younger than a minute, less one.
    pub settled: i64,
    /// What the reader's own row says it relies on. Absent: it has none, or one of a version before this.
    pub feed: Option<String>,
    /// When the reader's own row was last renewed.
    pub seen_at: Option<i64>,
    /// Whether a replica of a version before this, which announces nothing, was there lately.
    pub has_older_replicas: bool,
}

/// A page of the change log.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LogPage {
    pub head: LogHead,
    /// In order; fewer than [`PAGE_ROWS`] at the end of the log.
    pub rows: Vec<ChangeRow>,
}

/// A registered replica.
#[derive(Debug, Clone, PartialEq, Eq, sqlx::FromRow)]
pub struct RegisteredReplica {
    pub id: String,
    pub started_at: i64,
    /// How many milliseconds ago it last registered.
    pub seen_ms_ago: i64,
    /// As in [`LogHead::feed`]; absent: of a version before this.
    pub feed: Option<String>,
    /// For how many more milliseconds it may rely on announcements without the database.
    pub grace_left_ms: i64,
}

#[async_trait]
pub trait ChangeReads: Send {
    /// The rows after a position, and how the database stands; `replica` is the reader.
    async fn log_page(&mut self, after: i64, replica: &str) -> Result<LogPage>;
    /// Every transaction below this one that has written into the change log has ended, and what it has committed is
    /// seen by the statements after this one.
    async fn writers_ended_below(&mut self) -> Result<i64>;
    /// The rows at these positions, each range with its ends; up to [`PAGE_ROWS`], in order.
    async fn changes_within(&mut self, ranges: &[(i64, i64)]) -> Result<Vec<ChangeRow>>;
    /// Those of these positions that hold a row.
    async fn changes_among(&mut self, positions: &[i64]) -> Result<Vec<i64>>;
    /// The replicas, but for `writer`, that may rely on announcements and have not got this one: it was made in the feed
    /// of the era `era` (empty: it could not be made), and is the intent `intent` of the change log.
    async fn unreached_replicas(
        &mut self,
        writer: &str,
        era: &str,
        intent: i64,
        grace_ms: i64,
    ) -> Result<Vec<String>>;
    /// Registered replicas, the last one seen first; up to `max`.
    async fn registered_replicas(
        &mut self,
        grace_ms: i64,
        max: i64,
    ) -> Result<Vec<RegisteredReplica>>;
}

#[async_trait]
pub trait ChangeWrites: ChangeReads {
    /// Logs these; the first position.
    async fn insert_changes(&mut self, subjects: &[String]) -> Result<i64>;
    /// Says that a replica has read these intents.
    async fn acknowledge_intents(&mut self, replica: &str, intents: &[i64]) -> Result<()>;
    /// Says which announcements a replica relies on, and how long without the database.
    async fn set_replica_feed(&mut self, replica: &str, feed: &str, grace_ms: i64) -> Result<()>;
    /// Says that a replica relies on no announcements any more; whether there is one of this id.
    async fn forget_replica(&mut self, replica: &str) -> Result<bool>;
    /// Forgets changes, and what was kept beside them, of more than a day ago.
    async fn prune_changes(&mut self, max: i64) -> Result<u64>;
}

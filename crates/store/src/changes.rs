//! Defines reads and writes of the change log, and of the replicas that rely on announcements.

use async_trait::async_trait;
use foundation::error::Result;

/// The maximum number of rows of the change log that one read returns.
pub const PAGE_ROWS: usize = 10_000;

/// A row of the change log.
#[derive(Debug, Clone, PartialEq, Eq, sqlx_macros::FromRow)]
pub struct ChangeRow {
    /// The position in the log.
    pub seq: i64,
    /// The time of the database's clock, in Unix milliseconds.
    pub at: i64,
    pub subject: String,
}

/// The state of the database when a read of the change log began.
#[derive(Debug, Clone, PartialEq, Eq, Default, sqlx_macros::FromRow)]
pub struct LogHead {
    /// The time of the database's clock, in Unix milliseconds.
    pub now: i64,
    /// The last assigned position, committed or not. 0 if none was assigned.
    pub top: i64,
    /// Every transaction with a smaller number that may have written to the change log has ended, and its committed
    /// rows are visible.
    pub ended_below: i64,
    /// Transactions that begin later have at least this number.
    pub next: i64,
    /// The position before the first row that is less than a minute old.
    pub settled: i64,
    /// The announcements that the reader relies on, according to its own row. `None` if it has no row, or one written
    /// by an older version.
    pub feed: Option<String>,
    /// The time at which the reader's own row was last renewed.
    pub seen_at: Option<i64>,
    /// Whether a replica of an older version, which sends no announcements, was registered within the last minute.
    pub has_older_replicas: bool,
}

/// A page of the change log.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LogPage {
    pub head: LogHead,
    /// The rows by position. Fewer than [`PAGE_ROWS`] at the end of the log.
    pub rows: Vec<ChangeRow>,
}

/// A registered replica.
#[derive(Debug, Clone, PartialEq, Eq, sqlx_macros::FromRow)]
pub struct RegisteredReplica {
    pub id: String,
    pub started_at: i64,
    /// The milliseconds since its last registration.
    pub seen_ms_ago: i64,
    /// The announcements that it relies on, as in [`LogHead::feed`]. `None` if it is of an older version.
    pub feed: Option<String>,
    /// The milliseconds for which it may still rely on announcements without the database.
    pub grace_left_ms: i64,
}

#[async_trait]
pub trait ChangeReads: Send {
    /// Returns the rows after a position, and the state of the database. `replica` is the reader.
    async fn load_log_page(&mut self, after: i64, replica: &str) -> Result<LogPage>;
    /// Returns a transaction number: every transaction with a smaller one that has written to the change log has
    /// ended, and its committed rows are visible to the following statements.
    async fn load_writers_ended_below(&mut self) -> Result<i64>;
    /// Returns the rows in these ranges of positions, both ends included, up to [`PAGE_ROWS`] by position.
    async fn list_changes_in_ranges(&mut self, ranges: &[(i64, i64)]) -> Result<Vec<ChangeRow>>;
    /// Returns those of these positions that contain a row.
    async fn list_existing_positions(&mut self, positions: &[i64]) -> Result<Vec<i64>>;
    /// Returns the replicas other than `writer` that may rely on announcements and have not received this one. It was
    /// sent in the feeds of these eras, and is the intent `intent` of the change log. `is_everywhere`: it was sent in the
    /// feed of every region.
    async fn list_unreached_replicas(
        &mut self,
        writer: &str,
        (eras, is_everywhere): (&[String], bool),
        intent: i64,
        grace_ms: i64,
    ) -> Result<Vec<String>>;
    /// Returns up to `max` registered replicas, the most recently seen first.
    async fn list_registered_replicas(
        &mut self,
        grace_ms: i64,
        max: i64,
    ) -> Result<Vec<RegisteredReplica>>;
}

#[async_trait]
pub trait ChangeWrites: ChangeReads {
    /// Inserts changes of these cache tags into the log. Returns the first position.
    async fn insert_changes(&mut self, tags: &[String]) -> Result<i64>;
    /// Records that a replica has read these intents.
    async fn acknowledge_intents(&mut self, replica: &str, intents: &[i64]) -> Result<()>;
    /// Records the announcements that a replica relies on, and for how long it may do so without the database.
    async fn set_replica_feed(&mut self, replica: &str, feed: &str, grace_ms: i64) -> Result<()>;
    /// Records that a replica no longer relies on announcements. Returns whether the replica exists.
    async fn clear_replica_feed(&mut self, replica: &str) -> Result<bool>;
    /// Deletes up to `max` changes, acknowledgements and stored replies each that are more than a day old. Returns
    /// the largest of the three counts.
    async fn prune_changes(&mut self, max: i64) -> Result<u64>;
}

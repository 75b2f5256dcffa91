//! Measures how much space raw events take and since when they are stored, and deletes the oldest. Their rollups
//! stay, and no event is deleted before it is rolled up.
//!
//! Sizes are estimates: what the rows take that exist, not what their files have ever taken. Neither engine returns
//! space to the disk; both reuse it.

use foundation::clock::{DAY_MS, Timestamp};
use foundation::error::Result;
use foundation::model::EventKind;
use futures_util::future::BoxFuture;
use sqlx::{AssertSqlSafe, PgConnection, PgPool, SqlitePool, query, query_as, query_scalar};

use super::events::EventDatabase;
use super::{EventStore, partitions, postgres, sqlite};

/// The raw events in the tables.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RawEvents {
    /// When the oldest event happened. `None`: there are none.
    pub oldest_at: Option<Timestamp>,
    pub size_bytes: u64,
}

/// The maximum number of events that one statement deletes.
const DELETE_ROWS_MAX: i64 = 10_000;
/// The number of rows that are sampled in SQLite for the size of a row. They are spread at random over all rows. So
/// the events whose reasons a caller chooses weigh no more than their share of all events.
const SAMPLED_ROWS: i64 = 1_000;
/// The number of pages of a partition that are sampled in Postgres, likewise.
const SAMPLED_PAGES: i64 = 1_000;
/// The size of a row without its texts: numbers, headers, and its part of the indexes.
const ROW_BYTES: u32 = 110;

impl EventStore {
    pub fn measure_raw_events(&self) -> BoxFuture<'_, Result<RawEvents>> {
        // Boxed, so that the drivers are compiled once, here.
        Box::pin(async move {
            let size_bytes = match &self.database {
                EventDatabase::Postgres { read, .. } => list_postgres_partitions(&read.get())
                    .await?
                    .iter()
                    .map(PostgresPartition::bytes)
                    .sum(),
                EventDatabase::Sqlite { read, .. } => {
                    let mut bytes = 0;
                    for kind in EventKind::ALL {
                        bytes += SqliteEventRows::load(read, kind).await?.total_bytes();
                    }
                    bytes
                }
            };
            Ok(RawEvents { oldest_at: self.oldest_raw_event().await?, size_bytes })
        })
    }

    /// Deletes the oldest events that are rolled up, until the others take no more than `max_bytes`.
    pub fn trim_raw_events(&self, max_bytes: u64, now: Timestamp) -> BoxFuture<'_, Result<()>> {
        // Boxed, so that the drivers are compiled once, here.
        Box::pin(async move {
            match &self.database {
                EventDatabase::Postgres { write, .. } => trim_postgres(write, max_bytes, now).await,
                EventDatabase::Sqlite { write, .. } => trim_sqlite(write, max_bytes).await,
            }
        })
    }
}

/// The rows of one kind in SQLite. They are inserted in order and deleted from the first on, so their number follows
/// from the numbers of the first and the last.
struct SqliteEventRows {
    kind: EventKind,
    first_row: i64,
    row_count: i64,
    bytes_each: f64,
    first_at: i64,
}

impl SqliteEventRows {
    async fn load(pool: &SqlitePool, kind: EventKind) -> Result<Self> {
        let (table, bytes) = (kind.table_name(), row_bytes_sql(kind));
        let sql = format!(
            "SELECT COALESCE((SELECT MIN(rowid) FROM {table}), 0),
                COALESCE((SELECT MAX(rowid) FROM {table}) - (SELECT MIN(rowid) FROM {table}) + 1, 0),
                COALESCE((SELECT time FROM {table} ORDER BY rowid LIMIT 1), 0)"
        );
        let (first_row, count, first_at): (i64, i64, i64) =
            query_as(AssertSqlSafe(sql)).fetch_one(pool).await?;
        // One random row of each of as many ranges with the same length.
        let sql = format!(
            "WITH RECURSIVE stretches(n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM stretches WHERE n + 1 < $1)
            SELECT COALESCE(AVG((
                SELECT {bytes} FROM {table} WHERE rowid = $2 + (n * $3 + abs(random() % $3)) / $1
            )), 0.0) FROM stretches"
        );
        let bytes_each: f64 = query_scalar(AssertSqlSafe(sql))
            .bind(SAMPLED_ROWS)
            .bind(first_row)
            .bind(count)
            .fetch_one(pool)
            .await?;
        Ok(Self { kind, first_row, row_count: count, bytes_each, first_at })
    }

    fn total_bytes(&self) -> u64 {
        estimate_bytes(self.row_count, self.bytes_each)
    }

    /// Returns the last row to delete, so that this many bytes are deleted or as many rows as one statement deletes.
    async fn last_row_to_delete(&self, pool: &SqlitePool, bytes: u64) -> Result<i64> {
        let (table, row_bytes) = (self.kind.table_name(), row_bytes_sql(self.kind));
        let end = self.first_row.saturating_add(DELETE_ROWS_MAX);
        let sql = format!(
            "SELECT MIN(number) FROM (
                SELECT rowid AS number, SUM({row_bytes}) OVER (ORDER BY rowid) AS bytes
                FROM {table} WHERE rowid < $1
            ) WHERE bytes >= $2"
        );
        let last: Option<i64> = query_scalar(AssertSqlSafe(sql))
            .bind(end)
            .bind(i64::try_from(bytes).unwrap_or(i64::MAX))
            .fetch_one(pool)
            .await?;
        Ok(last.unwrap_or(end - 1))
    }
}

/// Returns the SQL for the size of a row in SQLite.
fn row_bytes_sql(kind: EventKind) -> String {
    let texts = match kind {
        EventKind::Verifications => {
            "octet_length(request_id) + octet_length(region) + octet_length(reason)"
        }
        EventKind::Ratelimits => "octet_length(request_id) + octet_length(override_id)",
    };
    format!("({ROW_BYTES} + {texts})")
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_precision_loss,
    reason = "an estimate, of no more than a disk has"
)]
fn estimate_bytes(count: i64, bytes_each: f64) -> u64 {
    (count.max(0) as f64 * bytes_each) as u64
}

async fn trim_sqlite(pool: &SqlitePool, max_bytes: u64) -> Result<()> {
    loop {
        let mut rows = Vec::new();
        for kind in EventKind::ALL {
            rows.push(SqliteEventRows::load(pool, kind).await?);
        }
        let total: u64 = rows.iter().map(SqliteEventRows::total_bytes).sum();
        let oldest = rows.iter().filter(|rows| rows.row_count > 0).min_by_key(|rows| rows.first_at);
        let Some(oldest) = oldest.filter(|_| total > max_bytes) else { return Ok(()) };
        let last = oldest.last_row_to_delete(pool, total - max_bytes).await?;
        let table = oldest.kind.table_name();
        let mut tx = sqlite::begin(pool).await?;
        let sql = format!(
            "DELETE FROM {table} WHERE rowid <= $1 AND batch < {FIRST_PENDING_BATCH_SQLITE}"
        );
        let deleted = query(AssertSqlSafe(sql)).bind(last).execute(&mut *tx).await?.rows_affected();
        tx.commit().await?;
        if deleted == 0 {
            return Ok(());
        }
    }
}

/// The first batch that is not rolled up, or a number that no batch reaches.
const FIRST_PENDING_BATCH_SQLITE: &str =
    "(SELECT COALESCE(MIN(id), 9223372036854775807) FROM batches WHERE summed = 0)";
const FIRST_PENDING_BATCH_POSTGRES: &str =
    "(SELECT COALESCE(MIN(id), 9223372036854775807) FROM batches WHERE NOT summed)";

/// A partition of the event tables in Postgres.
#[derive(Debug, sqlx_macros::FromRow)]
pub(super) struct PostgresPartition {
    pub(super) name: String,
    bytes: i64,
}

impl PostgresPartition {
    fn bytes(&self) -> u64 {
        self.bytes.unsigned_abs()
    }

    /// Returns its kind of events and the start of its day, or `None` if it is not the partition of a day.
    fn day(&self) -> Option<(EventKind, i64)> {
        EventKind::ALL.into_iter().find_map(|kind| {
            let start = partitions::parse_partition_start(kind.table_name(), &self.name)?;
            Some((kind, start))
        })
    }

    /// Returns the start of its day, or `None` if it is not the partition of a day.
    pub(super) fn day_start(&self) -> Option<i64> {
        self.day().map(|(_, start)| start)
    }
}

async fn list_postgres_partitions(pool: &PgPool) -> Result<Vec<PostgresPartition>> {
    let mut partitions = Vec::new();
    for kind in EventKind::ALL {
        partitions.extend(list_partitions_of(pool, kind).await?);
    }
    // The file of the rest is never dropped, and does not shrink when its events are deleted or moved to a partition.
    for partition in &mut partitions {
        if partition.day_start().is_none() {
            partition.bytes = sum_bytes(&sample_rows(pool, &partition.name).await?);
        }
    }
    partitions.sort_by_key(PostgresPartition::day_start);
    Ok(partitions)
}

/// Returns the partitions of one kind of events, in order.
pub(super) async fn list_partitions_of(
    pool: &PgPool,
    kind: EventKind,
) -> Result<Vec<PostgresPartition>> {
    let sql = "
        SELECT CAST(c.relname AS TEXT) AS name, pg_total_relation_size(c.oid) AS bytes
        FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
        WHERE i.inhparent = to_regclass($1)";
    let mut partitions: Vec<PostgresPartition> =
        query_as(sql).bind(kind.table_name()).fetch_all(pool).await?;
    partitions.sort_by_key(PostgresPartition::day_start);
    Ok(partitions)
}

/// Deletes the earliest events first: those that are in no partition of a day and before all of them, then whole days, then
/// those of the day that is being written, of later days and of no partition of a day.
async fn trim_postgres(pool: &postgres::Pool, max_bytes: u64, now: Timestamp) -> Result<()> {
    let today = now.0.div_euclid(DAY_MS) * DAY_MS;
    let partitions = list_postgres_partitions(&pool.get()).await?;
    let mut total: u64 = partitions.iter().map(PostgresPartition::bytes).sum();
    if let Some(excess) = total.checked_sub(max_bytes) {
        total = total.saturating_sub(trim_rest(&pool.get(), &partitions, excess).await?);
    }
    for partition in &partitions {
        let Some((kind, start)) = partition.day().filter(|(_, start)| *start < today) else {
            continue;
        };
        if total <= max_bytes {
            return Ok(());
        }
        if !drop_rolled_up(pool, kind, &partition.name, start + DAY_MS).await? {
            return Ok(());
        }
        total = total.saturating_sub(partition.bytes());
    }
    if total <= max_bytes {
        return Ok(());
    }
    let is_past =
        |partition: &PostgresPartition| partition.day_start().is_some_and(|day| day < today);
    let others: Vec<_> = partitions.iter().filter(|partition| !is_past(partition)).collect();
    // The file of a partition does not shrink when events are deleted, so its rows are measured.
    let rows = sample_partitions(&pool.get(), &others).await?;
    let excess = sum_bytes(&rows) - i64::try_from(max_bytes).unwrap_or(i64::MAX);
    match time_before(rows, excess).filter(|_| excess > 0) {
        Some(until) => delete_before(&pool.get(), &others, until).await,
        None => Ok(()),
    }
}

/// Deletes the earliest events before the first partition of a day, of which no more than `excess` bytes. They are there
/// because their partition could not be created, or because a clock is wrong. Returns about how many bytes are deleted.
async fn trim_rest(pool: &PgPool, partitions: &[PostgresPartition], excess: u64) -> Result<u64> {
    let first_day = partitions.iter().find_map(PostgresPartition::day_start).unwrap_or(i64::MAX);
    let rest: Vec<_> =
        partitions.iter().filter(|partition| partition.day_start().is_none()).collect();
    let mut rows = sample_partitions(pool, &rest).await?;
    rows.retain(|row| row.time < first_day);
    let bytes = sum_bytes(&rows).unsigned_abs().min(excess);
    if bytes > 0 {
        let until = time_before(rows, i64::try_from(bytes).unwrap_or(i64::MAX));
        delete_before(pool, &rest, until.unwrap_or(first_day)).await?;
    }
    Ok(bytes)
}

/// Drops the partition of a past day, unless some of its events are not rolled up. If several replicas call it at
/// once, one of them does it; if the partition is in use, it is tried again later.
async fn drop_rolled_up(
    pool: &postgres::Pool,
    kind: EventKind,
    partition: &str,
    end: i64,
) -> Result<bool> {
    let mut tx = postgres::begin(pool).await?;
    let is_free: bool = query_scalar("SELECT pg_try_advisory_xact_lock($1)")
        .bind(partitions::ADVISORY_LOCK_ID)
        .fetch_one(&mut *tx)
        .await?;
    if !is_free || has_pending_before(&mut tx, end).await? {
        return Ok(false);
    }
    query("SET LOCAL lock_timeout = '2s'").execute(&mut *tx).await?;
    // Late events of that day may be written meanwhile. Once this lock is held, which the drop needs too, all that are in
    // the partition are known.
    let lock = format!("LOCK TABLE ONLY {} IN ACCESS EXCLUSIVE MODE", kind.table_name());
    query(AssertSqlSafe(lock)).execute(&mut *tx).await?;
    if has_pending_before(&mut tx, end).await? {
        return Ok(false);
    }
    query(AssertSqlSafe(format!("DROP TABLE IF EXISTS {partition}"))).execute(&mut *tx).await?;
    tx.commit().await?;
    Ok(true)
}

/// Returns whether events before a time may not be rolled up.
async fn has_pending_before(connection: &mut PgConnection, end: i64) -> Result<bool> {
    let sql = "SELECT EXISTS (SELECT 1 FROM batches WHERE NOT summed AND first_at < $1)";
    Ok(query_scalar(sql).bind(end).fetch_one(connection).await?)
}

/// A sampled row.
#[derive(sqlx_macros::FromRow)]
struct SampledRow {
    time: i64,
    /// The size of all the rows that it represents.
    bytes: i64,
}

/// Returns rows of random pages of a partition. The rows that they represent take about as much space as all its
/// rows.
async fn sample_rows(pool: &PgPool, partition: &str) -> Result<Vec<SampledRow>> {
    let sql = "
        SELECT CAST(LEAST(100, 100.0 * $1 * CAST(current_setting('block_size') AS BIGINT)
            / GREATEST(1, pg_relation_size(to_regclass($2)))) AS REAL)";
    let percent: f32 =
        query_scalar(sql).bind(SAMPLED_PAGES).bind(partition).fetch_one(pool).await?;
    // The bytes of a row include its header, but not the pointer to it and its part of the indexes.
    let sql = format!(
        "SELECT time, CAST((pg_column_size(p) + 24) * (100 / CAST($1 AS REAL)) AS BIGINT) AS bytes
        FROM {partition} p TABLESAMPLE SYSTEM (CAST($1 AS REAL))"
    );
    Ok(query_as(AssertSqlSafe(sql)).bind(percent).fetch_all(pool).await?)
}

/// Returns the time before which rows of at least this many bytes happened.
fn time_before(mut rows: Vec<SampledRow>, bytes: i64) -> Option<i64> {
    rows.sort_unstable_by_key(|row| row.time);
    let mut before = 0;
    rows.iter().find_map(|row| {
        before += row.bytes;
        (before >= bytes).then_some(row.time + 1)
    })
}

async fn sample_partitions(
    pool: &PgPool,
    partitions: &[&PostgresPartition],
) -> Result<Vec<SampledRow>> {
    let mut rows = Vec::new();
    for partition in partitions {
        rows.extend(sample_rows(pool, &partition.name).await?);
    }
    Ok(rows)
}

fn sum_bytes(rows: &[SampledRow]) -> i64 {
    rows.iter().map(|row| row.bytes).sum()
}

/// Deletes the events of partitions that happened before a time and are rolled up.
async fn delete_before(pool: &PgPool, partitions: &[&PostgresPartition], until: i64) -> Result<()> {
    for partition in partitions {
        let name = &partition.name;
        let sql = format!(
            "DELETE FROM {name} WHERE ctid = ANY(ARRAY(SELECT ctid FROM {name}
                WHERE time < $1 AND batch < {FIRST_PENDING_BATCH_POSTGRES} LIMIT {DELETE_ROWS_MAX}))"
        );
        while query(AssertSqlSafe(sql.clone())).bind(until).execute(pool).await?.rows_affected() > 0
        {
        }
    }
    Ok(())
}

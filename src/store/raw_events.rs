//! How much room single events take, from when on they are there, and what deletes the oldest. Their sums stay, and
//! none goes before it has been summed up.
//!
//! Sizes are estimates: what rows take that are there, not what their files have ever taken. Neither engine gives room
//! back to the disk; both fill it again.

use sqlx::{AssertSqlSafe, PgPool, SqlitePool, query, query_as, query_scalar};

use super::events::Tables;
use super::{Events, parts, postgres, sqlite};
use crate::clock::Timestamp;
use crate::error::Result;
use crate::model::EventKind;

/// The single events in the tables.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RawEvents {
    /// When the oldest happened. Absent: there are none.
    pub since: Option<Timestamp>,
    pub size_bytes: u64,
}

/// How many are deleted by one statement.
const DELETED_AT_ONCE: i64 = 10_000;
/// What a row takes beside its texts: numbers, headers, and its part of the indexes.
const ROW_BYTES: f64 = 110.0;
const DAY_MS: i64 = 86_400_000;

impl Events {
    pub async fn raw_events(&self) -> Result<RawEvents> {
        let size_bytes = match &self.tables {
            Tables::Postgres { read, .. } => {
                postgres_parts(&read.get()).await?.iter().map(|part| part.bytes).sum()
            }
            Tables::Sqlite { read, .. } => {
                let mut bytes = 0;
                for kind in EventKind::ALL {
                    bytes += SqliteRows::of(read, kind).await?.bytes();
                }
                bytes
            }
        };
        Ok(RawEvents { since: self.raw_since().await?, size_bytes })
    }

    /// When the oldest happened, of all workspaces. Absent: there are none, or they are in ClickHouse.
    pub async fn raw_since(&self) -> Result<Option<Timestamp>> {
        let mut since: Option<Timestamp> = None;
        for kind in EventKind::ALL {
            let first = self.first_event(kind).await?;
            since = since.into_iter().chain(first).min();
        }
        Ok(since)
    }

    /// Deletes the oldest, as far as they have been summed up, until the rest takes no more than this.
    pub async fn trim(&self, max_bytes: u64, now: Timestamp) -> Result<()> {
        match &self.tables {
            Tables::Postgres { write, .. } => trim_postgres(&write.get(), max_bytes, now).await,
            Tables::Sqlite { write, .. } => trim_sqlite(write, max_bytes).await,
        }
    }

    /// Batches come in order, and are found by an index; what each of them holds is of one moment.
    async fn first_event(&self, kind: EventKind) -> Result<Option<Timestamp>> {
        let table = kind.table();
        let sql = AssertSqlSafe(format!(
            "SELECT MIN(time) FROM {table} WHERE batch = (SELECT MIN(batch) FROM {table})"
        ));
        Ok(match &self.tables {
            Tables::Postgres { read, .. } => query_scalar(sql).fetch_one(&read.get()).await?,
            Tables::Sqlite { read, .. } => query_scalar(sql).fetch_one(read).await?,
        })
    }
}

/// Those of one kind in SQLite. They are written one after the other and deleted from the first on, so the numbers of the
/// first and of the last tell how many there are.
struct SqliteRows {
    table: &'static str,
    first_row: i64,
    count: i64,
    bytes_each: f64,
    first_at: i64,
}

impl SqliteRows {
    async fn of(pool: &SqlitePool, kind: EventKind) -> Result<Self> {
        let table = kind.table();
        let texts = match kind {
            EventKind::Verifications => "length(request_id) + length(region) + length(reason)",
            EventKind::Ratelimits => "length(request_id) + length(override_id)",
        };
        let sql = format!(
            "SELECT COALESCE((SELECT MIN(rowid) FROM {table}), 0),
                COALESCE((SELECT MAX(rowid) FROM {table}) - (SELECT MIN(rowid) FROM {table}) + 1, 0),
                COALESCE((SELECT AVG({texts}) FROM (SELECT * FROM {table} ORDER BY rowid DESC LIMIT 1000)), 0.0),
                COALESCE((SELECT time FROM {table} ORDER BY rowid LIMIT 1), 0)"
        );
        let (first_row, count, text_bytes, first_at): (i64, i64, f64, i64) =
            query_as(AssertSqlSafe(sql)).fetch_one(pool).await?;
        Ok(Self { table, first_row, count, bytes_each: text_bytes + ROW_BYTES, first_at })
    }

    fn bytes(&self) -> u64 {
        rounded(self.count, self.bytes_each)
    }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_precision_loss,
    reason = "an estimate, of no more than a disk has"
)]
fn rounded(count: i64, bytes_each: f64) -> u64 {
    (count.max(0) as f64 * bytes_each) as u64
}

/// How many rows are to go so that so many bytes do.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    reason = "an estimate, and no more rows than there are"
)]
fn rows_of(bytes: u64, bytes_each: f64) -> i64 {
    (bytes as f64 / bytes_each).ceil() as i64
}

async fn trim_sqlite(pool: &SqlitePool, max_bytes: u64) -> Result<()> {
    loop {
        let mut rows = Vec::new();
        for kind in EventKind::ALL {
            rows.push(SqliteRows::of(pool, kind).await?);
        }
        let total: u64 = rows.iter().map(SqliteRows::bytes).sum();
        let oldest = rows.iter().filter(|rows| rows.count > 0).min_by_key(|rows| rows.first_at);
        let Some(oldest) = oldest.filter(|_| total > max_bytes) else { return Ok(()) };
        let excess = rows_of(total - max_bytes, oldest.bytes_each).clamp(1, DELETED_AT_ONCE);
        let mut tx = sqlite::begin(pool).await?;
        let sql =
            format!("DELETE FROM {} WHERE rowid < $1 AND batch < {UNSUMMED_SQLITE}", oldest.table);
        let deleted = query(AssertSqlSafe(sql))
            .bind(oldest.first_row.saturating_add(excess))
            .execute(&mut *tx)
            .await?
            .rows_affected();
        tx.commit().await?;
        if deleted == 0 {
            return Ok(());
        }
    }
}

/// The first batch that has not been summed up, or one that there will never be.
const UNSUMMED_SQLITE: &str =
    "(SELECT COALESCE(MIN(id), 9223372036854775807) FROM batches WHERE summed = 0)";
const UNSUMMED_POSTGRES: &str =
    "(SELECT COALESCE(MIN(id), 9223372036854775807) FROM batches WHERE NOT summed)";

/// A part of the tables in Postgres.
#[derive(Debug, sqlx::FromRow)]
struct PostgresPart {
    name: String,
    #[sqlx(try_from = "i64")]
    bytes: u64,
}

impl PostgresPart {
    /// When its day begins. Absent: it is none of a day.
    fn start(&self) -> Option<i64> {
        EventKind::ALL.iter().find_map(|kind| parts::day_of(kind.table(), &self.name))
    }
}

async fn postgres_parts(pool: &PgPool) -> Result<Vec<PostgresPart>> {
    let mut parts = Vec::new();
    for kind in EventKind::ALL {
        let sql = "
            SELECT CAST(c.relname AS TEXT) AS name, pg_total_relation_size(c.oid) AS bytes
            FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
            WHERE i.inhparent = to_regclass($1)";
        let of_kind: Vec<PostgresPart> = query_as(sql).bind(kind.table()).fetch_all(pool).await?;
        parts.extend(of_kind);
    }
    parts.sort_by_key(PostgresPart::start);
    Ok(parts)
}

/// Whole days go first; of the day that is being written, the first part of its time.
async fn trim_postgres(pool: &PgPool, max_bytes: u64, now: Timestamp) -> Result<()> {
    let today = now.0.div_euclid(DAY_MS) * DAY_MS;
    let parts = postgres_parts(pool).await?;
    let mut total: u64 = parts.iter().map(|part| part.bytes).sum();
    for part in &parts {
        let Some(start) = part.start().filter(|start| *start < today) else { continue };
        if total <= max_bytes {
            return Ok(());
        }
        if !drop_summed(pool, &part.name, start + DAY_MS).await? {
            return Ok(());
        }
        total -= part.bytes;
    }
    if total <= max_bytes {
        return Ok(());
    }
    let of_today: Vec<_> = parts.iter().filter(|part| part.start() == Some(today)).collect();
    trim_day(pool, &of_today, max_bytes, now).await
}

/// Drops a part of a day that is over, unless something of it has not been summed up. Of replicas that come at once one
/// does it; where the part is in use, it is tried again later.
async fn drop_summed(pool: &PgPool, part: &str, end: i64) -> Result<bool> {
    let mut tx = postgres::begin(pool).await?;
    let is_free: bool = query_scalar("SELECT pg_try_advisory_xact_lock($1)")
        .bind(parts::LOCK)
        .fetch_one(&mut *tx)
        .await?;
    let sql = "SELECT EXISTS (SELECT 1 FROM batches WHERE NOT summed AND first_at < $1)";
    let is_needed: bool = query_scalar(sql).bind(end).fetch_one(&mut *tx).await?;
    if !is_free || is_needed {
        return Ok(false);
    }
    query("SET LOCAL lock_timeout = '2s'").execute(&mut *tx).await?;
    query(AssertSqlSafe(format!("DROP TABLE IF EXISTS {part}"))).execute(&mut *tx).await?;
    tx.commit().await?;
    Ok(true)
}

/// Deletes the first events of a day. The file of a part does not shrink by that, so its rows are what counts.
async fn trim_day(
    pool: &PgPool,
    parts: &[&PostgresPart],
    max_bytes: u64,
    now: Timestamp,
) -> Result<()> {
    let (mut total, mut first_at) = (0, now.0);
    for part in parts {
        let name = &part.name;
        let sql = format!(
            "SELECT CAST(pg_stat_get_live_tuples(to_regclass('{name}')) AS BIGINT),
                COALESCE((SELECT AVG(pg_column_size(p)) FROM (SELECT * FROM {name} LIMIT 1000) p), 0)::float8,
                (SELECT MIN(time) FROM {name} WHERE batch = (SELECT MIN(batch) FROM {name}))"
        );
        let (count, row_bytes, first): (i64, f64, Option<i64>) =
            query_as(AssertSqlSafe(sql)).fetch_one(pool).await?;
        // Its header is among the bytes of a row; the pointer to it and its part of the indexes are not.
        total += rounded(count, row_bytes + 24.0);
        first_at = first_at.min(first.unwrap_or(now.0));
    }
    if total <= max_bytes {
        return Ok(());
    }
    let until = first_at + share(now.0 - first_at, total - max_bytes, total);
    for part in parts {
        let name = &part.name;
        let sql = format!(
            "DELETE FROM {name} WHERE ctid = ANY(ARRAY(SELECT ctid FROM {name}
                WHERE time < $1 AND batch < {UNSUMMED_POSTGRES} LIMIT {DELETED_AT_ONCE}))"
        );
        while query(AssertSqlSafe(sql.clone())).bind(until).execute(pool).await?.rows_affected() > 0
        {
        }
    }
    Ok(())
}

/// The part of a time in which that part of the events has happened, as if they came evenly.
fn share(time: i64, part: u64, whole: u64) -> i64 {
    let part = i128::from(time) * i128::from(part) / i128::from(whole.max(1));
    i64::try_from(part).unwrap_or(time)
}

//! Finds the oldest raw event, also among many.

use foundation::clock::{DAY_MS, MINUTE_MS, Timestamp};
use foundation::error::Result;
use foundation::model::EventKind;
use futures_util::future::BoxFuture;
use sqlx::{AssertSqlSafe, PgPool, query_scalar};

use super::EventStore;
use super::events::EventDatabase;
use super::raw_events::{PostgresPartition, list_partitions_of};

impl EventStore {
    /// Returns when the oldest raw event of all workspaces happened. Returns `None` if there are none, or if they are
    /// in ClickHouse.
    pub fn oldest_raw_event(&self) -> BoxFuture<'_, Result<Option<Timestamp>>> {
        // Boxed, so that the drivers are compiled once, here.
        Box::pin(async move {
            let mut since: Option<Timestamp> = None;
            for kind in EventKind::ALL {
                let first = self.oldest_event(kind).await?;
                since = since.into_iter().chain(first).min();
            }
            Ok(since)
        })
    }

    async fn oldest_event(&self, kind: EventKind) -> Result<Option<Timestamp>> {
        match &self.database {
            EventDatabase::Postgres { read, .. } => {
                let pool = read.get();
                for partition in list_partitions_of(&pool, kind).await? {
                    let first = oldest_of_partition(&pool, &partition).await?;
                    if first.is_some() {
                        return Ok(first);
                    }
                }
                Ok(None)
            }
            EventDatabase::Sqlite { read, .. } => {
                let sql = format!("SELECT MIN(time) FROM {}", kind.table_name());
                Ok(query_scalar(AssertSqlSafe(sql)).fetch_one(read).await?)
            }
        }
    }
}

/// Returns the time of the oldest event of a partition. The index of times does not have their order, so the minute of that
/// event is found by halving the day. Events outside of all days are few.
async fn oldest_of_partition(
    pool: &PgPool,
    partition: &PostgresPartition,
) -> Result<Option<Timestamp>> {
    let name = &partition.name;
    let mut condition = String::new();
    if let Some(start) = partition.day_start() {
        let (mut from, mut until) = (start, start + DAY_MS);
        if !has_event_before(pool, name, until).await? {
            return Ok(None);
        }
        while until - from > MINUTE_MS {
            let middle = from + (until - from) / 2;
            match has_event_before(pool, name, middle).await? {
                true => until = middle,
                false => from = middle,
            }
        }
        condition = format!(" WHERE time < {until}");
    }
    let sql = format!("SELECT MIN(time) FROM {name}{condition}");
    Ok(query_scalar(AssertSqlSafe(sql)).fetch_one(pool).await?)
}

async fn has_event_before(pool: &PgPool, table: &str, time: i64) -> Result<bool> {
    // A value in the text, so that the planner sees how few events are before it.
    let sql = format!("SELECT EXISTS (SELECT 1 FROM {table} WHERE time < {time})");
    Ok(query_scalar(AssertSqlSafe(sql)).fetch_one(pool).await?)
}

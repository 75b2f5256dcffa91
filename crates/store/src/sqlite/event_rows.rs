//! Inserts rows of events: many in one statement, each value a parameter. Deletes those that are past their retention.

use foundation::error::Result;
use sqlx::{AssertSqlSafe, QueryBuilder, Sqlite, SqliteConnection, query};

use crate::events::{BatchId, EventBatch, ExpiredRows};

/// The number of events that one statement inserts: with ten values each, fewer than the 32,766 parameters that
/// SQLite accepts.
const INSERT_ROWS_MAX: usize = 1_000;

/// Inserts the verifications of a batch.
pub async fn insert_verifications(
    connection: &mut SqliteConnection,
    batch: &EventBatch,
    id: BatchId,
) -> Result<()> {
    for events in batch.verifications.chunks(INSERT_ROWS_MAX) {
        let mut rows = QueryBuilder::new(
            "INSERT INTO verifications
                (time, series, batch, request_id, spent_credits, latency_us, region, reason) ",
        );
        rows.push_values(events, |mut row, event| {
            row.push_bind(event.time)
                .push_bind(&event.series.0[..])
                .push_bind(id)
                .push_bind(event.request_id.as_str())
                .push_bind(event.spent_credits)
                .push_bind(event.latency_us)
                .push_bind(&batch.region)
                .push_bind(&event.reason);
        });
        insert_rows(connection, rows, events.len()).await?;
    }
    Ok(())
}

/// Inserts the limit checks of a batch.
pub async fn insert_ratelimits(
    connection: &mut SqliteConnection,
    batch: &EventBatch,
    id: BatchId,
) -> Result<()> {
    for events in batch.ratelimits.chunks(INSERT_ROWS_MAX) {
        let mut rows = QueryBuilder::new(
            "INSERT INTO ratelimits
                (time, series, batch, request_id, latency_us, override_id, max, remaining, reset_at, tokens) ",
        );
        rows.push_values(events, |mut row, event| {
            row.push_bind(event.time)
                .push_bind(&event.series.0[..])
                .push_bind(id)
                .push_bind(event.request_id.as_str())
                .push_bind(event.latency_us)
                .push_bind(&event.override_id)
                .push_bind(event.limit)
                .push_bind(event.remaining)
                .push_bind(event.reset_at)
                .push_bind(event.tokens);
        });
        insert_rows(connection, rows, events.len()).await?;
    }
    Ok(())
}

/// Deletes up to `max` of the rows. Returns how many were deleted.
pub async fn delete_expired(
    connection: &mut SqliteConnection,
    rows: &ExpiredRows,
    max: u64,
) -> Result<u64> {
    let ExpiredRows { table, condition, order } = rows;
    let sql = format!(
        "DELETE FROM {table} WHERE rowid IN (
            SELECT rowid FROM {table} WHERE {condition} {order} LIMIT {max})"
    );
    let deletion = query(AssertSqlSafe(sql)).persistent(false);
    Ok(deletion.execute(connection).await?.rows_affected())
}

/// Inserts rows. Only the statement with the usual number of rows is cached.
async fn insert_rows(
    connection: &mut SqliteConnection,
    mut rows: QueryBuilder<Sqlite>,
    count: usize,
) -> Result<()> {
    rows.build().persistent(count == INSERT_ROWS_MAX).execute(connection).await?;
    Ok(())
}

//! Inserts rows of events: all of a batch in one statement, whose parameters are the columns. Postgres plans it once, whatever
//! the number of rows. Deletes those that are past their retention.

use foundation::error::Result;
use sqlx::{AssertSqlSafe, PgConnection, query};

use crate::events::{BatchId, EventBatch, ExpiredRows};

/// Inserts the verifications of a batch.
pub async fn insert_verifications(
    connection: &mut PgConnection,
    batch: &EventBatch,
    id: BatchId,
) -> Result<()> {
    let events = &batch.verifications;
    let sql = "
        INSERT INTO verifications
            (time, series, batch, request_id, spent_credits, latency_us, region, reason)
        SELECT time, series, $1, request_id, spent_credits, latency_us, $2, reason
        FROM UNNEST(CAST($3 AS BIGINT[]), CAST($4 AS BYTEA[]), CAST($5 AS TEXT[]),
            CAST($6 AS BIGINT[]), CAST($7 AS BIGINT[]), CAST($8 AS TEXT[]))
            AS events (time, series, request_id, spent_credits, latency_us, reason)";
    query(sql)
        .bind(id)
        .bind(&batch.region)
        .bind(column(events, |event| event.time.0))
        .bind(column(events, |event| &event.series.0[..]))
        .bind(column(events, |event| event.request_id.as_str()))
        .bind(column(events, |event| event.spent_credits))
        .bind(column(events, |event| event.latency_us))
        .bind(column(events, |event| event.reason.as_str()))
        .execute(connection)
        .await?;
    Ok(())
}

/// Inserts the limit checks of a batch.
pub async fn insert_ratelimits(
    connection: &mut PgConnection,
    batch: &EventBatch,
    id: BatchId,
) -> Result<()> {
    let events = &batch.ratelimits;
    let sql = "
        INSERT INTO ratelimits
            (time, series, batch, request_id, latency_us, override_id, max, remaining, reset_at,
            tokens)
        SELECT time, series, $1, request_id, latency_us, override_id, max, remaining, reset_at,
            tokens
        FROM UNNEST(CAST($2 AS BIGINT[]), CAST($3 AS BYTEA[]), CAST($4 AS TEXT[]),
            CAST($5 AS BIGINT[]), CAST($6 AS TEXT[]), CAST($7 AS BIGINT[]), CAST($8 AS BIGINT[]),
            CAST($9 AS BIGINT[]), CAST($10 AS BIGINT[]))
            AS events (time, series, request_id, latency_us, override_id, max, remaining,
                reset_at, tokens)";
    query(sql)
        .bind(id)
        .bind(column(events, |event| event.time.0))
        .bind(column(events, |event| &event.series.0[..]))
        .bind(column(events, |event| event.request_id.as_str()))
        .bind(column(events, |event| event.latency_us))
        .bind(column(events, |event| event.override_id.as_str()))
        .bind(column(events, |event| event.limit))
        .bind(column(events, |event| event.remaining))
        .bind(column(events, |event| event.reset_at.0))
        .bind(column(events, |event| event.tokens))
        .execute(connection)
        .await?;
    Ok(())
}

/// Deletes up to `max` of the rows; of a partitioned table also those at the same places in other partitions. Returns how
/// many were deleted.
pub async fn delete_expired(
    connection: &mut PgConnection,
    rows: &ExpiredRows,
    max: u64,
) -> Result<u64> {
    let ExpiredRows { table, condition, order } = rows;
    // The condition is checked once more: another transaction may have changed the row meanwhile.
    let sql = format!(
        "DELETE FROM {table} WHERE {condition} AND ctid = ANY(ARRAY(
            SELECT ctid FROM {table} WHERE {condition} {order} LIMIT {max}))"
    );
    let deletion = query(AssertSqlSafe(sql)).persistent(false);
    Ok(deletion.execute(connection).await?.rows_affected())
}

/// Returns a value of every row.
pub fn column<'a, Row, Value>(rows: &'a [Row], value: impl Fn(&'a Row) -> Value) -> Vec<Value> {
    rows.iter().map(value).collect()
}

//! Implements writes of events, and their deletion.

use async_trait::async_trait;
use foundation::clock::Timestamp;
use foundation::error::{Error, Result};
use foundation::model::{EventKind, Retention, RollupUnit};
use serde::Serialize;
use serde_json::json;
use sqlx::{AssertSqlSafe, QueryBuilder, query, query_scalar};

use super::{Connection, Database, rollups};
use crate::events::{Batch, BatchId, EventAmounts, EventWrites, SeriesRollup};

const DAY_MS: i64 = 86_400_000;
/// The number of events that one statement inserts: with ten values each, fewer than the 32,766 parameters that
/// SQLite accepts.
const ROWS_AT_ONCE: usize = 1_000;

#[async_trait]
impl EventWrites for Connection {
    async fn insert_batch(&mut self, batch: &Batch, now: Timestamp) -> Result<BatchId> {
        let (first, last) = batch.span();
        let sql = "INSERT INTO batches (name, region, written_at, first_at, last_at, summed)
            VALUES ($1, $2, $3, $4, $5, $6)
            ON CONFLICT (name) DO NOTHING
            RETURNING id";
        let id: Option<i64> = query_scalar(sql)
            .bind(&batch.name)
            .bind(&batch.region)
            .bind(now)
            .bind(first)
            .bind(last)
            .bind(false)
            .fetch_optional(&mut *self)
            .await?;
        let Some(id) = id else {
            let sql = "SELECT id FROM batches WHERE name = $1";
            return Ok(query_scalar(sql).bind(&batch.name).fetch_one(self).await?);
        };
        insert_verifications(self, batch, id).await?;
        insert_ratelimits(self, batch, id).await?;
        Ok(id)
    }

    async fn lock_pending_batches(&mut self, batches: &[BatchId]) -> Result<Vec<BatchId>> {
        let sql = locked!(concat!(
            "SELECT id FROM batches WHERE summed = $1 AND id IN (SELECT CAST(item AS BIGINT) FROM ",
            texts!("$2"),
            ") ORDER BY id"
        ));
        Ok(query_scalar(sql).bind(false).bind(texts(batches)).fetch_all(self).await?)
    }

    async fn lock_overdue_batches(
        &mut self,
        before: Timestamp,
        max: usize,
    ) -> Result<Vec<BatchId>> {
        let sql = locked!(
            "SELECT id FROM batches WHERE summed = $1 AND written_at < $2 ORDER BY id LIMIT $3"
        );
        let max = i64::try_from(max).unwrap_or(i64::MAX);
        Ok(query_scalar(sql).bind(false).bind(before).bind(max).fetch_all(self).await?)
    }

    async fn events_of(
        &mut self,
        kind: EventKind,
        batches: &[BatchId],
    ) -> Result<Vec<EventAmounts>> {
        rollups::events_of(self, kind, &texts(batches)).await
    }

    async fn add_sums(
        &mut self,
        kind: EventKind,
        unit: RollupUnit,
        series_rollups: &[SeriesRollup],
    ) -> Result<()> {
        rollups::add(self, kind, unit, series_rollups).await
    }

    async fn mark_rolled_up(&mut self, batches: &[BatchId]) -> Result<()> {
        let sql = concat!(
            "UPDATE batches SET summed = $2 WHERE id IN (SELECT CAST(item AS BIGINT) FROM ",
            texts!("$1"),
            ")"
        );
        query(sql).bind(texts(batches)).bind(true).execute(self).await?;
        Ok(())
    }

    async fn forget(
        &mut self,
        kind: EventKind,
        retention: &Retention,
        now: Timestamp,
    ) -> Result<()> {
        let (raw, totals) = match kind {
            EventKind::Verifications => (kind.table(), "verification_totals"),
            EventKind::Ratelimits => (kind.table(), "ratelimit_totals"),
        };
        let before = |days: u32| now.plus_ms(-i64::from(days) * DAY_MS);
        forget_before(self, raw, before(retention.raw)).await?;
        let units = [
            ("minute", retention.minute),
            ("hour", retention.hour),
            ("day", retention.day),
            ("month", retention.month),
        ];
        for (unit, days) in units {
            forget_before(self, &format!("{raw}_per_{unit}"), before(days)).await?;
            let sql = format!("DELETE FROM {totals} WHERE unit = $1 AND time < $2");
            let deletion = query(AssertSqlSafe(sql)).bind(unit).bind(before(days));
            deletion.execute(&mut *self).await?;
        }
        Ok(())
    }

    async fn forget_names(&mut self, batches: Timestamp, series: Timestamp) -> Result<()> {
        let sql = "DELETE FROM batches WHERE summed = $1 AND last_at < $2";
        query(sql).bind(true).bind(batches).execute(&mut *self).await?;
        for table in ["verification_series", "ratelimit_series"] {
            let sql = format!("DELETE FROM {table} WHERE seen_at < $1");
            query(AssertSqlSafe(sql)).bind(series).execute(&mut *self).await?;
        }
        Ok(())
    }
}

async fn forget_before(connection: &mut Connection, table: &str, time: Timestamp) -> Result<()> {
    let sql = format!("DELETE FROM {table} WHERE time < $1");
    query(AssertSqlSafe(sql)).bind(time).execute(connection).await?;
    Ok(())
}

async fn insert_verifications(connection: &mut Connection, batch: &Batch, id: i64) -> Result<()> {
    let series = concat!(
        "INSERT INTO verification_series
            (id, workspace_id, api_id, key_id, identity_id, external_id, outcome, tags, seen_at)
        SELECT ",
        bytes!("item ->> 'id'"),
        ", item ->> 'workspace_id', item ->> 'api_id', item ->> 'key_id', item ->> 'identity_id',
            item ->> 'external_id', item ->> 'outcome', item ->> 'tags',
            CAST(item ->> 'seen_at' AS BIGINT)
        FROM ",
        items!("$1"),
        " WHERE TRUE
        ON CONFLICT (id) DO UPDATE SET seen_at = excluded.seen_at
            WHERE verification_series.seen_at < excluded.seen_at"
    );
    if let Some(list) = list(&batch.verification_series)? {
        query(series).bind(list).execute(&mut *connection).await?;
    }
    for events in batch.verifications.chunks(ROWS_AT_ONCE) {
        let mut rows = QueryBuilder::<Database>::new(
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
        execute(connection, rows, events.len()).await?;
    }
    let totals = concat!(
        "INSERT INTO verification_totals
            (workspace_id, api_id, unit, time, outcome, count, spent_credits, latency_us, ",
        latencies!(),
        ") SELECT item ->> 'workspace_id', item ->> 'id', item ->> 'unit',
            CAST(item ->> 'time' AS BIGINT), item ->> 'outcome', ",
        sum_of_item!(),
        " FROM ",
        items!("$1"),
        " WHERE TRUE
        ON CONFLICT (workspace_id, api_id, unit, time, outcome) DO UPDATE SET ",
        added!("verification_totals", "spent_credits")
    );
    if let Some(list) = list(&batch.verification_totals)? {
        query(totals).bind(list).execute(connection).await?;
    }
    Ok(())
}

async fn insert_ratelimits(connection: &mut Connection, batch: &Batch, id: i64) -> Result<()> {
    let series = concat!(
        "INSERT INTO ratelimit_series
            (id, workspace_id, namespace_id, identifier, passed, seen_at)
        SELECT ",
        bytes!("item ->> 'id'"),
        ", item ->> 'workspace_id', item ->> 'namespace_id', item ->> 'identifier', ",
        flag!("item ->> 'passed'"),
        ", CAST(item ->> 'seen_at' AS BIGINT)
        FROM ",
        items!("$1"),
        " WHERE TRUE
        ON CONFLICT (id) DO UPDATE SET seen_at = excluded.seen_at
            WHERE ratelimit_series.seen_at < excluded.seen_at"
    );
    if let Some(list) = list(&batch.ratelimit_series)? {
        query(series).bind(list).execute(&mut *connection).await?;
    }
    for events in batch.ratelimits.chunks(ROWS_AT_ONCE) {
        let mut rows = QueryBuilder::<Database>::new(
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
        execute(connection, rows, events.len()).await?;
    }
    let totals = concat!(
        "INSERT INTO ratelimit_totals
            (workspace_id, namespace_id, unit, time, passed, count, tokens, latency_us, ",
        latencies!(),
        ") SELECT item ->> 'workspace_id', item ->> 'id', item ->> 'unit',
            CAST(item ->> 'time' AS BIGINT), ",
        flag!("item ->> 'outcome'"),
        ", ",
        sum_of_item!(),
        " FROM ",
        items!("$1"),
        " WHERE TRUE
        ON CONFLICT (workspace_id, namespace_id, unit, time, passed) DO UPDATE SET ",
        added!("ratelimit_totals", "tokens")
    );
    if let Some(list) = list(&batch.ratelimit_totals)? {
        query(totals).bind(list).execute(connection).await?;
    }
    Ok(())
}

/// Inserts rows. Only the statement with the usual number of rows is cached.
async fn execute(
    connection: &mut Connection,
    mut rows: QueryBuilder<Database>,
    count: usize,
) -> Result<()> {
    rows.build().persistent(count == ROWS_AT_ONCE).execute(connection).await?;
    Ok(())
}

/// Encodes numbers in the form that `texts!` reads.
pub fn texts(batches: &[BatchId]) -> String {
    json!(batches.iter().map(ToString::to_string).collect::<Vec<_>>()).to_string()
}

/// Encodes a list in the form that a statement reads. Returns `None` for an empty list.
fn list<T: Serialize>(items: &[T]) -> Result<Option<String>> {
    if items.is_empty() {
        return Ok(None);
    }
    serde_json::to_string(items).map(Some).map_err(|e| Error::Internal(e.to_string()))
}

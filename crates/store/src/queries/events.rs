//! Implements writes of events, and their deletion.

use async_trait::async_trait;
use foundation::clock::Timestamp;
use foundation::error::{Error, Result};
use foundation::model::{EventKind, RollupUnit};
use serde::Serialize;
use serde_json::json;
use sqlx::{query, query_scalar};

use super::{Connection, event_rows, latencies, rollups};
use crate::events::{
    BatchId, EventAmounts, EventBatch, EventWrites, ExpiredRows, SeriesRollup, TotalDelta,
};

#[async_trait]
impl EventWrites for Connection {
    async fn insert_batch(&mut self, batch: &EventBatch, now: Timestamp) -> Result<BatchId> {
        let (name, times) = (&batch.name, batch.time_range());
        let inserted = insert_batch_row(self, name, &batch.region, now, times, false).await?;
        let Some(id) = inserted else {
            let sql = "SELECT id FROM batches WHERE name = $1";
            return Ok(query_scalar(sql).bind(&batch.name).fetch_one(self).await?);
        };
        insert_verifications(self, batch, id).await?;
        insert_ratelimits(self, batch, id).await?;
        let verifications = batch.not_found_totals.iter().chain(&batch.verification_totals);
        latencies::add(self, EventKind::Verifications, verifications).await?;
        latencies::add(self, EventKind::Ratelimits, batch.ratelimit_totals.iter()).await?;
        Ok(id)
    }

    async fn lock_pending_batches(&mut self, batches: &[BatchId]) -> Result<Vec<BatchId>> {
        let sql = locked!(concat!(
            "SELECT id FROM batches WHERE summed = $1 AND id IN (SELECT CAST(item AS BIGINT) FROM ",
            texts!("$2"),
            ") ORDER BY id"
        ));
        Ok(query_scalar(sql).bind(false).bind(to_json_texts(batches)).fetch_all(self).await?)
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

    async fn find_first_pending_event(&mut self) -> Result<Option<Timestamp>> {
        let sql = concat!("SELECT MIN(first_at) FROM batches WHERE ", is_pending!("summed"));
        Ok(query_scalar(sql).fetch_one(self).await?)
    }

    async fn list_event_amounts(
        &mut self,
        kind: EventKind,
        batches: &[BatchId],
    ) -> Result<Vec<EventAmounts>> {
        rollups::load_event_amounts(self, kind, &to_json_texts(batches)).await
    }

    async fn add_rollups(
        &mut self,
        kind: EventKind,
        unit: RollupUnit,
        series_rollups: &[SeriesRollup],
    ) -> Result<()> {
        rollups::add_rollups(self, kind, unit, series_rollups).await
    }

    async fn mark_rolled_up(&mut self, batches: &[BatchId]) -> Result<()> {
        let sql = concat!(
            "UPDATE batches SET summed = $2 WHERE id IN (SELECT CAST(item AS BIGINT) FROM ",
            texts!("$1"),
            ")"
        );
        query(sql).bind(to_json_texts(batches)).bind(true).execute(self).await?;
        Ok(())
    }

    async fn delete_expired(&mut self, rows: &ExpiredRows, max: u64) -> Result<u64> {
        event_rows::delete_expired(self, rows, max).await
    }
}

async fn insert_verifications(
    connection: &mut Connection,
    batch: &EventBatch,
    id: i64,
) -> Result<()> {
    let series = concat!(
        "INSERT INTO verification_series
            (id, workspace_id, api_id, key_id, identity_id, external_id, outcome, tags, region, seen_at)
        SELECT ",
        hex_bytes!("item ->> 'id'"),
        ", item ->> 'workspace_id', item ->> 'api_id', item ->> 'key_id', item ->> 'identity_id',
            item ->> 'external_id', item ->> 'outcome', item ->> 'tags', item ->> 'region',
            CAST(item ->> 'seen_at' AS BIGINT)
        FROM ",
        items!("$1"),
        " WHERE TRUE
        ON CONFLICT (id) DO UPDATE SET seen_at = excluded.seen_at
            WHERE verification_series.seen_at < excluded.seen_at"
    );
    if let Some(list) = to_json_list(&batch.verification_series)? {
        query(series).bind(list).execute(&mut *connection).await?;
    }
    if !batch.verifications.is_empty() {
        event_rows::insert_verifications(connection, batch, id).await?;
    }
    insert_verification_totals(connection, &batch.not_found_totals).await?;
    insert_verification_totals(connection, &batch.verification_totals).await
}

/// Adds to totals of verifications. They are in order.
pub async fn insert_verification_totals(
    connection: &mut Connection,
    totals: &[TotalDelta],
) -> Result<()> {
    let sql = concat!(
        "INSERT INTO verification_totals
            (workspace_id, api_id, unit, time, outcome, count, spent_credits, latency_us, ",
        latency_columns!(),
        ") SELECT item ->> 'workspace_id', item ->> 'id', item ->> 'unit',
            CAST(item ->> 'time' AS BIGINT), item ->> 'outcome', ",
        rollup_columns_of_item!(),
        " FROM ",
        items!("$1"),
        " WHERE TRUE
        ON CONFLICT (workspace_id, api_id, unit, time, outcome) DO UPDATE SET ",
        add_rollup_columns!("verification_totals", "spent_credits")
    );
    if let Some(list) = to_json_list(totals)? {
        query(sql).bind(list).execute(connection).await?;
    }
    Ok(())
}

async fn insert_ratelimits(connection: &mut Connection, batch: &EventBatch, id: i64) -> Result<()> {
    let series = concat!(
        "INSERT INTO ratelimit_series
            (id, workspace_id, namespace_id, identifier, passed, seen_at)
        SELECT ",
        hex_bytes!("item ->> 'id'"),
        ", item ->> 'workspace_id', item ->> 'namespace_id', item ->> 'identifier', ",
        flag!("item ->> 'passed'"),
        ", CAST(item ->> 'seen_at' AS BIGINT)
        FROM ",
        items!("$1"),
        " WHERE TRUE
        ON CONFLICT (id) DO UPDATE SET seen_at = excluded.seen_at
            WHERE ratelimit_series.seen_at < excluded.seen_at"
    );
    if let Some(list) = to_json_list(&batch.ratelimit_series)? {
        query(series).bind(list).execute(&mut *connection).await?;
    }
    if !batch.ratelimits.is_empty() {
        event_rows::insert_ratelimits(connection, batch, id).await?;
    }
    let totals = concat!(
        "INSERT INTO ratelimit_totals
            (workspace_id, namespace_id, unit, time, passed, count, tokens, latency_us, ",
        latency_columns!(),
        ") SELECT item ->> 'workspace_id', item ->> 'id', item ->> 'unit',
            CAST(item ->> 'time' AS BIGINT), ",
        flag!("item ->> 'outcome'"),
        ", ",
        rollup_columns_of_item!(),
        " FROM ",
        items!("$1"),
        " WHERE TRUE
        ON CONFLICT (workspace_id, namespace_id, unit, time, passed) DO UPDATE SET ",
        add_rollup_columns!("ratelimit_totals", "tokens")
    );
    if let Some(list) = to_json_list(&batch.ratelimit_totals)? {
        query(totals).bind(list).execute(connection).await?;
    }
    Ok(())
}

/// Inserts the row of a batch with the times of its first and last event. Returns its id, or `None` if its name is in
/// use.
pub async fn insert_batch_row(
    connection: &mut Connection,
    name: &str,
    region: &str,
    now: Timestamp,
    (first, last): (Timestamp, Timestamp),
    is_rolled_up: bool,
) -> Result<Option<BatchId>> {
    let sql = "INSERT INTO batches (name, region, written_at, first_at, last_at, summed)
        VALUES ($1, $2, $3, $4, $5, $6)
        ON CONFLICT (name) DO NOTHING
        RETURNING id";
    let query = query_scalar(sql).bind(name).bind(region).bind(now).bind(first).bind(last);
    Ok(query.bind(is_rolled_up).fetch_optional(connection).await?)
}

/// Encodes numbers in the form that `texts!` reads.
pub fn to_json_texts(batches: &[BatchId]) -> String {
    json!(batches.iter().map(ToString::to_string).collect::<Vec<_>>()).to_string()
}

/// Encodes a list in the form that a statement reads. Returns `None` for an empty list.
fn to_json_list<T: Serialize>(items: &[T]) -> Result<Option<String>> {
    if items.is_empty() {
        return Ok(None);
    }
    serde_json::to_string(items).map(Some).map_err(|e| Error::Internal(e.to_string()))
}

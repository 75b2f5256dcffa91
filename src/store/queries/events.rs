//! Events as they are written, and what is forgotten of them.

use async_trait::async_trait;
use serde::Serialize;
use sqlx::{AssertSqlSafe, query, query_scalar};

use super::{Connection, sums};
use crate::clock::Timestamp;
use crate::error::{Error, Result};
use crate::model::{EventKind, Retention};
use crate::store::events::{Batch, EventWrites};

const DAY_MS: i64 = 86_400_000;

#[async_trait]
impl EventWrites for Connection {
    async fn insert_batch(&mut self, batch: &Batch, now: Timestamp) -> Result<()> {
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
        let Some(id) = id else { return Ok(()) };
        insert_verifications(self, batch, id).await?;
        insert_ratelimits(self, batch, id).await
    }

    async fn sum_up(&mut self, max: usize) -> Result<usize> {
        sums::sum_up(self, max).await
    }

    async fn forget(&mut self, kind: EventKind, kept: &Retention, now: Timestamp) -> Result<()> {
        let (raw, totals) = match kind {
            EventKind::Verifications => (kind.table(), "verification_totals"),
            EventKind::Ratelimits => (kind.table(), "ratelimit_totals"),
        };
        let before = |days: u32| now.plus_ms(-i64::from(days) * DAY_MS);
        forget_before(self, raw, before(kept.raw)).await?;
        let units = [
            ("minute", kept.minute),
            ("hour", kept.hour),
            ("day", kept.day),
            ("month", kept.month),
        ];
        for (unit, days) in units {
            forget_before(self, &format!("{raw}_per_{unit}"), before(days)).await?;
            let sql = format!("DELETE FROM {totals} WHERE unit = $1 AND time < $2");
            let forgetting = query(AssertSqlSafe(sql)).bind(unit).bind(before(days));
            forgetting.execute(&mut *self).await?;
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
    let events = concat!(
        "INSERT INTO verifications
            (time, series, batch, request_id, spent_credits, latency_us, region, reason)
        SELECT CAST(item ->> 'time' AS BIGINT), ",
        bytes!("item ->> 'series'"),
        ", $2, item ->> 'request_id', CAST(item ->> 'spent_credits' AS BIGINT),
            CAST(item ->> 'latency_us' AS BIGINT), $3, item ->> 'reason'
        FROM ",
        items!("$1")
    );
    if let Some(list) = list(&batch.verifications)? {
        query(events).bind(list).bind(id).bind(&batch.region).execute(&mut *connection).await?;
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
    let events = concat!(
        "INSERT INTO ratelimits
            (time, series, batch, request_id, latency_us, override_id, max, remaining, reset_at, tokens)
        SELECT CAST(item ->> 'time' AS BIGINT), ",
        bytes!("item ->> 'series'"),
        ", $2, item ->> 'request_id', CAST(item ->> 'latency_us' AS BIGINT), item ->> 'override_id',
            CAST(item ->> 'limit' AS BIGINT), CAST(item ->> 'remaining' AS BIGINT),
            CAST(item ->> 'reset_at' AS BIGINT), CAST(item ->> 'tokens' AS BIGINT)
        FROM ",
        items!("$1")
    );
    if let Some(list) = list(&batch.ratelimits)? {
        query(events).bind(list).bind(id).execute(&mut *connection).await?;
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

/// A list as a statement takes it; nothing where there is nothing to do.
fn list<T: Serialize>(items: &[T]) -> Result<Option<String>> {
    if items.is_empty() {
        return Ok(None);
    }
    serde_json::to_string(items).map(Some).map_err(|e| Error::Internal(e.to_string()))
}

//! Implements reads of single events. Every query is bounded by time.

use std::ops::Range;

use async_trait::async_trait;
use foundation::clock::Timestamp;
use foundation::error::Result;
use foundation::id::{KeyId, WorkspaceId};
use foundation::model::RollupUnit;
use sqlx::{query_as, query_scalar};

use super::Connection;
use crate::events::BatchId;
use crate::recent::{
    CheckRow, CheckTailFilter, RecentReads, TailFilter, TailReads, VerificationRow, WrittenBatch,
};

macro_rules! verification_columns {
    () => {
        "e.time, e.request_id, s.api_id, s.key_id, s.external_id, s.outcome, s.tags,
            e.spent_credits, e.latency_us, e.region, e.reason"
    };
}

macro_rules! verifications_where {
    ($condition:literal) => {
        concat!(
            "SELECT ",
            verification_columns!(),
            " FROM verifications e
            JOIN verification_series s ON s.id = e.series
            WHERE s.workspace_id = $1 AND ",
            $condition
        )
    };
}

macro_rules! checks_where {
    ($condition:literal) => {
        concat!(
            "SELECT e.time, e.request_id, s.namespace_id, s.identifier, s.passed, e.latency_us, e.override_id,
                e.max, e.remaining, e.reset_at, e.tokens
            FROM ratelimits e
            JOIN ratelimit_series s ON s.id = e.series
            WHERE s.workspace_id = $1 AND ",
            $condition
        )
    };
}

#[async_trait]
impl RecentReads for Connection {
    async fn list_latest_by_key(
        &mut self,
        workspace: &WorkspaceId,
        key: &KeyId,
        max: usize,
    ) -> Result<Vec<VerificationRow>> {
        let rows_max = i64::try_from(max).unwrap_or(i64::MAX);
        let mut rows = list_pending_of_key(self, workspace, key, rows_max).await?;
        // The rollups show which minutes contain events, so no other minute is read.
        let mut found = 0;
        for minute in list_minutes_of_key(self, workspace, key, rows_max).await? {
            let within = minute..RollupUnit::Minute.start_of_next(minute);
            let of_minute =
                list_verifications_of_key(self, workspace, key, within, rows_max).await?;
            found += of_minute.len();
            rows.extend(of_minute);
            if found >= max {
                break;
            }
        }
        rows.sort_by(|a, b| (b.time, &a.request_id).cmp(&(a.time, &b.request_id)));
        rows.dedup_by(|a, b| a.request_id == b.request_id);
        rows.truncate(max);
        Ok(rows)
    }

    async fn find_verification_by_request(
        &mut self,
        workspace: &WorkspaceId,
        request: &str,
        within: Range<Timestamp>,
    ) -> Result<Option<VerificationRow>> {
        let sql = verifications_where!(
            "e.request_id = $2 AND e.time >= $3 AND e.time < $4 ORDER BY e.time LIMIT 1"
        );
        let query = query_as(sql).bind(workspace).bind(request);
        Ok(query.bind(within.start).bind(within.end).fetch_optional(self).await?)
    }

    async fn list_checks_by_request(
        &mut self,
        workspace: &WorkspaceId,
        request: &str,
        within: Range<Timestamp>,
        max: usize,
    ) -> Result<Vec<CheckRow>> {
        let sql = checks_where!(
            "e.request_id = $2 AND e.time >= $3 AND e.time < $4
            ORDER BY s.namespace_id, s.identifier
            LIMIT $5"
        );
        let query = query_as(sql).bind(workspace).bind(request);
        let rows_max = i64::try_from(max).unwrap_or(i64::MAX);
        Ok(query.bind(within.start).bind(within.end).bind(rows_max).fetch_all(self).await?)
    }
}

#[async_trait]
impl TailReads for Connection {
    async fn find_last_batch(&mut self, before: Timestamp) -> Result<BatchId> {
        let sql = "SELECT COALESCE(MAX(id), 0) FROM batches WHERE last_at < $1";
        Ok(query_scalar(sql).bind(before).fetch_one(self).await?)
    }

    async fn list_batches_after(&mut self, after: BatchId, max: i64) -> Result<Vec<WrittenBatch>> {
        let sql = "SELECT id, first_at, last_at FROM batches WHERE id > $1 ORDER BY id LIMIT $2";
        Ok(query_as(sql).bind(after).bind(max).fetch_all(self).await?)
    }

    async fn list_verifications_of_batch(
        &mut self,
        workspace: &WorkspaceId,
        batch: &WrittenBatch,
        filter: &TailFilter,
        max: i64,
    ) -> Result<Vec<VerificationRow>> {
        let sql = verifications_where!(
            "e.batch = $2 AND e.time BETWEEN $3 AND $4
                AND ($5 = '' OR s.api_id = $5) AND ($6 = '' OR s.key_id = $6)
                AND s.outcome <> $7
            ORDER BY e.time, e.request_id
            LIMIT $8"
        );
        let query = query_as(sql).bind(workspace).bind(batch.id);
        let query = query.bind(batch.first_at).bind(batch.last_at);
        let query = query.bind(&filter.api_id).bind(&filter.key_id).bind(&filter.excluded_outcome);
        Ok(query.bind(max).fetch_all(self).await?)
    }

    async fn list_checks_of_batch(
        &mut self,
        workspace: &WorkspaceId,
        batch: &WrittenBatch,
        filter: &CheckTailFilter,
        max: i64,
    ) -> Result<Vec<CheckRow>> {
        let sql = checks_where!(
            "e.batch = $2 AND e.time BETWEEN $3 AND $4
                AND ($5 = '' OR s.namespace_id = $5) AND ($6 = '' OR s.identifier = $6)
                AND NOT (s.passed AND $7)
            ORDER BY e.time, e.request_id, s.namespace_id, s.identifier
            LIMIT $8"
        );
        let query = query_as(sql).bind(workspace).bind(batch.id);
        let query = query.bind(batch.first_at).bind(batch.last_at);
        let query = query.bind(&filter.namespace_id).bind(&filter.identifier);
        Ok(query.bind(filter.is_refused).bind(max).fetch_all(self).await?)
    }
}

/// Returns the latest minutes in which a key was verified, as far as they are rolled up: those of the last days that have as
/// many verifications as are needed. The rollups of the key are materialized, because the planner would otherwise read those of
/// all keys in the order of their times, which takes long if the key has few.
async fn list_minutes_of_key(
    connection: &mut Connection,
    workspace: &WorkspaceId,
    key: &KeyId,
    max: i64,
) -> Result<Vec<Timestamp>> {
    let days = "
        WITH days AS MATERIALIZED (
            SELECT d.time, d.count
            FROM verification_series s CROSS JOIN verifications_per_day d
            WHERE d.series = s.id AND s.workspace_id = $1 AND s.key_id = $2
        )
        SELECT time, CAST(SUM(count) AS BIGINT) FROM days
        GROUP BY time
        ORDER BY time DESC
        LIMIT $3";
    let days: Vec<(Timestamp, i64)> =
        query_as(days).bind(workspace).bind(key).bind(max).fetch_all(&mut *connection).await?;
    let mut verifications = 0_i64;
    let reached = days.iter().find(|(_, count)| {
        verifications = verifications.saturating_add(*count);
        verifications >= max
    });
    let Some((first_day, _)) = reached.or(days.last()) else { return Ok(Vec::new()) };
    let minutes = "
        WITH minutes AS MATERIALIZED (
            SELECT m.time
            FROM verification_series s CROSS JOIN verifications_per_minute m
            WHERE m.series = s.id AND s.workspace_id = $1 AND s.key_id = $2 AND m.time >= $3
        )
        SELECT DISTINCT time FROM minutes
        ORDER BY time DESC
        LIMIT $4";
    let query = query_scalar(minutes).bind(workspace).bind(key).bind(*first_day).bind(max);
    Ok(query.fetch_all(connection).await?)
}

/// Returns the latest verifications of a key within a time range.
async fn list_verifications_of_key(
    connection: &mut Connection,
    workspace: &WorkspaceId,
    key: &KeyId,
    within: Range<Timestamp>,
    max: i64,
) -> Result<Vec<VerificationRow>> {
    let sql = verifications_where!(
        "s.key_id = $2 AND e.time >= $3 AND e.time < $4
        ORDER BY e.time DESC, e.request_id
        LIMIT $5"
    );
    let query = query_as(sql).bind(workspace).bind(key).bind(within.start).bind(within.end);
    Ok(query.bind(max).fetch_all(connection).await?)
}

/// Returns the latest verifications of a key that have not been rolled up.
async fn list_pending_of_key(
    connection: &mut Connection,
    workspace: &WorkspaceId,
    key: &KeyId,
    max: i64,
) -> Result<Vec<VerificationRow>> {
    let sql = concat!(
        "SELECT ",
        verification_columns!(),
        " FROM ",
        events_of_batches!(
            "verifications",
            "e.time, e.series, e.request_id, e.spent_credits, e.latency_us, e.region, e.reason"
        ),
        " CROSS JOIN verification_series s
        WHERE ",
        is_pending!("b.summed"),
        " AND s.id = e.series AND s.workspace_id = $1 AND s.key_id = $2
        ORDER BY e.time DESC, e.request_id
        LIMIT $3"
    );
    Ok(query_as(sql).bind(workspace).bind(key).bind(max).fetch_all(connection).await?)
}

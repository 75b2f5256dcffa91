//! Reads raw events in ClickHouse.

use std::ops::Range;

use async_trait::async_trait;
use foundation::clock::Timestamp;
use foundation::error::Result;
use foundation::id::{KeyId, WorkspaceId};
use serde_json::json;

use super::ClickHouseReader;
use super::source::delivery_condition;
use crate::recent::{CheckRow, RecentReads, VerificationRow};
use crate::verification_log::{LogFilter, LogReads, LogRows};

type VerificationTuple =
    (i64, String, String, String, String, String, Vec<String>, i64, i64, String, String);

type CheckTuple = (i64, String, String, u8, i64, String, i64, i64, i64, i64);

impl ClickHouseReader {
    async fn list_verifications(
        &self,
        condition: &str,
        texts: &[&str],
        max: usize,
    ) -> Result<Vec<VerificationRow>> {
        let sql = format!(
            "SELECT time, request_id, api_id, key_id, external_id, outcome, tags, spent_credits,
                latency_us, region, reason
            FROM verifications WHERE {condition} AND {}
            ORDER BY time DESC, request_id LIMIT {max}",
            delivery_condition(&self.delivery_snapshot)
        );
        let rows: Vec<VerificationTuple> = self.clickhouse.fetch_rows(&sql, texts).await?;
        let to_row = |(
            time,
            request_id,
            api_id,
            key_id,
            external_id,
            outcome,
            tags,
            spent_credits,
            latency_us,
            region,
            reason,
        ): VerificationTuple| {
            VerificationRow {
                time: Timestamp(time),
                request_id,
                api_id,
                key_id,
                external_id,
                outcome,
                tags: json!(tags).to_string(),
                spent_credits,
                latency_us,
                region,
                reason,
            }
        };
        Ok(rows.into_iter().map(to_row).collect())
    }
}

#[async_trait]
impl RecentReads for ClickHouseReader {
    async fn list_latest_by_key(
        &mut self,
        workspace: &WorkspaceId,
        key: &KeyId,
        max: usize,
    ) -> Result<Vec<VerificationRow>> {
        let condition = "workspace_id = $1 AND key_id = $2";
        self.list_verifications(condition, &[workspace.as_str(), key.as_str()], max).await
    }

    async fn find_verification_by_request(
        &mut self,
        workspace: &WorkspaceId,
        request: &str,
        within: Range<Timestamp>,
    ) -> Result<Option<VerificationRow>> {
        let condition = format!(
            "workspace_id = $1 AND request_id = $2 AND time >= {} AND time < {}",
            within.start.0, within.end.0
        );
        let found = self.list_verifications(&condition, &[workspace.as_str(), request], 1).await?;
        Ok(found.into_iter().next())
    }

    async fn list_checks_by_request(
        &mut self,
        workspace: &WorkspaceId,
        request: &str,
        within: Range<Timestamp>,
        max: i64,
    ) -> Result<Vec<CheckRow>> {
        let sql = format!(
            "SELECT time, namespace_id, identifier, passed, latency_us, override_id, max, remaining,
                reset_at, tokens
            FROM ratelimits
            WHERE workspace_id = $1 AND request_id = $2 AND time >= {} AND time < {} AND {}
            ORDER BY namespace_id, identifier LIMIT {max}",
            within.start.0,
            within.end.0,
            delivery_condition(&self.delivery_snapshot)
        );
        let rows: Vec<CheckTuple> =
            self.clickhouse.fetch_rows(&sql, &[workspace.as_str(), request]).await?;
        let to_row = |(
            time,
            namespace_id,
            identifier,
            passed,
            latency_us,
            override_id,
            max,
            remaining,
            reset_at,
            tokens,
        ): CheckTuple| {
            CheckRow {
                time: Timestamp(time),
                namespace_id,
                identifier,
                passed: passed != 0,
                latency_us,
                override_id,
                max,
                remaining,
                reset_at: Timestamp(reset_at),
                tokens,
            }
        };
        Ok(rows.into_iter().map(to_row).collect())
    }
}

#[async_trait]
impl LogReads for ClickHouseReader {
    async fn list_log(&mut self, filter: &LogFilter<'_>) -> Result<LogRows> {
        let condition = format!(
            "workspace_id = $1 AND time >= {} AND time < {}
                AND ($2 = '' OR api_id = $2) AND ($3 = '' OR key_id = $3)
                AND ($4 = '' OR external_id = $4) AND ($5 = '' OR outcome = $5)
                AND ($6 = '' OR time < {} OR request_id > $6)",
            filter.from_time.0,
            filter.until_time.0,
            filter.until_time.0 - 1
        );
        let texts = [
            filter.workspace.as_str(),
            filter.api_id,
            filter.key_id,
            filter.external_id,
            filter.outcome,
            filter.after_request,
        ];
        let rows = self.list_verifications(&condition, &texts, filter.rows_max).await?;
        Ok(LogRows { rows, unread_before: None })
    }
}

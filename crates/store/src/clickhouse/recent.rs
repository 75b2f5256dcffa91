//! Reads raw events in ClickHouse.

use std::ops::Range;

use async_trait::async_trait;
use foundation::clock::Timestamp;
use foundation::error::Result;
use foundation::id::{KeyId, WorkspaceId};
use serde_json::json;

use super::ClickHouseReader;
use super::source::delivery_condition;
use crate::event_log::{LogFilter, LogReads, LogRows, VerificationLogFilter};
use crate::recent::{CheckRow, RecentReads, VerificationRow};

type VerificationTuple =
    (i64, String, String, String, String, String, Vec<String>, i64, i64, String, String);

type CheckTuple = (i64, String, String, String, u8, i64, String, i64, i64, i64, i64);

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

    async fn list_checks(
        &self,
        condition: &str,
        texts: &[&str],
        order: &str,
        max: usize,
    ) -> Result<Vec<CheckRow>> {
        let sql = format!(
            "SELECT time, request_id, namespace_id, identifier, passed, latency_us, override_id, max,
                remaining, reset_at, tokens
            FROM ratelimits WHERE {condition} AND {}
            ORDER BY {order} LIMIT {max}",
            delivery_condition(&self.delivery_snapshot)
        );
        let rows: Vec<CheckTuple> = self.clickhouse.fetch_rows(&sql, texts).await?;
        let to_row = |(
            time,
            request_id,
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
                request_id,
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
        max: usize,
    ) -> Result<Vec<CheckRow>> {
        let condition = format!(
            "workspace_id = $1 AND request_id = $2 AND time >= {} AND time < {}",
            within.start.0, within.end.0
        );
        let texts = [workspace.as_str(), request];
        self.list_checks(&condition, &texts, "namespace_id, identifier", max).await
    }
}

#[async_trait]
impl LogReads for ClickHouseReader {
    async fn list_verification_log(
        &mut self,
        filter: &LogFilter<'_>,
        verifications: &VerificationLogFilter<'_>,
    ) -> Result<LogRows<VerificationRow>> {
        let condition = format!(
            "{} AND ($2 = '' OR api_id = $2) AND ($3 = '' OR outcome = $3)
                AND ($5 = '' OR key_id = $5) AND ($6 = '' OR external_id = $6)
                AND ($7 = '' OR region = $7)",
            log_condition(filter)
        );
        let texts = [
            filter.workspace.as_str(),
            filter.resource_id,
            filter.outcome,
            filter.after_request,
            verifications.key_id,
            verifications.external_id,
            verifications.region,
        ];
        let rows = self.list_verifications(&condition, &texts, filter.rows_max).await?;
        Ok(LogRows { rows, unread_before: None })
    }

    async fn list_check_log(
        &mut self,
        filter: &LogFilter<'_>,
        identifier: &str,
    ) -> Result<LogRows<CheckRow>> {
        let condition = format!(
            "{} AND ($2 = '' OR namespace_id = $2)
                AND ($3 = '' OR if(passed, 'true', 'false') = $3) AND ($5 = '' OR identifier = $5)",
            log_condition(filter)
        );
        let texts = [
            filter.workspace.as_str(),
            filter.resource_id,
            filter.outcome,
            filter.after_request,
            identifier,
        ];
        let order = "time DESC, request_id, namespace_id, identifier";
        let rows = self.list_checks(&condition, &texts, order, filter.rows_max).await?;
        Ok(LogRows { rows, unread_before: None })
    }
}

/// Returns the condition for the events of a log, with the values `$1`, the workspace, and `$4`, the request of the last page.
fn log_condition(filter: &LogFilter<'_>) -> String {
    let (from, until) = (filter.from_time.0, filter.until_time.0);
    format!(
        "workspace_id = $1 AND time >= {from} AND time < {until}
            AND ($4 = '' OR time < {} OR request_id > $4)",
        until - 1
    )
}

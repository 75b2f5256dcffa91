//! Reads raw events in ClickHouse.

use std::fmt::Write as _;
use std::ops::Range;

use async_trait::async_trait;
use foundation::clock::Timestamp;
use foundation::error::Result;
use foundation::id::{KeyId, WorkspaceId};
use foundation::model::EventKind;
use serde_json::json;

use super::ClickHouseReader;
use super::source::delivery_condition;
use crate::event_log::{LogFilter, LogReads, LogRows, VerificationLogFilter};
use crate::recent::{CheckRow, CheckTailFilter, RecentReads, TailFilter, VerificationRow};

/// The order of the latest verifications.
const NEWEST_FIRST: &str = "time DESC, request_id";

type VerificationTuple =
    (i64, String, String, String, String, String, Vec<String>, i64, i64, String, String);

type CheckTuple = (i64, String, String, String, u8, i64, String, i64, i64, i64, i64);

/// Selects the events of deliveries that a tail has not read yet. Void deliveries are left out in any case.
#[derive(Debug)]
pub struct UnreadDeliveries {
    /// The deliveries after this one.
    pub after: i64,
    /// The last of them.
    pub until: i64,
    /// Earlier deliveries that have been confirmed since.
    pub confirmed: Vec<i64>,
    /// No event of these deliveries is earlier. ClickHouse finds events by their time.
    pub first_at: Timestamp,
}

impl UnreadDeliveries {
    fn condition(&self) -> String {
        let Self { after, until, confirmed, first_at } = self;
        let mut condition =
            format!("time >= {} AND (delivery > {after} AND delivery <= {until}", first_at.0);
        if !confirmed.is_empty() {
            let confirmed: Vec<_> = confirmed.iter().map(ToString::to_string).collect();
            let _ = write!(condition, " OR delivery IN ({})", confirmed.join(", "));
        }
        condition.push(')');
        condition
    }
}

impl ClickHouseReader {
    /// Returns the first delivery with events of a workspace since a time, or `None` if there are none.
    pub async fn find_first_delivery(
        &self,
        kind: EventKind,
        workspace: &WorkspaceId,
        since: Timestamp,
    ) -> Result<Option<i64>> {
        let sql = format!(
            "SELECT min(delivery) FROM {} WHERE workspace_id = $1 AND time >= {} AND {}",
            kind.table_name(),
            since.0,
            delivery_condition(&self.delivery_snapshot)
        );
        let found: Vec<(i64,)> = self.clickhouse.fetch_rows(&sql, &[workspace.as_str()]).await?;
        // The minimum of no rows is 0, and the first delivery is 1.
        Ok(found.into_iter().map(|(delivery,)| delivery).find(|delivery| *delivery > 0))
    }

    /// Returns up to `max` verifications of deliveries, oldest first.
    pub async fn list_verifications_of_deliveries(
        &self,
        workspace: &WorkspaceId,
        deliveries: &UnreadDeliveries,
        filter: &TailFilter,
        max: usize,
    ) -> Result<Vec<VerificationRow>> {
        let condition = format!(
            "workspace_id = $1 AND ($2 = '' OR api_id = $2) AND ($3 = '' OR key_id = $3)
                AND outcome != $4 AND {}",
            deliveries.condition()
        );
        let (api_id, key_id) = (filter.api_id.as_str(), filter.key_id.as_str());
        let texts = [workspace.as_str(), api_id, key_id, filter.excluded_outcome.as_str()];
        self.list_verifications(&condition, &texts, "time, request_id", max).await
    }

    /// Returns up to `max` limit checks of deliveries, oldest first.
    pub async fn list_checks_of_deliveries(
        &self,
        workspace: &WorkspaceId,
        deliveries: &UnreadDeliveries,
        filter: &CheckTailFilter,
        max: usize,
    ) -> Result<Vec<CheckRow>> {
        let passed_max = i32::from(!filter.is_refused);
        let condition = format!(
            "workspace_id = $1 AND ($2 = '' OR namespace_id = $2) AND ($3 = '' OR identifier = $3)
                AND passed <= {passed_max} AND {}",
            deliveries.condition()
        );
        let (namespace_id, identifier) = (filter.namespace_id.as_str(), filter.identifier.as_str());
        let texts = [workspace.as_str(), namespace_id, identifier];
        let order = "time, request_id, namespace_id, identifier";
        self.list_checks(&condition, &texts, order, max).await
    }

    async fn list_verifications(
        &self,
        condition: &str,
        texts: &[&str],
        order: &str,
        max: usize,
    ) -> Result<Vec<VerificationRow>> {
        let sql = format!(
            "SELECT time, request_id, api_id, key_id, external_id, outcome, tags, spent_credits,
                latency_us, region, reason
            FROM verifications WHERE {condition} AND {}
            ORDER BY {order} LIMIT {max}",
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
        let texts = [workspace.as_str(), key.as_str()];
        self.list_verifications(condition, &texts, NEWEST_FIRST, max).await
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
        let texts = [workspace.as_str(), request];
        let found = self.list_verifications(&condition, &texts, NEWEST_FIRST, 1).await?;
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
        let rows =
            self.list_verifications(&condition, &texts, NEWEST_FIRST, filter.rows_max).await?;
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

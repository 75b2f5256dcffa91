//! Rolls up days that are over by hour, and drops data past its retention.

use foundation::clock::Timestamp;
use foundation::model::{EventKind, RollupUnit};

use super::source::{BUCKETS, buckets_of_events, counts};
use super::{ClickHouse, ClickHouseError, DAY_TIMEOUT};
use crate::outbox::DayRollup;

type Result<T> = std::result::Result<T, ClickHouseError>;

const DAY_MS: i64 = 86_400_000;
/// The time span of a partition in the tables of hours.
const HOURS_PARTITION_MS: i64 = 30 * DAY_MS;

/// Returns the table of hours, and its dimensions besides the hour.
fn hours(kind: EventKind) -> (&'static str, &'static str) {
    match kind {
        EventKind::Verifications => (
            "verification_hours",
            "workspace_id, api_id, key_id, identity_id, external_id, outcome, tags",
        ),
        EventKind::Ratelimits => {
            ("ratelimit_hours", "workspace_id, namespace_id, identifier, passed")
        }
    }
}

impl ClickHouse {
    /// Writes the hours of a day, from the events that had been delivered when it was claimed.
    pub async fn sum_up_day(&self, kind: EventKind, day: &DayRollup) -> Result<()> {
        let (table, columns) = hours(kind);
        let (events, amount) = (kind.table(), kind.amount());
        let (from, until) = (day.day.0, RollupUnit::Day.next(day.day).0);
        let (buckets, bucket_counts) = (BUCKETS.join(", "), buckets_of_events().join(", "));
        let (delivery, counts) = (day.delivery, counts(&day.delivered));
        self.run_for(
            &format!(
                "INSERT INTO {table}
                    (time, {columns}, count, {amount}, latency_us, {buckets}, delivery)
                SELECT intDiv(time, 3600000) * 3600000 AS hour, {columns}, toInt64(count()),
                    sum({amount}), sum(latency_us), {bucket_counts}, toInt64({delivery})
                FROM {events}
                WHERE time >= {from} AND time < {until} AND {counts}
                GROUP BY hour, {columns}"
            ),
            DAY_TIMEOUT,
        )
        .await
    }

    /// Drops the events of days that ended before a time.
    pub async fn drop_events(&self, kind: EventKind, before: Timestamp) -> Result<()> {
        self.drop_parts(kind.table(), DAY_MS, before).await
    }

    /// Drops hours that ended before a time, thirty days at once.
    pub async fn drop_hours(&self, kind: EventKind, before: Timestamp) -> Result<()> {
        self.drop_parts(hours(kind).0, HOURS_PARTITION_MS, before).await
    }

    async fn drop_parts(&self, table: &str, span_ms: i64, before: Timestamp) -> Result<()> {
        let end = before.0.div_euclid(span_ms) * span_ms;
        let sql = format!(
            "SELECT DISTINCT intDiv(time, {span_ms}) AS part FROM {table} WHERE time < {end}"
        );
        for (part,) in self.rows::<(i64,)>(&sql, &[]).await? {
            self.run(&format!("ALTER TABLE {table} DROP PARTITION {part}")).await?;
        }
        Ok(())
    }

    /// Requests the deletion of the rows of deliveries, which takes time. Returns those deliveries that still had
    /// rows.
    pub async fn delete_deliveries(&self, ids: &[i64]) -> Result<Vec<i64>> {
        let mut remaining = Vec::new();
        let list = ids.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
        for kind in EventKind::ALL {
            for table in [kind.table(), hours(kind).0] {
                let sql =
                    format!("SELECT DISTINCT delivery FROM {table} WHERE delivery IN ({list})");
                let found: Vec<(i64,)> = self.rows(&sql, &[]).await?;
                if !found.is_empty() {
                    self.run(&format!("ALTER TABLE {table} DELETE WHERE delivery IN ({list})"))
                        .await?;
                }
                remaining.extend(found.into_iter().map(|(id,)| id));
            }
        }
        Ok(remaining)
    }
}

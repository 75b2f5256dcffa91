//! Rolls up days that are over by hour, and drops data past its retention.

use foundation::clock::{DAY_MS, Timestamp};
use foundation::model::{EventKind, RollupUnit};

use super::source::{
    HISTOGRAM_COLUMNS, delivery_condition, event_bucket_columns, event_bucket_sql,
};
use super::{ClickHouse, ClickHouseError, DAY_TIMEOUT};
use crate::events::BUCKET_COLUMNS;
use crate::outbox::DayRollup;

type Result<T> = std::result::Result<T, ClickHouseError>;

/// The time span of a partition in the tables of hours.
const HOURS_PARTITION_MS: i64 = 30 * DAY_MS;

/// Returns the table of hours, and its dimensions besides the hour.
fn hour_table(kind: EventKind) -> (&'static str, &'static str) {
    match kind {
        EventKind::Verifications => (
            "verification_hours",
            "workspace_id, api_id, key_id, identity_id, external_id, outcome, tags, region",
        ),
        EventKind::Ratelimits => {
            ("ratelimit_hours", "workspace_id, namespace_id, identifier, passed")
        }
    }
}

impl ClickHouse {
    /// Writes the hours of a day, from the events that had been delivered when it was claimed.
    pub async fn roll_up_day(&self, kind: EventKind, day: &DayRollup) -> Result<()> {
        let (table, columns) = hour_table(kind);
        let (events, amount) = (kind.table_name(), kind.amount_column());
        let (from, until) = (day.day.0, RollupUnit::Day.start_of_next(day.day).0);
        let (buckets, bucket_counts) =
            (BUCKET_COLUMNS.join(", "), event_bucket_columns().join(", "));
        let histogram_columns = HISTOGRAM_COLUMNS.join(", ");
        let histogram = format!("sumMap([{}], [toInt64(1)])", event_bucket_sql());
        let histogram = [1, 2].map(|part| format!("tupleElement({histogram}, {part})")).join(", ");
        let (delivery, counts) = (day.delivery, delivery_condition(&day.delivery_snapshot));
        self.execute_with_timeout(
            &format!(
                "INSERT INTO {table}
                    (time, {columns}, count, {amount}, latency_us, {buckets}, {histogram_columns}, delivery)
                SELECT intDiv(time, 3600000) * 3600000 AS hour, {columns}, toInt64(count()),
                    sum({amount}), sum(latency_us), {bucket_counts}, {histogram}, toInt64({delivery})
                FROM {events}
                WHERE time >= {from} AND time < {until} AND {counts}
                GROUP BY hour, {columns}"
            ),
            DAY_TIMEOUT,
        )
        .await
    }

    /// Drops the events of days that ended before a time.
    pub async fn drop_event_partitions(&self, kind: EventKind, before: Timestamp) -> Result<()> {
        self.drop_partitions(kind.table_name(), DAY_MS, before).await
    }

    /// Drops hours that ended before a time, thirty days at once.
    pub async fn drop_hour_partitions(&self, kind: EventKind, before: Timestamp) -> Result<()> {
        self.drop_partitions(hour_table(kind).0, HOURS_PARTITION_MS, before).await
    }

    async fn drop_partitions(&self, table: &str, span_ms: i64, before: Timestamp) -> Result<()> {
        let end = before.0.div_euclid(span_ms) * span_ms;
        let sql = format!(
            "SELECT DISTINCT intDiv(time, {span_ms}) AS part FROM {table} WHERE time < {end}"
        );
        for (part,) in self.fetch_rows::<(i64,)>(&sql, &[]).await? {
            self.execute(&format!("ALTER TABLE {table} DROP PARTITION {part}")).await?;
        }
        Ok(())
    }

    /// Requests the deletion of the rows of deliveries, which takes time. Returns those deliveries that still had
    /// rows.
    pub async fn delete_deliveries(&self, ids: &[i64]) -> Result<Vec<i64>> {
        let mut remaining = Vec::new();
        let list = ids.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
        for kind in EventKind::ALL {
            for table in [kind.table_name(), hour_table(kind).0] {
                let sql =
                    format!("SELECT DISTINCT delivery FROM {table} WHERE delivery IN ({list})");
                let found: Vec<(i64,)> = self.fetch_rows(&sql, &[]).await?;
                if !found.is_empty() {
                    self.execute(&format!("ALTER TABLE {table} DELETE WHERE delivery IN ({list})"))
                        .await?;
                }
                remaining.extend(found.into_iter().map(|(id,)| id));
            }
        }
        Ok(remaining)
    }
}

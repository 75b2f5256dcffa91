//! Builds the source of rollups in ClickHouse: the hours of days that are rolled up, and the events since.

use std::fmt::Write as _;

use foundation::clock::Timestamp;
use foundation::model::{DeliverySnapshot, EventKind, RollupUnit};

use crate::events::LATENCY_BUCKETS_US;

/// Returns the condition for the rows that count.
pub fn delivery_condition(delivered: &DeliverySnapshot) -> String {
    let mut condition = format!("delivery <= {}", delivered.last_delivery);
    if !delivered.void_deliveries.is_empty() {
        let void: Vec<_> = delivered.void_deliveries.iter().map(ToString::to_string).collect();
        let _ = write!(condition, " AND delivery NOT IN ({})", void.join(", "));
    }
    condition
}

/// Returns the SQL for the start of the unit that contains the time in a column.
fn unit_start_sql(unit: RollupUnit, column: &str) -> String {
    match unit {
        RollupUnit::Minute => format!("intDiv({column}, 60000) * 60000"),
        RollupUnit::Hour => format!("intDiv({column}, 3600000) * 3600000"),
        RollupUnit::Day => format!("intDiv({column}, 86400000) * 86400000"),
        RollupUnit::Month => format!(
            "toInt64(toUnixTimestamp(toDateTime(toStartOfMonth(toDateTime(intDiv({column}, 1000), 'UTC')), 'UTC'))) * 1000"
        ),
    }
}

/// Returns the SQL for the number of events in each of [`LATENCY_BUCKETS_US`].
pub fn event_bucket_columns() -> [String; 6] {
    let mut above = None;
    LATENCY_BUCKETS_US.map(|end| {
        let from = above.map_or_else(String::new, |above| format!("latency_us > {above} AND "));
        above = Some(end);
        format!("toInt64(countIf({from}latency_us <= {end}))")
    })
}

/// The columns of [`LATENCY_BUCKETS_US`].
pub const BUCKET_COLUMNS: [&str; 6] = [
    "latency_le_100us",
    "latency_le_500us",
    "latency_le_1ms",
    "latency_le_5ms",
    "latency_le_25ms",
    "latency_le_100ms",
];

/// A source of rollups of one unit.
pub struct RollupSource<'a> {
    pub kind: EventKind,
    pub unit: RollupUnit,
    pub delivery_snapshot: &'a DeliverySnapshot,
    /// The columns to group by.
    pub columns: &'a str,
    /// The condition for the rows, on columns that both tables have.
    pub condition: &'a str,
    pub from: Timestamp,
    /// Includes only units that begin before this time.
    pub until: Timestamp,
}

impl RollupSource<'_> {
    /// Returns a query for `at` (the start of the unit), the columns, `n` (the number of events), `spent`
    /// (credits; 0 for limit checks), `took` (microseconds) and the buckets as `b0` to `b5`: from the hours of days that
    /// are rolled up, and the events since. An event belongs to the unit that contains it. No alias is the name of a column: ClickHouse would
    /// mistake one for the other.
    pub fn build_sql(&self) -> String {
        let Self { kind, unit, columns, condition, delivery_snapshot: delivered, .. } = self;
        let (events, hours, spent) = match kind {
            EventKind::Verifications => {
                ("verifications", "verification_hours", "sum(spent_credits)")
            }
            EventKind::Ratelimits => ("ratelimits", "ratelimit_hours", "toInt64(0)"),
        };
        let at = unit_start_sql(*unit, "time");
        let (from, until) = (self.first_unit_start(), self.last_unit_end());
        let counts = delivery_condition(delivered);
        let with_alias = |(index, sum): (usize, String)| format!("{sum} AS b{index}");
        let event_buckets = event_bucket_columns().into_iter().enumerate().map(with_alias);
        let event_buckets = event_buckets.collect::<Vec<_>>().join(", ");
        let hour_buckets =
            BUCKET_COLUMNS.map(|bucket| format!("sum({bucket})")).into_iter().enumerate();
        let hour_buckets = hour_buckets.map(with_alias).collect::<Vec<_>>().join(", ");
        // Hours cannot be divided into minutes.
        let rolled_up_until = match unit {
            RollupUnit::Minute => 0,
            RollupUnit::Hour | RollupUnit::Day | RollupUnit::Month => delivered.rolled_up_until_ms,
        };
        let since = from.max(rolled_up_until);
        let mut sql = format!(
            "SELECT {at} AS at, {columns}, toInt64(count()) AS n, {spent} AS spent, sum(latency_us) AS took,
                {event_buckets}
            FROM {events}
            WHERE {condition} AND time >= {since} AND time < {until} AND {counts}
            GROUP BY at, {columns}"
        );
        if from < rolled_up_until {
            let until = until.min(rolled_up_until);
            let _ = write!(
                sql,
                " UNION ALL SELECT {at} AS at, {columns}, sum(count) AS n, {spent} AS spent, sum(latency_us) AS took,
                    {hour_buckets}
                FROM {hours}
                WHERE {condition} AND time >= {from} AND time < {until} AND {counts}
                GROUP BY at, {columns}"
            );
        }
        sql
    }

    /// Returns the start of the first unit that begins at `from` or later.
    fn first_unit_start(&self) -> i64 {
        let begin = self.unit.start_of(self.from);
        if begin == self.from { begin.0 } else { self.unit.start_of_next(begin).0 }
    }

    /// Returns the end of the last unit that begins before `until`.
    fn last_unit_end(&self) -> i64 {
        let last = self.unit.start_of(self.until.plus_ms(-1));
        self.unit.start_of_next(last).0
    }
}

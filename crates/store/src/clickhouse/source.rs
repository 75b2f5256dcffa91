//! Builds the source of rollups in ClickHouse: the hours of days that are rolled up, and the events since.

use std::fmt::Write as _;

use foundation::clock::Timestamp;
use foundation::model::{DeliverySnapshot, EventKind, RollupUnit};

use crate::events::{BUCKET_COLUMNS, LATENCY_BUCKETS_US, bucket_of, buckets_of_older_versions};

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

/// The columns of hours with the histogram of their latencies: its buckets, and the number of latencies in each. Empty where an
/// older version has written the hour.
pub const HISTOGRAM_COLUMNS: [&str; 2] = ["latency_buckets", "latency_counts"];

/// Returns the SQL for the bucket of an event's latency, as [`crate::events::bucket_of`].
pub fn event_bucket_sql() -> String {
    let last = bucket_of(i64::MAX);
    format!("toUInt8(least({last}, ceil(log2(greatest(latency_us, 1)) * 8)))")
}

/// Returns the SQL for the buckets of an hour, and for the number of latencies in each.
fn hour_histogram_sql() -> [String; 2] {
    let [buckets, counts] = HISTOGRAM_COLUMNS;
    let older_buckets = buckets_of_older_versions().map(|bucket| bucket.to_string()).join(", ");
    let (within, beyond) = (BUCKET_COLUMNS.join(", "), BUCKET_COLUMNS.join(" - "));
    let either = |older: &str, column| format!("if(empty({buckets}), [{older}], {column})");
    [either(&older_buckets, buckets), either(&format!("{within}, count - {beyond}"), counts)]
}

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
    /// (credits; 0 for limit checks) and `took` (microseconds): from the hours of days that
    /// are rolled up, and the events since. An event belongs to the unit that contains it. No alias is the name of a column: ClickHouse would
    /// mistake one for the other.
    pub fn build_sql(&self) -> String {
        let columns = self.columns;
        let spent = match self.kind {
            EventKind::Verifications => "sum(spent_credits)",
            EventKind::Ratelimits => "toInt64(0)",
        };
        let sums = |count: &str| {
            (columns.to_owned(), format!("{count} AS n, {spent} AS spent, sum(latency_us) AS took"))
        };
        self.union(sums("toInt64(count())"), "", sums("sum(count)"))
    }

    /// Returns a query for `at`, `bucket` (of a histogram of latencies) and `n` (the number of latencies in it), from
    /// the same rows.
    pub fn build_latencies_sql(&self) -> String {
        let of_events =
            (format!("{} AS bucket", event_bucket_sql()), "toInt64(count()) AS n".into());
        let [buckets, counts] = hour_histogram_sql();
        let join = format!(" ARRAY JOIN {buckets} AS bucket, {counts} AS number");
        self.union(of_events, &join, ("bucket".into(), "sum(number) AS n".into()))
    }

    /// Returns a query for `at`, dimensions and sums of the events, and of the hours with what is joined to them.
    fn union(&self, of_events: (String, String), join: &str, of_hours: (String, String)) -> String {
        let Self { kind, unit, condition, delivery_snapshot: delivered, .. } = self;
        let (events, hours) = match kind {
            EventKind::Verifications => ("verifications", "verification_hours"),
            EventKind::Ratelimits => ("ratelimits", "ratelimit_hours"),
        };
        let at = unit_start_sql(*unit, "time");
        let (from, until) = (self.first_unit_start(), self.last_unit_end());
        let counts = delivery_condition(delivered);
        // Hours cannot be divided into minutes.
        let rolled_up_until = match unit {
            RollupUnit::Minute => 0,
            RollupUnit::Hour | RollupUnit::Day | RollupUnit::Month => delivered.rolled_up_until_ms,
        };
        let since = from.max(rolled_up_until);
        let select = |(dimensions, sums): (String, String), source: &str, from, until| {
            let names = dimensions.rsplit(" AS ").next().unwrap_or_default();
            format!(
                "SELECT {at} AS at, {dimensions}, {sums}
                FROM {source}
                WHERE {condition} AND time >= {from} AND time < {until} AND {counts}
                GROUP BY at, {names}"
            )
        };
        let mut sql = select(of_events, events, since, until);
        if from < rolled_up_until {
            let until = until.min(rolled_up_until);
            let of_hours = select(of_hours, &format!("{hours}{join}"), from, until);
            let _ = write!(sql, " UNION ALL {of_hours}");
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

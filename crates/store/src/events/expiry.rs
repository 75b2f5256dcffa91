//! Defines which rows are past their retention.

use std::iter::once;

use foundation::clock::{DAY_MS, HOUR_MS, Timestamp};
use foundation::model::{EventKind, Retention, RollupUnit};

/// When the events of one kind and their rollups are past their retention.
#[derive(Debug, Clone, Copy)]
pub struct EventExpiry {
    pub kind: EventKind,
    pub retention: Retention,
    /// The time from which the retention counts back.
    pub time: Timestamp,
    /// The time of the first event that is not rolled up, if there is one.
    pub first_pending_at: Option<Timestamp>,
}

/// Rows of one table that are past their retention.
#[derive(Debug)]
pub struct ExpiredRows {
    pub(crate) table: String,
    /// SQL without values.
    pub(crate) condition: String,
    /// Sorts the rows as an index has them; empty if there is none.
    pub(crate) order: &'static str,
}

impl EventExpiry {
    /// Returns the time before which events may be deleted: all of them are past their retention and rolled up.
    pub fn events_before(&self) -> Timestamp {
        let before = self.time.plus_ms(-i64::from(self.retention.raw_days) * DAY_MS);
        self.first_pending_at.map_or(before, |pending| pending.min(before))
    }

    /// Returns the time before which rollups of a unit are past their retention.
    pub fn rollups_before(&self, unit: RollupUnit) -> Timestamp {
        self.time.plus_ms(-i64::from(self.retention.rollup_days(unit)) * DAY_MS)
    }

    /// Returns the rows that are past their retention. Whole partitions of them are dropped faster.
    pub fn rows(&self) -> Vec<ExpiredRows> {
        let events = self.kind.table_name();
        let totals = match self.kind {
            EventKind::Verifications => "verification_totals",
            EventKind::Ratelimits => "ratelimit_totals",
        };
        let mut rows = self.event_rows();
        for unit in RollupUnit::ALL {
            let (name, before) = (unit.as_str(), self.rollups_before(unit).0);
            let of_unit = format!("unit = '{name}' AND time < {before}");
            rows.extend([
                ExpiredRows::by_time(&format!("{events}_per_{name}"), format!("time < {before}")),
                ExpiredRows::by_time("latencies", format!("kind = '{events}' AND {of_unit}")),
                ExpiredRows::by_time(totals, of_unit),
            ]);
        }
        rows
    }

    /// Returns the expired events: of earlier days, and by the hour those of the day in which the retention ends. In
    /// Postgres, the index by time finds the pages of deleted events too, which each statement reads again.
    fn event_rows(&self) -> Vec<ExpiredRows> {
        let before = self.events_before().0;
        let day = RollupUnit::Day.start_of(self.events_before()).0;
        let starts = (0..24).map(|hour| day + hour * HOUR_MS);
        let hours = starts.take_while(|start| *start < before).map(|start| {
            let end = before.min(start + HOUR_MS);
            format!("time >= {start} AND time < {end}")
        });
        let rows = |condition| ExpiredRows {
            table: self.kind.table_name().to_owned(),
            condition,
            order: "",
        };
        once(format!("time < {day}")).chain(hours).map(rows).collect()
    }
}

impl ExpiredRows {
    /// Returns the batches that are rolled up and have no event at a time or later.
    pub fn of_batches(before: Timestamp) -> Self {
        let condition = format!("summed AND last_at < {}", before.0);
        Self { table: "batches".to_owned(), condition, order: "" }
    }

    /// Returns the series that were last written to before a time.
    pub fn of_series(before: Timestamp) -> [Self; 2] {
        ["verification_series", "ratelimit_series"].map(|table| Self {
            table: table.to_owned(),
            condition: format!("seen_at < {}", before.0),
            order: "ORDER BY seen_at",
        })
    }

    fn by_time(table: &str, condition: String) -> Self {
        Self { table: table.to_owned(), condition, order: "ORDER BY time" }
    }
}

//! Defines analytics events: their kinds, the units of their rollups, and their retention.

use jiff::tz::TimeZone;
use jiff::{ToSpan as _, Zoned};

use crate::clock::{DAY_MS, HOUR_MS, MINUTE_MS, Timestamp};

/// The unit of a rollup, in UTC.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum RollupUnit {
    Minute,
    /// The finest unit whose rollups are stored as long as any.
    #[default]
    Hour,
    Day,
    Month,
}

impl RollupUnit {
    pub const ALL: [Self; 4] = [Self::Minute, Self::Hour, Self::Day, Self::Month];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Minute => "minute",
            Self::Hour => "hour",
            Self::Day => "day",
            Self::Month => "month",
        }
    }

    /// Returns the length of the unit, or `None` if it varies.
    fn length_ms(self) -> Option<i64> {
        match self {
            Self::Minute => Some(MINUTE_MS),
            Self::Hour => Some(HOUR_MS),
            Self::Day => Some(DAY_MS),
            Self::Month => None,
        }
    }

    /// Returns the start of the unit that contains a moment.
    pub fn start_of(self, at: Timestamp) -> Timestamp {
        match self.length_ms() {
            Some(length_ms) => Timestamp(at.0 - at.0.rem_euclid(length_ms)),
            None => first_of_month(at).map_or(at, |first| timestamp_from_zoned(&first)),
        }
    }

    /// Returns the start of the next unit.
    pub fn start_of_next(self, at: Timestamp) -> Timestamp {
        match self.length_ms() {
            Some(length_ms) => self.start_of(at).plus_ms(length_ms),
            None => {
                let next = first_of_month(at).and_then(|first| first.checked_add(1.month()).ok());
                next.map_or(at.plus_ms(DAY_MS), |next| timestamp_from_zoned(&next))
            }
        }
    }
}

/// Returns the first of the month, or `None` beyond the end of the calendar.
fn first_of_month(at: Timestamp) -> Option<Zoned> {
    let at = jiff::Timestamp::from_millisecond(at.0).ok()?.to_zoned(TimeZone::UTC);
    at.first_of_month().and_then(|day| day.start_of_day()).ok()
}

fn timestamp_from_zoned(at: &Zoned) -> Timestamp {
    Timestamp(at.timestamp().as_millisecond())
}

/// The retention of the events of one kind, in days: of single events, and of rollups by unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Retention {
    pub raw_days: u32,
    pub minute_days: u32,
    pub hour_days: u32,
    pub day_days: u32,
    pub month_days: u32,
}

impl Retention {
    /// Returns the retention of the rollups of a unit.
    pub fn rollup_days(&self, unit: RollupUnit) -> u32 {
        match unit {
            RollupUnit::Minute => self.minute_days,
            RollupUnit::Hour => self.hour_days,
            RollupUnit::Day => self.day_days,
            RollupUnit::Month => self.month_days,
        }
    }

    /// Returns the longest of the retentions.
    pub fn longest_days(&self) -> u32 {
        let Self {
            raw_days: raw,
            minute_days: minute,
            hour_days: hour,
            day_days: day,
            month_days: month,
        } = *self;
        [raw, minute, hour, day, month].into_iter().max().unwrap_or(raw)
    }
}

/// The two kinds of events, each with its own tables.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EventKind {
    Verifications,
    Ratelimits,
}

impl EventKind {
    pub const ALL: [Self; 2] = [Self::Verifications, Self::Ratelimits];

    /// Returns the table of single events. The names of the rollup tables begin with it.
    pub fn table_name(self) -> &'static str {
        match self {
            Self::Verifications => "verifications",
            Self::Ratelimits => "ratelimits",
        }
    }

    /// Returns the column that is summed in addition to the number of events.
    pub fn amount_column(self) -> &'static str {
        match self {
            Self::Verifications => "spent_credits",
            Self::Ratelimits => "tokens",
        }
    }
}

/// The retention of events by kind.
#[derive(Debug, Clone, Copy)]
pub struct RetentionSettings {
    pub verifications: Retention,
    pub ratelimits: Retention,
}

impl RetentionSettings {
    pub fn for_kind(&self, kind: EventKind) -> &Retention {
        match kind {
            EventKind::Verifications => &self.verifications,
            EventKind::Ratelimits => &self.ratelimits,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn month_starts_at_midnight_of_its_first_day() {
        let beginning = |at| RollupUnit::Month.start_of(Timestamp(at)).0;

        assert_eq!(beginning(1_773_144_000_000), 1_772_323_200_000);
        assert_eq!(beginning(1_772_323_200_000), 1_772_323_200_000);
        assert_eq!(beginning(1_772_323_199_999), 1_769_904_000_000);
        assert_eq!(
            RollupUnit::Month.start_of_next(Timestamp(1_772_323_199_999)).0,
            1_772_323_200_000
        );
    }

    #[test]
    fn every_moment_is_between_a_start_and_the_next() {
        for unit in RollupUnit::ALL {
            for at in [-1, 0, 1, 59_999, 60_000, 1_773_144_000_001, 253_402_300_799_999] {
                let (first, next) =
                    (unit.start_of(Timestamp(at)).0, unit.start_of_next(Timestamp(at)).0);

                assert!(first <= at && at < next, "{unit:?} of {at}: {first} to {next}");
            }
        }
    }
}

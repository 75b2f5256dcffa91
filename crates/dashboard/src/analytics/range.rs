//! The time range of a chart and its unit.

use foundation::clock::{DAY_MS, HOUR_MS, Timestamp};
use foundation::model::RollupUnit;
use jiff::civil::Date;
use jiff::tz::TimeZone;

use super::super::form::Form;

/// Limits the length of a time range, in days.
const DAYS_MAX: i64 = 400;

/// The relative time ranges: form value, label, length in milliseconds, unit.
const RANGES: [(&str, &str, i64, RollupUnit); 6] = [
    ("hour", "Last hour", HOUR_MS, RollupUnit::Minute),
    ("day", "Last 24 hours", DAY_MS, RollupUnit::Hour),
    ("week", "Last 7 days", 7 * DAY_MS, RollupUnit::Hour),
    ("month", "Last 30 days", 30 * DAY_MS, RollupUnit::Day),
    ("quarter", "Last 90 days", 90 * DAY_MS, RollupUnit::Day),
    ("year", "Last 12 months", 365 * DAY_MS, RollupUnit::Month),
];

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TimeRange {
    pub from: Timestamp,
    /// The exclusive end.
    pub until: Timestamp,
    pub unit: RollupUnit,
    /// The first day, as submitted.
    pub from_text: String,
    /// The last day, as submitted.
    pub until_text: String,
    selected: &'static str,
}

/// Parses a date and returns its start in UTC. The error names the field.
pub fn parse_day(name: &str, text: &str) -> Result<Timestamp, String> {
    let date: Date =
        text.parse().map_err(|_| format!("{name} must be a date such as 2026-03-31"))?;
    let start = date.to_zoned(TimeZone::UTC).map_err(|e| e.to_string())?;
    Ok(Timestamp(start.timestamp().as_millisecond()))
}

/// Returns the text if it is a valid date, else an empty text: a browser's date field cannot show anything else.
pub fn valid_date_or_empty(text: String) -> String {
    if text.parse::<Date>().is_ok() { text } else { String::new() }
}

impl TimeRange {
    /// Creates a relative range up to now. An unknown name means the last 24 hours.
    pub fn relative(name: &str, now: Timestamp) -> Self {
        let known = RANGES.iter().find(|(known, ..)| *known == name).unwrap_or(&RANGES[1]);
        let (chosen, _, length_ms, unit) = *known;
        // Includes the current unit.
        let until = unit.start_of_next(now);
        Self {
            from: until.plus_ms(-length_ms),
            until,
            unit,
            from_text: String::new(),
            until_text: String::new(),
            selected: chosen,
        }
    }

    /// Reads the range from a form. The second value is the error of invalid dates; the range then is the relative one.
    pub fn from_form(form: &Form, now: Timestamp) -> (Self, Option<String>) {
        let last = Self::relative(form.text("range"), now);
        let (from_text, until_text) = (form.text("from").trim(), form.text("until").trim());
        if from_text.is_empty() && until_text.is_empty() {
            return (last, None);
        }
        let (from_text, until_text) = (from_text.to_owned(), until_text.to_owned());
        match Self::parse_dates(&from_text, &until_text, now) {
            Ok((from, until)) => {
                let unit = match until.0 - from.0 {
                    length if length <= 8 * DAY_MS => RollupUnit::Hour,
                    length if length <= 100 * DAY_MS => RollupUnit::Day,
                    _ => RollupUnit::Month,
                };
                (Self { from, until, unit, from_text, until_text, selected: "" }, None)
            }
            Err(fault) => {
                let (from_text, until_text) =
                    (valid_date_or_empty(from_text), valid_date_or_empty(until_text));
                (Self { from_text, until_text, ..last }, Some(fault))
            }
        }
    }

    /// Returns the start and the exclusive end of a range of whole days in UTC, including the last day.
    fn parse_dates(
        from: &str,
        until: &str,
        now: Timestamp,
    ) -> Result<(Timestamp, Timestamp), String> {
        let until = match until {
            "" => RollupUnit::Day.start_of_next(now),
            text => parse_day("End date", text)?.plus_ms(DAY_MS),
        };
        let from = match from {
            "" => until.plus_ms(-30 * DAY_MS),
            text => parse_day("Start date", text)?,
        };
        if from >= until {
            return Err("Start date must not be after end date".into());
        }
        if until.0 - from.0 > DAYS_MAX * DAY_MS {
            return Err(format!("Select at most {DAYS_MAX} days"));
        }
        Ok((from, until))
    }

    /// Returns the unit of the rollups to add up when the result is not grouped by time: as coarse as possible.
    pub fn rollup_unit(&self) -> RollupUnit {
        match self.unit {
            RollupUnit::Minute => RollupUnit::Minute,
            RollupUnit::Hour => RollupUnit::Hour,
            RollupUnit::Day | RollupUnit::Month => RollupUnit::Day,
        }
    }

    /// Returns the options: form value, label, whether it is selected.
    pub fn options(&self) -> Vec<(&'static str, &'static str, bool)> {
        RANGES.iter().map(|(value, label, ..)| (*value, *label, *value == self.selected)).collect()
    }

    /// Returns the label of a unit, by its start.
    pub fn format_label(&self, at: Timestamp) -> String {
        let format = match self.unit {
            RollupUnit::Minute => "%H:%M",
            RollupUnit::Hour if self.until.0 - self.from.0 <= DAY_MS => "%H:%M",
            RollupUnit::Hour => "%b %-d %H:%M",
            RollupUnit::Day => "%b %-d",
            RollupUnit::Month => "%b %Y",
        };
        let stamp = jiff::Timestamp::from_millisecond(at.0).unwrap_or_default();
        stamp.strftime(format).to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 2026-03-31 10:20 UTC.
    const NOW: Timestamp = Timestamp(1_774_952_400_000);

    fn read(query: &str) -> (TimeRange, Option<String>) {
        TimeRange::from_form(&Form::parse(query.as_bytes()), NOW)
    }

    #[test]
    fn relative_range_includes_current_unit() {
        let (range, fault) = read("range=day");

        assert_eq!(fault, None);
        assert_eq!(range.format_label(range.from), "11:00");
        assert_eq!(range.format_label(range.until.plus_ms(-1)), "10:59");
        assert_eq!(read("range=nonsense").0, range);
        assert_eq!(read("range=hour").0.unit, RollupUnit::Minute);
    }

    #[test]
    fn date_range_includes_whole_days_and_derives_unit_from_length() {
        let length = |query: &str| {
            let (range, fault) = read(query);
            assert_eq!(fault, None, "{query}");
            ((range.until.0 - range.from.0) / DAY_MS, range.unit)
        };

        assert_eq!(length("from=2026-03-31&until=2026-03-31"), (1, RollupUnit::Hour));
        assert_eq!(length("from=2026-03-24&until=2026-03-31"), (8, RollupUnit::Hour));
        assert_eq!(length("from=2026-03-23"), (9, RollupUnit::Day));
        assert_eq!(length("until=2026-02-28"), (30, RollupUnit::Day));
        assert_eq!(length("from=2025-02-25&until=2026-03-31"), (400, RollupUnit::Month));
    }

    #[test]
    fn range_falls_back_to_last_day_when_dates_are_invalid() {
        for (query, fault) in [
            ("from=yesterday", "Start date must be a date such as 2026-03-31"),
            ("until=2026-02-30", "End date must be a date such as 2026-03-31"),
            ("from=2026-03-31&until=2026-03-30", "Start date must not be after end date"),
            ("from=2025-02-24&until=2026-03-31", "Select at most 400 days"),
        ] {
            let (range, found) = read(query);
            assert_eq!(found.as_deref(), Some(fault));
            assert_eq!(range.unit, RollupUnit::Hour);
        }
    }
}

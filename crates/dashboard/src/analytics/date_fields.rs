//! Reads the start and the end of a time range from the fields of a form.
//!
//! A field contains a date, or a time to the minute, such as those of a period that was selected in a chart. Both are UTC.

use foundation::clock::{DAY_MS, HOUR_MS, Timestamp};
use foundation::model::RollupUnit;
use jiff::civil::{Date, DateTime};
use jiff::tz::TimeZone;

use super::super::format::format_minute;
use super::range::{Period, is_day_start};

/// The error of a custom range that has neither a start nor an end.
pub const NO_DATES: &str = "Custom needs a start date or an end date";
/// The error of a range whose days are in the wrong order.
pub const REVERSED_DATES: &str = "Start date must not be after end date";

/// Limits the length of a time range, in days.
const DAYS_MAX: i64 = 400;
/// Limits the length of a range whose bars are minutes.
const MINUTES_RANGE_MS: i64 = 3 * HOUR_MS;

/// Parses a date and returns its start in UTC. The error names the field.
pub fn parse_day(name: &str, text: &str) -> Result<Timestamp, String> {
    let date: Date =
        text.parse().map_err(|_| format!("{name} must be a date such as 2026-03-31"))?;
    to_timestamp(date.to_datetime(jiff::civil::Time::midnight()))
}

/// Returns a valid date as a browser's date field can show it, and an empty text for anything else.
pub fn valid_date_or_empty(text: &str) -> String {
    text.parse::<Date>().map_or_else(|_| String::new(), |date| date.to_string())
}

/// Parses a period between two fields, and returns it with the unit of its bars. An empty end means the end of today,
/// an empty start 30 days before the end. A period with times is extended to whole units, but not to whole months.
pub fn parse_period(
    from: &str,
    until: &str,
    now: Timestamp,
) -> Result<(Period, RollupUnit), String> {
    let until_at = match until {
        "" => RollupUnit::Day.start_of_next(now),
        text if is_time(text) => parse_time("End date", text)?,
        text => parse_day("End date", text)?.plus_ms(DAY_MS),
    };
    let from_at = match from {
        "" => until_at.plus_ms(-30 * DAY_MS),
        text if is_time(text) => parse_time("Start date", text)?,
        text => parse_day("Start date", text)?,
    };
    if from_at >= until_at {
        return Err(match is_time(from) || is_time(until) {
            true => "Start date must be before end date".into(),
            false => REVERSED_DATES.into(),
        });
    }
    let period = Period { from: from_at, until: until_at };
    let unit = match period.length_ms() {
        length if length <= MINUTES_RANGE_MS => RollupUnit::Minute,
        length if length <= 8 * DAY_MS => RollupUnit::Hour,
        length if length <= 100 * DAY_MS => RollupUnit::Day,
        _ => RollupUnit::Month,
    };
    let period = extend(period, unit.min(RollupUnit::Day));
    if period.length_ms() > DAYS_MAX * DAY_MS {
        return Err(format!("Select at most {DAYS_MAX} days"));
    }
    Ok((period, unit))
}

/// Extends a period to whole units.
pub fn extend(period: Period, unit: RollupUnit) -> Period {
    let end = unit.start_of(period.until);
    let until = if end == period.until { end } else { unit.start_of_next(end) };
    Period { from: unit.start_of(period.from), until }
}

/// Returns the texts of the fields: as submitted, or those of the period if a time was submitted. Texts that a field of
/// a browser cannot show are left out.
pub fn format_fields(from: &str, until: &str, period: Option<Period>) -> (String, String) {
    let has_time = is_time(from) || is_time(until);
    let Some(period) = period.filter(|_| has_time) else {
        return (valid_or_empty(from), valid_or_empty(until));
    };
    let (from_text, until_text) = match is_day_start(period.from) && is_day_start(period.until) {
        true => (format_day(period.from), format_day(period.until.plus_ms(-DAY_MS))),
        false => (format_minute(period.from), format_minute(period.until)),
    };
    let unless_empty = |submitted: &str, text| match submitted {
        "" => String::new(),
        _ => text,
    };
    (unless_empty(from, from_text), unless_empty(until, until_text))
}

/// Returns whether a field contains a time, and not only a date.
fn is_time(text: &str) -> bool {
    text.contains('T')
}

fn parse_time(name: &str, text: &str) -> Result<Timestamp, String> {
    let parsed: Result<DateTime, _> = text.parse();
    to_timestamp(parsed.map_err(|_| format!("{name} must be a time such as 2026-03-31T10:20"))?)
}

fn valid_or_empty(text: &str) -> String {
    match is_time(text) {
        true if text.parse::<DateTime>().is_err() => String::new(),
        true => text.to_owned(),
        false => valid_date_or_empty(text),
    }
}

fn format_day(at: Timestamp) -> String {
    format_minute(at).split('T').next().unwrap_or_default().to_owned()
}

fn to_timestamp(time: DateTime) -> Result<Timestamp, String> {
    let time = time.to_zoned(TimeZone::UTC).map_err(|e| e.to_string())?;
    Ok(Timestamp(time.timestamp().as_millisecond()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 2026-03-31 10:20 UTC.
    const NOW: Timestamp = Timestamp(1_774_952_400_000);

    /// Returns the unit, and the fields that lead to the same period again.
    fn read(from: &str, until: &str) -> (RollupUnit, [String; 2]) {
        let (period, unit) = parse_period(from, until, NOW).expect("a period");
        let (from_text, until_text) = format_fields(from, until, Some(period));
        assert_eq!(
            parse_period(&from_text, &until_text, NOW),
            Ok((period, unit)),
            "{from_text} {until_text}"
        );
        (unit, [from_text, until_text])
    }

    #[test]
    fn period_between_times_is_extended_to_whole_units() {
        for (fields, unit, expected) in [
            // Three hours are shown by the minute, and more by the hour.
            (
                ["2026-03-31T07:20", "2026-03-31T10:20"],
                RollupUnit::Minute,
                ["2026-03-31T07:20", "2026-03-31T10:20"],
            ),
            (
                ["2026-03-31T07:19", "2026-03-31T10:20"],
                RollupUnit::Hour,
                ["2026-03-31T07:00", "2026-03-31T11:00"],
            ),
            (
                ["2026-03-31T07:20:30", "2026-03-31T07:20:31"],
                RollupUnit::Minute,
                ["2026-03-31T07:20", "2026-03-31T07:21"],
            ),
            (
                ["2026-03-31T10:00", "2026-03-31"],
                RollupUnit::Hour,
                ["2026-03-31T10:00", "2026-04-01T00:00"],
            ),
            (["2026-03-01T00:30", ""], RollupUnit::Day, ["2026-03-01", ""]),
            (
                ["2026-03-30T00:00", "2026-03-31T00:00"],
                RollupUnit::Hour,
                ["2026-03-30", "2026-03-30"],
            ),
            (
                ["2025-02-25T00:01", "2026-03-31T23:59"],
                RollupUnit::Month,
                ["2025-02-25", "2026-03-31"],
            ),
        ] {
            let (found, texts) = read(fields[0], fields[1]);
            assert_eq!(found, unit, "{fields:?}");
            assert_eq!(texts, expected, "{fields:?}");
        }
    }

    #[test]
    fn fields_show_only_what_a_browser_can_show() {
        for (submitted, shown) in [
            ("2026-03-31", "2026-03-31"),
            ("2026-03-31T10:20", "2026-03-31T10:20"),
            ("2026-03-31T25:20", ""),
            ("yesterday", ""),
            ("", ""),
        ] {
            assert_eq!(format_fields(submitted, "", None).0, shown, "{submitted}");
        }
    }
}

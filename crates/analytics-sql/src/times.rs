//! Parses times, adds to them, and truncates them to a unit. Constants are computed here, so that the engines get a
//! number and the time range of a query is known.

mod intervals;

use foundation::clock::{DAY_MS, HOUR_MS, MINUTE_MS};
use foundation::error::Result;
use jiff::civil::{Date, DateTime};
use jiff::tz::TimeZone;
use sqlparser::ast::{DataType, TypedString, Value};

pub use self::intervals::{add_interval, to_interval};
use super::functions::CallArguments;
use super::tables::Grain;
use super::types::{IntervalUnit, SqlDialect, Type, TypedExpr};
use super::{excerpt, invalid, type_domains, unsupported};

pub const SECOND_MS: i64 = 1_000;
const WEEK_MS: i64 = 7 * DAY_MS;
/// The distance of the first Sunday and the first Monday from the Unix epoch, which is a Thursday.
const SUNDAY_MS: i64 = 4 * DAY_MS;
const MONDAY_MS: i64 = 3 * DAY_MS;

/// Returns a template that divides whole numbers to a whole number: with `/` in every engine but ClickHouse.
pub fn integer_division(
    engine: SqlDialect,
    others: &'static str,
    clickhouse: &'static str,
) -> &'static str {
    engine.select([others, others, clickhouse])
}

/// Returns a time that is known before the query runs.
pub fn constant_time(at: i64, ty: Type) -> Result<TypedExpr> {
    if type_domains::is_valid_time(at) { Ok(TypedExpr::int(at, ty)) } else { reject_out_of_range() }
}

pub fn reject_out_of_range<T>() -> Result<T> {
    invalid("a time is out of range: times are from year 1 to year 9999")
}

/// Truncates a time to the start of its unit.
pub fn truncate(
    engine: SqlDialect,
    time: &TypedExpr,
    unit: IntervalUnit,
    week_begins_monday: bool,
) -> Result<TypedExpr> {
    if !time.ty.is_time() {
        return invalid(format!(
            "truncating to a {} requires a time, not {}; fromUnixTimestamp64Milli(…) converts Unix milliseconds",
            format!("{unit:?}").to_lowercase(),
            time.ty
        ));
    }
    let ty = match unit {
        IntervalUnit::Week | IntervalUnit::Month | IntervalUnit::Quarter | IntervalUnit::Year => {
            Type::Date
        }
        _ => Type::DateTime,
    };
    if let Some(at) = time.constant_int() {
        return match unit_start(at, unit, week_begins_monday) {
            Some(start) => Ok(TypedExpr::int(start, ty)),
            None => reject_out_of_range(),
        };
    }
    let mut start =
        TypedExpr::from_template(truncate_template(engine, unit, week_begins_monday), ty, &[time]);
    start.time_table = time.time_table;
    Ok(start)
}

fn truncate_template(
    engine: SqlDialect,
    unit: IntervalUnit,
    week_begins_monday: bool,
) -> &'static str {
    let whole = |others, clickhouse| integer_division(engine, others, clickhouse);
    match unit {
        IntervalUnit::Nanosecond | IntervalUnit::Microsecond | IntervalUnit::Millisecond => "{0}",
        IntervalUnit::Second => whole("({0} / 1000 * 1000)", "(intDiv({0}, 1000) * 1000)"),
        IntervalUnit::Minute => whole("({0} / 60000 * 60000)", "(intDiv({0}, 60000) * 60000)"),
        IntervalUnit::Hour => whole("({0} / 3600000 * 3600000)", "(intDiv({0}, 3600000) * 3600000)"),
        IntervalUnit::Day => whole("({0} / 86400000 * 86400000)", "(intDiv({0}, 86400000) * 86400000)"),
        IntervalUnit::Week if week_begins_monday => whole(
            "(({0} + 259200000) / 604800000 * 604800000 - 259200000)",
            "(intDiv({0} + 259200000, 604800000) * 604800000 - 259200000)",
        ),
        IntervalUnit::Week => whole(
            "(({0} + 345600000) / 604800000 * 604800000 - 345600000)",
            "(intDiv({0} + 345600000, 604800000) * 604800000 - 345600000)",
        ),
        IntervalUnit::Month => engine.select([
            "(CAST(EXTRACT(EPOCH FROM date_trunc('month', to_timestamp({0} / 1000) AT TIME ZONE 'UTC')) AS BIGINT) * 1000)",
            "(unixepoch({0} / 1000, 'unixepoch', 'start of month') * 1000)",
            "(toInt64(toStartOfMonth(toDateTime(intDiv({0}, 1000), 'UTC'))) * 86400000)",
        ]),
        IntervalUnit::Quarter => engine.select([
            "(CAST(EXTRACT(EPOCH FROM date_trunc('quarter', to_timestamp({0} / 1000) AT TIME ZONE 'UTC')) AS BIGINT) * 1000)",
            "(unixepoch({0} / 1000, 'unixepoch', 'start of month', '-' || ((CAST(strftime('%m', {0} / 1000, 'unixepoch') AS INTEGER) - 1) % 3) || ' months') * 1000)",
            "(toInt64(toStartOfQuarter(toDateTime(intDiv({0}, 1000), 'UTC'))) * 86400000)",
        ]),
        IntervalUnit::Year => engine.select([
            "(CAST(EXTRACT(EPOCH FROM date_trunc('year', to_timestamp({0} / 1000) AT TIME ZONE 'UTC')) AS BIGINT) * 1000)",
            "(unixepoch({0} / 1000, 'unixepoch', 'start of year') * 1000)",
            "(toInt64(toStartOfYear(toDateTime(intDiv({0}, 1000), 'UTC'))) * 86400000)",
        ]),
    }
}

fn unit_start(at: i64, unit: IntervalUnit, week_begins_monday: bool) -> Option<i64> {
    let date = |month: i8| {
        to_unix_ms(
            Date::new(to_civil(at)?.year(), month, 1).ok()?.to_datetime(jiff::civil::Time::MIN),
        )
    };
    match unit {
        IntervalUnit::Week => {
            let offset = if week_begins_monday { MONDAY_MS } else { SUNDAY_MS };
            Some(at.checked_add(offset)?.div_euclid(WEEK_MS) * WEEK_MS - offset)
        }
        IntervalUnit::Month => date(to_civil(at)?.month()),
        IntervalUnit::Quarter => date((to_civil(at)?.month() - 1) / 3 * 3 + 1),
        IntervalUnit::Year => date(1),
        IntervalUnit::Nanosecond | IntervalUnit::Microsecond => Some(at),
        IntervalUnit::Millisecond
        | IntervalUnit::Second
        | IntervalUnit::Minute
        | IntervalUnit::Hour
        | IntervalUnit::Day => {
            let length = unit.fixed_ms()?;
            Some(at.div_euclid(length) * length)
        }
    }
}

/// Returns the oldest time that a query may request: the start of the day, or of the month in tables by month, for
/// which data may still be stored.
pub fn oldest_time(now: i64, days: u32, grain: Grain) -> i64 {
    let at = now.saturating_sub(i64::from(days) * DAY_MS);
    let unit = match grain {
        Grain::Event | Grain::Minute | Grain::Hour | Grain::Day => IntervalUnit::Day,
        Grain::Month => IntervalUnit::Month,
    };
    unit_start(at, unit, false).unwrap_or(at)
}

/// Parses a time that is a literal: `2025-03-01`, `2025-03-01 12:30:00`, or Unix seconds.
pub fn parse_time(text: &TypedExpr) -> Result<TypedExpr> {
    let Some(literal) = text.constant_text() else {
        return invalid(format!("a time can only be compared with a time, not with {}", text.ty));
    };
    let literal = literal.trim();
    let plain = literal.strip_suffix(['Z', 'z']).unwrap_or(literal);
    let seconds = || literal.parse::<i64>().ok()?.checked_mul(SECOND_MS);
    if let Some(date) = plain.parse::<Date>().ok().filter(|_| plain.len() == 10) {
        let at = to_unix_ms(date.to_datetime(jiff::civil::Time::MIN));
        return at.map_or_else(|| invalid_time(literal), |at| constant_time(at, Type::Date));
    }
    let at = plain.parse::<DateTime>().ok().and_then(to_unix_ms).or_else(seconds);
    let Some(at) = at else { return invalid_time(literal) };
    let ty = if at % SECOND_MS == 0 { Type::DateTime } else { Type::DateTime64 };
    constant_time(at, ty)
}

fn invalid_time<T>(text: &str) -> Result<T> {
    invalid(format!(
        "{} is not a time; write 2025-03-01 or 2025-03-01 12:30:00, in UTC",
        excerpt(text)
    ))
}

/// Translates `DATE '2025-03-01'`.
pub fn translate_typed_string(string: &TypedString) -> Result<TypedExpr> {
    let TypedString { data_type, value, uses_odbc_syntax: false } = string else {
        return unsupported("{d …}");
    };
    match (data_type, &value.value) {
        (
            DataType::Date | DataType::Timestamp(..) | DataType::Datetime(_),
            Value::SingleQuotedString(text),
        ) => parse_time(&TypedExpr::text(text)),
        _ => unsupported("a value after the name of a type"),
    }
}

pub fn to_civil(at: i64) -> Option<DateTime> {
    let moment = jiff::Timestamp::from_millisecond(at).ok()?;
    Some(moment.to_zoned(TimeZone::UTC).datetime())
}

fn to_unix_ms(civil: DateTime) -> Option<i64> {
    Some(civil.to_zoned(TimeZone::UTC).ok()?.timestamp().as_millisecond())
}

/// Rejects time zones other than the names of UTC.
pub fn validate_zone(args: &CallArguments<'_>, index: usize) -> Result<()> {
    match args.arguments.get(index).map(|zone| zone.constant_text().unwrap_or_default()) {
        None => Ok(()),
        Some(name) if ["UTC", "Etc/UTC", "GMT"].contains(&name) => Ok(()),
        Some(_) => invalid(format!("{} supports only the time zone 'UTC'", args.name)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    pub(super) const NOON: i64 = 1_773_144_000_000; // 2026-03-10 12:00:00, a Tuesday.

    pub(super) fn text(at: Option<i64>) -> String {
        to_civil(at.expect("a time")).expect("it is in range").to_string()
    }

    #[test]
    fn unit_start_follows_calendar_when_length_varies() {
        let start = |unit| text(unit_start(NOON + 1, unit, false));

        assert_eq!(start(IntervalUnit::Hour), "2026-03-10T12:00:00");
        assert_eq!(start(IntervalUnit::Day), "2026-03-10T00:00:00");
        assert_eq!(start(IntervalUnit::Week), "2026-03-08T00:00:00");
        assert_eq!(text(unit_start(NOON, IntervalUnit::Week, true)), "2026-03-09T00:00:00");
        assert_eq!(start(IntervalUnit::Month), "2026-03-01T00:00:00");
        assert_eq!(start(IntervalUnit::Quarter), "2026-01-01T00:00:00");
        assert_eq!(start(IntervalUnit::Year), "2026-01-01T00:00:00");
    }

    #[test]
    fn parse_time_accepts_literal_when_form_is_usual() {
        let read = |text: &str| {
            parse_time(&TypedExpr::text(text)).map(|read| (read.constant_int(), read.ty))
        };

        assert_eq!(read("2026-03-10").ok(), Some((Some(NOON - 12 * HOUR_MS), Type::Date)));
        assert_eq!(read("2026-03-10 12:00:00").ok(), Some((Some(NOON), Type::DateTime)));
        assert_eq!(
            read("2026-03-10T12:00:00.250Z").ok(),
            Some((Some(NOON + 250), Type::DateTime64))
        );
        assert_eq!(read("1773144000").ok(), Some((Some(NOON), Type::DateTime)));
        assert!(read("yesterday").is_err());
        assert!(read("2026-02-30").is_err());
    }
}

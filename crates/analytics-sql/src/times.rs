//! Parses times, adds to them, and truncates them to a unit. Constants are computed here, so that the engines get a
//! number and the time range of a query is known.

use foundation::error::Result;
use jiff::Span;
use jiff::civil::{Date, DateTime};
use jiff::tz::TimeZone;
use sqlparser::ast::{DataType, DateTimeField, TypedString, Value};

use super::fragment::Fragment;
use super::functions::CallArguments;
use super::tables::Grain;
use super::types::{IntervalUnit, SqlDialect, Type, TypedExpr};
use super::{excerpt, invalid, type_domains, unsupported};

pub const SECOND_MS: i64 = 1_000;
const MINUTE_MS: i64 = 60 * SECOND_MS;
const HOUR_MS: i64 = 60 * MINUTE_MS;
pub const DAY_MS: i64 = 24 * HOUR_MS;
const WEEK_MS: i64 = 7 * DAY_MS;
/// The distance of the first Sunday and the first Monday from the Unix epoch, which is a Thursday.
const SUNDAY_MS: i64 = 4 * DAY_MS;
const MONDAY_MS: i64 = 3 * DAY_MS;

impl IntervalUnit {
    /// Returns the unit with a name in any letter case: `hour`.
    pub fn from_name(name: &str) -> Option<Self> {
        const UNITS: [IntervalUnit; 11] = [
            IntervalUnit::Nanosecond,
            IntervalUnit::Microsecond,
            IntervalUnit::Millisecond,
            IntervalUnit::Second,
            IntervalUnit::Minute,
            IntervalUnit::Hour,
            IntervalUnit::Day,
            IntervalUnit::Week,
            IntervalUnit::Month,
            IntervalUnit::Quarter,
            IntervalUnit::Year,
        ];
        UNITS.into_iter().find(|unit| format!("{unit:?}").eq_ignore_ascii_case(name))
    }

    /// Returns the unit after INTERVAL, singular or plural.
    pub fn from_field(field: &DateTimeField) -> Option<Self> {
        let name = field.to_string();
        Self::from_name(&name).or_else(|| Self::from_name(name.strip_suffix(['s', 'S'])?))
    }

    /// Returns its length, or `None` if it varies or is shorter than a millisecond.
    fn fixed_ms(self) -> Option<i64> {
        match self {
            Self::Nanosecond | Self::Microsecond | Self::Month | Self::Quarter | Self::Year => None,
            Self::Millisecond => Some(1),
            Self::Second => Some(SECOND_MS),
            Self::Minute => Some(MINUTE_MS),
            Self::Hour => Some(HOUR_MS),
            Self::Day => Some(DAY_MS),
            Self::Week => Some(WEEK_MS),
        }
    }

    fn fixed_months(self) -> Option<i64> {
        match self {
            Self::Month => Some(1),
            Self::Quarter => Some(3),
            Self::Year => Some(12),
            _ => None,
        }
    }
}

/// Returns a template that divides whole numbers to a whole number: with `/` in every engine but ClickHouse.
pub fn integer_division(
    engine: SqlDialect,
    others: &'static str,
    clickhouse: &'static str,
) -> &'static str {
    engine.select([others, others, clickhouse])
}

/// Returns an interval of a number of units.
pub fn to_interval(value: TypedExpr, unit: IntervalUnit) -> Result<TypedExpr> {
    let value = match value.constant_text() {
        Some(text) => match text.trim().parse() {
            Ok(count) => TypedExpr::int(count, Type::Int),
            Err(_) => return invalid("an INTERVAL must be a whole number of a unit"),
        },
        None => value,
    };
    if value.ty != Type::Int {
        return invalid("an INTERVAL must be a whole number of a unit");
    }
    Ok(TypedExpr { ty: Type::Interval(unit), ..value })
}

/// Translates `+` and `-` with a time.
pub fn add_interval(
    engine: SqlDialect,
    left: TypedExpr,
    is_minus: bool,
    right: TypedExpr,
) -> Result<TypedExpr> {
    if left.ty.is_time() && right.ty.is_time() && is_minus {
        let in_days = left.ty == Type::Date && right.ty == Type::Date;
        let template = if in_days {
            integer_division(engine, "(({0} - {1}) / 86400000)", "intDiv({0} - {1}, 86400000)")
        } else {
            let clickhouse = "(intDiv({0}, 1000) - intDiv({1}, 1000))";
            integer_division(engine, "({0} / 1000 - {1} / 1000)", clickhouse)
        };
        return Ok(TypedExpr::from_template(template, Type::Int, &[&left, &right]));
    }
    let (time, by) = match right.ty.is_time() {
        true if !is_minus => (right, left),
        _ => (left, right),
    };
    let unit = match (&time.ty, &by.ty) {
        (Type::Date, Type::Int) => IntervalUnit::Day,
        (ty, Type::Int) if ty.is_time() => IntervalUnit::Second,
        (ty, Type::Interval(unit)) if ty.is_time() => *unit,
        (a, b) => return invalid(format!("{a} and {b} cannot be added or subtracted")),
    };
    let ty = match (&time.ty, unit) {
        (
            Type::Date,
            IntervalUnit::Day
            | IntervalUnit::Week
            | IntervalUnit::Month
            | IntervalUnit::Quarter
            | IntervalUnit::Year,
        ) => Type::Date,
        (_, IntervalUnit::Nanosecond | IntervalUnit::Microsecond | IntervalUnit::Millisecond) => {
            Type::DateTime64
        }
        (Type::Date, _) => Type::DateTime,
        (ty, _) => ty.clone(),
    };
    if let (Some(at), Some(count)) = (time.constant_int(), by.constant_int()) {
        let count = if is_minus { count.checked_neg() } else { Some(count) };
        return match count.and_then(|count| add_units(at, count, unit)) {
            Some(moved) => constant_time(moved, ty),
            None => reject_out_of_range(),
        };
    }
    let sql =
        type_domains::bound_time(engine, &add_interval_sql(engine, &time.sql, &by, unit, is_minus));
    Ok(TypedExpr::from_parts(sql, ty, &[&time, &by]))
}

/// Returns a time that is known before the query runs.
pub fn constant_time(at: i64, ty: Type) -> Result<TypedExpr> {
    if type_domains::is_valid_time(at) { Ok(TypedExpr::int(at, ty)) } else { reject_out_of_range() }
}

pub fn reject_out_of_range<T>() -> Result<T> {
    invalid("a time is out of range: times are from year 1 to year 9999")
}

fn add_units(at: i64, count: i64, unit: IntervalUnit) -> Option<i64> {
    if let Some(ms) = unit.fixed_ms() {
        return at.checked_add(count.checked_mul(ms)?);
    }
    match unit.fixed_months() {
        Some(months) => {
            let span = Span::new().try_months(count.checked_mul(months)?).ok()?;
            to_unix_ms(to_civil(at)?.checked_add(span).ok()?)
        }
        None if unit == IntervalUnit::Microsecond => at.checked_add(count / 1_000),
        None => at.checked_add(count / 1_000_000),
    }
}

fn add_interval_sql(
    engine: SqlDialect,
    time: &Fragment,
    count: &TypedExpr,
    unit: IntervalUnit,
    is_minus: bool,
) -> Fragment {
    let signed = |number: i64| Fragment::int(if is_minus { -number } else { number });
    let wide = type_domains::to_exact(engine, count);
    if let Some(ms) = unit.fixed_ms() {
        return Fragment::from_template("({0} + {1} * {2})", &[time, &wide, &signed(ms)]);
    }
    let Some(months) = unit.fixed_months() else {
        let part = signed(if unit == IntervalUnit::Microsecond { 1_000 } else { 1_000_000 });
        let template = integer_division(engine, "({0} + {1} / {2})", "({0} + intDiv({1}, {2}))");
        return Fragment::from_template(template, &[time, &count.sql, &part]);
    };
    let months = type_domains::bound_months(
        engine,
        &Fragment::from_template("({0} * {1})", &[&wide, &signed(months)]),
    );
    let template = engine.select([
        "(CAST(EXTRACT(EPOCH FROM ((to_timestamp({0} / 1000) AT TIME ZONE 'UTC') + make_interval(months => {1}))) AS BIGINT) * 1000 + {0} % 1000)",
        "(unixepoch({0} / 1000, 'unixepoch', {1} || ' months', 'floor') * 1000 + {0} % 1000)",
        "(toInt64(toUnixTimestamp(addMonths(toDateTime(intDiv({0}, 1000), 'UTC'), {1}))) * 1000 + {0} % 1000)",
    ]);
    Fragment::from_template(template, &[time, &months])
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

    const NOON: i64 = 1_773_144_000_000; // 2026-03-10 12:00:00, a Tuesday.

    fn text(at: Option<i64>) -> String {
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
    fn add_units_stays_in_next_month_when_day_is_missing() {
        let end_of_january = to_unix_ms(jiff::civil::date(2026, 1, 31).at(1, 2, 3, 0));

        assert_eq!(
            text(add_units(end_of_january.expect("a time"), 1, IntervalUnit::Month)),
            "2026-02-28T01:02:03"
        );
        assert_eq!(text(add_units(NOON, -1, IntervalUnit::Quarter)), "2025-12-10T12:00:00");
        assert_eq!(add_units(NOON, i64::MAX, IntervalUnit::Day), None);
        assert_eq!(add_units(NOON, i64::MAX, IntervalUnit::Month), None);
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

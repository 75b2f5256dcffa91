//! Translates intervals and their addition to times.

use foundation::error::Result;
use jiff::Span;
use sqlparser::ast::DateTimeField;

use super::super::fragment::Fragment;
use super::super::types::{IntervalUnit, SqlDialect, Type, TypedExpr};
use super::super::{invalid, type_domains};
use super::{
    DAY_MS, HOUR_MS, MINUTE_MS, SECOND_MS, WEEK_MS, constant_time, integer_division,
    reject_out_of_range, to_civil, to_unix_ms,
};

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
    pub fn fixed_ms(self) -> Option<i64> {
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

#[cfg(test)]
mod tests {
    use super::super::tests::{NOON, text};
    use super::*;

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
}

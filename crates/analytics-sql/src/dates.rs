//! Translates the functions for dates and times.

use foundation::clock::DAY_MS;
use foundation::error::Result;

use super::casts;
use super::fragment::Fragment;
use super::functions::CallArguments;
use super::times::{self, SECOND_MS};
use super::types::{IntervalUnit, SqlDialect, Type, TypedExpr};
use super::{excerpt, invalid, type_domains};

pub fn translate_now(args: &CallArguments<'_>) -> Result<TypedExpr> {
    times::validate_zone(args, 0)?;
    Ok(TypedExpr::int(args.now.div_euclid(SECOND_MS) * SECOND_MS, Type::DateTime))
}

/// Translates `now64`. It always has milliseconds, whatever the requested precision.
pub fn translate_now64(args: &CallArguments<'_>) -> Result<TypedExpr> {
    times::validate_zone(args, 1)?;
    Ok(TypedExpr::int(args.now, Type::DateTime64))
}

pub fn translate_today(args: &CallArguments<'_>) -> Result<TypedExpr> {
    times::validate_zone(args, 0)?;
    Ok(TypedExpr::int(args.now.div_euclid(DAY_MS) * DAY_MS, Type::Date))
}

/// Converts a time, a string that is one, or a number of seconds.
fn to_time(args: &CallArguments<'_>) -> Result<TypedExpr> {
    let value = &args.arguments[0];
    match &value.ty {
        Type::Date | Type::DateTime | Type::DateTime64 | Type::Null => Ok(value.clone()),
        Type::Text if value.constant_text().is_some() => times::parse_time(value),
        Type::Int => match value.constant_int().map(|seconds| seconds.checked_mul(SECOND_MS)) {
            Some(Some(at)) => times::constant_time(at, Type::DateTime),
            Some(None) => times::reject_out_of_range(),
            None => {
                let exact = type_domains::to_exact(args.engine, value);
                let at = type_domains::bound_time(
                    args.engine,
                    &Fragment::from_template("({0} * 1000)", &[&exact]),
                );
                Ok(TypedExpr::from_parts(at, Type::DateTime, &[value]))
            }
        },
        Type::Float => {
            let seconds = TypedExpr::from_template("({0} * 1000)", Type::Float, &[value]);
            let at = casts::to_int(args.engine, &seconds)?;
            Ok(TypedExpr::from_parts(
                type_domains::bound_time(args.engine, &at.sql),
                Type::DateTime64,
                &[&at],
            ))
        }
        other => invalid(format!("{} takes a time, not {other}", args.name)),
    }
}

pub fn to_date(args: &CallArguments<'_>) -> Result<TypedExpr> {
    times::validate_zone(args, 1)?;
    let time = to_time(args)?;
    if time.ty == Type::Date {
        return Ok(time);
    }
    // ClickHouse reads a small number as days; here every number is one of seconds.
    let start = times::truncate(args.engine, &time, IntervalUnit::Day, false)?;
    Ok(TypedExpr { ty: Type::Date, ..start })
}

pub fn to_date_time(args: &CallArguments<'_>) -> Result<TypedExpr> {
    times::validate_zone(args, 1)?;
    let time = to_time(args)?;
    match &time.ty {
        Type::DateTime64 => times::truncate(args.engine, &time, IntervalUnit::Second, false),
        _ => Ok(TypedExpr { ty: Type::DateTime, ..time }),
    }
}

pub fn to_date_time64(args: &CallArguments<'_>) -> Result<TypedExpr> {
    times::validate_zone(args, 2)?;
    Ok(TypedExpr { ty: Type::DateTime64, ..to_time(args)? })
}

pub fn to_start_of(args: &CallArguments<'_>) -> Result<TypedExpr> {
    times::validate_zone(args, 1)?;
    let unit = args.name.strip_prefix("toStartOf").and_then(IntervalUnit::from_name);
    let Some(unit) = unit else { return invalid(format!("{} has no unit of time", args.name)) };
    times::truncate(args.engine, &args.arguments[0], unit, false)
}

/// Translates `toStartOfWeek`. Weeks begin on Sunday, or with an odd mode on Monday.
pub fn to_start_of_week(args: &CallArguments<'_>) -> Result<TypedExpr> {
    times::validate_zone(args, 2)?;
    let mode = args.arguments.get(1).map_or(Some(0), TypedExpr::constant_int);
    let Some(mode @ 0..=9) = mode else {
        return invalid("the mode of toStartOfWeek must be 0 to 9");
    };
    times::truncate(args.engine, &args.arguments[0], IntervalUnit::Week, mode % 2 == 1)
}

pub fn translate_date_trunc(args: &CallArguments<'_>) -> Result<TypedExpr> {
    times::validate_zone(args, 2)?;
    let unit = args.arguments[0].constant_text().and_then(IntervalUnit::from_name);
    let Some(unit) = unit else {
        return invalid("date_trunc takes a unit that is a literal: 'hour'");
    };
    times::truncate(args.engine, &args.arguments[1], unit, true)
}

pub fn from_unix_ms(args: &CallArguments<'_>) -> Result<TypedExpr> {
    times::validate_zone(args, 1)?;
    let value = &args.arguments[0];
    match (&value.ty, value.constant_int()) {
        (Type::Int, Some(at)) => times::constant_time(at, Type::DateTime64),
        // The column `time` is in its domain.
        (Type::Int, None) if value.time_table.is_some() => {
            Ok(TypedExpr { ty: Type::DateTime64, ..value.clone() })
        }
        (Type::Int, None) => {
            let at = type_domains::bound_time(args.engine, &value.sql);
            Ok(TypedExpr::from_parts(at, Type::DateTime64, &[value]))
        }
        _ => invalid(format!("{} takes an Int64, not {}", args.name, value.ty)),
    }
}

pub fn to_unix_ms(args: &CallArguments<'_>) -> Result<TypedExpr> {
    let value = &args.arguments[0];
    if !value.ty.is_time() {
        return invalid(format!("{} takes a time, not {}", args.name, value.ty));
    }
    Ok(TypedExpr { ty: Type::Int, ..value.clone() })
}

pub fn to_unix_seconds(args: &CallArguments<'_>) -> Result<TypedExpr> {
    times::validate_zone(args, 1)?;
    let time = to_time(args)?;
    if let Some(at) = time.constant_int() {
        return Ok(TypedExpr::int(at.div_euclid(SECOND_MS), Type::Int));
    }
    let template = times::integer_division(args.engine, "({0} / 1000)", "intDiv({0}, 1000)");
    Ok(TypedExpr::from_template(template, Type::Int, &[&time]))
}

pub fn to_interval(args: &CallArguments<'_>) -> Result<TypedExpr> {
    let unit = args.name.strip_prefix("toInterval").and_then(IntervalUnit::from_name);
    let Some(unit) = unit else { return invalid(format!("{} has no unit of time", args.name)) };
    times::to_interval(args.arguments[0].clone(), unit)
}

/// Translates `formatDateTime`. The engine writes each part.
pub fn format_date_time(args: &CallArguments<'_>) -> Result<TypedExpr> {
    times::validate_zone(args, 2)?;
    let time = &args.arguments[0];
    let Some(format) = args.arguments[1].constant_text() else {
        return invalid("the format of formatDateTime must be a literal");
    };
    if !time.ty.is_time() {
        return invalid(format!("formatDateTime takes a time, not {}", time.ty));
    }
    let mut parts = Vec::new();
    let mut plain = String::new();
    let mut rest = format.chars();
    while let Some(c) = rest.next() {
        let part = match c {
            '%' => rest.next(),
            c => {
                plain.push(c);
                continue;
            }
        };
        match part {
            Some('%') => plain.push('%'),
            Some('n') => plain.push('\n'),
            Some('t') => plain.push('\t'),
            Some(part) => {
                if !plain.is_empty() {
                    parts.push(Fragment::text(&std::mem::take(&mut plain)));
                }
                parts.push(format_part(args.engine, &time.sql, part)?);
            }
            None => return invalid("the format of formatDateTime ends with %"),
        }
    }
    if !plain.is_empty() || parts.is_empty() {
        parts.push(Fragment::text(&plain));
    }
    let sql = Fragment::from_template("({0})", &[&Fragment::join(" || ", &parts)]);
    Ok(TypedExpr::from_parts(sql, Type::Text, &[time]).ordered_by_bytes(args.engine))
}

/// Returns one part of a time, with the specifier for Postgres, or the one for SQLite, which ClickHouse mostly
/// shares.
fn format_part(engine: SqlDialect, time: &Fragment, part: char) -> Result<Fragment> {
    let (postgres, sqlite) = match part {
        'Y' => ("'YYYY'", "'%Y'"),
        'm' => ("'MM'", "'%m'"),
        'd' => ("'DD'", "'%d'"),
        'F' => ("'YYYY-MM-DD'", "'%F'"),
        'H' => ("'HH24'", "'%H'"),
        'I' => ("'HH12'", "'%I'"),
        'i' => ("'MI'", "'%M'"),
        'S' | 's' => ("'SS'", "'%S'"),
        'R' => ("'HH24:MI'", "'%R'"),
        'T' => ("'HH24:MI:SS'", "'%T'"),
        'p' => ("'AM'", "'%p'"),
        'j' => ("'DDD'", "'%j'"),
        'u' => ("'ID'", "'%u'"),
        'V' => ("'IW'", "'%V'"),
        'G' => ("'IYYY'", "'%G'"),
        other => {
            let other = excerpt(&other.to_string());
            return invalid(format!(
                "formatDateTime supports %Y %m %d %F %H %I %i %S %R %T %p %j %u %V %G, not %{other}"
            ));
        }
    };
    let format = Fragment::word(engine.select([postgres, sqlite, sqlite]));
    let template = match (engine, part) {
        (SqlDialect::Postgres, _) => "to_char(to_timestamp({0} / 1000) AT TIME ZONE 'UTC', {1})",
        (SqlDialect::Sqlite, _) => "strftime({1}, {0} / 1000, 'unixepoch')",
        // Minutes are %M in old versions and %i in new ones; only new versions have the year of a week.
        (SqlDialect::ClickHouse, 'i') => {
            "substring(formatDateTime(toDateTime(intDiv({0}, 1000), 'UTC'), '%R'), 4, 2)"
        }
        (SqlDialect::ClickHouse, 'G') => {
            "toString(toISOYear(toDateTime(intDiv({0}, 1000), 'UTC')))"
        }
        (SqlDialect::ClickHouse, _) => "formatDateTime(toDateTime(intDiv({0}, 1000), 'UTC'), {1})",
    };
    Ok(Fragment::from_template(template, &[time, &format]))
}

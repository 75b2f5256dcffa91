//! Translates the functions for dates and times.

use foundation::error::Result;

use super::casts;
use super::fragment::Fragment;
use super::functions::Args;
use super::times::{self, DAY_MS, SECOND_MS};
use super::types::{SqlDialect, Type, Typed, Unit};
use super::{invalid, shown, type_domains};

pub fn now(args: &Args<'_>) -> Result<Typed> {
    times::zone(args, 0)?;
    Ok(Typed::int(args.now.div_euclid(SECOND_MS) * SECOND_MS, Type::DateTime))
}

/// Translates `now64`. It always has milliseconds, whatever the requested precision.
pub fn now64(args: &Args<'_>) -> Result<Typed> {
    times::zone(args, 1)?;
    Ok(Typed::int(args.now, Type::DateTime64))
}

pub fn today(args: &Args<'_>) -> Result<Typed> {
    times::zone(args, 0)?;
    Ok(Typed::int(args.now.div_euclid(DAY_MS) * DAY_MS, Type::Date))
}

/// Converts a time, a string that is one, or a number of seconds.
fn time(args: &Args<'_>) -> Result<Typed> {
    let value = &args.given[0];
    match &value.ty {
        Type::Date | Type::DateTime | Type::DateTime64 | Type::Null => Ok(value.clone()),
        Type::Text if value.known_text().is_some() => times::read(value),
        Type::Int => match value.known_int().map(|seconds| seconds.checked_mul(SECOND_MS)) {
            Some(Some(at)) => times::known(at, Type::DateTime),
            Some(None) => times::out_of_range(),
            None => {
                let exact = type_domains::exact(args.engine, value);
                let at =
                    type_domains::time(args.engine, &Fragment::fill("({0} * 1000)", &[&exact]));
                Ok(Typed::of(at, Type::DateTime, &[value]))
            }
        },
        Type::Float => {
            let seconds = Typed::fill("({0} * 1000)", Type::Float, &[value]);
            let at = casts::to_int(args.engine, &seconds)?;
            Ok(Typed::of(type_domains::time(args.engine, &at.sql), Type::DateTime64, &[&at]))
        }
        other => invalid(format!("{} takes a time, not {other}", args.name)),
    }
}

pub fn to_date(args: &Args<'_>) -> Result<Typed> {
    times::zone(args, 1)?;
    let time = time(args)?;
    if time.ty == Type::Date {
        return Ok(time);
    }
    // ClickHouse reads a small number as days; here every number is one of seconds.
    let start = times::start(args.engine, &time, Unit::Day, false)?;
    Ok(Typed { ty: Type::Date, ..start })
}

pub fn to_date_time(args: &Args<'_>) -> Result<Typed> {
    times::zone(args, 1)?;
    let time = time(args)?;
    match &time.ty {
        Type::DateTime64 => times::start(args.engine, &time, Unit::Second, false),
        _ => Ok(Typed { ty: Type::DateTime, ..time }),
    }
}

pub fn to_date_time64(args: &Args<'_>) -> Result<Typed> {
    times::zone(args, 2)?;
    Ok(Typed { ty: Type::DateTime64, ..time(args)? })
}

pub fn to_start_of(args: &Args<'_>) -> Result<Typed> {
    times::zone(args, 1)?;
    let unit = args.name.strip_prefix("toStartOf").and_then(Unit::named);
    let Some(unit) = unit else { return invalid(format!("{} has no unit of time", args.name)) };
    times::start(args.engine, &args.given[0], unit, false)
}

/// Translates `toStartOfWeek`. Weeks begin on Sunday, or with an odd mode on Monday.
pub fn to_start_of_week(args: &Args<'_>) -> Result<Typed> {
    times::zone(args, 2)?;
    let mode = args.given.get(1).map_or(Some(0), Typed::known_int);
    let Some(mode @ 0..=9) = mode else {
        return invalid("the mode of toStartOfWeek must be 0 to 9");
    };
    times::start(args.engine, &args.given[0], Unit::Week, mode % 2 == 1)
}

pub fn date_trunc(args: &Args<'_>) -> Result<Typed> {
    times::zone(args, 2)?;
    let unit = args.given[0].known_text().and_then(Unit::named);
    let Some(unit) = unit else {
        return invalid("date_trunc takes a unit that is a literal: 'hour'");
    };
    times::start(args.engine, &args.given[1], unit, true)
}

pub fn from_unix_ms(args: &Args<'_>) -> Result<Typed> {
    times::zone(args, 1)?;
    let value = &args.given[0];
    match (&value.ty, value.known_int()) {
        (Type::Int, Some(at)) => times::known(at, Type::DateTime64),
        // The column `time` is in its domain.
        (Type::Int, None) if value.time_of.is_some() => {
            Ok(Typed { ty: Type::DateTime64, ..value.clone() })
        }
        (Type::Int, None) => {
            let at = type_domains::time(args.engine, &value.sql);
            Ok(Typed::of(at, Type::DateTime64, &[value]))
        }
        _ => invalid(format!("{} takes an Int64, not {}", args.name, value.ty)),
    }
}

pub fn to_unix_ms(args: &Args<'_>) -> Result<Typed> {
    let value = &args.given[0];
    if !value.ty.is_time() {
        return invalid(format!("{} takes a time, not {}", args.name, value.ty));
    }
    Ok(Typed { ty: Type::Int, ..value.clone() })
}

pub fn to_unix_seconds(args: &Args<'_>) -> Result<Typed> {
    times::zone(args, 1)?;
    let time = time(args)?;
    if let Some(at) = time.known_int() {
        return Ok(Typed::int(at.div_euclid(SECOND_MS), Type::Int));
    }
    let template = times::quotient(args.engine, "({0} / 1000)", "intDiv({0}, 1000)");
    Ok(Typed::fill(template, Type::Int, &[&time]))
}

pub fn to_interval(args: &Args<'_>) -> Result<Typed> {
    let unit = args.name.strip_prefix("toInterval").and_then(Unit::named);
    let Some(unit) = unit else { return invalid(format!("{} has no unit of time", args.name)) };
    times::interval(args.given[0].clone(), unit)
}

/// Translates `formatDateTime`. The engine writes each part.
pub fn format(args: &Args<'_>) -> Result<Typed> {
    times::zone(args, 2)?;
    let time = &args.given[0];
    let Some(format) = args.given[1].known_text() else {
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
                parts.push(formatted(args.engine, &time.sql, part)?);
            }
            None => return invalid("the format of formatDateTime ends with %"),
        }
    }
    if !plain.is_empty() || parts.is_empty() {
        parts.push(Fragment::text(&plain));
    }
    let sql = Fragment::fill("({0})", &[&Fragment::list(" || ", &parts)]);
    Ok(Typed::of(sql, Type::Text, &[time]))
}

/// Returns one part of a time, with the specifier for Postgres, or the one for SQLite, which ClickHouse mostly
/// shares.
fn formatted(engine: SqlDialect, time: &Fragment, part: char) -> Result<Fragment> {
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
            let other = shown(&other.to_string());
            return invalid(format!(
                "formatDateTime supports %Y %m %d %F %H %I %i %S %R %T %p %j %u %V %G, not %{other}"
            ));
        }
    };
    let format = Fragment::word(engine.pick([postgres, sqlite, sqlite]));
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
    Ok(Fragment::fill(template, &[time, &format]))
}

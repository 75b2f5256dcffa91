//! Defines the domains of the types. No expression of a caller fails on some rows and not on others: an operation
//! whose result is outside the domain of its type returns NULL.
//!
//! Whole numbers have 64 bits, without the smallest and the largest. Floats are smaller than 10^100. Times lie in the
//! years 1 to 9999. Every operation maps values of these domains to a value of one, so that later operations can rely
//! on them. Each bound wraps an expression without repeating it: a repeated expression would double with every level.
//!
//! ClickHouse computes modulo 2^64 and with infinities, and fails at neither.

use super::fragment::Fragment;
use super::types::{SqlDialect, Type, TypedExpr};

/// From the year 1 to the last millisecond of the year 9999.
const TIME_RANGE: std::ops::RangeInclusive<i64> = -62_135_596_800_000..=253_402_300_799_999;
/// The magnitude of a float is smaller than this, and not smaller than its reciprocal unless it is 0.
const FLOAT_MAGNITUDE_END: f64 = 1e100;

pub fn is_valid_time(at: i64) -> bool {
    TIME_RANGE.contains(&at)
}

pub fn is_valid_float(value: f64) -> bool {
    value == 0.0 || (1.0 / FLOAT_MAGNITUDE_END..FLOAT_MAGNITUDE_END).contains(&value.abs())
}

/// Returns a whole number within its domain. Postgres requires `wide` to be numeric. SQLite turns a number that is
/// too large into a float.
pub fn bound_int(engine: SqlDialect, wide: &Fragment) -> Fragment {
    let template = engine.select([
        "CAST(NULLIF(NULLIF(GREATEST(LEAST({0}, 9223372036854775807), -9223372036854775808), 9223372036854775807), -9223372036854775808) AS BIGINT)",
        "NULLIF(NULLIF(CAST({0} AS INTEGER), 9223372036854775807), -9223372036854775808)",
        "{0}",
    ]);
    Fragment::from_template(template, &[wide])
}

/// Returns a float within its domain.
pub fn bound_float(engine: SqlDialect, value: &Fragment) -> Fragment {
    let template = engine.select([
        "NULLIF(NULLIF(GREATEST(LEAST({0}, 1e100), -1e100), 1e100), -1e100)",
        "NULLIF(NULLIF(max(min({0}, 1e100), -1e100), 1e100), -1e100)",
        "{0}",
    ]);
    Fragment::from_template(template, &[value])
}

/// Returns a time in Unix milliseconds within its domain.
pub fn bound_time(engine: SqlDialect, wide: &Fragment) -> Fragment {
    let template = engine.select([
        "CAST(NULLIF(NULLIF(GREATEST(LEAST({0}, 253402300800000), -62135596800001), 253402300800000), -62135596800001) AS BIGINT)",
        "CAST(NULLIF(NULLIF(max(min({0}, 253402300800000), -62135596800001), 253402300800000), -62135596800001) AS INTEGER)",
        "{0}",
    ]);
    Fragment::from_template(template, &[wide])
}

/// Returns a number of months, of less than 4,000 years.
pub fn bound_months(engine: SqlDialect, wide: &Fragment) -> Fragment {
    let template = engine.select([
        "CAST(NULLIF(NULLIF(GREATEST(LEAST({0}, 48000), -48000), 48000), -48000) AS INTEGER)",
        "CAST(NULLIF(NULLIF(max(min({0}, 48000), -48000), 48000), -48000) AS INTEGER)",
        "{0}",
    ]);
    Fragment::from_template(template, &[wide])
}

/// Returns a number that Postgres computes exactly within its limits, because it fails where a float becomes too
/// large or too small.
pub fn to_exact(engine: SqlDialect, value: &TypedExpr) -> Fragment {
    match (engine, &value.ty) {
        (SqlDialect::Postgres, Type::Float) => {
            Fragment::from_template("CAST(CAST({0} AS TEXT) AS NUMERIC)", &[&value.sql])
        }
        (SqlDialect::Postgres, _) => Fragment::from_template("CAST({0} AS NUMERIC)", &[&value.sql]),
        (SqlDialect::Sqlite | SqlDialect::ClickHouse, _) => value.sql.clone(),
    }
}

/// Returns the float of an exact number in Postgres.
pub fn float_from_exact(wide: &Fragment) -> Fragment {
    let bounded =
        bound_float(SqlDialect::Postgres, &Fragment::from_template("round({0}, 120)", &[wide]));
    Fragment::from_template("CAST({0} AS DOUBLE PRECISION)", &[&bounded])
}

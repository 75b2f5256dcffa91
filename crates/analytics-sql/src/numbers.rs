//! Translates functions of numbers.

use std::cmp::Ordering;

use foundation::error::Result;

use super::fragment::Fragment;
use super::functions::CallArguments;
use super::types::{SqlDialect, Type, TypedExpr};
use super::{casts, invalid, type_domains};

pub fn translate_abs(args: &CallArguments<'_>) -> Result<TypedExpr> {
    let (engine, value) = (args.engine, &args.arguments[0].clone().into_number("abs")?);
    let sql = match (engine, &value.ty) {
        (_, Type::Float) => Fragment::from_template("abs({0})", &[&value.sql]),
        // SQLite fails for the smallest number.
        (SqlDialect::Sqlite, _) => type_domains::bound_int(
            engine,
            &Fragment::from_template("abs(max({0}, -9223372036854775807))", &[&value.sql]),
        ),
        (SqlDialect::Postgres, _) => type_domains::bound_int(
            engine,
            &Fragment::from_template("abs({0})", &[&type_domains::to_exact(engine, value)]),
        ),
        // ClickHouse returns a type that does not combine with others.
        (SqlDialect::ClickHouse, _) => Fragment::from_template("toInt64(abs({0}))", &[&value.sql]),
    };
    Ok(TypedExpr::from_parts(sql, value.ty.clone(), &[value]))
}

/// Returns the number, and the number of decimal places to keep.
fn rounding_arguments(args: &CallArguments<'_>) -> Result<(TypedExpr, i32)> {
    let value = args.arguments[0].clone().into_number(args.name)?;
    let places = args.arguments.get(1).map_or(Some(0), TypedExpr::constant_int);
    match places.and_then(|places| i32::try_from(places).ok()) {
        Some(places) if (-15..=15).contains(&places) => Ok((value, places)),
        _ => invalid(format!(
            "{} takes a number of decimal places that is a literal, from -15 to 15",
            args.name
        )),
    }
}

/// Translates `round`. A half is rounded to the even neighbor.
pub fn translate_round(args: &CallArguments<'_>) -> Result<TypedExpr> {
    // SQLite and old versions of ClickHouse round a half away from 0. A float of 2^52 or more has no fraction, so the sum here
    // becomes a whole number, the even one for a half.
    let even = "CASE WHEN abs({0}) < 2251799813685248 THEN {0} + 6755399441055744.0 - 6755399441055744.0 ELSE round({0}) END";
    translate_rounding(args, ["round({0})", even, even])
}

pub fn translate_floor(args: &CallArguments<'_>) -> Result<TypedExpr> {
    let sqlite = "(CAST({0} AS INTEGER) - (CAST({0} AS INTEGER) > {0}))";
    translate_rounding(args, ["floor({0})", sqlite, "floor({0})"])
}

pub fn translate_ceil(args: &CallArguments<'_>) -> Result<TypedExpr> {
    let sqlite = "(CAST({0} AS INTEGER) + (CAST({0} AS INTEGER) < {0}))";
    translate_rounding(args, ["ceil({0})", sqlite, "ceil({0})"])
}

/// Cuts a number to places before or after its decimal point.
fn translate_rounding(args: &CallArguments<'_>, templates: [&'static str; 3]) -> Result<TypedExpr> {
    let (value, places) = rounding_arguments(args)?;
    if value.ty != Type::Float && places >= 0 {
        return Ok(value);
    }
    let cut = args.engine.select(templates);
    let scale = TypedExpr::from_parts(Fragment::float(10_f64.powi(places.abs())), Type::Float, &[]);
    let (scale_up, scale_back) = match places.cmp(&0) {
        Ordering::Equal => ("CAST({0} AS DOUBLE PRECISION)", "CAST({0} AS DOUBLE PRECISION)"),
        Ordering::Greater => ("({0} * {1})", "({0} / {1})"),
        Ordering::Less => ("({0} / {1})", "({0} * {1})"),
    };
    let scaled = TypedExpr::from_template(scale_up, Type::Float, &[&value, &scale]);
    let cut = TypedExpr::from_template(cut, Type::Float, &[&scaled]);
    let back = TypedExpr::from_template(scale_back, Type::Float, &[&cut, &scale]);
    match value.ty {
        Type::Float => Ok(back),
        _ => casts::to_int(args.engine, &back),
    }
}

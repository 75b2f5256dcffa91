//! Translates functions of numbers.

use std::cmp::Ordering;

use foundation::error::Result;

use super::fragment::Fragment;
use super::functions::Args;
use super::types::{SqlDialect, Type, Typed};
use super::{casts, invalid, type_domains};

pub fn abs(args: &Args<'_>) -> Result<Typed> {
    let (engine, value) = (args.engine, &args.given[0].clone().number("abs")?);
    let sql = match (engine, &value.ty) {
        (_, Type::Float) => Fragment::fill("abs({0})", &[&value.sql]),
        // SQLite fails for the smallest number.
        (SqlDialect::Sqlite, _) => type_domains::int(
            engine,
            &Fragment::fill("abs(max({0}, -9223372036854775807))", &[&value.sql]),
        ),
        (SqlDialect::Postgres, _) => type_domains::int(
            engine,
            &Fragment::fill("abs({0})", &[&type_domains::exact(engine, value)]),
        ),
        // ClickHouse returns a type that does not combine with others.
        (SqlDialect::ClickHouse, _) => Fragment::fill("toInt64(abs({0}))", &[&value.sql]),
    };
    Ok(Typed::of(sql, value.ty.clone(), &[value]))
}

/// Returns the number, and the number of decimal places to keep.
fn places(args: &Args<'_>) -> Result<(Typed, i32)> {
    let value = args.given[0].clone().number(args.name)?;
    let places = args.given.get(1).map_or(Some(0), Typed::known_int);
    match places.and_then(|places| i32::try_from(places).ok()) {
        Some(places) if (-15..=15).contains(&places) => Ok((value, places)),
        _ => invalid(format!(
            "{} takes a number of decimal places that is a literal, from -15 to 15",
            args.name
        )),
    }
}

pub fn round(args: &Args<'_>) -> Result<Typed> {
    scaled(args, ["round({0})"; 3])
}

pub fn floor(args: &Args<'_>) -> Result<Typed> {
    let sqlite = "(CAST({0} AS INTEGER) - (CAST({0} AS INTEGER) > {0}))";
    scaled(args, ["floor({0})", sqlite, "floor({0})"])
}

pub fn ceil(args: &Args<'_>) -> Result<Typed> {
    let sqlite = "(CAST({0} AS INTEGER) + (CAST({0} AS INTEGER) < {0}))";
    scaled(args, ["ceil({0})", sqlite, "ceil({0})"])
}

/// Cuts a number to places before or after its decimal point.
fn scaled(args: &Args<'_>, templates: [&'static str; 3]) -> Result<Typed> {
    let (value, places) = places(args)?;
    if value.ty != Type::Float && places >= 0 {
        return Ok(value);
    }
    let cut = args.engine.pick(templates);
    let scale = Typed::of(Fragment::float(10_f64.powi(places.abs())), Type::Float, &[]);
    let (scale_up, scale_back) = match places.cmp(&0) {
        Ordering::Equal => ("CAST({0} AS DOUBLE PRECISION)", "CAST({0} AS DOUBLE PRECISION)"),
        Ordering::Greater => ("({0} * {1})", "({0} / {1})"),
        Ordering::Less => ("({0} / {1})", "({0} * {1})"),
    };
    let scaled = Typed::fill(scale_up, Type::Float, &[&value, &scale]);
    let cut = Typed::fill(cut, Type::Float, &[&scaled]);
    let back = Typed::fill(scale_back, Type::Float, &[&cut, &scale]);
    match value.ty {
        Type::Float => Ok(back),
        _ => casts::to_int(args.engine, &back),
    }
}

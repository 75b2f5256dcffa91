//! Translates conversions between types.

use foundation::error::Result;
use sqlparser::ast::{DataType, ExactNumberInfo};

use super::fragment::Fragment;
use super::functions::{self, CallArguments};
use super::types::{SqlDialect, Type, TypedExpr};
use super::{excerpt, invalid, times, type_domains};

/// Translates `CAST(… AS …)` and `…::…`.
pub fn translate_cast(engine: SqlDialect, value: TypedExpr, to: &DataType) -> Result<TypedExpr> {
    let name = match to {
        DataType::Nullable(inner) => return translate_cast(engine, value, inner),
        DataType::String(None) | DataType::Text => return to_text(engine, &value),
        DataType::Int8(None)
        | DataType::Int16
        | DataType::Int32
        | DataType::Int64
        | DataType::UInt8
        | DataType::UInt16
        | DataType::UInt32
        | DataType::UInt64
        | DataType::Int(None)
        | DataType::Integer(None)
        | DataType::BigInt(None) => return to_int(engine, &value),
        DataType::Float32 | DataType::Float64 | DataType::Float(ExactNumberInfo::None) => {
            return to_float(engine, &value);
        }
        DataType::Bool | DataType::Boolean => {
            return Ok(TypedExpr { ty: Type::Bool, ..value.into_condition()? });
        }
        DataType::Date => "toDate",
        DataType::Datetime(None) => "toDateTime",
        DataType::Datetime64(..) => "toDateTime64",
        other => return invalid(format!("there is no cast to {}", excerpt(&other.to_string()))),
    };
    functions::call_by_name(&CallArguments { engine, now: 0, name, arguments: &[value] })
}

pub fn to_int(engine: SqlDialect, value: &TypedExpr) -> Result<TypedExpr> {
    let template = match &value.ty {
        Type::Int => return Ok(value.clone()),
        Type::Float => return Ok(float_to_int(engine, value)),
        Type::Bool | Type::Flag => return value.clone().into_number("toInt64"),
        Type::Null => "CAST({0} AS BIGINT)",
        // A time becomes a number of seconds, and a date a number of days.
        Type::DateTime | Type::DateTime64 => {
            times::integer_division(engine, "({0} / 1000)", "intDiv({0}, 1000)")
        }
        Type::Date => times::integer_division(engine, "({0} / 86400000)", "intDiv({0}, 86400000)"),
        Type::Text => return Ok(text_to_int(engine, value)),
        other => return invalid(format!("toInt64 does not take {other}")),
    };
    Ok(TypedExpr::from_template(template, Type::Int, &[value]))
}

/// Converts a float to a whole number, or to NULL if it is too large.
fn float_to_int(engine: SqlDialect, value: &TypedExpr) -> TypedExpr {
    let sql = match engine {
        SqlDialect::Postgres => Fragment::from_template(
            "CAST(NULLIF(NULLIF(GREATEST(LEAST(trunc({0}), 9223372036854774784), -9223372036854775808), 9223372036854774784), -9223372036854775808) AS BIGINT)",
            &[&value.sql],
        ),
        SqlDialect::Sqlite => type_domains::bound_int(engine, &value.sql),
        SqlDialect::ClickHouse => Fragment::from_template(
            "CAST(CASE WHEN abs({0}) < 9223372036854774784 THEN {0} END AS BIGINT)",
            &[&value.sql],
        ),
    };
    TypedExpr::from_parts(sql, Type::Int, &[value])
}

/// Converts a string to a whole number, or to NULL if it is not one of at most 19 digits or is too large.
fn text_to_int(engine: SqlDialect, value: &TypedExpr) -> TypedExpr {
    let pattern = Fragment::word("'^[-+]?[0-9]{1,19}$'");
    let template = engine.select([
        "CASE WHEN {0} ~ {1} THEN CAST({0} AS NUMERIC) END",
        "CASE WHEN {0} GLOB '[-+0-9]*' AND substr({0}, 2) NOT GLOB '*[^0-9]*' AND length(ltrim({0}, '-+')) BETWEEN 1 AND 19 THEN {0} END",
        // Old versions accept signs anywhere, and return a number that is too large with the opposite sign.
        "CASE WHEN match({0}, {1}) AND toInt64OrNull({0}) * (1 - 2 * ({0} LIKE '-%')) >= 0 THEN toInt64OrNull({0}) END",
    ]);
    let number = Fragment::from_template(template, &[&value.sql, &pattern]);
    TypedExpr::from_parts(type_domains::bound_int(engine, &number), Type::Int, &[value])
}

pub fn to_float(engine: SqlDialect, value: &TypedExpr) -> Result<TypedExpr> {
    match &value.ty {
        Type::Float => Ok(value.clone()),
        Type::Int | Type::Null => {
            Ok(TypedExpr::from_template("CAST({0} AS DOUBLE PRECISION)", Type::Float, &[value]))
        }
        Type::Text => {
            let pattern =
                Fragment::word("'^-?(0|[1-9][0-9]{0,30})([.][0-9]{1,30})?([eE][-+]?[0-9]{1,2})?$'");
            let template = engine.select([
                "CASE WHEN {0} ~ {1} THEN CAST({0} AS DOUBLE PRECISION) END",
                "CASE WHEN json_valid({0}) THEN CASE WHEN json_type({0}) IN ('integer', 'real') THEN CAST({0} AS DOUBLE PRECISION) END END",
                "toFloat64OrNull({0})",
            ]);
            let sql = Fragment::from_template(template, &[&value.sql, &pattern]);
            Ok(TypedExpr::from_parts(
                type_domains::bound_float(engine, &sql),
                Type::Float,
                &[value],
            ))
        }
        _ => to_float(engine, &to_int(engine, value)?),
    }
}

/// The shortest text that SQLite reads as the same float. A cast to text would have 15 digits, and end in `.0` if the
/// float is whole.
const SQLITE_FLOAT_TO_TEXT: &str = "CASE \
    WHEN CAST(printf('%.15g', {0}) AS DOUBLE PRECISION) = {0} THEN printf('%.15g', {0}) \
    WHEN CAST(printf('%.16g', {0}) AS DOUBLE PRECISION) = {0} THEN printf('%.16g', {0}) \
    WHEN {0} IS NOT NULL THEN printf('%!.17g', {0}) END";

/// Converts a value to a string, as it would be in the result. In Postgres a list of more than 64 KiB becomes NULL.
pub fn to_text(engine: SqlDialect, value: &TypedExpr) -> Result<TypedExpr> {
    let template = match &value.ty {
        Type::Text => return Ok(value.clone()),
        Type::Float if engine == SqlDialect::Sqlite => SQLITE_FLOAT_TO_TEXT,
        Type::Int | Type::Float | Type::Null => "CAST({0} AS TEXT)",
        // Postgres builds the whole text before any of it is cut off.
        Type::Array(_) => engine.select([
            "CASE WHEN pg_column_size({0}) <= 65536 THEN CAST({0} AS TEXT) END",
            "CAST({0} AS TEXT)",
            "CAST({0} AS TEXT)",
        ]),
        Type::Bool => "CASE WHEN {0} THEN 'true' WHEN NOT {0} THEN 'false' END",
        Type::Flag => "CASE WHEN {0} THEN '1' WHEN NOT {0} THEN '0' END",
        Type::DateTime => engine.select([
            "to_char(to_timestamp({0} / 1000) AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI:SS')",
            "datetime({0} / 1000, 'unixepoch')",
            "toString(toDateTime(intDiv({0}, 1000), 'UTC'))",
        ]),
        Type::DateTime64 => engine.select([
            "to_char(to_timestamp(CAST({0} AS DOUBLE PRECISION) / 1000) AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI:SS.MS')",
            "strftime('%Y-%m-%d %H:%M:%f', CAST({0} AS DOUBLE PRECISION) / 1000, 'unixepoch')",
            "(toString(toDateTime(intDiv({0}, 1000), 'UTC')) || '.' || substring(toString({0} % 1000 + 1000), 2, 3))",
        ]),
        Type::Date => engine.select([
            "to_char(to_timestamp({0} / 1000) AT TIME ZONE 'UTC', 'YYYY-MM-DD')",
            "date({0} / 1000, 'unixepoch')",
            "formatDateTime(toDateTime(intDiv({0}, 1000), 'UTC'), '%F')",
        ]),
        Type::Interval(_) => return invalid("an INTERVAL cannot be a String"),
    };
    Ok(TypedExpr::from_template(template, Type::Text, &[value]).ordered_by_bytes(engine))
}

/// Concatenates values, each as a string. The result has at most 4,096 characters, and so has each list in it.
pub fn translate_concat(engine: SqlDialect, values: &[TypedExpr]) -> Result<TypedExpr> {
    let texts = values.iter().map(|value| to_text(engine, value)).collect::<Result<Vec<_>>>()?;
    let cut = |sql: &Fragment| {
        let template = ["left({0}, 4096)", "substr({0}, 1, 4096)", "{0}"];
        Fragment::from_template(engine.select(template), &[sql])
    };
    let parts = texts.iter().zip(values).map(|(text, value)| match value.ty {
        Type::Array(_) => cut(&text.sql),
        _ => text.sql.clone(),
    });
    let sql = cut(&concat_halves(&parts.collect::<Vec<_>>(), &cut));
    Ok(TypedExpr::from_parts(sql, Type::Text, &texts.iter().collect::<Vec<_>>()))
}

/// Concatenates two halves, each of them cut. No intermediate text is longer than two of them, however many parts
/// there are, and the expression is not deep.
fn concat_halves(parts: &[Fragment], cut: &impl Fn(&Fragment) -> Fragment) -> Fragment {
    match parts {
        [part] => part.clone(),
        parts => {
            let (first, second) = parts.split_at(parts.len() / 2);
            let half = |parts: &[Fragment]| match parts.len() {
                0 | 1 => concat_halves(parts, cut),
                _ => cut(&concat_halves(parts, cut)),
            };
            Fragment::from_template("({0} || {1})", &[&half(first), &half(second)])
        }
    }
}

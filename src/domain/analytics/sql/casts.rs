//! From one type to another.

use sqlparser::ast::{DataType, ExactNumberInfo};

use super::fragment::Fragment;
use super::functions::{self, Args};
use super::kinds::{Engine, Type, Typed};
use super::{invalid, shown, times};
use crate::error::Result;

/// `CAST(… AS …)` and `…::…`.
pub fn cast(engine: Engine, value: Typed, to: &DataType) -> Result<Typed> {
    let name = match to {
        DataType::Nullable(inner) => return cast(engine, value, inner),
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
            return Ok(Typed { ty: Type::Bool, ..value.truth()? });
        }
        DataType::Date => "toDate",
        DataType::Datetime(None) => "toDateTime",
        DataType::Datetime64(..) => "toDateTime64",
        other => return invalid(format!("there is no cast to {}", shown(&other.to_string()))),
    };
    functions::call(&Args { engine, now: 0, name, given: &[value] })
}

pub fn to_int(engine: Engine, value: &Typed) -> Result<Typed> {
    let template = match &value.ty {
        Type::Int => return Ok(value.clone()),
        Type::Float => {
            let cut = "CAST({0} AS BIGINT)";
            engine.pick(["CAST(trunc({0}) AS BIGINT)", cut, cut])
        }
        Type::Bool | Type::Flag => return value.clone().number("toInt64"),
        Type::Null => "CAST({0} AS BIGINT)",
        // A time is a number of seconds, and a day one of days.
        Type::DateTime | Type::DateTime64 => {
            times::quotient(engine, "({0} / 1000)", "intDiv({0}, 1000)")
        }
        Type::Date => times::quotient(engine, "({0} / 86400000)", "intDiv({0}, 86400000)"),
        Type::Text => return Ok(text_to_int(engine, value)),
        other => return invalid(format!("toInt64 does not take {other}")),
    };
    Ok(Typed::fill(template, Type::Int, &[value]))
}

/// What is no number is nothing.
fn text_to_int(engine: Engine, value: &Typed) -> Typed {
    let pattern = Fragment::word("'^[-+]?[0-9]{1,18}$'");
    let template = engine.pick([
        "CASE WHEN {0} ~ {1} THEN CAST({0} AS BIGINT) END",
        "CASE WHEN length({0}) < 20 AND trim({0}, '0123456789') IN ('', '-', '+') AND {0} GLOB '*[0-9]' THEN CAST({0} AS BIGINT) END",
        "toInt64OrNull({0})",
    ]);
    Typed::of(Fragment::fill(template, &[&value.sql, &pattern]), Type::Int, &[value])
}

pub fn to_float(engine: Engine, value: &Typed) -> Result<Typed> {
    match &value.ty {
        Type::Float => Ok(value.clone()),
        Type::Int | Type::Null => {
            Ok(Typed::fill("CAST({0} AS DOUBLE PRECISION)", Type::Float, &[value]))
        }
        Type::Text => {
            let pattern =
                Fragment::word("'^-?(0|[1-9][0-9]{0,30})([.][0-9]{1,30})?([eE][-+]?[0-9]{1,2})?$'");
            let template = engine.pick([
                "CASE WHEN {0} ~ {1} THEN CAST({0} AS DOUBLE PRECISION) END",
                "CASE WHEN json_valid({0}) THEN CASE WHEN json_type({0}) IN ('integer', 'real') THEN CAST({0} AS DOUBLE PRECISION) END END",
                "toFloat64OrNull({0})",
            ]);
            Ok(Typed::of(Fragment::fill(template, &[&value.sql, &pattern]), Type::Float, &[value]))
        }
        _ => to_float(engine, &to_int(engine, value)?),
    }
}

/// As it would stand in an answer.
pub fn to_text(engine: Engine, value: &Typed) -> Result<Typed> {
    let template = match &value.ty {
        Type::Text => return Ok(value.clone()),
        Type::Int | Type::Float | Type::Null | Type::Array(_) => "CAST({0} AS TEXT)",
        Type::Bool => "CASE WHEN {0} THEN 'true' WHEN NOT {0} THEN 'false' END",
        Type::Flag => "CASE WHEN {0} THEN '1' WHEN NOT {0} THEN '0' END",
        Type::DateTime => engine.pick([
            "to_char(to_timestamp({0} / 1000) AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI:SS')",
            "datetime({0} / 1000, 'unixepoch')",
            "toString(toDateTime(intDiv({0}, 1000), 'UTC'))",
        ]),
        Type::DateTime64 => engine.pick([
            "to_char(to_timestamp(CAST({0} AS DOUBLE PRECISION) / 1000) AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI:SS.MS')",
            "strftime('%Y-%m-%d %H:%M:%f', CAST({0} AS DOUBLE PRECISION) / 1000, 'unixepoch')",
            "(toString(toDateTime(intDiv({0}, 1000), 'UTC')) || '.' || substring(toString({0} % 1000 + 1000), 2, 3))",
        ]),
        Type::Date => engine.pick([
            "to_char(to_timestamp({0} / 1000) AT TIME ZONE 'UTC', 'YYYY-MM-DD')",
            "date({0} / 1000, 'unixepoch')",
            "formatDateTime(toDateTime(intDiv({0}, 1000), 'UTC'), '%F')",
        ]),
        Type::Interval(_) => return invalid("an INTERVAL is no text"),
    };
    Ok(Typed::fill(template, Type::Text, &[value]))
}

/// Texts one after the other; what is none becomes one.
pub fn concat(engine: Engine, values: &[Typed]) -> Result<Typed> {
    let texts = values.iter().map(|value| to_text(engine, value)).collect::<Result<Vec<_>>>()?;
    let list = Fragment::list(" || ", texts.iter().map(|text| &text.sql));
    let sql = Fragment::fill("({0})", &[&list]);
    Ok(Typed::of(sql, Type::Text, &texts.iter().collect::<Vec<_>>()))
}

//! Converts the rows of an engine to the objects of the result.

use std::fmt::Write as _;

use foundation::error::{Error, Result};
use serde_json::Value;
use serde_json::value::RawValue;

use super::times;
use super::types::Type;

/// A column of the result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResultColumn {
    pub name: String,
    pub ty: Type,
}

/// Returns an object with the columns in their order, from a JSON list of their values.
pub fn row_to_object(columns: &[ResultColumn], row: &str) -> Result<Box<RawValue>> {
    let row_error =
        |e: serde_json::Error| Error::Internal(format!("failed to parse a row of events: {e}"));
    let values: Vec<Value> = serde_json::from_str(row).map_err(row_error)?;
    let mut text = String::with_capacity(row.len() * 2);
    for (column, value) in columns.iter().zip(&values) {
        text.push(if text.is_empty() { '{' } else { ',' });
        let name = serde_json::to_string(&column.name).map_err(row_error)?;
        let _ = write!(text, "{name}:{}", to_reply_value(&column.ty, value));
    }
    text.push('}');
    RawValue::from_string(text).map_err(row_error)
}

fn to_reply_value(ty: &Type, value: &Value) -> Value {
    match (ty, value) {
        (Type::Array(of), Value::Array(items)) => {
            items.iter().map(|item| to_reply_value(of, item)).collect()
        }
        (Type::Bool, Value::Number(number)) => (number.as_i64() != Some(0)).into(),
        (Type::Flag, Value::Bool(is_true)) => i64::from(*is_true).into(),
        (Type::Date | Type::DateTime | Type::DateTime64, Value::Number(number)) => {
            number.as_i64().and_then(|at| format_time(ty, at)).into()
        }
        (Type::Float, Value::Number(number)) => number.as_f64().map_or(Value::Null, to_reply_float),
        (Type::Float, Value::String(text)) => text.parse().map_or(Value::Null, to_reply_float),
        (_, value) => value.clone(),
    }
}

/// Returns a float without a decimal point if it is whole. NaN and infinity become null.
fn to_reply_float(value: f64) -> Value {
    /// Up to here every whole number is a different float.
    const WHOLE_MAX: f64 = 9_007_199_254_740_992.0;
    if value.fract() == 0.0 && value.abs() <= WHOLE_MAX {
        #[expect(clippy::cast_possible_truncation, reason = "it is whole and small enough")]
        return (value as i64).into();
    }
    value.into()
}

fn format_time(ty: &Type, at: i64) -> Option<String> {
    let civil = times::to_civil(at)?;
    Some(match ty {
        Type::Date => civil.strftime("%Y-%m-%d").to_string(),
        Type::DateTime64 => civil.strftime("%Y-%m-%d %H:%M:%S%.3f").to_string(),
        _ => civil.strftime("%Y-%m-%d %H:%M:%S").to_string(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn row_to_object_converts_values_when_columns_have_types() {
        let column = |name: &str, ty| ResultColumn { name: name.into(), ty };
        let columns = [
            column("z", Type::DateTime),
            column("a", Type::array_of(Type::Date)),
            column("passed", Type::Bool),
            column("same", Type::Flag),
            column("rate", Type::Float),
            column("mean", Type::Float),
            column("at \"once\"", Type::DateTime64),
        ];

        let row = r#"[1773144000000, [1773144000000], 1, true, "NaN", 2.0, 1773144000250]"#;
        let object = row_to_object(&columns, row).expect("a row");

        assert_eq!(
            object.get(),
            concat!(
                r#"{"z":"2026-03-10 12:00:00","a":["2026-03-10"],"passed":true,"same":1,"rate":null,"mean":2,"#,
                r#""at \"once\"":"2026-03-10 12:00:00.250"}"#
            )
        );
    }
}

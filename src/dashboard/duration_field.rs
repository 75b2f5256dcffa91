//! Form fields for numbers and durations. A duration has a number and a unit; operations expect milliseconds.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::form::Form;

/// Each unit's form value, label and length in milliseconds.
const UNITS: [(&str, &str, i64); 5] = [
    ("ms", "milliseconds", 1),
    ("s", "seconds", 1_000),
    ("min", "minutes", 60_000),
    ("h", "hours", 3_600_000),
    ("d", "days", 86_400_000),
];

/// A duration as entered in a form.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DurationField {
    pub number: String,
    unit: String,
}

/// An option of the unit select.
pub struct DurationUnit {
    pub value: &'static str,
    pub label: &'static str,
    pub is_selected: bool,
}

impl DurationField {
    /// Creates a field with the largest unit that represents the duration exactly.
    pub fn from_ms(ms: i64) -> Self {
        let (number, unit) = largest_exact_unit(ms);
        Self { number: number.to_string(), unit: unit.to_owned() }
    }

    /// Reads the field at index `at`. Its unit is in the field of the same name with the suffix `-unit`.
    pub fn from_form(form: &Form, field: &str, at: usize) -> Self {
        let unit = nth_value(form, &format!("{field}-unit"), at).to_owned();
        Self { number: nth_value(form, field, at).trim().to_owned(), unit }
    }

    /// Returns the options of the unit select.
    pub fn unit_options(&self) -> [DurationUnit; 5] {
        UNITS.map(|(value, label, _)| DurationUnit {
            value,
            label,
            is_selected: value == self.unit,
        })
    }

    /// Returns the duration in milliseconds. Text that is not an integer is returned unchanged: the operation rejects
    /// it.
    pub fn to_ms(&self) -> Value {
        let chosen = UNITS.iter().find(|unit| unit.0 == self.unit);
        let unit_ms = chosen.map_or(1, |unit| unit.2);
        match self.number.parse::<i128>() {
            Ok(number) => integer_value(number.saturating_mul(i128::from(unit_ms))),
            Err(_) => self.number.clone().into(),
        }
    }
}

/// Formats a duration for display: `90 seconds`, `1 minute`.
pub fn format_duration(ms: i64) -> String {
    let (number, unit) = largest_exact_unit(ms);
    let label = UNITS.iter().find(|known| known.0 == unit).map_or(unit, |known| known.1);
    let label = if number == 1 { label.trim_end_matches('s') } else { label };
    format!("{} {label}", super::format::format_count(number, i64::MAX))
}

fn largest_exact_unit(ms: i64) -> (i64, &'static str) {
    let exact = UNITS.iter().rev().find(|unit| ms > 0 && ms % unit.2 == 0);
    exact.map_or((ms, "ms"), |unit| (ms / unit.2, unit.0))
}

/// Parses an integer. Other text is returned unchanged: the operation rejects it.
pub fn parse_number(text: &str) -> Value {
    text.trim().parse::<i128>().map_or_else(|_| text.into(), integer_value)
}

fn integer_value(number: i128) -> Value {
    // A number beyond i64 becomes a float. It still exceeds every bound, so the operation rejects it.
    serde_json::from_str(&number.to_string()).unwrap_or_default()
}

/// Returns the value at index `at` of a repeated field; empty if it is missing.
pub fn nth_value<'a>(form: &'a Form, field: &'a str, at: usize) -> &'a str {
    form.values(field).nth(at).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn duration_uses_largest_exact_unit() {
        let formatted = |ms: i64| (format_duration(ms), DurationField::from_ms(ms).to_ms());

        assert_eq!(formatted(1), ("1 millisecond".into(), 1.into()));
        assert_eq!(formatted(59_999), ("59,999 milliseconds".into(), 59_999.into()));
        assert_eq!(formatted(60_000), ("1 minute".into(), 60_000.into()));
        assert_eq!(formatted(90_000), ("90 seconds".into(), 90_000.into()));
        assert_eq!(formatted(2 * 86_400_000), ("2 days".into(), 172_800_000.into()));
        assert_eq!(format_duration(0), "0 milliseconds");
    }

    #[test]
    fn duration_field_keeps_text_when_it_is_not_an_integer() {
        let span = |query: &str| {
            DurationField::from_form(&Form::parse(query.as_bytes()), "duration", 0).to_ms()
        };

        assert_eq!(span("duration=+2+&duration-unit=min"), Value::from(120_000));
        assert_eq!(span("duration=1.5&duration-unit=h"), Value::from("1.5"));
        assert_eq!(span("duration=7&duration-unit=year"), Value::from(7));
        assert!(span("duration=9223372036854775807&duration-unit=d").is_f64());
        assert_eq!(parse_number(" 5 "), Value::from(5));
        assert_eq!(parse_number(""), Value::from(""));
    }
}

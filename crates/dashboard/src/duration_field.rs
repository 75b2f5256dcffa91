//! Form fields for durations: a number and a unit.

use foundation::clock::{DAY_MS, HOUR_MS, MINUTE_MS};
use serde::{Deserialize, Serialize};

use super::form::Form;
use super::number_field::parse_integer;

/// Each unit's form value, label and length in milliseconds.
const UNITS: [(&str, &str, i64); 5] = [
    ("ms", "milliseconds", 1),
    ("s", "seconds", 1_000),
    ("min", "minutes", MINUTE_MS),
    ("h", "hours", HOUR_MS),
    ("d", "days", DAY_MS),
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

    /// Creates a field without a number.
    pub fn empty() -> Self {
        Self { number: String::new(), unit: "s".to_owned() }
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

    /// Returns the duration in milliseconds, or `None` if the number is not an integer.
    pub fn to_ms(&self) -> Option<i128> {
        let chosen = UNITS.iter().find(|unit| unit.0 == self.unit);
        let unit_ms = chosen.map_or(1, |unit| unit.2);
        parse_integer(&self.number).map(|number| number.saturating_mul(unit_ms.into()))
    }
}

fn largest_exact_unit(ms: i64) -> (i64, &'static str) {
    let exact = UNITS.iter().rev().find(|unit| ms > 0 && ms % unit.2 == 0);
    exact.map_or((ms, "ms"), |unit| (ms / unit.2, unit.0))
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
        for (ms, number, unit) in [
            (0, "0", "ms"),
            (59_999, "59999", "ms"),
            (60_000, "1", "min"),
            (90_000, "90", "s"),
            (2 * 86_400_000, "2", "d"),
        ] {
            let field = DurationField::from_ms(ms);
            assert_eq!((field.number.as_str(), field.unit.as_str()), (number, unit));
            assert_eq!(field.to_ms(), Some(ms.into()));
        }
    }

    #[test]
    fn to_ms_is_none_when_number_is_not_an_integer() {
        let ms = |query: &str| {
            DurationField::from_form(&Form::parse(query.as_bytes()), "duration", 0).to_ms()
        };

        assert_eq!(ms("duration=+2+&duration-unit=min"), Some(120_000));
        assert_eq!(ms("duration=1,500&duration-unit=ms"), Some(1_500));
        assert_eq!(ms("duration=1.5&duration-unit=h"), None);
        assert_eq!(ms("duration=7&duration-unit=year"), Some(7));
        let most = i128::from(i64::MAX);
        assert_eq!(ms("duration=9223372036854775807&duration-unit=d"), Some(most * 86_400_000));
    }
}

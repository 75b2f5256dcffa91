//! Numbers and lengths of time in forms: a number and its unit, as the operations want them in milliseconds.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::form::Form;

/// How a unit is called in a form, how people say it, and how long it is.
const UNITS: [(&str, &str, i64); 5] = [
    ("ms", "milliseconds", 1),
    ("s", "seconds", 1_000),
    ("min", "minutes", 60_000),
    ("h", "hours", 3_600_000),
    ("d", "days", 86_400_000),
];

/// A length of time as it is filled in.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DurationField {
    pub number: String,
    unit: String,
}

/// A unit, as a form offers it.
pub struct Unit {
    pub value: &'static str,
    pub label: &'static str,
    pub is_chosen: bool,
}

impl DurationField {
    /// In the largest unit that tells it exactly.
    pub fn of_ms(ms: i64) -> Self {
        let (number, unit) = largest(ms);
        Self { number: number.to_string(), unit: unit.to_owned() }
    }

    /// As a field of a form was filled in. Its unit is the field of the same name with `-unit` behind it.
    pub fn filled_in(form: &Form, field: &str, at: usize) -> Self {
        let unit = nth(form, &format!("{field}-unit"), at).to_owned();
        Self { number: nth(form, field, at).trim().to_owned(), unit }
    }

    /// The units to choose from.
    pub fn units(&self) -> [Unit; 5] {
        UNITS.map(|(value, label, _)| Unit { value, label, is_chosen: value == self.unit })
    }

    /// In milliseconds; what is no whole number stays as it is, for the operation to say so.
    pub fn ms(&self) -> Value {
        let chosen = UNITS.iter().find(|unit| unit.0 == self.unit);
        let unit_ms = chosen.map_or(1, |unit| unit.2);
        match self.number.parse::<i128>() {
            Ok(number) => whole(number.saturating_mul(i128::from(unit_ms))),
            Err(_) => self.number.clone().into(),
        }
    }
}

/// A length of time as people say it: `90 seconds`, `1 minute`.
pub fn words(ms: i64) -> String {
    let (number, unit) = largest(ms);
    let label = UNITS.iter().find(|known| known.0 == unit).map_or(unit, |known| known.1);
    let label = if number == 1 { label.trim_end_matches('s') } else { label };
    format!("{} {label}", super::format::count(number, i64::MAX))
}

fn largest(ms: i64) -> (i64, &'static str) {
    let exact = UNITS.iter().rev().find(|unit| ms > 0 && ms % unit.2 == 0);
    exact.map_or((ms, "ms"), |unit| (ms / unit.2, unit.0))
}

/// A number as a form tells it; what is no whole number stays as it is, for the operation to say so.
pub fn number(text: &str) -> Value {
    text.trim().parse::<i128>().map_or_else(|_| text.into(), whole)
}

fn whole(number: i128) -> Value {
    // What is larger than any bound is larger as an inexact number, too.
    serde_json::from_str(&number.to_string()).unwrap_or_default()
}

/// The value of a field that comes more than once.
pub fn nth<'a>(form: &'a Form, field: &'a str, at: usize) -> &'a str {
    form.all(field).nth(at).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_length_of_time_is_told_in_the_largest_unit_that_is_exact() {
        let told = |ms: i64| (words(ms), DurationField::of_ms(ms).ms());

        assert_eq!(told(1), ("1 millisecond".into(), 1.into()));
        assert_eq!(told(59_999), ("59,999 milliseconds".into(), 59_999.into()));
        assert_eq!(told(60_000), ("1 minute".into(), 60_000.into()));
        assert_eq!(told(90_000), ("90 seconds".into(), 90_000.into()));
        assert_eq!(told(2 * 86_400_000), ("2 days".into(), 172_800_000.into()));
        assert_eq!(words(0), "0 milliseconds");
    }

    #[test]
    fn what_is_no_number_is_left_to_the_operation() {
        let span = |query: &str| {
            DurationField::filled_in(&Form::parse(query.as_bytes()), "duration", 0).ms()
        };

        assert_eq!(span("duration=+2+&duration-unit=min"), Value::from(120_000));
        assert_eq!(span("duration=1.5&duration-unit=h"), Value::from("1.5"));
        assert_eq!(span("duration=7&duration-unit=year"), Value::from(7));
        assert!(span("duration=9223372036854775807&duration-unit=d").is_f64());
        assert_eq!(number(" 5 "), Value::from(5));
        assert_eq!(number(""), Value::from(""));
    }
}

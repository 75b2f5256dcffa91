//! Formats numbers, durations and rates for people.

use foundation::clock::{DAY_MS, HOUR_MS, MINUTE_MS};

/// Each unit's name and length in milliseconds, from the longest to the shortest.
const UNITS: [(&str, i64); 5] = [
    ("day", DAY_MS),
    ("hour", HOUR_MS),
    ("minute", MINUTE_MS),
    ("second", 1_000),
    ("millisecond", 1),
];

/// Formats a non-negative number with thousands separators.
pub fn format_grouped(number: i64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Formats a non-negative number with its noun: `1 key`, `10,000 keys`.
pub fn format_quantity(number: i64, one: &str) -> String {
    format!("{} {one}{}", format_grouped(number), if number == 1 { "" } else { "s" })
}

/// Formats a duration in the longest unit that is exact: `90 seconds`, `1 minute`.
pub fn format_duration(ms: i64) -> String {
    let (number, unit) = in_longest_exact_unit(ms);
    format_quantity(number, unit)
}

/// Formats a limit and its window: `10 per minute`, `10 per 90 seconds`.
pub fn format_rate(limit: i64, duration_ms: i64) -> String {
    let limit = format_grouped(limit);
    match in_longest_exact_unit(duration_ms) {
        (1, unit) => format!("{limit} per {unit}"),
        _ => format!("{limit} per {}", format_duration(duration_ms)),
    }
}

fn in_longest_exact_unit(ms: i64) -> (i64, &'static str) {
    let exact = UNITS.iter().find(|(_, unit_ms)| ms > 0 && ms % unit_ms == 0);
    exact.map_or((ms, "millisecond"), |(unit, unit_ms)| (ms / unit_ms, unit))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn number_has_a_separator_before_every_three_digits() {
        let formatted = [0, 999, 1_000, 123_456, 1_234_567].map(format_grouped);

        assert_eq!(formatted, ["0", "999", "1,000", "123,456", "1,234,567"]);
        assert_eq!(format_grouped(i64::MAX), "9,223,372,036,854,775,807");
    }

    #[test]
    fn quantity_has_a_plural_unless_it_is_one() {
        let formatted = [0, 1, 2, 1_000].map(|number| format_quantity(number, "credit"));

        assert_eq!(formatted, ["0 credits", "1 credit", "2 credits", "1,000 credits"]);
    }

    #[test]
    fn duration_is_in_the_longest_exact_unit() {
        for (ms, expected) in [
            (0, "0 milliseconds"),
            (1, "1 millisecond"),
            (59_999, "59,999 milliseconds"),
            (60_000, "1 minute"),
            (90_000, "90 seconds"),
            (2 * DAY_MS, "2 days"),
        ] {
            assert_eq!(format_duration(ms), expected);
        }
    }

    #[test]
    fn rate_names_a_single_unit_without_its_number() {
        let formatted = [(10, 1_000), (1_000, HOUR_MS), (1, 90_000), (1, 1)]
            .map(|(limit, ms)| format_rate(limit, ms));

        let expected = ["10 per second", "1,000 per hour", "1 per 90 seconds", "1 per millisecond"];
        assert_eq!(formatted, expected);
    }
}

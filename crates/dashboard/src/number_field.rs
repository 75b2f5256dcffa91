//! Numbers as entered in forms, and the rules that numbers out of bounds violate.

use std::ops::RangeInclusive;

use super::format::{format_duration, format_grouped};

/// What may separate groups of three digits: commas, as pages show them, and spaces, also those that do not break.
const GROUP_SEPARATORS: [char; 4] = [',', ' ', '\u{a0}', '\u{202f}'];

/// Parses an integer. One kind of separator may stand between groups of three digits: `10,000` or `10 000`.
pub fn parse_integer(text: &str) -> Option<i128> {
    let text = text.trim();
    let Some(separator) = text.chars().find(|letter| GROUP_SEPARATORS.contains(letter)) else {
        return text.parse().ok();
    };
    let (first, others) = text.split_once(separator)?;
    let is_number = |digits: &str| digits.bytes().all(|byte| byte.is_ascii_digit());
    let first = first.strip_prefix(['+', '-']).unwrap_or(first);
    // `0,500` is half of one where commas separate decimals.
    let is_first = (1..=3).contains(&first.len()) && is_number(first) && !first.starts_with('0');
    let are_groups = others.split(separator).all(|group| group.len() == 3 && is_number(group));
    if is_first && are_groups { text.replace(separator, "").parse().ok() } else { None }
}

/// Returns the rule that an integer out of bounds violates; `None` is text or JSON that is no integer.
pub fn integer_rule(number: Option<i128>, bounds: &RangeInclusive<i64>) -> String {
    let [min, max] = [*bounds.start(), *bounds.end()].map(format_grouped);
    match names_maximum(number, bounds) {
        true => format!("must be a whole number from {min} to {max}"),
        false => format!("must be a whole number of at least {min}"),
    }
}

/// Returns the rule that a duration out of bounds violates; `None` is text that is no integer.
pub fn duration_rule(ms: Option<i128>, bounds: &RangeInclusive<i64>) -> String {
    let [min, max] = [*bounds.start(), *bounds.end()].map(format_duration);
    match names_maximum(ms, bounds) {
        true => format!("must be a duration from {min} to {max}"),
        false => format!("must be at least {min}"),
    }
}

/// Returns whether a rule names the maximum. That of what is stored says nothing, unless it is exceeded.
fn names_maximum(number: Option<i128>, bounds: &RangeInclusive<i64>) -> bool {
    let is_exceeded = number.is_some_and(|number| number > i128::from(i64::MAX));
    *bounds.end() < i64::MAX || is_exceeded
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integer_may_have_commas_or_spaces_between_groups_of_three_digits() {
        for (text, number) in [
            (" 10 ", 10),
            ("007", 7),
            ("1,000", 1_000),
            ("1 000", 1_000),
            ("-1\u{a0}000\u{a0}000", -1_000_000),
            ("1\u{202f}000", 1_000),
            ("-10,000", -10_000),
            ("+999,999,999", 999_999_999),
            ("9,223,372,036,854,775,808", 1 << 63),
        ] {
            assert_eq!(parse_integer(text), Some(number), "{text}");
        }
        for text in [
            "",
            ",",
            "1,",
            ",100",
            "1,0",
            "1,00",
            "1,0000",
            "1000,000",
            "1,000,",
            "1,,000",
            "0,500",
            "1, 000",
            "1,000 000",
            "1 000,000",
            "1 00",
            "1  000",
            "1 000.5",
            "1 5",
            "+ 5",
            "1,5",
            "1,-00",
            "1.000",
            "1,000.5",
            "--1,000",
            "١,٠٠٠",
        ] {
            assert_eq!(parse_integer(text), None, "{text}");
        }
    }

    #[test]
    fn rule_names_the_largest_stored_number_only_if_it_is_exceeded() {
        let largest = i128::from(i64::MAX);

        for number in [None, Some(0), Some(largest)] {
            let rule = integer_rule(number, &(1_000..=i64::MAX));
            assert_eq!(rule, "must be a whole number of at least 1,000");
            assert_eq!(duration_rule(number, &(1_000..=i64::MAX)), "must be at least 1 second");
        }
        let rule = integer_rule(Some(largest + 1), &(1..=i64::MAX));
        assert_eq!(rule, "must be a whole number from 1 to 9,223,372,036,854,775,807");
        let rule = duration_rule(Some(largest + 1), &(1_000..=i64::MAX));
        assert!(rule.starts_with("must be a duration from 1 second to "), "{rule}");
        assert_eq!(integer_rule(None, &(16..=255)), "must be a whole number from 16 to 255");
    }
}

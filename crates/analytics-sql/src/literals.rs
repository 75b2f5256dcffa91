//! Translates literals: numbers, strings, booleans and NULL.

use foundation::error::Result;
use sqlparser::ast::Value;

use super::fragment::Fragment;
use super::types::{Type, Typed};
use super::{invalid, shown, type_domains, unsupported};

pub fn value(value: &Value) -> Result<Typed> {
    match value {
        Value::Number(number, false) => self::number(number),
        Value::SingleQuotedString(raw) => {
            let text = unescaped(raw);
            if text.contains('\0') {
                return invalid("a string contains a NUL character");
            }
            Ok(Typed::text(&text))
        }
        Value::Boolean(true) => Ok(Typed::of(Fragment::word("TRUE"), Type::Bool, &[])),
        Value::Boolean(false) => Ok(Typed::of(Fragment::word("FALSE"), Type::Bool, &[])),
        Value::Null => Ok(Typed::null()),
        Value::Placeholder(_) => unsupported("a placeholder"),
        _ => unsupported("this kind of literal"),
    }
}

fn number(number: &str) -> Result<Typed> {
    let digits = number.replace('_', "");
    if let Ok(whole) = digits.parse() {
        return Ok(Typed::int(whole, Type::Int));
    }
    match digits.parse::<f64>() {
        Ok(float)
            if type_domains::has_float(float)
                && digits.starts_with(|c: char| c.is_ascii_digit() || c == '.') =>
        {
            Ok(Typed::of(Fragment::float(float), Type::Float, &[]))
        }
        _ => invalid(format!(
            "the number {} is out of range: floats are from 1e-100 to 1e100",
            shown(number)
        )),
    }
}

/// Decodes the escapes of a string, which the tokenizer has left as they were. What is not an escape stays, with its
/// backslash: `\%` belongs to a pattern.
fn unescaped(raw: &str) -> String {
    let mut text = String::with_capacity(raw.len());
    let mut rest = raw.chars();
    while let Some(c) = rest.next() {
        match c {
            // Doubled: otherwise it would have ended the string.
            '\'' => {
                text.push('\'');
                rest.next();
            }
            '\\' => match rest.next() {
                Some('0') => text.push('\0'),
                Some('a') => text.push('\u{7}'),
                Some('b') => text.push('\u{8}'),
                Some('e') => text.push('\u{1b}'),
                Some('f') => text.push('\u{c}'),
                Some('n') => text.push('\n'),
                Some('r') => text.push('\r'),
                Some('t') => text.push('\t'),
                Some('v') => text.push('\u{b}'),
                Some('x') => text.push(hex(&mut rest)),
                Some(c @ ('\\' | '\'' | '"' | '`' | '/')) => text.push(c),
                Some(c) => text.extend(['\\', c]),
                None => text.push('\\'),
            },
            c => text.push(c),
        }
    }
    text
}

/// Decodes two hexadecimal digits. Other characters stay in place.
fn hex(rest: &mut std::str::Chars<'_>) -> char {
    let digits = rest.as_str().get(..2).and_then(|digits| u8::from_str_radix(digits, 16).ok());
    match digits {
        Some(byte) => {
            rest.nth(1);
            char::from(byte)
        }
        None => 'x',
    }
}

#[cfg(test)]
mod tests {
    use super::unescaped;

    #[test]
    fn unescape_decodes_escapes_when_clickhouse_does() {
        assert_eq!(unescaped(r"it\'s ''so''"), "it's 'so'");
        assert_eq!(unescaped(r"\\ \n \x41 \xZZ"), "\\ \n A xZZ");
        assert_eq!(unescaped(r"100\% \d"), r"100\% \d");
        assert_eq!(unescaped("\\"), "\\");
    }
}

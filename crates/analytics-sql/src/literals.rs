//! Translates literals: numbers, strings, booleans and NULL.

use foundation::error::Result;
use sqlparser::ast::Value;

use super::fragment::Fragment;
use super::types::{Type, TypedExpr};
use super::{excerpt, invalid, type_domains, unsupported};

pub fn translate_literal(value: &Value) -> Result<TypedExpr> {
    match value {
        Value::Number(number, false) => parse_number(number),
        Value::SingleQuotedString(raw) => {
            let text = unescape(raw);
            if text.contains('\0') {
                return invalid("a string contains a NUL character");
            }
            Ok(TypedExpr::text(&text))
        }
        Value::Boolean(true) => Ok(TypedExpr::from_parts(Fragment::word("TRUE"), Type::Bool, &[])),
        Value::Boolean(false) => {
            Ok(TypedExpr::from_parts(Fragment::word("FALSE"), Type::Bool, &[]))
        }
        Value::Null => Ok(TypedExpr::null()),
        Value::Placeholder(_) => unsupported("a placeholder"),
        _ => unsupported("this kind of literal"),
    }
}

fn parse_number(number: &str) -> Result<TypedExpr> {
    let digits = number.replace('_', "");
    if let Ok(whole) = digits.parse() {
        return Ok(TypedExpr::int(whole, Type::Int));
    }
    match digits.parse::<f64>() {
        Ok(float)
            if type_domains::is_valid_float(float)
                && digits.starts_with(|c: char| c.is_ascii_digit() || c == '.') =>
        {
            Ok(TypedExpr::from_parts(Fragment::float(float), Type::Float, &[]))
        }
        _ => invalid(format!(
            "the number {} is out of range: floats are from 1e-100 to 1e100",
            excerpt(number)
        )),
    }
}

/// Decodes the escapes of a string, which the tokenizer has left as they were. What is not an escape stays, with its
/// backslash: `\%` belongs to a pattern.
fn unescape(raw: &str) -> String {
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
                Some('x') => text.push(decode_hex(&mut rest)),
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
fn decode_hex(rest: &mut std::str::Chars<'_>) -> char {
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
    use super::unescape;

    #[test]
    fn unescape_decodes_escapes_when_clickhouse_does() {
        assert_eq!(unescape(r"it\'s ''so''"), "it's 'so'");
        assert_eq!(unescape(r"\\ \n \x41 \xZZ"), "\\ \n A xZZ");
        assert_eq!(unescape(r"100\% \d"), r"100\% \d");
        assert_eq!(unescape("\\"), "\\");
    }
}

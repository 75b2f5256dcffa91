//! Translates LIKE for each engine.

use foundation::error::Result;

use super::invalid;
use super::types::{SqlDialect, Type, TypedExpr};

/// The maximum length of a pattern: no engine can be stopped while it compares one text with it.
const PATTERN_MAX_CHARS: usize = 256;

/// Translates LIKE, or ILIKE, which ignores letter case.
pub fn translate_like(
    engine: SqlDialect,
    negated: bool,
    ignores_case: bool,
    values: &[TypedExpr],
) -> Result<TypedExpr> {
    let [value, pattern] = values else { return invalid("LIKE takes a text and a pattern") };
    let (Type::Text, Some(known)) = (&value.ty, pattern.constant_text()) else {
        return invalid("LIKE compares a String with a pattern that is a literal");
    };
    if known.chars().count() > PATTERN_MAX_CHARS {
        return invalid(format!("a pattern has more than {PATTERN_MAX_CHARS} characters"));
    }
    let escaped = normalize_escapes(known);
    let (template, pattern) = match (engine, ignores_case) {
        (SqlDialect::Postgres | SqlDialect::ClickHouse, false) => ("({0} LIKE {1})", escaped),
        (SqlDialect::Postgres, true) => ("({0} ILIKE {1})", escaped),
        // LIKE in SQLite ignores letter case; GLOB does not.
        (SqlDialect::Sqlite, true) => ("({0} LIKE {1} ESCAPE '\\')", escaped),
        (SqlDialect::Sqlite, false) => ("({0} GLOB {1})", to_glob(known)),
        (SqlDialect::ClickHouse, true) => ("(lowerUTF8({0}) LIKE {1})", escaped.to_lowercase()),
    };
    let like = TypedExpr::from_template(template, Type::Flag, &[value, &TypedExpr::text(&pattern)]);
    Ok(if negated { TypedExpr::from_template("(NOT {0})", Type::Flag, &[&like]) } else { like })
}

fn to_glob(pattern: &str) -> String {
    let mut glob = String::new();
    let mut rest = pattern.chars();
    while let Some(c) = rest.next() {
        match c {
            '%' => glob.push('*'),
            '_' => glob.push('?'),
            '\\' => push_literal(&mut glob, rest.next().unwrap_or('\\')),
            c => push_literal(&mut glob, c),
        }
    }
    glob
}

/// Returns the pattern with a backslash only before characters that have a special meaning. How ClickHouse reads
/// other escapes depends on its version, and Postgres fails with a pattern that ends with a backslash, on rows that
/// match so far.
fn normalize_escapes(pattern: &str) -> String {
    let mut normalized = String::new();
    let mut rest = pattern.chars();
    while let Some(c) = rest.next() {
        match c {
            '\\' => {
                let c = rest.next().unwrap_or('\\');
                if matches!(c, '%' | '_' | '\\') {
                    normalized.push('\\');
                }
                normalized.push(c);
            }
            c => normalized.push(c),
        }
    }
    normalized
}

fn push_literal(glob: &mut String, c: char) {
    match c {
        '*' | '?' | '[' => glob.extend(['[', c, ']']),
        c => glob.push(c),
    }
}

#[cfg(test)]
mod tests {
    use super::{normalize_escapes, to_glob};

    #[test]
    fn to_glob_keeps_meaning_when_pattern_has_escapes() {
        assert_eq!(to_glob("a%b_c"), "a*b?c");
        assert_eq!(to_glob(r"100\%*[x]"), "100%[*][[]x]");
    }

    #[test]
    fn normalize_escapes_keeps_meaning_when_escapes_are_unknown() {
        assert_eq!(normalize_escapes(r"100\%_\\%\d.\"), r"100\%_\\%d.\\");
    }
}

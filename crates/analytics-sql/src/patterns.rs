//! LIKE, in the words of each engine.

use foundation::error::Result;

use super::invalid;
use super::types::{SqlDialect, Type, Typed};

/// The longest pattern: no engine can be stopped while it compares one text with it.
const PATTERN_MAX_CHARS: usize = 256;

/// LIKE, and ILIKE in any letter case.
pub fn like(engine: SqlDialect, negated: bool, any_case: bool, values: &[Typed]) -> Result<Typed> {
    let [value, pattern] = values else { return invalid("LIKE takes a text and a pattern") };
    let (Type::Text, Some(known)) = (&value.ty, pattern.known_text()) else {
        return invalid("LIKE compares a text with a pattern that is written out");
    };
    if known.chars().count() > PATTERN_MAX_CHARS {
        return invalid(format!("a pattern has more than {PATTERN_MAX_CHARS} characters"));
    }
    let escaped = escaped_anew(known);
    let (template, pattern) = match (engine, any_case) {
        (SqlDialect::Postgres | SqlDialect::ClickHouse, false) => ("({0} LIKE {1})", escaped),
        (SqlDialect::Postgres, true) => ("({0} ILIKE {1})", escaped),
        // LIKE of SQLite does not tell upper from lower case; GLOB does.
        (SqlDialect::Sqlite, true) => ("({0} LIKE {1} ESCAPE '\\')", escaped),
        (SqlDialect::Sqlite, false) => ("({0} GLOB {1})", globbed(known)),
        (SqlDialect::ClickHouse, true) => ("(lowerUTF8({0}) LIKE {1})", escaped.to_lowercase()),
    };
    let like = Typed::fill(template, Type::Flag, &[value, &Typed::text(&pattern)]);
    Ok(if negated { Typed::fill("(NOT {0})", Type::Flag, &[&like]) } else { like })
}

fn globbed(pattern: &str) -> String {
    let mut glob = String::new();
    let mut rest = pattern.chars();
    while let Some(c) = rest.next() {
        match c {
            '%' => glob.push('*'),
            '_' => glob.push('?'),
            '\\' => literally(&mut glob, rest.next().unwrap_or('\\')),
            c => literally(&mut glob, c),
        }
    }
    glob
}

/// The pattern with a backslash before nothing but what would mean something else: what ClickHouse makes of another one
/// depends on its version, and Postgres fails at one that ends with a backslash, on the rows that fit so far.
fn escaped_anew(pattern: &str) -> String {
    let mut anew = String::new();
    let mut rest = pattern.chars();
    while let Some(c) = rest.next() {
        match c {
            '\\' => {
                let c = rest.next().unwrap_or('\\');
                if matches!(c, '%' | '_' | '\\') {
                    anew.push('\\');
                }
                anew.push(c);
            }
            c => anew.push(c),
        }
    }
    anew
}

fn literally(glob: &mut String, c: char) {
    match c {
        '*' | '?' | '[' => glob.extend(['[', c, ']']),
        c => glob.push(c),
    }
}

#[cfg(test)]
mod tests {
    use super::{escaped_anew, globbed};

    #[test]
    fn a_pattern_keeps_its_meaning_as_a_glob() {
        assert_eq!(globbed("a%b_c"), "a*b?c");
        assert_eq!(globbed(r"100\%*[x]"), "100%[*][[]x]");
    }

    #[test]
    fn a_pattern_keeps_its_meaning_for_clickhouse() {
        assert_eq!(escaped_anew(r"100\%_\\%\d.\"), r"100\%_\\%d.\\");
    }
}

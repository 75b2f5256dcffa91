//! Builds SQL from words of this program, numbered names, and values.
//!
//! There is no other way to create a fragment, so no text of a caller can become SQL: input enters as a bound value
//! or as a number.

use std::borrow::Cow;
use std::fmt::Write as _;
use std::rc::Rc;

use super::types::SqlDialect;

/// The maximum number of pieces of a query. Repeated use of one alias could otherwise double it again and again.
const PIECES_MAX: usize = 20_000;

#[derive(Debug, Clone, PartialEq)]
enum Piece {
    Word(&'static str),
    /// A letter and a number.
    Name(char, usize),
    /// Always has the same type, and is never the position of a column.
    Int(i64),
    Float(f64),
    Text(Rc<str>),
    /// For positions where only digits are allowed.
    Digits(Rc<[i64]>),
    /// A position where something may be inserted later.
    Gap(usize),
    /// Marks a read of a public table.
    TableRead,
    Fraction(f64),
}

/// A part of a query.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Fragment {
    pieces: Vec<Piece>,
    is_too_long: bool,
}

impl Fragment {
    /// Returns the number of its pieces.
    pub fn piece_count(&self) -> usize {
        self.pieces.len()
    }

    pub fn word(word: &'static str) -> Self {
        Self { pieces: vec![Piece::Word(word)], is_too_long: false }
    }

    /// Returns a name that no object in the databases has, and nothing else in the query.
    pub fn generated_name(letter: char, number: usize) -> Self {
        Self { pieces: vec![Piece::Name(letter, number)], is_too_long: false }
    }

    /// Returns a column of an internal table.
    pub fn quoted_column(name: &'static str) -> Self {
        let pieces = vec![Piece::Word("\""), Piece::Word(name), Piece::Word("\"")];
        Self { pieces, is_too_long: false }
    }

    pub fn int(value: i64) -> Self {
        Self { pieces: vec![Piece::Int(value)], is_too_long: false }
    }

    /// Returns a float. The value must be finite.
    pub fn float(value: f64) -> Self {
        Self { pieces: vec![Piece::Float(value)], is_too_long: false }
    }

    pub fn text(value: &str) -> Self {
        Self { pieces: vec![Piece::Text(value.into())], is_too_long: false }
    }

    /// Returns whole numbers separated by commas, as digits only.
    pub fn digits(values: &[i64]) -> Self {
        Self { pieces: vec![Piece::Digits(values.into())], is_too_long: false }
    }

    /// Returns a number from 0 to 1, as digits only.
    pub fn fraction(value: f64) -> Self {
        Self { pieces: vec![Piece::Fraction(value)], is_too_long: false }
    }

    /// Returns a gap for [`Self::fill_gap`]. Until it is filled, it renders as nothing.
    pub fn gap(number: usize) -> Self {
        Self { pieces: vec![Piece::Gap(number)], is_too_long: false }
    }

    /// Returns a mark that a public table is read here. It renders as nothing.
    pub fn table_read() -> Self {
        Self { pieces: vec![Piece::TableRead], is_too_long: false }
    }

    /// Returns how often public tables are read.
    pub fn table_read_count(&self) -> usize {
        self.pieces.iter().filter(|piece| **piece == Piece::TableRead).count()
    }

    pub fn fill_gap(&self, number: usize, with: &Self) -> Self {
        let mut filled = Self { pieces: Vec::new(), is_too_long: self.is_too_long };
        for piece in &self.pieces {
            match piece {
                Piece::Gap(gap) if *gap == number => filled.append(with),
                piece => filled.push(piece.clone()),
            }
        }
        filled
    }

    /// Returns the template with `{0}`, `{1}` … replaced by the parts.
    pub fn from_template(template: &'static str, parts: &[&Self]) -> Self {
        let mut filled = Self::default();
        let mut rest = template;
        while let Some((before, after)) = rest.split_once('{') {
            let (number, after) = after.split_once('}').expect("templates close their braces");
            filled.push(Piece::Word(before));
            let number: usize = number.parse().expect("templates have numbers in their braces");
            filled.append(parts[number]);
            rest = after;
        }
        filled.push(Piece::Word(rest));
        filled
    }

    /// Returns the parts with a separator between them.
    pub fn join<'a>(between: &'static str, parts: impl IntoIterator<Item = &'a Self>) -> Self {
        let mut list = Self::default();
        for (index, part) in parts.into_iter().enumerate() {
            if index > 0 {
                list.push(Piece::Word(between));
            }
            list.append(part);
        }
        list
    }

    pub fn append(&mut self, other: &Self) {
        self.is_too_long |=
            other.is_too_long || self.pieces.len() + other.pieces.len() > PIECES_MAX;
        if self.is_too_long {
            self.pieces.clear();
        } else {
            self.pieces.extend_from_slice(&other.pieces);
        }
    }

    pub fn is_empty(&self) -> bool {
        self.pieces.is_empty() && !self.is_too_long
    }

    /// Renders the SQL, and the texts that are bound to `$1`, `$2` …. Returns `None` if the fragment has grown too
    /// long. Equal texts are bound once, so that equal expressions stay equal.
    pub fn render(&self, engine: SqlDialect) -> Option<(String, Vec<String>)> {
        if self.is_too_long {
            return None;
        }
        let mut sql = String::new();
        let mut texts: Vec<String> = Vec::new();
        for piece in &self.pieces {
            let _ = match piece {
                Piece::Word(word) => write!(sql, "{}", dialect_word(word, engine)),
                Piece::Name(letter, number) => write!(sql, "{letter}{number}"),
                Piece::Int(value) => match engine {
                    SqlDialect::Postgres | SqlDialect::Sqlite => {
                        write!(sql, "CAST({value} AS BIGINT)")
                    }
                    SqlDialect::ClickHouse => write!(sql, "toInt64({value})"),
                },
                Piece::Float(value) => match engine {
                    SqlDialect::Postgres | SqlDialect::Sqlite => {
                        write!(sql, "CAST({value:?} AS DOUBLE PRECISION)")
                    }
                    SqlDialect::ClickHouse => write!(sql, "toFloat64({value:?})"),
                },
                Piece::Text(text) => {
                    let known = texts.iter().position(|known| **known == **text);
                    let index = known.unwrap_or_else(|| {
                        texts.push(text.to_string());
                        texts.len() - 1
                    });
                    match engine {
                        SqlDialect::Postgres | SqlDialect::Sqlite => {
                            write!(sql, "CAST(${} AS TEXT)", index + 1)
                        }
                        // A plain string, so that ClickHouse can use its indexes.
                        SqlDialect::ClickHouse => write!(sql, "${}", index + 1),
                    }
                }
                Piece::Digits(values) => {
                    let values: Vec<_> = values.iter().map(i64::to_string).collect();
                    write!(sql, "{}", values.join(", "))
                }
                Piece::Fraction(value) => write!(sql, "{value:?}"),
                Piece::Gap(_) | Piece::TableRead => Ok(()),
            };
        }
        Some((sql, texts))
    }

    fn push(&mut self, piece: Piece) {
        self.append(&Self { pieces: vec![piece], is_too_long: false });
    }
}

/// Returns a word with the types and truth values of the engine. A ClickHouse type cannot be NULL unless it is
/// declared so.
fn dialect_word(word: &'static str, engine: SqlDialect) -> Cow<'static, str> {
    const TYPES: [(&str, &str); 5] = [
        (" AS BIGINT)", " AS Nullable(Int64))"),
        (" AS INTEGER)", " AS Nullable(Int32))"),
        (" AS DOUBLE PRECISION)", " AS Nullable(Float64))"),
        (" AS TEXT)", " AS Nullable(String))"),
        (" AS BOOLEAN)", " AS Nullable(UInt8))"),
    ];
    match (engine, word) {
        (SqlDialect::Postgres | SqlDialect::Sqlite, _) => word.into(),
        (SqlDialect::ClickHouse, "TRUE") => "1".into(),
        (SqlDialect::ClickHouse, "FALSE") => "0".into(),
        (SqlDialect::ClickHouse, word) if word.contains(" AS ") => {
            let ours = TYPES.iter().filter(|(ours, _)| word.contains(ours));
            ours.fold(word.into(), |word: Cow<'_, str>, (ours, theirs)| {
                word.replace(ours, theirs).into()
            })
        }
        (SqlDialect::ClickHouse, word) => word.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn render_binds_texts_when_fragment_contains_them() {
        let hostile = Fragment::text("'); DROP TABLE keys; --");

        let filled =
            Fragment::from_template("({0} = {1} OR {0} = 'x')", &[&hostile, &Fragment::int(-5)]);

        let (sql, texts) = filled.render(SqlDialect::Postgres).expect("it is short");
        assert_eq!(sql, "(CAST($1 AS TEXT) = CAST(-5 AS BIGINT) OR CAST($1 AS TEXT) = 'x')");
        assert_eq!(texts, ["'); DROP TABLE keys; --"]);
        let (sql, texts) = filled.render(SqlDialect::ClickHouse).expect("it is short");
        assert_eq!(sql, "($1 = toInt64(-5) OR $1 = 'x')");
        assert_eq!(texts, ["'); DROP TABLE keys; --"]);
    }

    #[test]
    fn render_replaces_type_names_when_engine_is_clickhouse() {
        let number = Fragment::from_template("CAST({0} AS BIGINT) + 1", &[&Fragment::word("TRUE")]);
        let sql = |engine| number.render(engine).map(|(sql, _)| sql);

        assert_eq!(sql(SqlDialect::Sqlite).as_deref(), Some("CAST(TRUE AS BIGINT) + 1"));
        assert_eq!(sql(SqlDialect::ClickHouse).as_deref(), Some("CAST(1 AS Nullable(Int64)) + 1"));
    }

    #[test]
    fn render_returns_none_when_fragment_is_too_long() {
        let mut grown = Fragment::word("x");
        for _ in 0..200 {
            grown = Fragment::from_template("({0} + {0})", &[&grown]);
        }

        assert!(grown.render(SqlDialect::Sqlite).is_none());
    }
}

//! SQL that is being put together: of words that stand in this program, of names that it numbers, and of values.
//!
//! There is no other way to make a piece of it, so no text of a caller can become SQL: what a caller writes gets in as
//! a bound value, or as a number.

use std::fmt::Write as _;
use std::rc::Rc;

/// The most pieces that a query may come to. Repeated use of one alias could otherwise double it again and again.
const PIECES_MAX: usize = 20_000;

#[derive(Debug, Clone, PartialEq)]
enum Piece {
    Word(&'static str),
    /// A letter and a number.
    Name(char, usize),
    Int(i64),
    Float(f64),
    Text(Rc<str>),
}

/// A part of a query.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Fragment {
    pieces: Vec<Piece>,
    is_too_long: bool,
}

impl Fragment {
    pub fn word(word: &'static str) -> Self {
        Self { pieces: vec![Piece::Word(word)], is_too_long: false }
    }

    /// A name that nothing in the databases has, nor anything else in the query.
    pub fn name(letter: char, number: usize) -> Self {
        Self { pieces: vec![Piece::Name(letter, number)], is_too_long: false }
    }

    /// A column of one of our own tables.
    pub fn quoted(name: &'static str) -> Self {
        let pieces = vec![Piece::Word("\""), Piece::Word(name), Piece::Word("\"")];
        Self { pieces, is_too_long: false }
    }

    /// Always of the same type, and never the position of a column.
    pub fn int(value: i64) -> Self {
        Self {
            pieces: vec![Piece::Word("CAST("), Piece::Int(value), Piece::Word(" AS BIGINT)")],
            is_too_long: false,
        }
    }

    /// The value must be finite.
    pub fn float(value: f64) -> Self {
        Self {
            pieces: vec![
                Piece::Word("CAST("),
                Piece::Float(value),
                Piece::Word(" AS DOUBLE PRECISION)"),
            ],
            is_too_long: false,
        }
    }

    pub fn text(value: &str) -> Self {
        Self {
            pieces: vec![Piece::Word("CAST("), Piece::Text(value.into()), Piece::Word(" AS TEXT)")],
            is_too_long: false,
        }
    }

    /// The template with `{0}`, `{1}` … replaced by the parts.
    pub fn fill(template: &'static str, parts: &[&Self]) -> Self {
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

    /// The parts, with a word between them.
    pub fn list<'a>(between: &'static str, parts: impl IntoIterator<Item = &'a Self>) -> Self {
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

    /// As text, and the texts that are bound to `$1`, `$2` …; nothing if it has grown too long. Equal texts are bound
    /// once, so that equal expressions stay equal.
    pub fn render(&self) -> Option<(String, Vec<String>)> {
        if self.is_too_long {
            return None;
        }
        let mut sql = String::new();
        let mut texts: Vec<String> = Vec::new();
        for piece in &self.pieces {
            match piece {
                Piece::Word(word) => sql.push_str(word),
                Piece::Name(letter, number) => {
                    let _ = write!(sql, "{letter}{number}");
                }
                Piece::Int(value) => {
                    let _ = write!(sql, "{value}");
                }
                Piece::Float(value) => {
                    let _ = write!(sql, "{value:?}");
                }
                Piece::Text(text) => {
                    let known = texts.iter().position(|known| **known == **text);
                    let index = known.unwrap_or_else(|| {
                        texts.push(text.to_string());
                        texts.len() - 1
                    });
                    let _ = write!(sql, "${}", index + 1);
                }
            }
        }
        Some((sql, texts))
    }

    fn push(&mut self, piece: Piece) {
        self.append(&Self { pieces: vec![piece], is_too_long: false });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_bound_and_never_written() {
        let hostile = Fragment::text("'); DROP TABLE keys; --");

        let filled = Fragment::fill("({0} = {1} OR {0} = 'x')", &[&hostile, &Fragment::int(-5)]);

        let (sql, texts) = filled.render().expect("it is short");
        assert_eq!(sql, "(CAST($1 AS TEXT) = CAST(-5 AS BIGINT) OR CAST($1 AS TEXT) = 'x')");
        assert_eq!(texts, ["'); DROP TABLE keys; --"]);
    }

    #[test]
    fn what_doubles_again_and_again_ends() {
        let mut grown = Fragment::word("x");
        for _ in 0..200 {
            grown = Fragment::fill("({0} + {0})", &[&grown]);
        }

        assert!(grown.render().is_none());
    }
}

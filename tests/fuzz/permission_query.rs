//! Fuzzes permission queries against the grammar, written as three functions.

use domain::query;
use foundation::error::{Code, Error};

use crate::compose;

/// The maximum length of a query in a request.
const LENGTH_MAX: usize = 1000;

const PIECES: &[&str] = &[
    "a ", "b ", "AND ", "OR ", "(", ")", "a", "and", "Or\t", " ", "\r\n", "android ", "*",
    "x.y:/- ", "é", "&",
];

#[test]
fn query_is_evaluated_or_rejected_as_in_the_grammar() {
    bolero::check!(name = "permission_query").for_each(|bytes: &[u8]| {
        assert_parsed_like_grammar(&String::from_utf8_lossy(bytes));
        assert_parsed_like_grammar(&compose(bytes, PIECES).concat());
    });
}

#[test]
fn printed_query_evaluates_like_its_tree() {
    bolero::check!(name = "permission_query").for_each(|bytes: &[u8]| {
        let tree = Tree::from_bytes(bytes);
        let text = tree.print(Binding::Or, bytes);

        for permissions in [0, 1, 0b0110_1001, 0b1001_0110, bytes.len() & 0xff, 0xff] {
            let has = |name: &str| permissions >> name[2..].parse::<u8>().unwrap() & 1 == 1;
            assert_eq!(query::is_satisfied(&text, has).unwrap(), tree.holds(permissions), "{text}");
        }
        // A single random edit of it.
        let slip = bytes.iter().fold(0, |sum, byte| sum + usize::from(*byte)) % text.len();
        assert_parsed_like_grammar(&format!("{}{}", &text[..slip], &text[slip + 1..]));
        assert_parsed_like_grammar(&format!("{}){}", &text[..slip], &text[slip..]));
    });
}

#[test]
fn query_does_not_overflow_the_stack_when_deep() {
    let deep = format!("{}a{}", "(".repeat(500_000), ")".repeat(500_000));

    assert!(query::is_satisfied(&deep, |_| true).unwrap());
    assert_eq!(
        error_position(&query::is_satisfied(&deep[1..], |_| true).unwrap_err()),
        deep.len() - 2
    );
}

fn assert_parsed_like_grammar(text: &str) {
    if text.len() > LENGTH_MAX {
        // The functions below are recursive.
        let _ = query::is_satisfied(text, |_| true);
        return;
    }
    // Every assignment of three kinds of names.
    for kinds in 0..8 {
        let has = |name: &str| kinds >> (name.bytes().map(usize::from).sum::<usize>() % 3) & 1 == 1;
        match (query::is_satisfied(text, has), read(text, &has)) {
            (Ok(parsed), Ok(right)) => assert_eq!(parsed, right, "{text:?}"),
            (Err(error), Err(at)) => assert_eq!(error_position(&error), at, "{text:?}: {error}"),
            (parsed, right) => panic!("{text:?} is {parsed:?}, and {right:?} by the grammar"),
        }
    }
}

/// Returns the byte position that an error contains.
fn error_position(error: &Error) -> usize {
    assert_eq!(error.code(), Code::PermissionsQuerySyntaxError);
    let message = error.to_string();
    assert!(message.len() < 120, "{message}");
    let position = message.strip_suffix(')').and_then(|text| text.rsplit_once("(at byte "));
    position.unwrap().1.parse().unwrap()
}

type HasPermission<'a> = &'a dyn Fn(&str) -> bool;

/// Implements the grammar: returns whether the text holds, or the byte of the first token that cannot follow.
fn read(text: &str, has: HasPermission<'_>) -> Result<bool, usize> {
    let tokens = tokens(text);
    let mut rest = &tokens[..];
    let holds = parse_or(&mut rest, has)?;
    match rest {
        [(_, "")] => Ok(holds),
        _ => Err(rest[0].0),
    }
}

/// Parses one or more AND terms joined by OR.
fn parse_or(rest: &mut &[(usize, &str)], has: HasPermission<'_>) -> Result<bool, usize> {
    let mut holds = parse_and(rest, has)?;
    while rest[0].1.eq_ignore_ascii_case("or") {
        *rest = &rest[1..];
        holds |= parse_and(rest, has)?;
    }
    Ok(holds)
}

fn parse_and(rest: &mut &[(usize, &str)], has: HasPermission<'_>) -> Result<bool, usize> {
    let mut holds = parse_term(rest, has)?;
    while rest[0].1.eq_ignore_ascii_case("and") {
        *rest = &rest[1..];
        holds &= parse_term(rest, has)?;
    }
    Ok(holds)
}

/// Parses a permission, or a whole query in parentheses.
fn parse_term(rest: &mut &[(usize, &str)], has: HasPermission<'_>) -> Result<bool, usize> {
    let (at, token) = rest[0];
    let is_operator = ["and", "or"].iter().any(|word| token.eq_ignore_ascii_case(word));
    if token == "(" {
        *rest = &rest[1..];
        let holds = parse_or(rest, has)?;
        if rest[0].1 != ")" {
            return Err(rest[0].0);
        }
        *rest = &rest[1..];
        return Ok(holds);
    }
    if is_operator || !token.starts_with(is_name) {
        return Err(at);
    }
    *rest = &rest[1..];
    Ok(has(token))
}

/// Returns the text between spaces with its position; an empty token at the end.
fn tokens(text: &str) -> Vec<(usize, &str)> {
    let mut tokens = Vec::new();
    let mut at = 0;
    while let Some(c) = text[at..].chars().next() {
        let length = match text[at..].find(|c| !is_name(c)) {
            Some(0) => c.len_utf8(),
            found => found.unwrap_or(text.len() - at),
        };
        if !matches!(c, ' ' | '\t' | '\r' | '\n') {
            tokens.push((at, &text[at..at + length]));
        }
        at += length;
    }
    tokens.push((text.len(), ""));
    tokens
}

fn is_name(c: char) -> bool {
    c.is_ascii_alphanumeric() || "._-:*/".contains(c)
}

/// A query before it is printed. A name is a bit in the permissions.
enum Tree {
    Name(usize),
    And(Box<Self>, Box<Self>),
    Or(Box<Self>, Box<Self>),
}

/// What may appear without parentheses.
#[derive(Clone, Copy, PartialEq, PartialOrd)]
enum Binding {
    Or,
    And,
    Name,
}

impl Tree {
    /// Builds a tree like a stack calculator: a byte is a name, or joins the two trees before it.
    fn from_bytes(bytes: &[u8]) -> Self {
        let mut trees = vec![Self::Name(7)];
        for byte in bytes {
            let joined = match byte % 4 {
                0 | 1 => None,
                _ => trees.pop().zip(trees.pop()),
            };
            trees.push(match (joined, byte % 4) {
                (Some((right, left)), 2) => Self::And(left.into(), right.into()),
                (Some((right, left)), _) => Self::Or(left.into(), right.into()),
                (None, _) => Self::Name(usize::from(byte / 4 % 8)),
            });
        }
        let joined = trees.into_iter().reduce(|left, right| Self::Or(left.into(), right.into()));
        joined.unwrap_or(Self::Name(0))
    }

    fn holds(&self, permissions: usize) -> bool {
        match self {
            Self::Name(bit) => permissions >> bit & 1 == 1,
            Self::And(left, right) => left.holds(permissions) && right.holds(permissions),
            Self::Or(left, right) => left.holds(permissions) || right.holds(permissions),
        }
    }

    /// Prints it with the parentheses that are required in this position, and some that are not.
    fn print(&self, position: Binding, bytes: &[u8]) -> String {
        let (text, binding) = match self {
            Self::Name(bit) => (format!("p.{bit}"), Binding::Name),
            Self::And(left, right) => {
                let (left, right) =
                    (left.print(Binding::And, bytes), right.print(Binding::And, bytes));
                (format!("{left} AND {right}"), Binding::And)
            }
            Self::Or(left, right) => {
                let (left, right) =
                    (left.print(Binding::Or, bytes), right.print(Binding::Or, bytes));
                (format!("{left} or\t{right}"), Binding::Or)
            }
        };
        let has_optional_parentheses = bytes.get(text.len() % 16).is_some_and(|byte| byte % 5 == 0);
        match binding < position || has_optional_parentheses {
            true => format!("({text})"),
            false => text,
        }
    }
}

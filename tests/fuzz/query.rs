//! Permission queries, against the grammar written as three functions.

use foundation::error::{Code, Error};
use keyward::domain::query;

use crate::spelled;

/// The longest query that a request may have.
const LENGTH_MAX: usize = 1000;

const PIECES: &[&str] = &[
    "a ", "b ", "AND ", "OR ", "(", ")", "a", "and", "Or\t", " ", "\r\n", "android ", "*",
    "x.y:/- ", "é", "&",
];

#[test]
fn a_text_is_evaluated_or_refused_as_the_grammar_says() {
    bolero::check!(name = "query").for_each(|bytes: &[u8]| {
        hold_against_grammar(&String::from_utf8_lossy(bytes));
        hold_against_grammar(&spelled(bytes, PIECES).concat());
    });
}

#[test]
fn a_printed_tree_means_what_the_tree_means() {
    bolero::check!(name = "query").for_each(|bytes: &[u8]| {
        let tree = Tree::grown(bytes);
        let text = tree.print(Binding::Or, bytes);

        for permissions in [0, 1, 0b0110_1001, 0b1001_0110, bytes.len() & 0xff, 0xff] {
            let has = |name: &str| permissions >> name[2..].parse::<u8>().unwrap() & 1 == 1;
            assert_eq!(query::holds(&text, has).unwrap(), tree.holds(permissions), "{text}");
        }
        // What a slip of the finger makes of it.
        let slip = bytes.iter().fold(0, |sum, byte| sum + usize::from(*byte)) % text.len();
        hold_against_grammar(&format!("{}{}", &text[..slip], &text[slip + 1..]));
        hold_against_grammar(&format!("{}){}", &text[..slip], &text[slip..]));
    });
}

#[test]
fn no_depth_exhausts_the_stack() {
    let deep = format!("{}a{}", "(".repeat(500_000), ")".repeat(500_000));

    assert!(query::holds(&deep, |_| true).unwrap());
    assert_eq!(place(&query::holds(&deep[1..], |_| true).unwrap_err()), deep.len() - 2);
}

fn hold_against_grammar(text: &str) {
    if text.len() > LENGTH_MAX {
        // The functions below call each other.
        let _ = query::holds(text, |_| true);
        return;
    }
    // Every choice among three kinds of names.
    for kinds in 0..8 {
        let has = |name: &str| kinds >> (name.bytes().map(usize::from).sum::<usize>() % 3) & 1 == 1;
        match (query::holds(text, has), read(text, &has)) {
            (Ok(told), Ok(right)) => assert_eq!(told, right, "{text:?}"),
            (Err(error), Err(at)) => assert_eq!(place(&error), at, "{text:?}: {error}"),
            (told, right) => panic!("{text:?} is {told:?}, and {right:?} by the grammar"),
        }
    }
}

/// The byte that a refusal names.
fn place(error: &Error) -> usize {
    assert_eq!(error.code(), Code::PermissionsQuerySyntaxError);
    let told = error.to_string();
    assert!(told.len() < 120, "{told}");
    let place = told.strip_suffix(')').and_then(|told| told.rsplit_once("(at byte "));
    place.unwrap().1.parse().unwrap()
}

type Has<'a> = &'a dyn Fn(&str) -> bool;

/// The grammar: whether the text holds, or at which byte stands the first token that cannot follow.
fn read(text: &str, has: Has<'_>) -> Result<bool, usize> {
    let tokens = tokens(text);
    let mut rest = &tokens[..];
    let holds = any(&mut rest, has)?;
    match rest {
        [(_, "")] => Ok(holds),
        _ => Err(rest[0].0),
    }
}

/// One or more of what AND joins, joined by OR.
fn any(rest: &mut &[(usize, &str)], has: Has<'_>) -> Result<bool, usize> {
    let mut holds = all(rest, has)?;
    while rest[0].1.eq_ignore_ascii_case("or") {
        *rest = &rest[1..];
        holds |= all(rest, has)?;
    }
    Ok(holds)
}

fn all(rest: &mut &[(usize, &str)], has: Has<'_>) -> Result<bool, usize> {
    let mut holds = one(rest, has)?;
    while rest[0].1.eq_ignore_ascii_case("and") {
        *rest = &rest[1..];
        holds &= one(rest, has)?;
    }
    Ok(holds)
}

/// A permission, or a whole query in parentheses.
fn one(rest: &mut &[(usize, &str)], has: Has<'_>) -> Result<bool, usize> {
    let (at, token) = rest[0];
    let is_operator = ["and", "or"].iter().any(|word| token.eq_ignore_ascii_case(word));
    if token == "(" {
        *rest = &rest[1..];
        let holds = any(rest, has)?;
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

/// What stands between spaces, with its place; at the end the empty one.
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

/// A query before it is written down. A name is a bit in the permissions.
enum Tree {
    Name(usize),
    And(Box<Self>, Box<Self>),
    Or(Box<Self>, Box<Self>),
}

/// What may stand somewhere without parentheses.
#[derive(Clone, Copy, PartialEq, PartialOrd)]
enum Binding {
    Or,
    And,
    Name,
}

impl Tree {
    /// As a calculator with a stack: a byte is a name, or joins the two trees before it.
    fn grown(bytes: &[u8]) -> Self {
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

    /// With the parentheses that it needs in this place, and a few that it does not.
    fn print(&self, place: Binding, bytes: &[u8]) -> String {
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
        let is_asked = bytes.get(text.len() % 16).is_some_and(|byte| byte % 5 == 0);
        match binding < place || is_asked {
            true => format!("({text})"),
            false => text,
        }
    }
}

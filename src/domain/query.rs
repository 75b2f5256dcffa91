//! Permission queries: `documents.read AND (documents.write OR admin)`.
//!
//! AND binds tighter than OR; both in any letter case; names are compared letter by letter, `*`
//! included. Parsing and evaluating are one pass with a stack of its own, so that no query, however
//! deeply nested, can exhaust the thread's.

use crate::error::{Error, Result};

/// A query that has been parsed: its tokens in postfix order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Query {
    postfix: Vec<Step>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Step {
    Has(Box<str>),
    And,
    Or,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Token<'a> {
    Name(&'a str),
    And,
    Or,
    Open,
    Close,
}

/// An operator, or an open parenthesis with the place where it stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Pending {
    And,
    Or,
    Open,
}

impl Query {
    /// Parses a query. The error tells the fault and the byte at which it stands.
    pub fn parse(text: &str) -> Result<Self> {
        let mut parser = Parser { postfix: Vec::new(), pending: Vec::new(), wants_operand: true };
        let mut rest = Tokens { text, at: 0 };
        while let Some((at, token)) = rest.next()? {
            parser.take(at, token, text)?;
        }
        parser.finish(text)
    }

    /// Whether the query holds for a key that has these permissions.
    pub fn holds(&self, has: impl Fn(&str) -> bool) -> bool {
        let mut stack = Vec::with_capacity(8);
        for step in &self.postfix {
            let value = match step {
                Step::Has(name) => has(name),
                // Both sides are there: the parser has put them before their operator.
                Step::And => {
                    let (right, left) = (stack.pop(), stack.pop());
                    right == Some(true) && left == Some(true)
                }
                Step::Or => {
                    let (right, left) = (stack.pop(), stack.pop());
                    right == Some(true) || left == Some(true)
                }
            };
            stack.push(value);
        }
        stack.pop() == Some(true)
    }
}

struct Parser {
    postfix: Vec<Step>,
    pending: Vec<Pending>,
    wants_operand: bool,
}

impl Parser {
    fn take(&mut self, at: usize, token: Token<'_>, text: &str) -> Result<()> {
        match (token, self.wants_operand) {
            (Token::Name(name), true) => {
                self.postfix.push(Step::Has(name.into()));
                self.wants_operand = false;
            }
            (Token::Open, true) => self.pending.push(Pending::Open),
            (Token::And, false) => self.operator(Pending::And),
            (Token::Or, false) => self.operator(Pending::Or),
            (Token::Close, false) => self.close(at)?,
            (Token::Close, true) if self.pending.last() == Some(&Pending::Open) => {
                return fault(at, "a permission is missing before this closing parenthesis");
            }
            (Token::Name(_) | Token::Open, false) => {
                return fault(at, "AND or OR is missing before this");
            }
            (Token::And | Token::Or | Token::Close, true) => {
                return fault(at, &format!("a permission is missing before {:?}", shown(text, at)));
            }
        }
        Ok(())
    }

    /// Every operator that binds at least as tightly and still waits comes first.
    fn operator(&mut self, operator: Pending) {
        while let Some(waiting) = self.pending.last() {
            match (*waiting, operator) {
                (Pending::Open, _) | (Pending::Or, Pending::And) => break,
                (Pending::And, _) => self.postfix.push(Step::And),
                (Pending::Or, _) => self.postfix.push(Step::Or),
            }
            self.pending.pop();
        }
        self.pending.push(operator);
        self.wants_operand = true;
    }

    fn close(&mut self, at: usize) -> Result<()> {
        while let Some(waiting) = self.pending.pop() {
            match waiting {
                Pending::Open => return Ok(()),
                Pending::And => self.postfix.push(Step::And),
                Pending::Or => self.postfix.push(Step::Or),
            }
        }
        fault(at, "this closing parenthesis has no opening one")
    }

    fn finish(mut self, text: &str) -> Result<Query> {
        if self.wants_operand {
            let what = if self.postfix.is_empty() && self.pending.is_empty() {
                "the query is empty"
            } else {
                "the query ends where a permission is missing"
            };
            return fault(text.len(), what);
        }
        while let Some(waiting) = self.pending.pop() {
            match waiting {
                Pending::Open => return fault(text.len(), "a closing parenthesis is missing"),
                Pending::And => self.postfix.push(Step::And),
                Pending::Or => self.postfix.push(Step::Or),
            }
        }
        Ok(Query { postfix: self.postfix })
    }
}

struct Tokens<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Tokens<'a> {
    fn next(&mut self) -> Result<Option<(usize, Token<'a>)>> {
        let bytes = self.text.as_bytes();
        while bytes.get(self.at).is_some_and(|b| matches!(b, b' ' | b'\t' | b'\r' | b'\n')) {
            self.at += 1;
        }
        let start = self.at;
        let token = match bytes.get(start) {
            None => return Ok(None),
            Some(b'(') => Token::Open,
            Some(b')') => Token::Close,
            Some(b) if is_name(*b) => {
                while bytes.get(self.at).is_some_and(|b| is_name(*b)) {
                    self.at += 1;
                }
                let word = &self.text[start..self.at];
                return Ok(Some((start, named(word))));
            }
            Some(_) => {
                return fault(
                    start,
                    &format!("{:?} cannot stand in a query", shown(self.text, start)),
                );
            }
        };
        self.at += 1;
        Ok(Some((start, token)))
    }
}

fn named(word: &str) -> Token<'_> {
    if word.eq_ignore_ascii_case("and") {
        Token::And
    } else if word.eq_ignore_ascii_case("or") {
        Token::Or
    } else {
        Token::Name(word)
    }
}

fn is_name(b: u8) -> bool {
    b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-' | b':' | b'*' | b'/')
}

/// The character at a byte that begins one.
fn shown(text: &str, at: usize) -> String {
    text.get(at..).and_then(|rest| rest.chars().next()).map(String::from).unwrap_or_default()
}

fn fault<T>(at: usize, what: &str) -> Result<T> {
    Err(Error::Query(format!("{what} (at byte {at})")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn holds(query: &str, permissions: &[&str]) -> bool {
        Query::parse(query).expect("a query").holds(|name| permissions.contains(&name))
    }

    fn error(query: &str) -> String {
        Query::parse(query).expect_err("no query").to_string()
    }

    #[test]
    fn and_binds_tighter_than_or() {
        assert!(holds("a OR b AND c", &["a"]));
        assert!(!holds("(a OR b) AND c", &["a"]));
        assert!(holds("(a OR b) AND c", &["b", "c"]));
        assert!(!holds("a AND b OR c AND d", &["a", "c"]));
        assert!(holds("a AND b OR c AND d", &["c", "d"]));
    }

    #[test]
    fn operators_are_words_in_any_letter_case() {
        assert!(holds("a and B Or c", &["c"]));
        assert!(holds("android", &["android"]));
    }

    #[test]
    fn names_are_compared_letter_by_letter() {
        assert!(!holds("docs.*", &["docs.read"]));
        assert!(holds("docs.*", &["docs.*"]));
        assert!(!holds("Docs", &["docs"]));
        assert!(holds("a:b/c-d_e.f", &["a:b/c-d_e.f"]));
    }

    #[test]
    fn a_fault_is_told_with_its_place() {
        assert!(error("").contains("empty (at byte 0)"));
        assert!(error("   ").contains("empty"));
        assert!(error("a AND").contains("(at byte 5)"));
        assert!(error("AND a").contains("(at byte 0)"));
        assert!(error("(a").contains("closing parenthesis is missing (at byte 2)"));
        assert!(error("a)").contains("no opening one (at byte 1)"));
        assert!(error("()").contains("(at byte 1)"));
        assert!(error("a b").contains("AND or OR is missing before this (at byte 2)"));
        assert!(error("a & b").contains("'&'") || error("a & b").contains("\"&\""));
        assert!(error("é").contains("é"));
        assert!(error("a\0b").contains("(at byte 1)"));
    }

    #[test]
    fn a_thousand_parentheses_are_no_danger() {
        let deep = format!("{}a{}", "(".repeat(499), ")".repeat(499));

        assert!(holds(&deep, &["a"]));
    }

    /// A query as a tree, to print and to evaluate in the most obvious way.
    #[derive(Debug, Clone)]
    enum Tree {
        Name(u8),
        And(Box<Tree>, Box<Tree>),
        Or(Box<Tree>, Box<Tree>),
    }

    impl Tree {
        fn print(&self) -> String {
            match self {
                Self::Name(n) => format!("p.{n}"),
                Self::And(a, b) => format!("({} AND {})", a.print(), b.print()),
                Self::Or(a, b) => format!("({} or\t{})", a.print(), b.print()),
            }
        }
        fn holds(&self, bits: u8) -> bool {
            match self {
                Self::Name(n) => bits & (1 << n) != 0,
                Self::And(a, b) => a.holds(bits) && b.holds(bits),
                Self::Or(a, b) => a.holds(bits) || b.holds(bits),
            }
        }
    }

    fn tree() -> impl proptest::strategy::Strategy<Value = Tree> {
        use proptest::prelude::*;
        (0u8..8).prop_map(Tree::Name).prop_recursive(6, 64, 2, |inner| {
            prop_oneof![
                (inner.clone(), inner.clone())
                    .prop_map(|(a, b)| Tree::And(Box::new(a), Box::new(b))),
                (inner.clone(), inner).prop_map(|(a, b)| Tree::Or(Box::new(a), Box::new(b))),
            ]
        })
    }

    proptest::proptest! {
        #[test]
        fn a_printed_tree_means_what_the_tree_means(tree in tree(), bits: u8) {
            let query = Query::parse(&tree.print()).expect("a printed tree is a query");
            let has = |name: &str| {
                let n: u8 = name[2..].parse().expect("p.N");
                bits & (1 << n) != 0
            };
            proptest::prop_assert_eq!(query.holds(has), tree.holds(bits));
        }

        #[test]
        fn no_text_panics(text in ".{0,200}") {
            let _ = Query::parse(&text);
        }
    }
}

//! Permission queries: `documents.read AND (documents.write OR admin)`.
//!
//! AND binds tighter than OR. Both are case-insensitive. Names are compared exactly, including `*`. Parsing and
//! evaluation are one pass with an explicit stack, so that no query, however deeply nested, can exhaust the thread's
//! stack.

use std::fmt;

use foundation::error::{Error, Result};

/// The permissions that a verification requires of a key.
#[derive(Debug)]
pub enum PermissionQuery {
    /// A query that is not parsed yet.
    Query(String),
    Tree(Tree),
}

impl PermissionQuery {
    /// Returns whether a key satisfies it; `has` returns whether the key has a permission. Fails if the query is
    /// invalid.
    pub fn holds(&self, has: impl Fn(&str) -> bool) -> Result<bool> {
        match self {
            Self::Query(query) => holds(query, has),
            Self::Tree(tree) => Ok(tree.holds(&has)),
        }
    }
}

/// A parsed requirement. It is no deeper than the request that contained it.
#[derive(Debug, PartialEq, Eq)]
pub enum Tree {
    /// This permission, compared exactly.
    Has(String),
    All(Vec<Tree>),
    Any(Vec<Tree>),
}

impl Tree {
    fn holds(&self, has: &impl Fn(&str) -> bool) -> bool {
        match self {
            Self::Has(slug) => has(slug),
            Self::All(parts) => parts.iter().all(|part| part.holds(has)),
            Self::Any(parts) => parts.iter().any(|part| part.holds(has)),
        }
    }
}

impl fmt::Display for PermissionQuery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Query(query) => f.write_str(query),
            Self::Tree(tree) => tree.fmt(f),
        }
    }
}

/// Renders it as a query, with parentheses around every operator's operands.
impl fmt::Display for Tree {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (parts, word) = match self {
            Self::Has(slug) => return f.write_str(slug),
            Self::All(parts) => (parts, " AND "),
            Self::Any(parts) => (parts, " OR "),
        };
        for (at, part) in parts.iter().enumerate() {
            f.write_str(if at == 0 { "(" } else { word })?;
            part.fmt(f)?;
        }
        f.write_str(")")
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Token<'a> {
    Name(&'a str),
    And,
    Or,
    Open,
    Close,
}

/// An operator or an open parenthesis that is not applied yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Pending {
    And,
    Or,
    Open,
}

/// Evaluates a query; `has` returns whether the key has a permission. An error names the problem and its byte,
/// whatever permissions the key has.
pub fn holds(query: &str, has: impl Fn(&str) -> bool) -> Result<bool> {
    let (values, pending) = (Vec::with_capacity(8), Vec::with_capacity(8));
    let mut evaluation = Evaluation { text: query, values, pending, wants_operand: true };
    let mut rest = Tokens { text: query, at: 0 };
    while let Some((at, token)) = rest.next()? {
        evaluation.take(at, token, &has)?;
    }
    evaluation.finish()
}

struct Evaluation<'a> {
    text: &'a str,
    /// The operands of the pending operators.
    values: Vec<bool>,
    pending: Vec<Pending>,
    wants_operand: bool,
}

impl Evaluation<'_> {
    fn take(&mut self, at: usize, token: Token<'_>, has: impl Fn(&str) -> bool) -> Result<()> {
        match (token, self.wants_operand) {
            (Token::Name(name), true) => {
                self.values.push(has(name));
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
                let token = shown(self.text, at);
                return fault(at, &format!("a permission is missing before {token:?}"));
            }
        }
        Ok(())
    }

    /// Applies every pending operator that binds at least as tightly first.
    fn operator(&mut self, operator: Pending) {
        while let Some(waiting) = self.pending.last() {
            match (*waiting, operator) {
                (Pending::Open, _) | (Pending::Or, Pending::And) => break,
                (Pending::And | Pending::Or, _) => self.apply_last(),
            }
        }
        self.pending.push(operator);
        self.wants_operand = true;
    }

    fn close(&mut self, at: usize) -> Result<()> {
        loop {
            match self.pending.last() {
                None => return fault(at, "this closing parenthesis is unmatched"),
                Some(Pending::Open) => {
                    self.pending.pop();
                    return Ok(());
                }
                Some(Pending::And | Pending::Or) => self.apply_last(),
            }
        }
    }

    /// Applies the last pending operator to the last two values. Both exist: an operator is accepted only after its
    /// left operand, and applied only after its right one.
    fn apply_last(&mut self) {
        let operator = self.pending.pop();
        let (right, left) = (self.values.pop() == Some(true), self.values.pop() == Some(true));
        self.values.push(match operator {
            Some(Pending::And) => left && right,
            _ => left || right,
        });
    }

    fn finish(mut self) -> Result<bool> {
        if self.wants_operand {
            let message = if self.values.is_empty() && self.pending.is_empty() {
                "the query is empty"
            } else {
                "the query ends where a permission is expected"
            };
            return fault(self.text.len(), message);
        }
        while let Some(waiting) = self.pending.last() {
            match waiting {
                Pending::Open => {
                    return fault(self.text.len(), "a closing parenthesis is missing");
                }
                Pending::And | Pending::Or => self.apply_last(),
            }
        }
        Ok(self.values.pop() == Some(true))
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
                    &format!("{:?} is not allowed in a query", shown(self.text, start)),
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

/// Returns the character that starts at a byte.
fn shown(text: &str, at: usize) -> String {
    text.get(at..).and_then(|rest| rest.chars().next()).map(String::from).unwrap_or_default()
}

fn fault<T>(at: usize, message: &str) -> Result<T> {
    Err(Error::Query(format!("{message} (at byte {at})")))
}

#[cfg(test)]
mod tests {
    fn holds(query: &str, permissions: &[&str]) -> bool {
        super::holds(query, |name| permissions.contains(&name)).expect("a query")
    }

    fn error(query: &str) -> String {
        super::holds(query, |_| true).expect_err("no query").to_string()
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
    fn operators_are_case_insensitive() {
        assert!(holds("a and B Or c", &["c"]));
        assert!(holds("android", &["android"]));
    }

    #[test]
    fn names_are_compared_exactly() {
        assert!(!holds("docs.*", &["docs.read"]));
        assert!(holds("docs.*", &["docs.*"]));
        assert!(!holds("Docs", &["docs"]));
        assert!(holds("a:b/c-d_e.f", &["a:b/c-d_e.f"]));
    }

    #[test]
    fn error_names_the_byte_when_query_is_invalid() {
        assert!(error("").contains("empty (at byte 0)"));
        assert!(error("   ").contains("empty"));
        assert!(error("a AND").contains("(at byte 5)"));
        assert!(error("AND a").contains("(at byte 0)"));
        assert!(error("(a").contains("closing parenthesis is missing (at byte 2)"));
        assert!(error("a)").contains("is unmatched (at byte 1)"));
        assert!(error("()").contains("(at byte 1)"));
        assert!(error("a b").contains("AND or OR is missing before this (at byte 2)"));
        assert!(error("a & b").contains("'&'") || error("a & b").contains("\"&\""));
        assert!(error("é").contains("é"));
        assert!(error("a\0b").contains("(at byte 1)"));
    }
}

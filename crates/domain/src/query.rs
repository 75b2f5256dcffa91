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
    Text(String),
    Tree(RequirementTree),
}

impl PermissionQuery {
    /// Returns whether a key satisfies it; `has` returns whether the key has a permission. Fails if the query is
    /// invalid.
    pub fn is_satisfied(&self, has: impl Fn(&str) -> bool) -> Result<bool> {
        match self {
            Self::Text(query) => is_satisfied(query, has),
            Self::Tree(tree) => Ok(tree.holds(&has)),
        }
    }
}

/// A parsed requirement. It is no deeper than the request that contained it.
#[derive(Debug, PartialEq, Eq)]
pub enum RequirementTree {
    /// This permission, compared exactly.
    Has(String),
    All(Vec<RequirementTree>),
    Any(Vec<RequirementTree>),
}

impl RequirementTree {
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
            Self::Text(query) => f.write_str(query),
            Self::Tree(tree) => tree.fmt(f),
        }
    }
}

/// Renders it as a query, with parentheses around every operator's operands.
impl fmt::Display for RequirementTree {
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
enum PendingOperator {
    And,
    Or,
    Open,
}

/// Evaluates a query; `has` returns whether the key has a permission. An error names the problem and its byte,
/// whatever permissions the key has.
pub fn is_satisfied(query: &str, has: impl Fn(&str) -> bool) -> Result<bool> {
    let (values, pending) = (Vec::with_capacity(8), Vec::with_capacity(8));
    let mut evaluation = Evaluation { text: query, values, pending, expects_operand: true };
    let mut rest = Tokens { text: query, at: 0 };
    while let Some((at, token)) = rest.next_token()? {
        evaluation.apply_token(at, token, &has)?;
    }
    evaluation.finish()
}

struct Evaluation<'a> {
    text: &'a str,
    /// The operands of the pending operators.
    values: Vec<bool>,
    pending: Vec<PendingOperator>,
    expects_operand: bool,
}

impl Evaluation<'_> {
    fn apply_token(
        &mut self,
        at: usize,
        token: Token<'_>,
        has: impl Fn(&str) -> bool,
    ) -> Result<()> {
        match (token, self.expects_operand) {
            (Token::Name(name), true) => {
                self.values.push(has(name));
                self.expects_operand = false;
            }
            (Token::Open, true) => self.pending.push(PendingOperator::Open),
            (Token::And, false) => self.push_operator(PendingOperator::And),
            (Token::Or, false) => self.push_operator(PendingOperator::Or),
            (Token::Close, false) => self.close_parenthesis(at)?,
            (Token::Close, true) if self.pending.last() == Some(&PendingOperator::Open) => {
                return syntax_error(at, "a permission is missing before this closing parenthesis");
            }
            (Token::Name(_) | Token::Open, false) => {
                return syntax_error(at, "AND or OR is missing before this");
            }
            (Token::And | Token::Or | Token::Close, true) => {
                let token = char_at(self.text, at);
                return syntax_error(at, &format!("a permission is missing before {token:?}"));
            }
        }
        Ok(())
    }

    /// Applies every pending operator that binds at least as tightly first.
    fn push_operator(&mut self, operator: PendingOperator) {
        while let Some(waiting) = self.pending.last() {
            match (*waiting, operator) {
                (PendingOperator::Open, _) | (PendingOperator::Or, PendingOperator::And) => break,
                (PendingOperator::And | PendingOperator::Or, _) => self.apply_last_operator(),
            }
        }
        self.pending.push(operator);
        self.expects_operand = true;
    }

    fn close_parenthesis(&mut self, at: usize) -> Result<()> {
        loop {
            match self.pending.last() {
                None => return syntax_error(at, "this closing parenthesis is unmatched"),
                Some(PendingOperator::Open) => {
                    self.pending.pop();
                    return Ok(());
                }
                Some(PendingOperator::And | PendingOperator::Or) => self.apply_last_operator(),
            }
        }
    }

    /// Applies the last pending operator to the last two values. Both exist: an operator is accepted only after its
    /// left operand, and applied only after its right one.
    fn apply_last_operator(&mut self) {
        let operator = self.pending.pop();
        let (right, left) = (self.values.pop() == Some(true), self.values.pop() == Some(true));
        self.values.push(match operator {
            Some(PendingOperator::And) => left && right,
            _ => left || right,
        });
    }

    fn finish(mut self) -> Result<bool> {
        if self.expects_operand {
            let message = if self.values.is_empty() && self.pending.is_empty() {
                "the query is empty"
            } else {
                "the query ends where a permission is expected"
            };
            return syntax_error(self.text.len(), message);
        }
        while let Some(waiting) = self.pending.last() {
            match waiting {
                PendingOperator::Open => {
                    return syntax_error(self.text.len(), "a closing parenthesis is missing");
                }
                PendingOperator::And | PendingOperator::Or => self.apply_last_operator(),
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
    fn next_token(&mut self) -> Result<Option<(usize, Token<'a>)>> {
        let bytes = self.text.as_bytes();
        while bytes.get(self.at).is_some_and(|b| matches!(b, b' ' | b'\t' | b'\r' | b'\n')) {
            self.at += 1;
        }
        let start = self.at;
        let token = match bytes.get(start) {
            None => return Ok(None),
            Some(b'(') => Token::Open,
            Some(b')') => Token::Close,
            Some(b) if is_name_byte(*b) => {
                while bytes.get(self.at).is_some_and(|b| is_name_byte(*b)) {
                    self.at += 1;
                }
                let word = &self.text[start..self.at];
                return Ok(Some((start, keyword_or_name(word))));
            }
            Some(_) => {
                return syntax_error(
                    start,
                    &format!("{:?} is not allowed in a query", char_at(self.text, start)),
                );
            }
        };
        self.at += 1;
        Ok(Some((start, token)))
    }
}

fn keyword_or_name(word: &str) -> Token<'_> {
    if word.eq_ignore_ascii_case("and") {
        Token::And
    } else if word.eq_ignore_ascii_case("or") {
        Token::Or
    } else {
        Token::Name(word)
    }
}

fn is_name_byte(b: u8) -> bool {
    b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-' | b':' | b'*' | b'/')
}

/// Returns the character that starts at a byte.
fn char_at(text: &str, at: usize) -> String {
    text.get(at..).and_then(|rest| rest.chars().next()).map(String::from).unwrap_or_default()
}

fn syntax_error<T>(at: usize, message: &str) -> Result<T> {
    Err(Error::PermissionQuery(format!("{message} (at byte {at})")))
}

#[cfg(test)]
mod tests {
    fn holds(query: &str, permissions: &[&str]) -> bool {
        super::is_satisfied(query, |name| permissions.contains(&name)).expect("a query")
    }

    fn error(query: &str) -> String {
        super::is_satisfied(query, |_| true).expect_err("no query").to_string()
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

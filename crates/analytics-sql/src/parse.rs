//! Parses text into the syntax tree of one SELECT, within limits.

use foundation::error::{QueryErrorKind, Result};
use sqlparser::ast::{Query, Statement};
use sqlparser::dialect::ClickHouseDialect;
use sqlparser::parser::{Parser, ParserError};
use sqlparser::tokenizer::{Token, TokenWithSpan, Tokenizer};

use super::{invalid, query_fault};

/// The maximum length of a query, in bytes.
pub const LENGTH_MAX_BYTES: usize = 16 * 1024;
/// The maximum number of words, numbers and signs. A tree is never deeper than that, however it is parsed.
const TOKENS_MAX: usize = 8_000;
/// The recursion limit of the parser. A tree deeper than [`super::DEPTH_MAX`] is rejected in any case; the parser
/// counts other steps.
const RECURSION_MAX: usize = 150;
/// The maximum number of lambdas. The parser reads the rest of a query twice for each lambda that it tries.
const LAMBDAS_MAX: usize = 8;
/// Words after which the parser expects another statement than a SELECT, or a SELECT that begins with its tables.
const STATEMENT_WORDS: [&str; 5] = ["update", "insert", "delete", "merge", "from"];
/// The maximum length of a parser message in an error.
const MESSAGE_MAX_CHARS: usize = 300;

pub fn parse_query(text: &str) -> Result<Query> {
    if text.len() > LENGTH_MAX_BYTES {
        return invalid(format!("the query is longer than {LENGTH_MAX_BYTES} bytes"));
    }
    if text.contains('\0') {
        return invalid("the query contains a NUL character");
    }
    let dialect = ClickHouseDialect {};
    // The module `literals` decodes escapes.
    let tokens = Tokenizer::new(&dialect, text).with_unescape(false).tokenize_with_location();
    let tokens = tokens.or_else(|e| invalid(parse_error_message(&e.to_string())))?;
    let count = tokens.iter().filter(|token| !matches!(token.token, Token::Whitespace(_))).count();
    if count > TOKENS_MAX {
        return invalid(format!("the query has more than {TOKENS_MAX} words and signs"));
    }
    reject_exponential(&tokens)?;
    let starts_as_select = tokens
        .iter()
        .find(|token| !matches!(token.token, Token::Whitespace(_)))
        .is_none_or(|token| match &token.token {
            Token::Word(word) => {
                ["select", "with"].iter().any(|start| word.value.eq_ignore_ascii_case(start))
            }
            Token::LParen => true,
            _ => false,
        });
    let parser = Parser::new(&dialect).with_recursion_limit(RECURSION_MAX);
    match parser.with_tokens_with_locations(tokens).parse_statements() {
        Ok(statements) => require_single_select(statements),
        Err(_) if !starts_as_select => reject_non_select(),
        Err(ParserError::RecursionLimitExceeded) => invalid("the query is nested too deeply"),
        Err(ParserError::TokenizerError(e) | ParserError::ParserError(e)) => {
            invalid(parse_error_message(&e))
        }
    }
}

/// Rejects constructs for which the parser needs exponential time when they are nested: it tries one form, then reads
/// the same text again in another one.
fn reject_exponential(tokens: &[TokenWithSpan]) -> Result<()> {
    let mut tokens =
        tokens.iter().map(|it| &it.token).filter(|it| !matches!(it, Token::Whitespace(_)));
    let (mut lambdas, mut previous) = (0, None);
    tokens.try_for_each(|token| {
        match (previous.replace(token), token) {
            (Some(Token::Word(word)), Token::LParen)
                if word.value.eq_ignore_ascii_case("position") =>
            {
                return query_fault(QueryErrorKind::Function, "there is no function position");
            }
            (Some(Token::LParen), Token::Word(word))
                if word.quote_style.is_none()
                    && STATEMENT_WORDS.iter().any(|it| word.value.eq_ignore_ascii_case(it)) =>
            {
                return reject_non_select();
            }
            (_, Token::Arrow) => lambdas += 1,
            _ => {}
        }
        match lambdas > LAMBDAS_MAX {
            true => invalid(format!("the query has more than {LAMBDAS_MAX} lambdas")),
            false => Ok(()),
        }
    })
}

fn require_single_select(statements: Vec<Statement>) -> Result<Query> {
    let mut statements = statements.into_iter();
    match (statements.next(), statements.next()) {
        (None, _) => invalid("the query is empty"),
        (Some(_), Some(_)) => invalid("a query must be a single statement"),
        (Some(Statement::Query(query)), None) => Ok(*query),
        (Some(_), None) => reject_non_select(),
    }
}

pub fn reject_non_select<T>() -> Result<T> {
    query_fault(QueryErrorKind::Type, "only SELECT is supported")
}

/// Formats a message of the parser, which mentions only the query itself.
fn parse_error_message(message: &str) -> String {
    format!(
        "the query cannot be parsed: {}",
        message.chars().take(MESSAGE_MAX_CHARS).collect::<String>()
    )
}

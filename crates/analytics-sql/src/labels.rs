//! Names the columns to which a query gives no name: as ClickHouse would write the expression.

use sqlparser::ast::{BinaryOperator, Expr, UnaryOperator, Value};

use super::functions;
use super::grammar::{self, Given};

pub fn label(expr: &Expr) -> String {
    match expr {
        Expr::Identifier(name) => name.value.clone(),
        Expr::CompoundIdentifier(names) => {
            names.last().map_or_else(String::new, |name| name.value.clone())
        }
        Expr::Nested(expr) => label(expr),
        Expr::Value(value) => match &value.value {
            Value::SingleQuotedString(text) => format!("'{text}'"),
            value => value.to_string(),
        },
        Expr::UnaryOp { op: UnaryOperator::Minus, expr } => match &**expr {
            Expr::Value(value) => format!("-{value}"),
            expr => format!("negate({})", label(expr)),
        },
        Expr::UnaryOp { op: UnaryOperator::Not, expr } => format!("not({})", label(expr)),
        Expr::BinaryOp { left, op, right } => match word(op) {
            Some(word) => format!("{word}({}, {})", label(left), label(right)),
            None => expr.to_string(),
        },
        Expr::Function(function) => match grammar::call(function) {
            Ok(call) if call.over.is_none() && !call.is_distinct => {
                let known = functions::names().find(|name| name.eq_ignore_ascii_case(call.name));
                let name = known.unwrap_or(call.name);
                match call.parameters.is_empty() {
                    true => format!("{name}({})", given(&call.given)),
                    false => format!("{name}({})({})", given(&call.parameters), given(&call.given)),
                }
            }
            Ok(_) | Err(_) => expr.to_string(),
        },
        _ => expr.to_string(),
    }
}

fn given(given: &[Given<'_>]) -> String {
    let labels = given.iter().filter_map(|given| match given {
        Given::Expr(expr) => Some(label(expr)),
        Given::Star => None,
    });
    labels.collect::<Vec<_>>().join(", ")
}

fn word(operator: &BinaryOperator) -> Option<&'static str> {
    match operator {
        BinaryOperator::Plus => Some("plus"),
        BinaryOperator::Minus => Some("minus"),
        BinaryOperator::Multiply => Some("multiply"),
        BinaryOperator::Divide => Some("divide"),
        BinaryOperator::Modulo => Some("modulo"),
        BinaryOperator::Eq => Some("equals"),
        BinaryOperator::NotEq => Some("notEquals"),
        BinaryOperator::Lt => Some("less"),
        BinaryOperator::LtEq => Some("lessOrEquals"),
        BinaryOperator::Gt => Some("greater"),
        BinaryOperator::GtEq => Some("greaterOrEquals"),
        BinaryOperator::And => Some("and"),
        BinaryOperator::Or => Some("or"),
        BinaryOperator::StringConcat => Some("concat"),
        _ => None,
    }
}

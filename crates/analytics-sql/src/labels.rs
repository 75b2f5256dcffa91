//! Names the columns to which a query gives no name: as ClickHouse would write the expression.

use sqlparser::ast::{BinaryOperator, Expr, UnaryOperator, Value};

use super::functions;
use super::grammar::{self, FunctionArgument};

pub fn column_label(expr: &Expr) -> String {
    match expr {
        Expr::Identifier(name) => name.value.clone(),
        Expr::CompoundIdentifier(names) => {
            names.last().map_or_else(String::new, |name| name.value.clone())
        }
        Expr::Nested(expr) => column_label(expr),
        Expr::Value(value) => match &value.value {
            Value::SingleQuotedString(text) => format!("'{text}'"),
            value => value.to_string(),
        },
        Expr::UnaryOp { op: UnaryOperator::Minus, expr } => match &**expr {
            Expr::Value(value) => format!("-{value}"),
            expr => format!("negate({})", column_label(expr)),
        },
        Expr::UnaryOp { op: UnaryOperator::Not, expr } => format!("not({})", column_label(expr)),
        Expr::BinaryOp { left, op, right } => match function_name(op) {
            Some(word) => format!("{word}({}, {})", column_label(left), column_label(right)),
            None => expr.to_string(),
        },
        Expr::Function(function) => match grammar::parse_call(function) {
            Ok(call) if call.over.is_none() && !call.is_distinct => {
                let known =
                    functions::list_names().find(|name| name.eq_ignore_ascii_case(call.name));
                let name = known.unwrap_or(call.name);
                match call.parameters.is_empty() {
                    true => format!("{name}({})", argument_labels(&call.arguments)),
                    false => format!(
                        "{name}({})({})",
                        argument_labels(&call.parameters),
                        argument_labels(&call.arguments)
                    ),
                }
            }
            Ok(_) | Err(_) => expr.to_string(),
        },
        _ => expr.to_string(),
    }
}

fn argument_labels(given: &[FunctionArgument<'_>]) -> String {
    let labels = given.iter().filter_map(|given| match given {
        FunctionArgument::Expr(expr) => Some(column_label(expr)),
        FunctionArgument::Star => None,
    });
    labels.collect::<Vec<_>>().join(", ")
}

fn function_name(operator: &BinaryOperator) -> Option<&'static str> {
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

//! Translates aggregates for ClickHouse. Its functions end in `If` where other engines have FILTER. Its counts have a
//! type that does not combine with others. A result that is not declared as nullable is 0 if there are no rows.

use foundation::error::Result;

use super::super::fragment::Fragment;
use super::super::invalid;
use super::super::types::{Type, TypedExpr};
use super::{AggregateSql, build_extreme, row_numbering};

/// Returns an aggregate of the rows for which the filter holds, without OVER.
pub fn build_aggregate(
    name: &str,
    is_distinct: bool,
    given: &[TypedExpr],
    filter: Option<&TypedExpr>,
) -> Result<AggregateSql> {
    let values = Fragment::join(", ", given.iter().map(|value| &value.sql));
    let holds = filter.map(|filter| Fragment::from_template("ifNull({0}, 0)", &[&filter.sql]));
    match (name, given) {
        ("row_number" | "rank" | "dense_rank", []) if filter.is_none() => {
            Ok(AggregateSql::new(row_numbering(name), "toInt64({0})", Type::Int))
        }
        ("count" | "countIf", []) => {
            let count = match holds {
                None => Fragment::word("count()"),
                Some(holds) => Fragment::from_template("countIf({0})", &[&holds]),
            };
            Ok(AggregateSql::new(count, COUNT_OR_ZERO, Type::Int))
        }
        ("uniq" | "uniqExact", [_, ..]) => Ok(build_distinct_count(&values)),
        ("count", [_, ..]) if is_distinct => Ok(build_distinct_count(&values)),
        ("count", [_]) => Ok(AggregateSql::new(
            Fragment::from_template("count({0})", &[&values]),
            COUNT_OR_ZERO,
            Type::Int,
        )),
        ("sum" | "sumIf", [value]) => build_total(is_distinct, value, holds.as_ref()),
        ("avg", [value]) => build_mean(is_distinct, value),
        ("min" | "max", [value]) => {
            let value = TypedExpr { sql: to_nullable(value), ..value.clone() };
            build_extreme(name == "min", &value)
        }
        ("any", [value]) => Ok(AggregateSql::new(
            Fragment::from_template("any({0})", &[&to_nullable(value)]),
            "{0}",
            value.ty.clone(),
        )),
        ("groupArray" | "groupUniqArray", [value]) => {
            let template = if is_distinct || name == "groupUniqArray" {
                "groupUniqArray({0})"
            } else {
                "groupArray({0})"
            };
            let list = Fragment::from_template(template, &[&value.sql]);
            Ok(AggregateSql::new(list, "{0}", Type::array_of(value.ty.clone())))
        }
        (name, _) => invalid(format!("{name} does not accept these arguments")),
    }
}

/// Declares a value as nullable, so that the result is NULL if there are no rows. A list cannot be NULL.
fn to_nullable(value: &TypedExpr) -> Fragment {
    match &value.ty {
        Type::Array(_) => value.sql.clone(),
        _ => Fragment::from_template("toNullable({0})", &[&value.sql]),
    }
}

/// Old versions return NULL for a count of values that can be NULL if there are none.
const COUNT_OR_ZERO: &str = "ifNull(toInt64({0}), 0)";

fn build_distinct_count(values: &Fragment) -> AggregateSql {
    AggregateSql::new(
        Fragment::from_template("uniqExact({0})", &[values]),
        COUNT_OR_ZERO,
        Type::Int,
    )
}

fn build_total(
    is_distinct: bool,
    value: &TypedExpr,
    holds: Option<&Fragment>,
) -> Result<AggregateSql> {
    let value = value.clone().into_number("sum")?;
    let sum = match (is_distinct, holds) {
        (false, None) => Fragment::from_template("sum({0})", &[&value.sql]),
        (false, Some(holds)) => Fragment::from_template("sumIf({0}, {1})", &[&value.sql, holds]),
        (true, None) => Fragment::from_template("arraySum(groupUniqArray({0}))", &[&value.sql]),
        (true, Some(holds)) => {
            Fragment::from_template("arraySum(groupUniqArrayIf({0}, {1}))", &[&value.sql, holds])
        }
    };
    Ok(match value.ty {
        Type::Float => AggregateSql::new(sum, "ifNull({0}, 0)", Type::Float),
        _ => AggregateSql::new(sum, "ifNull(toInt64({0}), 0)", Type::Int),
    })
}

/// Returns a mean, which is NULL for no rows.
fn build_mean(is_distinct: bool, value: &TypedExpr) -> Result<AggregateSql> {
    let value = value.clone().into_number("avg")?;
    let template = if is_distinct {
        "arraySum(groupUniqArray({0})) / nullIf(length(groupUniqArray({0})), 0)"
    } else {
        "avg({0})"
    };
    Ok(AggregateSql::new(
        Fragment::from_template(template, &[&to_nullable(&value)]),
        "{0}",
        Type::Float,
    ))
}

/// Returns the value that a fraction of the rows does not exceed. For many rows it is estimated from a sample.
pub fn build_quantile(level: f64, value: &Fragment) -> Fragment {
    Fragment::from_template("quantile({0})({1})", &[&Fragment::fraction(level), value])
}

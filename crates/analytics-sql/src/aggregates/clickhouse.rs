//! Translates aggregates for ClickHouse. Its functions end in `If` where other engines have FILTER. Its counts have a
//! type that does not combine with others. A result that is not declared as nullable is 0 if there are no rows.

use foundation::error::Result;

use super::super::fragment::Fragment;
use super::super::invalid;
use super::super::types::{Type, Typed};
use super::{Sum, extreme, numbering};

/// Returns an aggregate of the rows for which the filter holds, without OVER.
pub fn sum(name: &str, is_distinct: bool, given: &[Typed], filter: Option<&Typed>) -> Result<Sum> {
    let values = Fragment::list(", ", given.iter().map(|value| &value.sql));
    let holds = filter.map(|filter| Fragment::fill("ifNull({0}, 0)", &[&filter.sql]));
    match (name, given) {
        ("row_number" | "rank" | "dense_rank", []) if filter.is_none() => {
            Ok(Sum::new(numbering(name), "toInt64({0})", Type::Int))
        }
        ("count" | "countIf", []) => {
            let count = match holds {
                None => Fragment::word("count()"),
                Some(holds) => Fragment::fill("countIf({0})", &[&holds]),
            };
            Ok(Sum::new(count, COUNTED, Type::Int))
        }
        ("uniq" | "uniqExact", [_, ..]) => Ok(distinct_count(&values)),
        ("count", [_, ..]) if is_distinct => Ok(distinct_count(&values)),
        ("count", [_]) => {
            Ok(Sum::new(Fragment::fill("count({0})", &[&values]), COUNTED, Type::Int))
        }
        ("sum" | "sumIf", [value]) => total(is_distinct, value, holds.as_ref()),
        ("avg", [value]) => mean(is_distinct, value),
        ("min" | "max", [value]) => {
            let value = Typed { sql: nullable(value), ..value.clone() };
            extreme(name == "min", &value)
        }
        ("any", [value]) => {
            Ok(Sum::new(Fragment::fill("any({0})", &[&nullable(value)]), "{0}", value.ty.clone()))
        }
        ("groupArray" | "groupUniqArray", [value]) => {
            let template = if is_distinct || name == "groupUniqArray" {
                "groupUniqArray({0})"
            } else {
                "groupArray({0})"
            };
            let list = Fragment::fill(template, &[&value.sql]);
            Ok(Sum::new(list, "{0}", Type::array(value.ty.clone())))
        }
        (name, _) => invalid(format!("{name} does not accept these arguments")),
    }
}

/// Declares a value as nullable, so that the result is NULL if there are no rows. A list cannot be NULL.
fn nullable(value: &Typed) -> Fragment {
    match &value.ty {
        Type::Array(_) => value.sql.clone(),
        _ => Fragment::fill("toNullable({0})", &[&value.sql]),
    }
}

/// Old versions return NULL for a count of values that can be NULL if there are none.
const COUNTED: &str = "ifNull(toInt64({0}), 0)";

fn distinct_count(values: &Fragment) -> Sum {
    Sum::new(Fragment::fill("uniqExact({0})", &[values]), COUNTED, Type::Int)
}

fn total(is_distinct: bool, value: &Typed, holds: Option<&Fragment>) -> Result<Sum> {
    let value = value.clone().number("sum")?;
    let sum = match (is_distinct, holds) {
        (false, None) => Fragment::fill("sum({0})", &[&value.sql]),
        (false, Some(holds)) => Fragment::fill("sumIf({0}, {1})", &[&value.sql, holds]),
        (true, None) => Fragment::fill("arraySum(groupUniqArray({0}))", &[&value.sql]),
        (true, Some(holds)) => {
            Fragment::fill("arraySum(groupUniqArrayIf({0}, {1}))", &[&value.sql, holds])
        }
    };
    Ok(match value.ty {
        Type::Float => Sum::new(sum, "ifNull({0}, 0)", Type::Float),
        _ => Sum::new(sum, "ifNull(toInt64({0}), 0)", Type::Int),
    })
}

/// Returns a mean, which is NULL for no rows.
fn mean(is_distinct: bool, value: &Typed) -> Result<Sum> {
    let value = value.clone().number("avg")?;
    let template = if is_distinct {
        "arraySum(groupUniqArray({0})) / nullIf(length(groupUniqArray({0})), 0)"
    } else {
        "avg({0})"
    };
    Ok(Sum::new(Fragment::fill(template, &[&nullable(&value)]), "{0}", Type::Float))
}

/// Returns the value that a fraction of the rows does not exceed. For many rows it is estimated from a sample.
pub fn quantile(level: f64, value: &Fragment) -> Fragment {
    Fragment::fill("quantile({0})({1})", &[&Fragment::share(level), value])
}

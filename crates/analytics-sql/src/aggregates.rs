//! Translates aggregates and window functions.

mod clickhouse;
mod lists;
mod windows;

use foundation::error::Result;
use sqlparser::ast::Expr;

use super::fragment::Fragment;
use super::grammar::{CallParts, FunctionArgument};
use super::scope::Scope;
use super::translate::Translator;
use super::types::{SqlDialect, Type, TypedExpr};
use super::{excerpt, invalid, type_domains, unsupported};

pub const AGGREGATE_NAMES: &[&str] = &[
    "count",
    "sum",
    "avg",
    "min",
    "max",
    "any",
    "groupArray",
    "groupUniqArray",
    "uniq",
    "uniqExact",
    "quantile",
    "countIf",
    "sumIf",
    "row_number",
    "rank",
    "dense_rank",
];

/// The aggregates that sort their values, or collect those that are distinct.
const SORTING_NAMES: [&str; 4] = ["groupUniqArray", "uniq", "uniqExact", "quantile"];

/// The aggregates of an engine, and the expression that is built from them.
struct AggregateSql {
    aggregates: Vec<Fragment>,
    /// A template for the aggregates with their FILTER and OVER, which are `{0}` and `{1}`.
    template: &'static str,
    ty: Type,
}

impl AggregateSql {
    fn new(sql: Fragment, finish: &'static str, ty: Type) -> Self {
        Self { aggregates: vec![sql], template: finish, ty }
    }
}

impl Translator<'_> {
    pub fn translate_aggregate<'q>(
        &mut self,
        scope: &mut Scope<'q>,
        name: &'static str,
        call: &CallParts<'q>,
    ) -> Result<TypedExpr> {
        let is_window = call.over.is_some();
        let is_allowed = match is_window {
            true => scope.clause.may_use_window() && !scope.in_window,
            false => scope.clause.may_use_aggregate(),
        };
        if !is_allowed {
            return invalid(format!("{name} is not allowed in {}", scope.clause.sql_name()));
        }
        if scope.in_aggregate {
            return invalid(format!("{name} is not allowed inside another aggregate"));
        }
        if !call.parameters.is_empty() && name != "quantile" {
            return unsupported(&format!("a parameter of {name}"));
        }
        if is_window || call.is_distinct || SORTING_NAMES.contains(&name) {
            self.count_sort()?;
        }
        let inside = if is_window { &mut scope.in_window } else { &mut scope.in_aggregate };
        *inside = true;
        let parts = self.translate_parts(scope, name, call);
        let inside = if is_window { &mut scope.in_window } else { &mut scope.in_aggregate };
        *inside = false;
        let (given, filter, over) = parts?;
        if !is_window && given.iter().chain(&filter).any(|part| part.has_window) {
            return invalid(format!("a window function is not allowed inside {name}"));
        }

        let mut typed = match name {
            "quantile" => self.translate_quantile(call, &given, filter.as_ref())?,
            name => {
                self.build_typed_aggregate(name, call, &given, filter.as_ref(), over.as_ref())?
            }
        };
        let parts: Vec<_> = given.iter().chain(&filter).chain(&over).collect();
        let combined = TypedExpr::from_parts(Fragment::default(), Type::Null, &parts);
        if is_window {
            typed.has_window = true;
            typed.has_aggregate = combined.has_aggregate;
            typed.ungrouped_column = combined.ungrouped_column;
        } else {
            typed.has_aggregate = true;
            typed.ungrouped_column = None;
        }
        Ok(typed)
    }

    /// Returns the arguments, the filter and OVER. The last argument of a function that ends in `If` is the filter.
    fn translate_parts<'q>(
        &mut self,
        scope: &mut Scope<'q>,
        name: &str,
        call: &CallParts<'q>,
    ) -> Result<(Vec<TypedExpr>, Option<TypedExpr>, Option<TypedExpr>)> {
        let mut given = Vec::new();
        for argument in &call.arguments {
            match argument {
                FunctionArgument::Expr(expr) => given.push(self.translate_expr(scope, expr)?),
                FunctionArgument::Star
                    if name == "count" && call.arguments.len() == 1 && !call.is_distinct => {}
                FunctionArgument::Star => {
                    return invalid(format!("* is not an argument of {name}"));
                }
            }
        }
        let filter = match name.ends_with("If") {
            false => None,
            true => match given.pop() {
                Some(condition) => Some(condition.into_condition()?),
                None => return invalid(format!("{name} requires a condition")),
            },
        };
        let over = match call.over {
            None => None,
            Some(window) => Some(self.translate_window(scope, window)?),
        };
        Ok((given, filter, over))
    }

    fn build_typed_aggregate(
        &mut self,
        name: &str,
        call: &CallParts<'_>,
        given: &[TypedExpr],
        filter: Option<&TypedExpr>,
        over: Option<&TypedExpr>,
    ) -> Result<TypedExpr> {
        let is_distinct = call.is_distinct;
        if is_distinct && over.is_some() {
            return unsupported("DISTINCT in a window");
        }
        if ["row_number", "rank", "dense_rank"].contains(&name) && over.is_none() {
            return invalid(format!("{name} requires OVER"));
        }
        let AggregateSql { aggregates: mut parts, template: finish, ty } = match self.engine {
            SqlDialect::ClickHouse => {
                clickhouse::build_aggregate(name, is_distinct, given, filter)?
            }
            SqlDialect::Postgres | SqlDialect::Sqlite => {
                build_aggregate(self.engine, name, is_distinct, given, filter)?
            }
        };
        if let Some(over) = over {
            for part in &mut parts {
                part.append(&over.sql);
            }
        }
        let finished = Fragment::from_template(finish, &parts.iter().collect::<Vec<_>>());
        let sql = match (name, &ty) {
            ("sum" | "sumIf", Type::Int) => type_domains::bound_int(self.engine, &finished),
            ("sum" | "sumIf" | "avg", _) => type_domains::bound_float(self.engine, &finished),
            _ => finished,
        };
        Ok(TypedExpr::from_parts(sql, ty, &[]))
    }

    /// Translates `quantile`: the value that a fraction of the rows does not exceed, interpolated between two
    /// neighbors.
    fn translate_quantile(
        &mut self,
        call: &CallParts<'_>,
        given: &[TypedExpr],
        filter: Option<&TypedExpr>,
    ) -> Result<TypedExpr> {
        let level = match &call.parameters[..] {
            [] => Some(0.5),
            [FunctionArgument::Expr(Expr::Value(value))] => match &value.value {
                sqlparser::ast::Value::Number(number, false) => number.parse().ok(),
                _ => None,
            },
            _ => None,
        };
        let Some(level) = level.filter(|level| (0.0..=1.0).contains(level)) else {
            return invalid("quantile takes its level first: quantile(0.95)(latency)");
        };
        let ([value], None, false) = (given, call.over, call.is_distinct) else {
            return invalid("quantile takes one argument, without DISTINCT and OVER");
        };
        let value = value.clone().into_number("quantile")?;
        let value = Fragment::from_template("CAST({0} AS DOUBLE PRECISION)", &[&value.sql]);
        if self.engine == SqlDialect::ClickHouse {
            return Ok(TypedExpr::from_parts(
                clickhouse::build_quantile(level, &value),
                Type::Float,
                &[],
            ));
        }
        let is_not_null = Fragment::from_template("({0} IS NOT NULL)", &[&value]);
        let conditions: Vec<_> = [&is_not_null].into_iter().chain(filter.map(|f| &f.sql)).collect();
        let filter = filter_clause(&conditions);
        let level = Fragment::float(level);
        if self.engine == SqlDialect::Postgres {
            let template = "percentile_cont({0}) WITHIN GROUP (ORDER BY {1}){2}";
            let sql = Fragment::from_template(template, &[&level, &value, &filter]);
            return Ok(TypedExpr::from_parts(sql, Type::Float, &[]));
        }
        let sorted =
            Fragment::from_template("json_group_array({0} ORDER BY {0}){1}", &[&value, &filter]);
        let count = Fragment::from_template("count(*){0}", &[&filter]);
        let position = Fragment::from_template("({0} * ({1} - 1))", &[&level, &count]);
        let below = Fragment::from_template("CAST({0} AS INTEGER)", &[&position]);
        let above = Fragment::from_template("min({0} + 1, {1} - 1)", &[&below, &count]);
        let at = |position: &Fragment| {
            Fragment::from_template("json_extract({0}, '$[' || ({1}) || ']')", &[&sorted, position])
        };
        let sql = Fragment::from_template(
            "CASE WHEN {0} > 0 THEN {1} + ({2} - {1}) * ({3} - {4}) END",
            &[&count, &at(&below), &at(&above), &position, &below],
        );
        Ok(TypedExpr::from_parts(sql, Type::Float, &[]))
    }
}

/// Returns an aggregate of the rows for which the filter holds, without OVER, for Postgres or SQLite.
fn build_aggregate(
    engine: SqlDialect,
    name: &str,
    is_distinct: bool,
    given: &[TypedExpr],
    filter: Option<&TypedExpr>,
) -> Result<AggregateSql> {
    let mut list_condition = None;
    let mut sum = match (name, given) {
        ("row_number" | "rank" | "dense_rank", []) if filter.is_none() => {
            AggregateSql::new(row_numbering(name), "{0}", Type::Int)
        }
        ("count" | "countIf", []) => {
            AggregateSql::new(Fragment::word("count(*)"), "{0}", Type::Int)
        }
        ("uniq" | "uniqExact", [_, ..]) => build_distinct_count(engine, given),
        ("count", [_, ..]) if is_distinct => build_distinct_count(engine, given),
        ("count", [value]) => AggregateSql::new(
            Fragment::from_template("count({0})", &[&value.sql]),
            "{0}",
            Type::Int,
        ),
        ("sum" | "sumIf" | "avg", [value]) => {
            build_total(engine, name == "avg", is_distinct, value)?
        }
        ("min" | "max", [value]) => build_extreme(name == "min", value)?,
        ("any", [value]) => build_any(engine, value),
        ("groupArray" | "groupUniqArray", [value]) => {
            let is_distinct = is_distinct || name == "groupUniqArray";
            list_condition = Some(lists::list_condition(engine, is_distinct, value));
            lists::build_list(engine, is_distinct, value)
        }
        (name, _) => return invalid(format!("{name} does not accept these arguments")),
    };
    let conditions: Vec<_> =
        list_condition.iter().chain(filter.map(|filter| &filter.sql)).collect();
    let filter = filter_clause(&conditions);
    for part in &mut sum.aggregates {
        part.append(&filter);
    }
    Ok(sum)
}

fn filter_clause(conditions: &[&Fragment]) -> Fragment {
    if conditions.is_empty() {
        return Fragment::default();
    }
    let conditions = Fragment::join(" AND ", conditions.iter().copied());
    Fragment::from_template(" FILTER (WHERE {0})", &[&conditions])
}

fn row_numbering(name: &str) -> Fragment {
    Fragment::word(match name {
        "row_number" => "row_number()",
        "rank" => "rank()",
        _ => "dense_rank()",
    })
}

fn build_distinct_count(engine: SqlDialect, given: &[TypedExpr]) -> AggregateSql {
    let values = Fragment::join(", ", given.iter().map(|value| &value.sql));
    let template = match given.len() {
        1 => "count(DISTINCT {0})",
        _ if engine == SqlDialect::Postgres => "count(DISTINCT ({0}))",
        _ => "count(DISTINCT json_array({0}))",
    };
    AggregateSql::new(Fragment::from_template(template, &[&values]), "{0}", Type::Int)
}

/// Returns a sum, which is 0 for no rows as in ClickHouse, or a mean, which is NULL for no rows.
fn build_total(
    engine: SqlDialect,
    is_mean: bool,
    is_distinct: bool,
    value: &TypedExpr,
) -> Result<AggregateSql> {
    let value = value.clone().into_number(if is_mean { "avg" } else { "sum" })?;
    if engine == SqlDialect::Sqlite && !is_mean && value.ty != Type::Float {
        return Ok(build_sqlite_int_total(is_distinct, &value.sql));
    }
    let template = match (is_mean, is_distinct) {
        (false, false) => "sum({0})",
        (false, true) => "sum(DISTINCT {0})",
        (true, false) => "avg({0})",
        (true, true) => "avg(DISTINCT {0})",
    };
    let (finish, ty) = match (is_mean, &value.ty) {
        (true, _) => ("CAST({0} AS DOUBLE PRECISION)", Type::Float),
        (false, Type::Float) => ("COALESCE({0}, 0)", Type::Float),
        (false, _) => ("COALESCE({0}, 0)", Type::Int),
    };
    // A list may have given SQLite a whole number for a float, and its sum could fail.
    let sql = match (engine, &value.ty) {
        (SqlDialect::Sqlite, Type::Float) => {
            Fragment::from_template("CAST({0} AS DOUBLE PRECISION)", &[&value.sql])
        }
        _ => value.sql,
    };
    Ok(AggregateSql::new(Fragment::from_template(template, &[&sql]), finish, ty))
}

/// Returns a sum of whole numbers for SQLite, whose own fails if it is too large: it combines the sums of both halves
/// of each number. A DISTINCT sum is exact up to 2^53.
fn build_sqlite_int_total(is_distinct: bool, value: &Fragment) -> AggregateSql {
    if is_distinct {
        return AggregateSql::new(
            Fragment::from_template("total(DISTINCT {0})", &[value]),
            "{0}",
            Type::Int,
        );
    }
    let high = Fragment::from_template("sum({0} >> 32)", &[value]);
    let low = Fragment::from_template("sum({0} & 4294967295)", &[value]);
    AggregateSql {
        aggregates: vec![high, low],
        template: "COALESCE(({0} + ({1} >> 32)) * 4294967296 + ({1} & 4294967295), 0)",
        ty: Type::Int,
    }
}

fn build_extreme(is_least: bool, value: &TypedExpr) -> Result<AggregateSql> {
    let value = match &value.ty {
        Type::Array(_) | Type::Interval(_) => {
            return invalid(format!("min and max do not take {}", excerpt(&value.ty.to_string())));
        }
        ty if ty.is_boolean() => value.clone().into_number("min")?,
        _ => value.clone(),
    };
    let template = if is_least { "min({0})" } else { "max({0})" };
    Ok(AggregateSql::new(Fragment::from_template(template, &[&value.sql]), "{0}", value.ty))
}

fn build_any(engine: SqlDialect, value: &TypedExpr) -> AggregateSql {
    let (template, finish) = match (engine, &value.ty) {
        // Postgres has no order for lists themselves.
        (SqlDialect::Postgres, Type::Array(_)) => ("min(CAST({0} AS TEXT))", "CAST({0} AS JSONB)"),
        (SqlDialect::Postgres, Type::Bool | Type::Flag) => ("bool_or({0})", "{0}"),
        (SqlDialect::Postgres | SqlDialect::Sqlite | SqlDialect::ClickHouse, _) => {
            ("min({0})", "{0}")
        }
    };
    AggregateSql::new(Fragment::from_template(template, &[&value.sql]), finish, value.ty.clone())
}

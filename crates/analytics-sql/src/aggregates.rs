//! Translates aggregates and window functions.

mod clickhouse;
mod lists;

use foundation::error::Result;
use sqlparser::ast::{Expr, WindowFrame, WindowFrameBound, WindowFrameUnits, WindowSpec};

use super::fragment::Fragment;
use super::grammar::{Call, Given};
use super::scope::Scope;
use super::translate::Translator;
use super::types::{SqlDialect, Type, Typed};
use super::{invalid, shown, type_domains, unsupported};

pub const NAMES: &[&str] = &[
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

/// The aggregates of an engine, and the expression that is built from them.
struct Sum {
    parts: Vec<Fragment>,
    /// A template for the aggregates with their FILTER and OVER, which are `{0}` and `{1}`.
    finish: &'static str,
    ty: Type,
}

impl Sum {
    fn new(sql: Fragment, finish: &'static str, ty: Type) -> Self {
        Self { parts: vec![sql], finish, ty }
    }
}

impl Translator<'_> {
    pub fn aggregate<'q>(
        &mut self,
        scope: &mut Scope<'q>,
        name: &'static str,
        call: &Call<'q>,
    ) -> Result<Typed> {
        let is_window = call.over.is_some();
        let is_allowed = match is_window {
            true => scope.place.may_look_around() && !scope.in_window,
            false => scope.place.may_aggregate(),
        };
        if !is_allowed {
            return invalid(format!("{name} is not allowed in {}", scope.place.words()));
        }
        if scope.in_aggregate {
            return invalid(format!("{name} is not allowed inside another aggregate"));
        }
        if !call.parameters.is_empty() && name != "quantile" {
            return unsupported(&format!("a parameter of {name}"));
        }
        let inside = if is_window { &mut scope.in_window } else { &mut scope.in_aggregate };
        *inside = true;
        let parts = self.parts(scope, name, call);
        let inside = if is_window { &mut scope.in_window } else { &mut scope.in_aggregate };
        *inside = false;
        let (given, filter, over) = parts?;
        if !is_window && given.iter().chain(&filter).any(|part| part.windows) {
            return invalid(format!("a window function is not allowed inside {name}"));
        }

        let mut typed = match name {
            "quantile" => self.quantile(call, &given, filter.as_ref())?,
            name => self.summed(name, call, &given, filter.as_ref(), over.as_ref())?,
        };
        let parts: Vec<_> = given.iter().chain(&filter).chain(&over).collect();
        let combined = Typed::of(Fragment::default(), Type::Null, &parts);
        if is_window {
            typed.windows = true;
            typed.aggregates = combined.aggregates;
            typed.loose = combined.loose;
        } else {
            typed.aggregates = true;
            typed.loose = None;
        }
        Ok(typed)
    }

    /// Returns the arguments, the filter and OVER. The last argument of a function that ends in `If` is the filter.
    fn parts<'q>(
        &mut self,
        scope: &mut Scope<'q>,
        name: &str,
        call: &Call<'q>,
    ) -> Result<(Vec<Typed>, Option<Typed>, Option<Typed>)> {
        let mut given = Vec::new();
        for argument in &call.given {
            match argument {
                Given::Expr(expr) => given.push(self.expr(scope, expr)?),
                Given::Star if name == "count" && call.given.len() == 1 && !call.is_distinct => {}
                Given::Star => return invalid(format!("* is not an argument of {name}")),
            }
        }
        let filter = match name.ends_with("If") {
            false => None,
            true => match given.pop() {
                Some(condition) => Some(condition.truth()?),
                None => return invalid(format!("{name} requires a condition")),
            },
        };
        let over = match call.over {
            None => None,
            Some(window) => Some(self.window(scope, window)?),
        };
        Ok((given, filter, over))
    }

    fn summed(
        &mut self,
        name: &str,
        call: &Call<'_>,
        given: &[Typed],
        filter: Option<&Typed>,
        over: Option<&Typed>,
    ) -> Result<Typed> {
        let is_distinct = call.is_distinct;
        if is_distinct && over.is_some() {
            return unsupported("DISTINCT in a window");
        }
        if ["row_number", "rank", "dense_rank"].contains(&name) && over.is_none() {
            return invalid(format!("{name} requires OVER"));
        }
        let Sum { mut parts, finish, ty } = match self.engine {
            SqlDialect::ClickHouse => clickhouse::sum(name, is_distinct, given, filter)?,
            SqlDialect::Postgres | SqlDialect::Sqlite => {
                sum(self.engine, name, is_distinct, given, filter)?
            }
        };
        if let Some(over) = over {
            for part in &mut parts {
                part.append(&over.sql);
            }
        }
        let finished = Fragment::fill(finish, &parts.iter().collect::<Vec<_>>());
        let sql = match (name, &ty) {
            ("sum" | "sumIf", Type::Int) => type_domains::int(self.engine, &finished),
            ("sum" | "sumIf" | "avg", _) => type_domains::float(self.engine, &finished),
            _ => finished,
        };
        Ok(Typed::of(sql, ty, &[]))
    }

    /// Translates `quantile`: the value that a fraction of the rows does not exceed, interpolated between two
    /// neighbors.
    fn quantile(
        &mut self,
        call: &Call<'_>,
        given: &[Typed],
        filter: Option<&Typed>,
    ) -> Result<Typed> {
        let level = match &call.parameters[..] {
            [] => Some(0.5),
            [Given::Expr(Expr::Value(value))] => match &value.value {
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
        let value = value.clone().number("quantile")?;
        let value = Fragment::fill("CAST({0} AS DOUBLE PRECISION)", &[&value.sql]);
        if self.engine == SqlDialect::ClickHouse {
            return Ok(Typed::of(clickhouse::quantile(level, &value), Type::Float, &[]));
        }
        let is_not_null = Fragment::fill("({0} IS NOT NULL)", &[&value]);
        let conditions: Vec<_> = [&is_not_null].into_iter().chain(filter.map(|f| &f.sql)).collect();
        let filter = filtered(&conditions);
        let level = Fragment::float(level);
        if self.engine == SqlDialect::Postgres {
            let template = "percentile_cont({0}) WITHIN GROUP (ORDER BY {1}){2}";
            let sql = Fragment::fill(template, &[&level, &value, &filter]);
            return Ok(Typed::of(sql, Type::Float, &[]));
        }
        let sorted = Fragment::fill("json_group_array({0} ORDER BY {0}){1}", &[&value, &filter]);
        let count = Fragment::fill("count(*){0}", &[&filter]);
        let position = Fragment::fill("({0} * ({1} - 1))", &[&level, &count]);
        let below = Fragment::fill("CAST({0} AS INTEGER)", &[&position]);
        let above = Fragment::fill("min({0} + 1, {1} - 1)", &[&below, &count]);
        let at = |position: &Fragment| {
            Fragment::fill("json_extract({0}, '$[' || ({1}) || ']')", &[&sorted, position])
        };
        let sql = Fragment::fill(
            "CASE WHEN {0} > 0 THEN {1} + ({2} - {1}) * ({3} - {4}) END",
            &[&count, &at(&below), &at(&above), &position, &below],
        );
        Ok(Typed::of(sql, Type::Float, &[]))
    }

    /// Returns ` OVER (…)`.
    fn window<'q>(&mut self, scope: &mut Scope<'q>, window: &'q WindowSpec) -> Result<Typed> {
        let WindowSpec { window_name: None, partition_by, order_by, window_frame } = window else {
            return unsupported("a window with a name");
        };
        let partition = self.all(scope, partition_by)?;
        let mut sql = Fragment::word(" OVER (");
        if !partition.is_empty() {
            let list = Fragment::list(", ", partition.iter().map(|value| &value.sql));
            sql.append(&Fragment::fill("PARTITION BY {0}", &[&list]));
        }
        let (order, sorted) = self.order_by(scope, order_by, &[])?;
        sql.append(&order);
        if let Some(frame) = window_frame {
            sql.append(&self.frame(scope, frame)?);
        }
        sql.append(&Fragment::word(")"));
        let parts: Vec<_> = partition.iter().chain(&sorted).collect();
        Ok(Typed::of(sql, Type::Null, &parts))
    }

    fn frame<'q>(&mut self, scope: &mut Scope<'q>, frame: &'q WindowFrame) -> Result<Fragment> {
        let WindowFrame { units, start_bound, end_bound } = frame;
        let units = match units {
            WindowFrameUnits::Rows => " ROWS BETWEEN ",
            WindowFrameUnits::Range => " RANGE BETWEEN ",
            WindowFrameUnits::Groups => return unsupported("GROUPS in a window"),
        };
        let mut bound = |bound: &'q WindowFrameBound| -> Result<Fragment> {
            let (count, unbounded, counted) = match bound {
                WindowFrameBound::CurrentRow => return Ok(Fragment::word("CURRENT ROW")),
                WindowFrameBound::Preceding(count) => {
                    (count, "UNBOUNDED PRECEDING", "{0} PRECEDING")
                }
                WindowFrameBound::Following(count) => {
                    (count, "UNBOUNDED FOLLOWING", "{0} FOLLOWING")
                }
            };
            let Some(count) = count else { return Ok(Fragment::word(unbounded)) };
            match self.expr(scope, count)?.known_int() {
                Some(rows @ 0..) if units == " ROWS BETWEEN " => {
                    Ok(Fragment::fill(counted, &[&Fragment::digits(&[rows])]))
                }
                _ => invalid("a window must count rows: ROWS BETWEEN 2 PRECEDING AND CURRENT ROW"),
            }
        };
        let start = bound(start_bound)?;
        let end = end_bound.as_ref().map_or(Ok(Fragment::word("CURRENT ROW")), bound)?;
        Ok(Fragment::list("", [&Fragment::word(units), &start, &Fragment::word(" AND "), &end]))
    }
}

/// Returns an aggregate of the rows for which the filter holds, without OVER, for Postgres or SQLite.
fn sum(
    engine: SqlDialect,
    name: &str,
    is_distinct: bool,
    given: &[Typed],
    filter: Option<&Typed>,
) -> Result<Sum> {
    let mut list_condition = None;
    let mut sum = match (name, given) {
        ("row_number" | "rank" | "dense_rank", []) if filter.is_none() => {
            Sum::new(numbering(name), "{0}", Type::Int)
        }
        ("count" | "countIf", []) => Sum::new(Fragment::word("count(*)"), "{0}", Type::Int),
        ("uniq" | "uniqExact", [_, ..]) => distinct_count(engine, given),
        ("count", [_, ..]) if is_distinct => distinct_count(engine, given),
        ("count", [value]) => {
            Sum::new(Fragment::fill("count({0})", &[&value.sql]), "{0}", Type::Int)
        }
        ("sum" | "sumIf" | "avg", [value]) => total(engine, name == "avg", is_distinct, value)?,
        ("min" | "max", [value]) => extreme(name == "min", value)?,
        ("any", [value]) => whichever(engine, value),
        ("groupArray" | "groupUniqArray", [value]) => {
            let is_distinct = is_distinct || name == "groupUniqArray";
            list_condition = Some(lists::is_listed(engine, is_distinct, value));
            lists::list(engine, is_distinct, value)
        }
        (name, _) => return invalid(format!("{name} does not accept these arguments")),
    };
    let conditions: Vec<_> =
        list_condition.iter().chain(filter.map(|filter| &filter.sql)).collect();
    let filter = filtered(&conditions);
    for part in &mut sum.parts {
        part.append(&filter);
    }
    Ok(sum)
}

fn filtered(conditions: &[&Fragment]) -> Fragment {
    if conditions.is_empty() {
        return Fragment::default();
    }
    let conditions = Fragment::list(" AND ", conditions.iter().copied());
    Fragment::fill(" FILTER (WHERE {0})", &[&conditions])
}

fn numbering(name: &str) -> Fragment {
    Fragment::word(match name {
        "row_number" => "row_number()",
        "rank" => "rank()",
        _ => "dense_rank()",
    })
}

fn distinct_count(engine: SqlDialect, given: &[Typed]) -> Sum {
    let values = Fragment::list(", ", given.iter().map(|value| &value.sql));
    let template = match given.len() {
        1 => "count(DISTINCT {0})",
        _ if engine == SqlDialect::Postgres => "count(DISTINCT ({0}))",
        _ => "count(DISTINCT json_array({0}))",
    };
    Sum::new(Fragment::fill(template, &[&values]), "{0}", Type::Int)
}

/// Returns a sum, which is 0 for no rows as in ClickHouse, or a mean, which is NULL for no rows.
fn total(engine: SqlDialect, is_mean: bool, is_distinct: bool, value: &Typed) -> Result<Sum> {
    let value = value.clone().number(if is_mean { "avg" } else { "sum" })?;
    if engine == SqlDialect::Sqlite && !is_mean && value.ty != Type::Float {
        return Ok(whole_total(is_distinct, &value.sql));
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
            Fragment::fill("CAST({0} AS DOUBLE PRECISION)", &[&value.sql])
        }
        _ => value.sql,
    };
    Ok(Sum::new(Fragment::fill(template, &[&sql]), finish, ty))
}

/// Returns a sum of whole numbers for SQLite, whose own fails if it is too large: it combines the sums of both halves
/// of each number. A DISTINCT sum is exact up to 2^53.
fn whole_total(is_distinct: bool, value: &Fragment) -> Sum {
    if is_distinct {
        return Sum::new(Fragment::fill("total(DISTINCT {0})", &[value]), "{0}", Type::Int);
    }
    let high = Fragment::fill("sum({0} >> 32)", &[value]);
    let low = Fragment::fill("sum({0} & 4294967295)", &[value]);
    Sum {
        parts: vec![high, low],
        finish: "COALESCE(({0} + ({1} >> 32)) * 4294967296 + ({1} & 4294967295), 0)",
        ty: Type::Int,
    }
}

fn extreme(is_least: bool, value: &Typed) -> Result<Sum> {
    let value = match &value.ty {
        Type::Array(_) | Type::Interval(_) => {
            return invalid(format!("min and max do not take {}", shown(&value.ty.to_string())));
        }
        ty if ty.is_truth() => value.clone().number("min")?,
        _ => value.clone(),
    };
    let template = if is_least { "min({0})" } else { "max({0})" };
    Ok(Sum::new(Fragment::fill(template, &[&value.sql]), "{0}", value.ty))
}

fn whichever(engine: SqlDialect, value: &Typed) -> Sum {
    let (template, finish) = match (engine, &value.ty) {
        // Postgres has no order for lists themselves.
        (SqlDialect::Postgres, Type::Array(_)) => ("min(CAST({0} AS TEXT))", "CAST({0} AS JSONB)"),
        (SqlDialect::Postgres, Type::Bool | Type::Flag) => ("bool_or({0})", "{0}"),
        (SqlDialect::Postgres | SqlDialect::Sqlite | SqlDialect::ClickHouse, _) => {
            ("min({0})", "{0}")
        }
    };
    Sum::new(Fragment::fill(template, &[&value.sql]), finish, value.ty.clone())
}

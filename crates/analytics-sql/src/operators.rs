//! Translates operators and comparisons.

use foundation::error::{QueryErrorKind, Result};
use sqlparser::ast::{BinaryOperator, Expr, Query};

use super::fragment::Fragment;
use super::scope::Scope;
use super::translate::{RowSet, Translator};
use super::types::{Narrowing, SqlDialect, Type, TypedExpr};
use super::{casts, excerpt, invalid, query_fault, times, type_domains, unsupported};

impl Translator<'_> {
    pub fn translate_binary<'q>(
        &mut self,
        scope: &mut Scope<'q>,
        left: &'q Expr,
        operator: &BinaryOperator,
        right: &'q Expr,
    ) -> Result<TypedExpr> {
        let joins = matches!(operator, BinaryOperator::And | BinaryOperator::Or);
        let is_condition = scope.is_condition;
        scope.is_condition &= joins;
        let left = self.translate_expr(scope, left)?;
        let right = self.translate_expr(scope, right)?;
        scope.is_condition = is_condition;
        let template = match operator {
            BinaryOperator::And => return combine_conditions(AND_TEMPLATE, left, right),
            BinaryOperator::Or => return combine_conditions("({0} OR {1})", left, right),
            BinaryOperator::Eq => "({0} = {1})",
            BinaryOperator::NotEq => "({0} <> {1})",
            BinaryOperator::Gt => "({0} > {1})",
            BinaryOperator::GtEq => "({0} >= {1})",
            BinaryOperator::Lt => "({0} < {1})",
            BinaryOperator::LtEq => "({0} <= {1})",
            BinaryOperator::Plus | BinaryOperator::Minus if is_about_time(&left, &right) => {
                return times::add_interval(
                    self.engine,
                    left,
                    *operator == BinaryOperator::Minus,
                    right,
                );
            }
            BinaryOperator::Plus
            | BinaryOperator::Minus
            | BinaryOperator::Multiply
            | BinaryOperator::Divide
            | BinaryOperator::Modulo => {
                return translate_arithmetic(self.engine, operator, left, right);
            }
            BinaryOperator::StringConcat => {
                return casts::translate_concat(self.engine, &[left, right]);
            }
            _ => return unsupported(&format!("the operator {operator}")),
        };
        let (left, right) = to_comparable(left, right)?;
        if is_condition {
            self.reject_expired_range(&left, operator, &right)?;
        }
        Ok(build_comparison(template, &[&left, &right]))
    }

    pub fn translate_between<'q>(
        &mut self,
        scope: &mut Scope<'q>,
        negated: bool,
        value: &'q Expr,
        low: &'q Expr,
        high: &'q Expr,
    ) -> Result<TypedExpr> {
        let is_condition = std::mem::replace(&mut scope.is_condition, false);
        let value = self.translate_expr(scope, value)?;
        let (value, low) = to_comparable(value, self.translate_expr(scope, low)?)?;
        let (value, high) = to_comparable(value, self.translate_expr(scope, high)?)?;
        scope.is_condition = is_condition;
        if is_condition && !negated {
            self.reject_expired_range(&value, &BinaryOperator::GtEq, &low)?;
        }
        let template = match negated {
            false => "({0} BETWEEN {1} AND {2})",
            // Old versions of ClickHouse have no NOT BETWEEN.
            true => {
                let usual = "({0} NOT BETWEEN {1} AND {2})";
                self.engine.select([usual, usual, "({0} < {1} OR {0} > {2})"])
            }
        };
        Ok(build_comparison(template, &[&value, &low, &high]))
    }

    /// Rejects a condition on times past the retention, so that deleted events are not mistaken for none.
    fn reject_expired_range(
        &self,
        left: &TypedExpr,
        operator: &BinaryOperator,
        right: &TypedExpr,
    ) -> Result<()> {
        let bound = match operator {
            BinaryOperator::Eq => left
                .time_table
                .zip(right.constant_int())
                .or(right.time_table.zip(left.constant_int())),
            BinaryOperator::Gt | BinaryOperator::GtEq => left.time_table.zip(right.constant_int()),
            BinaryOperator::Lt | BinaryOperator::LtEq => right.time_table.zip(left.constant_int()),
            _ => None,
        };
        let Some((table, bound)) = bound else { return Ok(()) };
        let days = table.grain.retention_days(&self.context.retention);
        if bound >= times::oldest_time(self.context.now_ms, days, table.grain) {
            return Ok(());
        }
        query_fault(
            QueryErrorKind::BeyondRetention,
            format!("{} goes back {days} days; the query requests older data", table.name),
        )
    }

    pub fn translate_in_list<'q>(
        &mut self,
        scope: &mut Scope<'q>,
        negated: bool,
        value: &'q Expr,
        list: &'q [Expr],
    ) -> Result<TypedExpr> {
        if let [Expr::Identifier(name)] = list {
            let name = excerpt(&name.value);
            return invalid(format!("IN takes a list or a query in parentheses, not {name}"));
        }
        let mut value = self.translate_expr(scope, value)?;
        let mut items = Vec::new();
        for item in list {
            let item = self.translate_expr(scope, item)?;
            let (same, item) = to_comparable(value, item)?;
            value = same;
            items.push(item);
        }
        if items.is_empty() {
            return invalid("IN requires a list that is not empty");
        }
        // A list in ClickHouse can contain only literals.
        let is_constant = items.iter().all(|item| item.constant.is_some());
        let sql = if self.engine == SqlDialect::ClickHouse && !is_constant {
            let same = items
                .iter()
                .map(|item| Fragment::from_template("{0} = {1}", &[&value.sql, &item.sql]));
            let any = Fragment::join(" OR ", &same.collect::<Vec<_>>());
            Fragment::from_template(if negated { "(NOT ({0}))" } else { "({0})" }, &[&any])
        } else {
            let listed = Fragment::join(", ", items.iter().map(|item| &item.sql));
            let template = if negated { "({0} NOT IN ({1}))" } else { "({0} IN ({1}))" };
            Fragment::from_template(template, &[&value.sql, &listed])
        };
        let parts: Vec<_> = items.iter().chain([&value]).collect();
        let mut member = TypedExpr::from_parts(sql, Type::Flag, &parts);
        if is_constant && let Some(origin) = value.origin {
            let listed = Fragment::join(", ", items.iter().map(|item| &item.sql));
            let template = if negated { "({0} NOT IN ({1}))" } else { "({0} IN ({1}))" };
            let sql = Fragment::from_template(template, &[&origin.to_sql(), &listed]);
            member.narrowings.push(Narrowing { read_number: origin.read_number, sql });
        }
        Ok(member)
    }

    pub fn translate_in_subquery<'q>(
        &mut self,
        scope: &mut Scope<'q>,
        negated: bool,
        value: &'q Expr,
        query: &'q Query,
    ) -> Result<TypedExpr> {
        let value = self.translate_expr(scope, value)?;
        let rows = self.translate_query(query, self.context.nested_rows_max)?;
        let [(_, ty)] = &rows.columns[..] else {
            return invalid("the query after IN must have one column");
        };
        let member = TypedExpr::from_parts(self.materialize_members(&rows), ty.clone(), &[]);
        if !is_comparable(&value.ty, ty) || value.ty.is_boolean() != ty.is_boolean() {
            return invalid(format!("IN cannot compare {} with {ty}", value.ty));
        }
        let template = if negated { "({0} NOT IN ({1}))" } else { "({0} IN ({1}))" };
        Ok(TypedExpr::from_template(template, Type::Flag, &[&value, &member]))
    }

    /// Returns the rows of a query after IN. Postgres may keep them in memory without limit, so they are counted like
    /// lists, without duplicates. They are materialized first, because rows that are read again would be counted
    /// again.
    fn materialize_members(&mut self, rows: &RowSet) -> Fragment {
        if self.engine != SqlDialect::Postgres {
            return rows.sql.clone();
        }
        let (all, stored) = (self.new_name('m'), self.new_name('w'));
        let column = Fragment::generated_name('c', rows.first_column);
        let template = "WITH {1} AS MATERIALIZED (SELECT {0}.{2} FROM \
            (SELECT DISTINCT {0}.{2} FROM ({3}) AS {0} OFFSET 0) AS {0} \
            WHERE {0}.{2} IS NULL OR keyward_events.count_listed(to_jsonb({0}.{2}))) \
            SELECT {1}.{2} FROM {1}";
        Fragment::from_template(template, &[&all, &stored, &column, &rows.sql])
    }
}

fn is_about_time(left: &TypedExpr, right: &TypedExpr) -> bool {
    let is = |ty: &Type| ty.is_time() || matches!(ty, Type::Interval(_));
    is(&left.ty) || is(&right.ty)
}

fn combine_conditions(
    template: &'static str,
    left: TypedExpr,
    right: TypedExpr,
) -> Result<TypedExpr> {
    let (left, right) = (left.into_condition()?, right.into_condition()?);
    let mut both = TypedExpr::from_template(template, Type::Flag, &[&left, &right]);
    if template == AND_TEMPLATE {
        both.narrowings = left.narrowings.into_iter().chain(right.narrowings).collect();
    }
    Ok(both)
}

const AND_TEMPLATE: &str = "({0} AND {1})";

/// Returns a comparison. If it compares a column of a public table with constants, it also narrows what is read of
/// that table.
fn build_comparison(template: &'static str, parts: &[&TypedExpr]) -> TypedExpr {
    let mut compared = TypedExpr::from_template(template, Type::Flag, parts);
    let origins: Vec<_> = parts.iter().filter_map(|part| part.origin).collect();
    let [origin] = origins[..] else { return compared };
    if parts.iter().all(|part| part.origin.is_some() || part.constant.is_some()) {
        let column = origin.to_sql();
        let parts =
            parts.iter().map(|part| if part.origin.is_some() { &column } else { &part.sql });
        let sql = Fragment::from_template(template, &parts.collect::<Vec<_>>());
        compared.narrowings.push(Narrowing { read_number: origin.read_number, sql });
    }
    compared
}

/// Translates an implicit `=`.
pub fn build_equality(left: TypedExpr, right: TypedExpr) -> Result<TypedExpr> {
    let (left, right) = to_comparable(left, right)?;
    Ok(TypedExpr::from_template("({0} = {1})", Type::Flag, &[&left, &right]))
}

fn is_comparable(left: &Type, right: &Type) -> bool {
    // A number next to a time is in Unix milliseconds, as in the event tables.
    let is_moment = |a: &Type, b: &Type| a.is_time() && *b == Type::Int;
    left.common_type(right).is_some() || is_moment(left, right) || is_moment(right, left)
}

/// Converts both, so that the engine compares values of the same kind.
fn to_comparable(left: TypedExpr, right: TypedExpr) -> Result<(TypedExpr, TypedExpr)> {
    let left_is_text = left.ty == Type::Text && right.ty.is_time();
    let right_is_text = right.ty == Type::Text && left.ty.is_time();
    let left = if left_is_text { times::parse_time(&left)? } else { left };
    let right = if right_is_text { times::parse_time(&right)? } else { right };
    if !is_comparable(&left.ty, &right.ty) || matches!(left.ty, Type::Interval(_)) {
        return invalid(format!("{} cannot be compared with {}", left.ty, right.ty));
    }
    if left.ty == Type::Null || right.ty == Type::Null {
        let (left_ty, right_ty) = (left.ty.clone(), right.ty.clone());
        return Ok((left.cast_if_null(&right_ty), right.cast_if_null(&left_ty)));
    }
    if left.ty.is_boolean() != right.ty.is_boolean() {
        return Ok((left.into_number("a comparison")?, right.into_number("a comparison")?));
    }
    Ok((left, right))
}

fn translate_arithmetic(
    engine: SqlDialect,
    operator: &BinaryOperator,
    left: TypedExpr,
    right: TypedExpr,
) -> Result<TypedExpr> {
    let what = operator.to_string();
    let (left, right) = (left.into_number(&what)?, right.into_number(&what)?);
    let is_whole = left.ty != Type::Float && right.ty != Type::Float;
    let ty = if is_whole { Type::Int } else { Type::Float };
    let (template, known): (_, fn(i64, i64) -> Option<i64>) = match operator {
        BinaryOperator::Plus => ("({0} + {1})", i64::checked_add),
        BinaryOperator::Minus => ("({0} - {1})", i64::checked_sub),
        BinaryOperator::Multiply => ("({0} * {1})", i64::checked_mul),
        BinaryOperator::Modulo if is_whole => {
            let usual = "({0} % NULLIF({1}, 0))";
            // ClickHouse divides even where the result is to be NULL, and cannot divide the smallest number by -1.
            let clickhouse =
                "CASE WHEN {1} <> 0 THEN {0} % CASE WHEN {1} IN (0, -1) THEN 1 ELSE {1} END END";
            (engine.select([usual, usual, clickhouse]), i64::checked_rem)
        }
        BinaryOperator::Modulo => return invalid("% requires whole numbers"),
        _ => return Ok(divide(engine, &left, &right)),
    };
    if let (Some(left), Some(right)) = (left.constant_int(), right.constant_int()) {
        match known(left, right) {
            Some(value) => return Ok(TypedExpr::int(value, ty)),
            None => return invalid(format!("{left} {what} {right} cannot be computed")),
        }
    }
    let parts = [&left, &right];
    let sql = match operator {
        BinaryOperator::Modulo => Fragment::from_template(template, &[&left.sql, &right.sql]),
        _ if is_whole => {
            let exact = parts.map(|part| type_domains::to_exact(engine, part));
            type_domains::bound_int(engine, &Fragment::from_template(template, &exact.each_ref()))
        }
        // A product with a whole number is never too small.
        BinaryOperator::Multiply
            if engine == SqlDialect::Postgres
                && parts.iter().all(|part| part.constant_int().is_none()) =>
        {
            let exact = parts.map(|part| type_domains::to_exact(engine, part));
            type_domains::float_from_exact(&Fragment::from_template(template, &exact.each_ref()))
        }
        _ => type_domains::bound_float(
            engine,
            &Fragment::from_template(template, &[&left.sql, &right.sql]),
        ),
    };
    Ok(TypedExpr::from_parts(sql, ty, &parts))
}

/// Returns a quotient. For whole numbers it is neither too large nor too small for a float.
fn divide(engine: SqlDialect, left: &TypedExpr, right: &TypedExpr) -> TypedExpr {
    let is_whole = left.ty != Type::Float && right.ty != Type::Float;
    let sql = if engine == SqlDialect::Postgres && !is_whole {
        let exact = [left, right].map(|part| type_domains::to_exact(engine, part));
        // With as many digits as a float has, wherever its decimal point is.
        let template = "({0} * 1.0000000000000000000000000000000000000000 / NULLIF({1}, 0))";
        type_domains::float_from_exact(&Fragment::from_template(template, &exact.each_ref()))
    } else {
        let template = "(CAST({0} AS DOUBLE PRECISION) / NULLIF(CAST({1} AS DOUBLE PRECISION), 0))";
        type_domains::bound_float(
            engine,
            &Fragment::from_template(template, &[&left.sql, &right.sql]),
        )
    };
    TypedExpr::from_parts(sql, Type::Float, &[left, right])
}

/// Returns the number with the opposite sign.
pub fn negate(engine: SqlDialect, value: &TypedExpr) -> TypedExpr {
    let sql = match value.ty {
        Type::Float => Fragment::from_template("(- {0})", &[&value.sql]),
        _ => type_domains::bound_int(
            engine,
            &Fragment::from_template("(- {0})", &[&type_domains::to_exact(engine, value)]),
        ),
    };
    TypedExpr::from_parts(sql, value.ty.clone(), &[value])
}

/// Returns a CASE. The last of the values is returned if no condition holds.
pub fn build_case(whens: &[TypedExpr], thens: Vec<TypedExpr>) -> Result<TypedExpr> {
    let mut ty = Type::Null;
    for then in &thens {
        let Some(joined) = ty.common_type(&then.ty) else {
            return invalid(format!("a condition cannot choose between {ty} and {}", then.ty));
        };
        ty = joined;
    }
    let thens = thens.into_iter().map(|then| then.widen_to(&ty)).collect::<Result<Vec<_>>>()?;
    let mut sql = Fragment::word("CASE");
    for (when, then) in whens.iter().zip(&thens) {
        sql.append(&Fragment::from_template(" WHEN {0} THEN {1}", &[&when.sql, &then.sql]));
    }
    if let Some(otherwise) = thens.last() {
        sql.append(&Fragment::from_template(" ELSE {0} END", &[&otherwise.sql]));
    }
    let parts: Vec<_> = whens.iter().chain(&thens).collect();
    Ok(TypedExpr::from_parts(sql, ty, &parts))
}

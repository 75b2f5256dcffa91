//! Translates operators and comparisons.

use foundation::error::{QueryFault, Result};
use sqlparser::ast::{BinaryOperator, Expr, Query};

use super::fragment::Fragment;
use super::scope::Scope;
use super::translate::{Rows, Translator};
use super::types::{Narrowing, SqlDialect, Type, Typed};
use super::{casts, fault, invalid, shown, times, type_domains, unsupported};

impl Translator<'_> {
    pub fn binary<'q>(
        &mut self,
        scope: &mut Scope<'q>,
        left: &'q Expr,
        operator: &BinaryOperator,
        right: &'q Expr,
    ) -> Result<Typed> {
        let joins = matches!(operator, BinaryOperator::And | BinaryOperator::Or);
        let is_condition = scope.is_condition;
        scope.is_condition &= joins;
        let left = self.expr(scope, left)?;
        let right = self.expr(scope, right)?;
        scope.is_condition = is_condition;
        let template = match operator {
            BinaryOperator::And => return truths(AND, left, right),
            BinaryOperator::Or => return truths("({0} OR {1})", left, right),
            BinaryOperator::Eq => "({0} = {1})",
            BinaryOperator::NotEq => "({0} <> {1})",
            BinaryOperator::Gt => "({0} > {1})",
            BinaryOperator::GtEq => "({0} >= {1})",
            BinaryOperator::Lt => "({0} < {1})",
            BinaryOperator::LtEq => "({0} <= {1})",
            BinaryOperator::Plus | BinaryOperator::Minus if is_about_time(&left, &right) => {
                return times::moved(self.engine, left, *operator == BinaryOperator::Minus, right);
            }
            BinaryOperator::Plus
            | BinaryOperator::Minus
            | BinaryOperator::Multiply
            | BinaryOperator::Divide
            | BinaryOperator::Modulo => return arithmetic(self.engine, operator, left, right),
            BinaryOperator::StringConcat => return casts::concat(self.engine, &[left, right]),
            _ => return unsupported(&format!("the operator {operator}")),
        };
        let (left, right) = comparable(left, right)?;
        if is_condition {
            self.refuse_forgotten(&left, operator, &right)?;
        }
        Ok(narrowing(template, &[&left, &right]))
    }

    pub fn between<'q>(
        &mut self,
        scope: &mut Scope<'q>,
        negated: bool,
        value: &'q Expr,
        low: &'q Expr,
        high: &'q Expr,
    ) -> Result<Typed> {
        let is_condition = std::mem::replace(&mut scope.is_condition, false);
        let value = self.expr(scope, value)?;
        let (value, low) = comparable(value, self.expr(scope, low)?)?;
        let (value, high) = comparable(value, self.expr(scope, high)?)?;
        scope.is_condition = is_condition;
        if is_condition && !negated {
            self.refuse_forgotten(&value, &BinaryOperator::GtEq, &low)?;
        }
        let template = match negated {
            false => "({0} BETWEEN {1} AND {2})",
            // Old versions of ClickHouse have no NOT BETWEEN.
            true => {
                let usual = "({0} NOT BETWEEN {1} AND {2})";
                self.engine.pick([usual, usual, "({0} < {1} OR {0} > {2})"])
            }
        };
        Ok(narrowing(template, &[&value, &low, &high]))
    }

    /// Rejects a condition on times past the retention, so that deleted events are not mistaken for none.
    fn refuse_forgotten(
        &self,
        left: &Typed,
        operator: &BinaryOperator,
        right: &Typed,
    ) -> Result<()> {
        let bound = match operator {
            BinaryOperator::Eq => {
                left.time_of.zip(right.known_int()).or(right.time_of.zip(left.known_int()))
            }
            BinaryOperator::Gt | BinaryOperator::GtEq => left.time_of.zip(right.known_int()),
            BinaryOperator::Lt | BinaryOperator::LtEq => right.time_of.zip(left.known_int()),
            _ => None,
        };
        let Some((table, bound)) = bound else { return Ok(()) };
        let days = table.grain.days(&self.asked.retention);
        if bound >= times::oldest(self.asked.now, days, table.grain) {
            return Ok(());
        }
        fault(
            QueryFault::Forgotten,
            format!("{} goes back {days} days; the query requests older data", table.name),
        )
    }

    pub fn in_list<'q>(
        &mut self,
        scope: &mut Scope<'q>,
        negated: bool,
        value: &'q Expr,
        list: &'q [Expr],
    ) -> Result<Typed> {
        if let [Expr::Identifier(name)] = list {
            let name = shown(&name.value);
            return invalid(format!("IN takes a list or a query in parentheses, not {name}"));
        }
        let mut value = self.expr(scope, value)?;
        let mut items = Vec::new();
        for item in list {
            let item = self.expr(scope, item)?;
            let (same, item) = comparable(value, item)?;
            value = same;
            items.push(item);
        }
        if items.is_empty() {
            return invalid("IN requires a list that is not empty");
        }
        // A list in ClickHouse can contain only literals.
        let is_constant = items.iter().all(|item| item.known.is_some());
        let sql = if self.engine == SqlDialect::ClickHouse && !is_constant {
            let same =
                items.iter().map(|item| Fragment::fill("{0} = {1}", &[&value.sql, &item.sql]));
            let any = Fragment::list(" OR ", &same.collect::<Vec<_>>());
            Fragment::fill(if negated { "(NOT ({0}))" } else { "({0})" }, &[&any])
        } else {
            let listed = Fragment::list(", ", items.iter().map(|item| &item.sql));
            let template = if negated { "({0} NOT IN ({1}))" } else { "({0} IN ({1}))" };
            Fragment::fill(template, &[&value.sql, &listed])
        };
        let parts: Vec<_> = items.iter().chain([&value]).collect();
        let mut member = Typed::of(sql, Type::Flag, &parts);
        if is_constant && let Some(origin) = value.origin {
            let listed = Fragment::list(", ", items.iter().map(|item| &item.sql));
            let template = if negated { "({0} NOT IN ({1}))" } else { "({0} IN ({1}))" };
            let sql = Fragment::fill(template, &[&origin.sql(), &listed]);
            member.narrowings.push(Narrowing { read: origin.read, sql });
        }
        Ok(member)
    }

    pub fn in_subquery<'q>(
        &mut self,
        scope: &mut Scope<'q>,
        negated: bool,
        value: &'q Expr,
        query: &'q Query,
    ) -> Result<Typed> {
        let value = self.expr(scope, value)?;
        let rows = self.query(query, self.asked.inner_rows_max)?;
        let [(_, ty)] = &rows.columns[..] else {
            return invalid("the query after IN must have one column");
        };
        let member = Typed::of(self.members(&rows), ty.clone(), &[]);
        if !is_comparable(&value.ty, ty) || value.ty.is_truth() != ty.is_truth() {
            return invalid(format!("IN cannot compare {} with {ty}", value.ty));
        }
        let template = if negated { "({0} NOT IN ({1}))" } else { "({0} IN ({1}))" };
        Ok(Typed::fill(template, Type::Flag, &[&value, &member]))
    }

    /// Returns the rows of a query after IN. Postgres may keep them in memory without limit, so they are counted like
    /// lists, without duplicates. They are materialized first, because rows that are read again would be counted
    /// again.
    fn members(&mut self, rows: &Rows) -> Fragment {
        if self.engine != SqlDialect::Postgres {
            return rows.sql.clone();
        }
        let (all, stored) = (self.name('m'), self.name('w'));
        let column = Fragment::name('c', rows.first);
        let template = "WITH {1} AS MATERIALIZED (SELECT {0}.{2} FROM \
            (SELECT DISTINCT {0}.{2} FROM ({3}) AS {0} OFFSET 0) AS {0} \
            WHERE {0}.{2} IS NULL OR keyward_events.count_listed(to_jsonb({0}.{2}))) \
            SELECT {1}.{2} FROM {1}";
        Fragment::fill(template, &[&all, &stored, &column, &rows.sql])
    }
}

fn is_about_time(left: &Typed, right: &Typed) -> bool {
    let is = |ty: &Type| ty.is_time() || matches!(ty, Type::Interval(_));
    is(&left.ty) || is(&right.ty)
}

fn truths(template: &'static str, left: Typed, right: Typed) -> Result<Typed> {
    let (left, right) = (left.truth()?, right.truth()?);
    let mut both = Typed::fill(template, Type::Flag, &[&left, &right]);
    if template == AND {
        both.narrowings = left.narrowings.into_iter().chain(right.narrowings).collect();
    }
    Ok(both)
}

const AND: &str = "({0} AND {1})";

/// Returns a comparison. If it compares a column of a public table with constants, it also narrows what is read of
/// that table.
fn narrowing(template: &'static str, parts: &[&Typed]) -> Typed {
    let mut compared = Typed::fill(template, Type::Flag, parts);
    let origins: Vec<_> = parts.iter().filter_map(|part| part.origin).collect();
    let [origin] = origins[..] else { return compared };
    if parts.iter().all(|part| part.origin.is_some() || part.known.is_some()) {
        let column = origin.sql();
        let parts =
            parts.iter().map(|part| if part.origin.is_some() { &column } else { &part.sql });
        let sql = Fragment::fill(template, &parts.collect::<Vec<_>>());
        compared.narrowings.push(Narrowing { read: origin.read, sql });
    }
    compared
}

/// Translates an implicit `=`.
pub fn equal(left: Typed, right: Typed) -> Result<Typed> {
    let (left, right) = comparable(left, right)?;
    Ok(Typed::fill("({0} = {1})", Type::Flag, &[&left, &right]))
}

fn is_comparable(left: &Type, right: &Type) -> bool {
    // A number next to a time is in Unix milliseconds, as in the event tables.
    let is_moment = |a: &Type, b: &Type| a.is_time() && *b == Type::Int;
    left.join(right).is_some() || is_moment(left, right) || is_moment(right, left)
}

/// Converts both, so that the engine compares values of the same kind.
fn comparable(left: Typed, right: Typed) -> Result<(Typed, Typed)> {
    let left_is_text = left.ty == Type::Text && right.ty.is_time();
    let right_is_text = right.ty == Type::Text && left.ty.is_time();
    let left = if left_is_text { times::read(&left)? } else { left };
    let right = if right_is_text { times::read(&right)? } else { right };
    if !is_comparable(&left.ty, &right.ty) || matches!(left.ty, Type::Interval(_)) {
        return invalid(format!("{} cannot be compared with {}", left.ty, right.ty));
    }
    if left.ty == Type::Null || right.ty == Type::Null {
        let (left_ty, right_ty) = (left.ty.clone(), right.ty.clone());
        return Ok((left.or_null_of(&right_ty), right.or_null_of(&left_ty)));
    }
    if left.ty.is_truth() != right.ty.is_truth() {
        return Ok((left.number("a comparison")?, right.number("a comparison")?));
    }
    Ok((left, right))
}

fn arithmetic(
    engine: SqlDialect,
    operator: &BinaryOperator,
    left: Typed,
    right: Typed,
) -> Result<Typed> {
    let what = operator.to_string();
    let (left, right) = (left.number(&what)?, right.number(&what)?);
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
            (engine.pick([usual, usual, clickhouse]), i64::checked_rem)
        }
        BinaryOperator::Modulo => return invalid("% requires whole numbers"),
        _ => return Ok(quotient(engine, &left, &right)),
    };
    if let (Some(left), Some(right)) = (left.known_int(), right.known_int()) {
        match known(left, right) {
            Some(value) => return Ok(Typed::int(value, ty)),
            None => return invalid(format!("{left} {what} {right} cannot be computed")),
        }
    }
    let parts = [&left, &right];
    let sql = match operator {
        BinaryOperator::Modulo => Fragment::fill(template, &[&left.sql, &right.sql]),
        _ if is_whole => {
            let exact = parts.map(|part| type_domains::exact(engine, part));
            type_domains::int(engine, &Fragment::fill(template, &exact.each_ref()))
        }
        // A product with a whole number is never too small.
        BinaryOperator::Multiply
            if engine == SqlDialect::Postgres
                && parts.iter().all(|part| part.known_int().is_none()) =>
        {
            let exact = parts.map(|part| type_domains::exact(engine, part));
            type_domains::float_of_exact(&Fragment::fill(template, &exact.each_ref()))
        }
        _ => type_domains::float(engine, &Fragment::fill(template, &[&left.sql, &right.sql])),
    };
    Ok(Typed::of(sql, ty, &parts))
}

/// Returns a quotient. For whole numbers it is neither too large nor too small for a float.
fn quotient(engine: SqlDialect, left: &Typed, right: &Typed) -> Typed {
    let is_whole = left.ty != Type::Float && right.ty != Type::Float;
    let sql = if engine == SqlDialect::Postgres && !is_whole {
        let exact = [left, right].map(|part| type_domains::exact(engine, part));
        // With as many digits as a float has, wherever its decimal point is.
        let template = "({0} * 1.0000000000000000000000000000000000000000 / NULLIF({1}, 0))";
        type_domains::float_of_exact(&Fragment::fill(template, &exact.each_ref()))
    } else {
        let template = "(CAST({0} AS DOUBLE PRECISION) / NULLIF(CAST({1} AS DOUBLE PRECISION), 0))";
        type_domains::float(engine, &Fragment::fill(template, &[&left.sql, &right.sql]))
    };
    Typed::of(sql, Type::Float, &[left, right])
}

/// Returns the number with the opposite sign.
pub fn negated(engine: SqlDialect, value: &Typed) -> Typed {
    let sql = match value.ty {
        Type::Float => Fragment::fill("(- {0})", &[&value.sql]),
        _ => type_domains::int(
            engine,
            &Fragment::fill("(- {0})", &[&type_domains::exact(engine, value)]),
        ),
    };
    Typed::of(sql, value.ty.clone(), &[value])
}

/// Returns a CASE. The last of the values is returned if no condition holds.
pub fn choose(whens: &[Typed], thens: Vec<Typed>) -> Result<Typed> {
    let mut ty = Type::Null;
    for then in &thens {
        let Some(joined) = ty.join(&then.ty) else {
            return invalid(format!("a condition cannot choose between {ty} and {}", then.ty));
        };
        ty = joined;
    }
    let thens = thens.into_iter().map(|then| then.widened(&ty)).collect::<Result<Vec<_>>>()?;
    let mut sql = Fragment::word("CASE");
    for (when, then) in whens.iter().zip(&thens) {
        sql.append(&Fragment::fill(" WHEN {0} THEN {1}", &[&when.sql, &then.sql]));
    }
    if let Some(otherwise) = thens.last() {
        sql.append(&Fragment::fill(" ELSE {0} END", &[&otherwise.sql]));
    }
    let parts: Vec<_> = whens.iter().chain(&thens).collect();
    Ok(Typed::of(sql, ty, &parts))
}

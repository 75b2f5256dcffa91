//! Translates expressions: passes each kind to its translation. Kinds that are not listed are rejected.

use std::mem;

use foundation::error::Result;
use sqlparser::ast::{CaseWhen, CastKind, CeilFloorKind, Expr, Query, UnaryOperator};

use super::functions::{self, Args};
use super::scope::{Place, Scope, State};
use super::translate::Translator;
use super::types::{SqlDialect, Type, Typed, Unit};
use super::{arrays, casts, invalid, literals, operators, patterns, shown, times, unsupported};

impl Translator<'_> {
    pub fn expr<'q>(&mut self, scope: &mut Scope<'q>, expr: &'q Expr) -> Result<Typed> {
        self.enter()?;
        let stays_condition =
            matches!(expr, Expr::Nested(_) | Expr::Between { .. } | Expr::BinaryOp { .. });
        let was_condition = scope.is_condition;
        scope.is_condition &= stays_condition;
        let mut typed = self.any(scope, expr)?;
        scope.is_condition = was_condition;
        if typed.loose.is_some() && scope.keys.contains(&typed.sql) {
            typed.loose = None;
        }
        self.leave();
        Ok(typed)
    }

    fn any<'q>(&mut self, scope: &mut Scope<'q>, expr: &'q Expr) -> Result<Typed> {
        match expr {
            Expr::Identifier(name) => self.named(scope, &name.value),
            Expr::CompoundIdentifier(names) => match &names[..] {
                [table, name] => scope.qualified(&table.value, &name.value),
                _ => invalid("a column must be written as column or table.column"),
            },
            Expr::Nested(expr) => self.expr(scope, expr),
            Expr::Value(value) => literals::value(&value.value),
            Expr::TypedString(string) => times::typed_string(string),
            Expr::Interval(interval) => self.interval(scope, interval),
            Expr::Array(array) if !array.named => {
                let items = self.all(scope, array.elem.iter())?;
                arrays::of(self.engine, items)
            }
            Expr::UnaryOp { op, expr } => {
                let value = self.expr(scope, expr)?;
                unary(self.engine, *op, value)
            }
            Expr::BinaryOp { left, op, right } => self.binary(scope, left, op, right),
            Expr::IsNull(expr) => self.filled(scope, "({0} IS NULL)", expr),
            Expr::IsNotNull(expr) => self.filled(scope, "({0} IS NOT NULL)", expr),
            Expr::Between { expr, negated, low, high } => {
                self.between(scope, *negated, expr, low, high)
            }
            Expr::InList { expr, list, negated } => self.in_list(scope, *negated, expr, list),
            Expr::InSubquery { expr, subquery, negated } => {
                self.in_subquery(scope, *negated, expr, subquery)
            }
            Expr::Like { negated, any: false, expr, pattern, escape_char: None } => {
                let values = self.all(scope, [&**expr, &**pattern])?;
                patterns::like(self.engine, *negated, false, &values)
            }
            Expr::ILike { negated, any: false, expr, pattern, escape_char: None } => {
                let values = self.all(scope, [&**expr, &**pattern])?;
                patterns::like(self.engine, *negated, true, &values)
            }
            Expr::Case { case_token: _, end_token: _, operand, conditions, else_result } => {
                self.case(scope, operand.as_deref(), conditions, else_result.as_deref())
            }
            Expr::Cast {
                kind: CastKind::Cast | CastKind::DoubleColon,
                expr,
                data_type,
                format: None,
            } => {
                let value = self.expr(scope, expr)?;
                casts::cast(self.engine, value, data_type)
            }
            Expr::Function(function) => self.function(scope, function),
            Expr::Subquery(query) => self.scalar(query),
            Expr::Exists { subquery, negated } => self.exists(subquery, *negated),
            Expr::Lambda(_) => invalid("a lambda can only be the first argument of arrayFilter"),
            _ => self.spelled(scope, expr),
        }
    }

    /// Translates functions that have a syntax of their own.
    fn spelled<'q>(&mut self, scope: &mut Scope<'q>, expr: &'q Expr) -> Result<Typed> {
        let (name, given) = match expr {
            Expr::Floor { expr, field } => ("floor", self.rounded(scope, expr, field)?),
            Expr::Ceil { expr, field } => ("ceil", self.rounded(scope, expr, field)?),
            Expr::Substring { expr, substring_from: Some(from), substring_for, .. } => {
                let mut given = self.all(scope, [&**expr, &**from])?;
                if let Some(length) = substring_for {
                    given.push(self.expr(scope, length)?);
                }
                ("substring", given)
            }
            Expr::Trim { trim_where: None, trim_what: None, expr, trim_characters: None } => {
                ("trim", vec![self.expr(scope, expr)?])
            }
            _ => {
                return unsupported(&format!("the expression {}", shown(&expr.to_string())));
            }
        };
        functions::call(&Args { engine: self.engine, now: self.asked.now, name, given: &given })
    }

    fn rounded<'q>(
        &mut self,
        scope: &mut Scope<'q>,
        expr: &'q Expr,
        field: &CeilFloorKind,
    ) -> Result<Vec<Typed>> {
        let mut given = vec![self.expr(scope, expr)?];
        match field {
            CeilFloorKind::DateTimeField(sqlparser::ast::DateTimeField::NoDateTime) => {}
            CeilFloorKind::DateTimeField(_) => return unsupported("floor to a unit of time"),
            CeilFloorKind::Scale(scale) => given.push(literals::value(&scale.value)?),
        }
        Ok(given)
    }

    pub fn all<'q>(
        &mut self,
        scope: &mut Scope<'q>,
        exprs: impl IntoIterator<Item = &'q Expr>,
    ) -> Result<Vec<Typed>> {
        exprs.into_iter().map(|expr| self.expr(scope, expr)).collect()
    }

    fn filled<'q>(
        &mut self,
        scope: &mut Scope<'q>,
        template: &'static str,
        expr: &'q Expr,
    ) -> Result<Typed> {
        let value = self.expr(scope, expr)?;
        Ok(Typed::fill(template, Type::Flag, &[&value]))
    }

    /// Resolves a name: a parameter of a lambda, else an alias of the SELECT, else a column. If the alias is an
    /// aggregate that is not allowed here, the name refers to the column.
    fn named(&mut self, scope: &mut Scope<'_>, name: &str) -> Result<Typed> {
        if let Some((_, value)) = scope.parameters.iter().rev().find(|(known, _)| *known == name) {
            return Ok(value.clone());
        }
        let alias = scope.aliases.iter().find(|alias| alias.name == name);
        let expr =
            alias.filter(|alias| !matches!(alias.state, State::Open)).map(|alias| alias.expr);
        let mut refusal = None;
        if let Some(expr) = expr {
            let value = self.alias(scope, expr)?;
            if value.aggregates && (scope.in_aggregate || !scope.place.may_aggregate()) {
                refusal = Some("an aggregate");
            } else if value.windows && (scope.in_window || !scope.place.may_look_around()) {
                refusal = Some("a window function");
            } else {
                return Ok(value);
            }
        }
        match (scope.column(name)?, refusal) {
            (Some(column), _) => Ok(column.typed()),
            (None, None) => invalid(format!("there is no column {}", shown(name))),
            (None, Some(what)) => {
                invalid(format!("{} refers to {what}, which is not allowed here", shown(name)))
            }
        }
    }

    /// Translates a column that has an alias. It is translated once, as it stands among the columns.
    pub fn alias<'q>(&mut self, scope: &mut Scope<'q>, expr: &'q Expr) -> Result<Typed> {
        let index = scope.aliases.iter().position(|alias| std::ptr::eq(alias.expr, expr));
        let Some(index) = index else { return self.expr(scope, expr) };
        match mem::replace(&mut scope.aliases[index].state, State::Open) {
            State::Read(mut value) => {
                scope.aliases[index].state = State::Read(value.clone());
                if scope.keys.contains(&value.sql) {
                    value.loose = None;
                }
                Ok(value)
            }
            State::Open => {
                invalid(format!("{} refers to itself", shown(scope.aliases[index].name)))
            }
            State::New => {
                let place = mem::replace(&mut scope.place, Place::Columns);
                let in_aggregate = mem::replace(&mut scope.in_aggregate, false);
                let in_window = mem::replace(&mut scope.in_window, false);
                let is_condition = mem::replace(&mut scope.is_condition, false);
                let parameters = mem::take(&mut scope.parameters);
                let value = self.expr(scope, expr)?;
                scope.is_condition = is_condition;
                scope.place = place;
                scope.in_aggregate = in_aggregate;
                scope.in_window = in_window;
                scope.parameters = parameters;
                scope.aliases[index].state = State::Read(value.clone());
                Ok(value)
            }
        }
    }

    fn case<'q>(
        &mut self,
        scope: &mut Scope<'q>,
        operand: Option<&'q Expr>,
        conditions: &'q [CaseWhen],
        otherwise: Option<&'q Expr>,
    ) -> Result<Typed> {
        let operand = operand.map(|operand| self.expr(scope, operand)).transpose()?;
        let (mut whens, mut thens) = (Vec::new(), Vec::new());
        for CaseWhen { condition, result } in conditions {
            let condition = self.expr(scope, condition)?;
            whens.push(match &operand {
                None => condition.truth()?,
                Some(operand) => operators::equal(operand.clone(), condition)?,
            });
            thens.push(self.expr(scope, result)?);
        }
        thens.push(match otherwise {
            None => Typed::null(),
            Some(otherwise) => self.expr(scope, otherwise)?,
        });
        operators::choose(&whens, thens)
    }

    /// Translates a query for one value, that of its first row. It cannot use names from outside.
    fn scalar(&mut self, query: &Query) -> Result<Typed> {
        let rows = self.query(query, Some(1))?;
        match &rows.columns[..] {
            [(_, ty)] => {
                let sql = super::fragment::Fragment::fill("({0})", &[&rows.sql]);
                Ok(Typed::of(sql, ty.clone(), &[]))
            }
            _ => invalid("a query that is used as a value must have one column"),
        }
    }

    fn exists(&mut self, query: &Query, negated: bool) -> Result<Typed> {
        let rows = self.query(query, self.asked.inner_rows_max)?;
        let template = match (self.engine, negated) {
            (SqlDialect::Postgres | SqlDialect::Sqlite, false) => "EXISTS ({0})",
            (SqlDialect::Postgres | SqlDialect::Sqlite, true) => "(NOT EXISTS ({0}))",
            // Old versions of ClickHouse have no EXISTS.
            (SqlDialect::ClickHouse, false) => {
                "((SELECT count() FROM (SELECT 1 FROM ({0}) LIMIT 1)) > 0)"
            }
            (SqlDialect::ClickHouse, true) => {
                "((SELECT count() FROM (SELECT 1 FROM ({0}) LIMIT 1)) = 0)"
            }
        };
        let sql = super::fragment::Fragment::fill(template, &[&rows.sql]);
        Ok(Typed::of(sql, Type::Flag, &[]))
    }

    fn interval<'q>(
        &mut self,
        scope: &mut Scope<'q>,
        interval: &'q sqlparser::ast::Interval,
    ) -> Result<Typed> {
        let sqlparser::ast::Interval {
            value,
            leading_field: Some(field),
            leading_precision: None,
            last_field: None,
            fractional_seconds_precision: None,
        } = interval
        else {
            return invalid("an INTERVAL requires a number and a unit: INTERVAL 7 DAY");
        };
        let Some(unit) = Unit::of_field(field) else {
            return invalid(format!("there is no INTERVAL of {}", shown(&field.to_string())));
        };
        let value = self.expr(scope, value)?;
        times::interval(value, unit)
    }
}

fn unary(engine: SqlDialect, operator: UnaryOperator, value: Typed) -> Result<Typed> {
    match operator {
        UnaryOperator::Plus => value.number("+"),
        UnaryOperator::Not => {
            let value = value.truth()?;
            let ty = value.ty.clone();
            Ok(Typed::fill("(NOT {0})", ty, &[&value]))
        }
        UnaryOperator::Minus => {
            let value = value.number("-")?;
            if let Some(negated) = value.known_int().and_then(i64::checked_neg) {
                return Ok(Typed::int(negated, Type::Int));
            }
            Ok(operators::negated(engine, &value))
        }
        _ => unsupported(&format!("the operator {operator}")),
    }
}

//! Translates expressions: passes each kind to its translation. Kinds that are not listed are rejected.

use std::mem;

use foundation::error::Result;
use sqlparser::ast::{CaseWhen, CastKind, CeilFloorKind, Expr, Query, UnaryOperator};

use super::functions::{self, CallArguments};
use super::scope::{AliasState, Clause, Scope};
use super::translate::Translator;
use super::types::{IntervalUnit, SqlDialect, Type, TypedExpr};
use super::{arrays, casts, excerpt, invalid, literals, operators, patterns, times, unsupported};

impl Translator<'_> {
    pub fn translate_expr<'q>(
        &mut self,
        scope: &mut Scope<'q>,
        expr: &'q Expr,
    ) -> Result<TypedExpr> {
        self.enter()?;
        let stays_condition =
            matches!(expr, Expr::Nested(_) | Expr::Between { .. } | Expr::BinaryOp { .. });
        let was_condition = scope.is_condition;
        scope.is_condition &= stays_condition;
        let mut typed = self.translate_kind(scope, expr)?;
        scope.is_condition = was_condition;
        if typed.ungrouped_column.is_some() && scope.group_keys.contains(&typed.sql) {
            typed.ungrouped_column = None;
        }
        self.leave();
        Ok(typed)
    }

    fn translate_kind<'q>(&mut self, scope: &mut Scope<'q>, expr: &'q Expr) -> Result<TypedExpr> {
        match expr {
            Expr::Identifier(name) => self.resolve_name(scope, &name.value),
            Expr::CompoundIdentifier(names) => match &names[..] {
                [table, name] => scope.get_qualified_column(&table.value, &name.value),
                _ => invalid("a column must be written as column or table.column"),
            },
            Expr::Nested(expr) => self.translate_expr(scope, expr),
            Expr::Value(value) => {
                Ok(literals::translate_literal(&value.value)?.ordered_by_bytes(self.engine))
            }
            Expr::TypedString(string) => times::translate_typed_string(string),
            Expr::Interval(interval) => self.translate_interval(scope, interval),
            Expr::Array(array) if !array.named => {
                let items = self.translate_all(scope, array.elem.iter())?;
                arrays::build_array(self.engine, items)
            }
            Expr::UnaryOp { op, expr } => {
                let value = self.translate_expr(scope, expr)?;
                translate_unary(self.engine, *op, value)
            }
            Expr::BinaryOp { left, op, right } => self.translate_binary(scope, left, op, right),
            Expr::IsNull(expr) => self.translate_template(scope, "({0} IS NULL)", expr),
            Expr::IsNotNull(expr) => self.translate_template(scope, "({0} IS NOT NULL)", expr),
            Expr::Between { expr, negated, low, high } => {
                self.translate_between(scope, *negated, expr, low, high)
            }
            Expr::InList { expr, list, negated } => {
                self.translate_in_list(scope, *negated, expr, list)
            }
            Expr::InSubquery { expr, subquery, negated } => {
                self.translate_in_subquery(scope, *negated, expr, subquery)
            }
            Expr::Like { negated, any: false, expr, pattern, escape_char: None } => {
                let values = self.translate_all(scope, [&**expr, &**pattern])?;
                patterns::translate_like(self.engine, *negated, false, &values)
            }
            Expr::ILike { negated, any: false, expr, pattern, escape_char: None } => {
                let values = self.translate_all(scope, [&**expr, &**pattern])?;
                patterns::translate_like(self.engine, *negated, true, &values)
            }
            Expr::Case { case_token: _, end_token: _, operand, conditions, else_result } => {
                self.translate_case(scope, operand.as_deref(), conditions, else_result.as_deref())
            }
            Expr::Cast {
                kind: CastKind::Cast | CastKind::DoubleColon,
                expr,
                data_type,
                format: None,
            } => {
                let value = self.translate_expr(scope, expr)?;
                casts::translate_cast(self.engine, value, data_type)
            }
            Expr::Function(function) => self.translate_function(scope, function),
            Expr::Subquery(query) => self.translate_scalar_subquery(query),
            Expr::Exists { subquery, negated } => self.translate_exists(subquery, *negated),
            Expr::Lambda(_) => invalid("a lambda can only be the first argument of arrayFilter"),
            _ => self.translate_special_syntax(scope, expr),
        }
    }

    /// Translates functions that have a syntax of their own.
    fn translate_special_syntax<'q>(
        &mut self,
        scope: &mut Scope<'q>,
        expr: &'q Expr,
    ) -> Result<TypedExpr> {
        let (name, given) = match expr {
            Expr::Floor { expr, field } => {
                ("floor", self.translate_rounding_arguments(scope, expr, field)?)
            }
            Expr::Ceil { expr, field } => {
                ("ceil", self.translate_rounding_arguments(scope, expr, field)?)
            }
            Expr::Substring { expr, substring_from: Some(from), substring_for, .. } => {
                let mut given = self.translate_all(scope, [&**expr, &**from])?;
                if let Some(length) = substring_for {
                    given.push(self.translate_expr(scope, length)?);
                }
                ("substring", given)
            }
            Expr::Trim { trim_where: None, trim_what: None, expr, trim_characters: None } => {
                ("trim", vec![self.translate_expr(scope, expr)?])
            }
            _ => {
                return unsupported(&format!("the expression {}", excerpt(&expr.to_string())));
            }
        };
        functions::call_by_name(&CallArguments {
            engine: self.engine,
            now: self.context.now_ms,
            name,
            arguments: &given,
        })
    }

    fn translate_rounding_arguments<'q>(
        &mut self,
        scope: &mut Scope<'q>,
        expr: &'q Expr,
        field: &CeilFloorKind,
    ) -> Result<Vec<TypedExpr>> {
        let mut given = vec![self.translate_expr(scope, expr)?];
        match field {
            CeilFloorKind::DateTimeField(sqlparser::ast::DateTimeField::NoDateTime) => {}
            CeilFloorKind::DateTimeField(_) => return unsupported("floor to a unit of time"),
            CeilFloorKind::Scale(scale) => given.push(literals::translate_literal(&scale.value)?),
        }
        Ok(given)
    }

    pub fn translate_all<'q>(
        &mut self,
        scope: &mut Scope<'q>,
        exprs: impl IntoIterator<Item = &'q Expr>,
    ) -> Result<Vec<TypedExpr>> {
        exprs.into_iter().map(|expr| self.translate_expr(scope, expr)).collect()
    }

    fn translate_template<'q>(
        &mut self,
        scope: &mut Scope<'q>,
        template: &'static str,
        expr: &'q Expr,
    ) -> Result<TypedExpr> {
        let value = self.translate_expr(scope, expr)?;
        Ok(TypedExpr::from_template(template, Type::Flag, &[&value]))
    }

    /// Resolves a name: a parameter of a lambda, else an alias of the SELECT, else a column. If the alias is an
    /// aggregate that is not allowed here, the name refers to the column.
    fn resolve_name(&mut self, scope: &mut Scope<'_>, name: &str) -> Result<TypedExpr> {
        if let Some((_, value)) =
            scope.lambda_parameters.iter().rev().find(|(known, _)| *known == name)
        {
            return self.use_value(value.clone());
        }
        let alias = scope.aliases.iter().find(|alias| alias.name == name);
        let expr = alias
            .filter(|alias| !matches!(alias.state, AliasState::Resolving))
            .map(|alias| alias.expr);
        let mut refusal = None;
        if let Some(expr) = expr {
            let value = self.translate_alias(scope, expr)?;
            if value.has_aggregate && (scope.in_aggregate || !scope.clause.may_use_aggregate()) {
                refusal = Some("an aggregate");
            } else if value.has_window && (scope.in_window || !scope.clause.may_use_window()) {
                refusal = Some("a window function");
            } else {
                return Ok(value);
            }
        }
        match (scope.find_column(name)?, refusal) {
            (Some(column), _) => Ok(column.to_typed()),
            (None, None) => invalid(format!("there is no column {}", excerpt(name))),
            (None, Some(what)) => {
                invalid(format!("{} refers to {what}, which is not allowed here", excerpt(name)))
            }
        }
    }

    /// Translates a column that has an alias. It is translated once, as it stands among the columns.
    pub fn translate_alias<'q>(
        &mut self,
        scope: &mut Scope<'q>,
        expr: &'q Expr,
    ) -> Result<TypedExpr> {
        let index = scope.aliases.iter().position(|alias| std::ptr::eq(alias.expr, expr));
        let Some(index) = index else { return self.translate_expr(scope, expr) };
        match mem::replace(&mut scope.aliases[index].state, AliasState::Resolving) {
            AliasState::Resolved(mut value) => {
                scope.aliases[index].state = AliasState::Resolved(value.clone());
                if scope.group_keys.contains(&value.sql) {
                    value.ungrouped_column = None;
                }
                self.use_value(value)
            }
            AliasState::Resolving => {
                invalid(format!("{} refers to itself", excerpt(scope.aliases[index].name)))
            }
            AliasState::Unresolved => {
                let place = mem::replace(&mut scope.clause, Clause::Columns);
                let in_aggregate = mem::replace(&mut scope.in_aggregate, false);
                let in_window = mem::replace(&mut scope.in_window, false);
                let is_condition = mem::replace(&mut scope.is_condition, false);
                let parameters = mem::take(&mut scope.lambda_parameters);
                let value = self.translate_expr(scope, expr)?;
                scope.is_condition = is_condition;
                scope.clause = place;
                scope.in_aggregate = in_aggregate;
                scope.in_window = in_window;
                scope.lambda_parameters = parameters;
                scope.aliases[index].state = AliasState::Resolved(value.clone());
                Ok(value)
            }
        }
    }

    fn translate_case<'q>(
        &mut self,
        scope: &mut Scope<'q>,
        operand: Option<&'q Expr>,
        conditions: &'q [CaseWhen],
        otherwise: Option<&'q Expr>,
    ) -> Result<TypedExpr> {
        let operand = operand.map(|operand| self.translate_expr(scope, operand)).transpose()?;
        let (mut whens, mut thens) = (Vec::new(), Vec::new());
        for CaseWhen { condition, result } in conditions {
            let condition = self.translate_expr(scope, condition)?;
            whens.push(match &operand {
                None => condition.into_condition()?,
                Some(operand) => operators::build_equality(operand.clone(), condition)?,
            });
            thens.push(self.translate_expr(scope, result)?);
        }
        thens.push(match otherwise {
            None => TypedExpr::null(),
            Some(otherwise) => self.translate_expr(scope, otherwise)?,
        });
        operators::build_case(&whens, thens)
    }

    /// Translates a query for one value, that of its first row. It cannot use names from outside.
    fn translate_scalar_subquery(&mut self, query: &Query) -> Result<TypedExpr> {
        let rows = self.translate_query(query, Some(1))?;
        match &rows.columns[..] {
            [(_, ty)] => {
                let sql = super::fragment::Fragment::from_template("({0})", &[&rows.sql]);
                Ok(TypedExpr::from_parts(sql, ty.clone(), &[]))
            }
            _ => invalid("a query that is used as a value must have one column"),
        }
    }

    fn translate_exists(&mut self, query: &Query, negated: bool) -> Result<TypedExpr> {
        let rows = self.translate_query(query, self.context.nested_rows_max)?;
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
        let sql = super::fragment::Fragment::from_template(template, &[&rows.sql]);
        Ok(TypedExpr::from_parts(sql, Type::Flag, &[]))
    }

    fn translate_interval<'q>(
        &mut self,
        scope: &mut Scope<'q>,
        interval: &'q sqlparser::ast::Interval,
    ) -> Result<TypedExpr> {
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
        let Some(unit) = IntervalUnit::from_field(field) else {
            return invalid(format!("there is no INTERVAL of {}", excerpt(&field.to_string())));
        };
        let value = self.translate_expr(scope, value)?;
        times::to_interval(value, unit)
    }
}

fn translate_unary(
    engine: SqlDialect,
    operator: UnaryOperator,
    value: TypedExpr,
) -> Result<TypedExpr> {
    match operator {
        UnaryOperator::Plus => value.into_number("+"),
        UnaryOperator::Not => {
            let value = value.into_condition()?;
            let ty = value.ty.clone();
            Ok(TypedExpr::from_template("(NOT {0})", ty, &[&value]))
        }
        UnaryOperator::Minus => {
            let value = value.into_number("-")?;
            if let Some(negated) = value.constant_int().and_then(i64::checked_neg) {
                return Ok(TypedExpr::int(negated, Type::Int));
            }
            Ok(operators::negate(engine, &value))
        }
        _ => unsupported(&format!("the operator {operator}")),
    }
}

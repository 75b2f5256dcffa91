//! Translates one SELECT.

use std::rc::Rc;

use foundation::error::Result;
use sqlparser::ast::{
    Expr, Ident, OrderByExpr, Select, SelectItem, SelectItemQualifiedWildcardKind,
};

use super::fragment::Fragment;
use super::grammar::{self, QueryParts, SelectParts};
use super::labels::column_label;
use super::scope::{Alias, AliasState, Clause, Scope};
use super::translate::{RowSet, Translator};
use super::types::{Constant, Narrowing, SqlDialect, TypedExpr};
use super::{arrays, excerpt, invalid};

/// A LIMIT that no table reaches. Old versions of ClickHouse fail with a LIMIT or OFFSET far beyond it.
const LIMIT_MAX: i64 = 1_000_000_000_000;

/// A selected column.
struct SelectedColumn {
    name: Rc<str>,
    value: TypedExpr,
}

/// The clauses of a SELECT besides its columns.
struct SelectClauses {
    conditions: Vec<Fragment>,
    narrowings: Vec<Narrowing>,
    group_keys: Vec<Fragment>,
    having: Option<TypedExpr>,
    order_by: Fragment,
    sort_values: Vec<TypedExpr>,
    limit: Fragment,
}

impl Translator<'_> {
    pub fn translate_select<'q>(
        &mut self,
        select: &'q Select,
        query: Option<&QueryParts<'q>>,
        rows_max: Option<u64>,
    ) -> Result<RowSet> {
        self.enter()?;
        let parts = grammar::parse_select_parts(select)?;
        let (mut scope, mut from) = self.translate_from(parts.from)?;
        scope.aliases = collect_aliases(parts.items);
        let keys = self.translate_group_by(&mut scope, &parts)?;
        let outputs = self.translate_columns(&mut scope, parts.items)?;
        let mut tail =
            self.translate_clauses(&mut scope, &parts, keys, &outputs, query, rows_max)?;
        let is_grouped = !tail.group_keys.is_empty()
            || tail.having.is_some()
            || outputs.iter().any(|output| output.value.has_aggregate)
            || tail.sort_values.iter().any(|sorted| sorted.has_aggregate);
        if is_grouped {
            let values = outputs.iter().map(|output| &output.value);
            reject_ungrouped(values.chain(&tail.having).chain(&tail.sort_values))?;
        }
        from.append(&arrays::build_unnest(self.engine, &scope.unnested_lists));
        from = apply_narrowings(from, &tail.narrowings);
        if self.engine == SqlDialect::Postgres
            && scope.relations.len() + scope.unnested_lists.len() > 1
        {
            // Postgres has no limit of its own for what it writes to disk.
            tail.conditions.push(Fragment::word("keyward_events.count_joined_row()"));
        }

        let is_distinct = if parts.is_distinct { "DISTINCT " } else { "" };
        let first = self.reserve_columns(outputs.len());
        let rows = render_select(is_distinct, outputs, first, &from, &tail);
        self.leave();
        Ok(rows)
    }

    fn translate_group_by<'q>(
        &mut self,
        scope: &mut Scope<'q>,
        parts: &SelectParts<'q>,
    ) -> Result<Vec<Fragment>> {
        scope.clause = Clause::GroupBy;
        let mut keys = Vec::new();
        for key in parts.group_by {
            let key = match column_position(key) {
                Some(number) => match parts.items.get(number.wrapping_sub(1)) {
                    Some(
                        SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. },
                    ) => expr,
                    Some(_) | None => return invalid(format!("there is no column {number}")),
                },
                None => key,
            };
            let key = self.translate_expr(scope, key)?;
            if key.has_aggregate || key.has_window {
                return invalid("GROUP BY cannot contain an aggregate");
            }
            keys.push(key.sql);
        }
        scope.group_keys.clone_from(&keys);
        Ok(keys)
    }

    fn translate_columns<'q>(
        &mut self,
        scope: &mut Scope<'q>,
        items: &'q [SelectItem],
    ) -> Result<Vec<SelectedColumn>> {
        scope.clause = Clause::Columns;
        let mut outputs: Vec<SelectedColumn> = Vec::new();
        for item in items {
            match item {
                SelectItem::UnnamedExpr(expr) => {
                    let value = self.translate_expr(scope, expr)?;
                    outputs.push(SelectedColumn { name: column_label(expr).into(), value });
                }
                SelectItem::ExprWithAlias { expr, alias } => {
                    let value = self.translate_alias(scope, expr)?;
                    outputs.push(SelectedColumn { name: unquote_alias(alias).into(), value });
                }
                SelectItem::Wildcard(options) => {
                    grammar::validate_star(options)?;
                    outputs.extend(expand_star(scope, None)?);
                }
                SelectItem::QualifiedWildcard(kind, options) => {
                    grammar::validate_star(options)?;
                    let name = match kind {
                        SelectItemQualifiedWildcardKind::ObjectName(name) => {
                            grammar::single_identifier(name)
                        }
                        SelectItemQualifiedWildcardKind::Expr(_) => None,
                    };
                    let Some(name) = name else {
                        return invalid("the table before .* must be a single identifier");
                    };
                    outputs.extend(expand_star(scope, Some(&name.value))?);
                }
                SelectItem::ExprWithAliases { .. } => {
                    return invalid("a column can have only one name after AS");
                }
            }
            self.count_columns(0)?;
        }
        self.count_columns(outputs.len())?;
        for output in &mut outputs {
            if scope.group_keys.contains(&output.value.sql) {
                output.value.ungrouped_column = None;
            }
            if let super::types::Type::Interval(_) = output.value.ty {
                return invalid("an INTERVAL can only be added to a time, not selected");
            }
        }
        Ok(outputs)
    }

    fn translate_clauses<'q>(
        &mut self,
        scope: &mut Scope<'q>,
        parts: &SelectParts<'q>,
        keys: Vec<Fragment>,
        outputs: &[SelectedColumn],
        query: Option<&QueryParts<'q>>,
        rows_max: Option<u64>,
    ) -> Result<SelectClauses> {
        scope.clause = Clause::Where;
        let (mut conditions, mut narrowings) = (Vec::new(), Vec::new());
        for condition in &parts.conditions {
            scope.is_condition = true;
            let condition = self.translate_expr(scope, condition)?.into_condition()?;
            narrowings.extend(condition.narrowings);
            conditions.push(condition.sql);
        }
        scope.is_condition = false;
        scope.clause = Clause::Having;
        let having = match parts.having {
            None => None,
            Some(having) => Some(self.translate_expr(scope, having)?.into_condition()?),
        };
        scope.clause = Clause::OrderBy;
        let values: Vec<_> = outputs.iter().map(|output| output.value.clone()).collect();
        let sorted = query.map_or(&[][..], |query| query.order_by);
        let (order_by, sorted) = self.translate_order_by(scope, sorted, &values)?;
        let (limit, offset) = query.map_or((None, None), |query| (query.limit, query.offset));
        let limit = self.translate_limit(limit, offset, rows_max)?;
        Ok(SelectClauses {
            conditions,
            narrowings,
            group_keys: keys,
            having,
            order_by,
            sort_values: sorted,
            limit,
        })
    }

    /// Returns ` ORDER BY …`, and the values to sort by.
    pub fn translate_order_by<'q>(
        &mut self,
        scope: &mut Scope<'q>,
        order_by: &'q [OrderByExpr],
        outputs: &[TypedExpr],
    ) -> Result<(Fragment, Vec<TypedExpr>)> {
        let (mut written, mut sorted) = (Vec::new(), Vec::new());
        for by in order_by {
            let (expr, direction) = grammar::parse_order_by(by)?;
            let value = match column_position(expr) {
                Some(number) => match outputs.get(number.wrapping_sub(1)) {
                    Some(value) => value.clone(),
                    None => return invalid(format!("there is no column {number}")),
                },
                None => self.translate_expr(scope, expr)?,
            };
            written.push(Fragment::join("", [&value.sql, &Fragment::word(direction)]));
            sorted.push(value);
        }
        if written.is_empty() {
            return Ok((Fragment::default(), sorted));
        }
        let list = Fragment::join(", ", &written);
        Ok((Fragment::from_template(" ORDER BY {0}", &[&list]), sorted))
    }

    /// Returns ` LIMIT …`, limited to `rows_max`.
    pub fn translate_limit(
        &mut self,
        limit: Option<&Expr>,
        offset: Option<&Expr>,
        rows_max: Option<u64>,
    ) -> Result<Fragment> {
        let mut number = |expr: Option<&Expr>| -> Result<Option<u64>> {
            let Some(expr) = expr else { return Ok(None) };
            let mut scope = Scope::new(Vec::new());
            match self.translate_expr(&mut scope, expr)?.constant {
                Some(Constant::Int(number)) if number >= 0 => Ok(Some(number.unsigned_abs())),
                _ => invalid("LIMIT and OFFSET must be whole numbers"),
            }
        };
        let (limit, offset) = (number(limit)?, number(offset)?);
        let mut written = Fragment::default();
        let rows_limit = limit.into_iter().chain(rows_max).min();
        let value = |number: u64| {
            let number = i64::try_from(number).unwrap_or(LIMIT_MAX);
            Fragment::digits(&[number.min(LIMIT_MAX)])
        };
        match (rows_limit, offset) {
            (Some(limit), _) => {
                written.append(&Fragment::from_template(" LIMIT {0}", &[&value(limit)]));
            }
            // SQLite has no OFFSET without LIMIT.
            (None, Some(_)) => {
                written.append(&Fragment::from_template(" LIMIT {0}", &[&value(u64::MAX)]));
            }
            (None, None) => {}
        }
        if let Some(offset) = offset {
            written.append(&Fragment::from_template(" OFFSET {0}", &[&value(offset)]));
        }
        Ok(written)
    }
}

/// Returns the aliases of the columns.
fn collect_aliases(items: &[SelectItem]) -> Vec<Alias<'_>> {
    let named = items.iter().filter_map(|item| match item {
        SelectItem::ExprWithAlias { expr, alias } => {
            Some(Alias { name: &alias.value, expr, state: AliasState::Unresolved })
        }
        _ => None,
    });
    named.collect()
}

/// Returns an alias, with doubled quotes inside a quoted name reduced to one.
fn unquote_alias(name: &Ident) -> String {
    match name.quote_style {
        Some(quote) => name.value.replace(&format!("{quote}{quote}"), &quote.to_string()),
        None => name.value.clone(),
    }
}

fn expand_star(scope: &Scope<'_>, table: Option<&str>) -> Result<Vec<SelectedColumn>> {
    let columns = scope.list_columns(table)?.into_iter();
    let output = |column: &super::scope::ScopeColumn| SelectedColumn {
        name: column.name.clone(),
        value: column.to_typed(),
    };
    Ok(columns.map(output).collect())
}

/// Returns the column number that a plain number in GROUP BY or ORDER BY refers to.
fn column_position(expr: &Expr) -> Option<usize> {
    match expr {
        Expr::Value(value) => match &value.value {
            sqlparser::ast::Value::Number(number, _) => number.parse().ok(),
            _ => None,
        },
        _ => None,
    }
}

fn reject_ungrouped<'a>(mut values: impl Iterator<Item = &'a TypedExpr>) -> Result<()> {
    match values.find_map(|value| value.ungrouped_column.as_ref()) {
        None => Ok(()),
        Some(column) => invalid(format!(
            "column {} is neither in GROUP BY nor inside an aggregate",
            excerpt(column)
        )),
    }
}

/// Adds conditions to the reads of public tables: each narrowing applies to the read of its column.
fn apply_narrowings(mut from: Fragment, narrowings: &[Narrowing]) -> Fragment {
    let mut rest = narrowings;
    while let Some(Narrowing { read_number: read, .. }) = rest.first() {
        let of_read = narrowings.iter().filter(|narrowing| narrowing.read_number == *read);
        let conditions = Fragment::join(" AND ", of_read.map(|narrowing| &narrowing.sql));
        from = from.fill_gap(*read, &Fragment::from_template(" WHERE {0}", &[&conditions]));
        rest = &rest[1..];
    }
    from
}

fn render_select(
    distinct: &'static str,
    outputs: Vec<SelectedColumn>,
    first: usize,
    from: &Fragment,
    tail: &SelectClauses,
) -> RowSet {
    let named = outputs.iter().zip(first..).map(|(output, number)| {
        Fragment::from_template(
            "{0} AS {1}",
            &[&output.value.sql, &Fragment::generated_name('c', number)],
        )
    });
    let selected = Fragment::join(", ", &named.collect::<Vec<_>>());
    let mut sql = Fragment::from_template(
        "SELECT {0}{1} FROM {2}",
        &[&Fragment::word(distinct), &selected, from],
    );
    if !tail.conditions.is_empty() {
        sql.append(&Fragment::from_template(
            " WHERE {0}",
            &[&Fragment::join(" AND ", &tail.conditions)],
        ));
    }
    if !tail.group_keys.is_empty() {
        sql.append(&Fragment::from_template(
            " GROUP BY {0}",
            &[&Fragment::join(", ", &tail.group_keys)],
        ));
    }
    if let Some(having) = &tail.having {
        sql.append(&Fragment::from_template(" HAVING {0}", &[&having.sql]));
    }
    sql.append(&tail.order_by);
    sql.append(&tail.limit);
    let columns = outputs.into_iter().map(|output| (output.name, output.value.ty)).collect();
    RowSet { sql, columns, first_column: first }
}

//! Translates one SELECT.

use std::rc::Rc;

use foundation::error::Result;
use sqlparser::ast::{
    Expr, Ident, OrderByExpr, Select, SelectItem, SelectItemQualifiedWildcardKind,
};

use super::fragment::Fragment;
use super::grammar::{self, QueryParts, SelectParts};
use super::labels::label;
use super::scope::{Alias, Place, Scope, State};
use super::translate::{Rows, Translator};
use super::types::{Constant, Narrowing, SqlDialect, Typed};
use super::{arrays, invalid, shown};

/// A LIMIT that no table reaches. Old versions of ClickHouse fail with a LIMIT or OFFSET far beyond it.
const ROWS_END: i64 = 1_000_000_000_000;

/// A selected column.
struct Output {
    name: Rc<str>,
    value: Typed,
}

/// The clauses of a SELECT besides its columns.
struct Tail {
    conditions: Vec<Fragment>,
    narrowings: Vec<Narrowing>,
    keys: Vec<Fragment>,
    having: Option<Typed>,
    order_by: Fragment,
    sorted: Vec<Typed>,
    limit: Fragment,
}

impl Translator<'_> {
    pub fn select<'q>(
        &mut self,
        select: &'q Select,
        query: Option<&QueryParts<'q>>,
        rows_max: Option<u64>,
    ) -> Result<Rows> {
        self.enter()?;
        let parts = grammar::select(select)?;
        let (mut scope, mut from) = self.from(parts.from)?;
        scope.aliases = aliases(parts.items);
        let keys = self.group_by(&mut scope, &parts)?;
        let outputs = self.outputs(&mut scope, parts.items)?;
        let mut tail = self.tail(&mut scope, &parts, keys, &outputs, query, rows_max)?;
        let is_grouped = !tail.keys.is_empty()
            || tail.having.is_some()
            || outputs.iter().any(|output| output.value.aggregates)
            || tail.sorted.iter().any(|sorted| sorted.aggregates);
        if is_grouped {
            let values = outputs.iter().map(|output| &output.value);
            refuse_loose(values.chain(&tail.having).chain(&tail.sorted))?;
        }
        from.append(&arrays::unnest(self.engine, &scope.unnested));
        from = narrowed(from, &tail.narrowings);
        if self.engine == SqlDialect::Postgres && scope.relations.len() + scope.unnested.len() > 1 {
            // Postgres has no limit of its own for what it writes to disk.
            tail.conditions.push(Fragment::word("keyward_events.count_joined_row()"));
        }

        let is_distinct = if parts.is_distinct { "DISTINCT " } else { "" };
        let first = self.first_of(outputs.len());
        let rows = write(is_distinct, outputs, first, &from, &tail);
        self.leave();
        Ok(rows)
    }

    fn group_by<'q>(
        &mut self,
        scope: &mut Scope<'q>,
        parts: &SelectParts<'q>,
    ) -> Result<Vec<Fragment>> {
        scope.place = Place::GroupBy;
        let mut keys = Vec::new();
        for key in parts.group_by {
            let key = match position(key) {
                Some(number) => match parts.items.get(number.wrapping_sub(1)) {
                    Some(
                        SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. },
                    ) => expr,
                    Some(_) | None => return invalid(format!("there is no column {number}")),
                },
                None => key,
            };
            let key = self.expr(scope, key)?;
            if key.aggregates || key.windows {
                return invalid("GROUP BY cannot contain an aggregate");
            }
            keys.push(key.sql);
        }
        scope.keys.clone_from(&keys);
        Ok(keys)
    }

    fn outputs<'q>(
        &mut self,
        scope: &mut Scope<'q>,
        items: &'q [SelectItem],
    ) -> Result<Vec<Output>> {
        scope.place = Place::Columns;
        let mut outputs: Vec<Output> = Vec::new();
        for item in items {
            match item {
                SelectItem::UnnamedExpr(expr) => {
                    let value = self.expr(scope, expr)?;
                    outputs.push(Output { name: label(expr).into(), value });
                }
                SelectItem::ExprWithAlias { expr, alias } => {
                    let value = self.alias(scope, expr)?;
                    outputs.push(Output { name: called(alias).into(), value });
                }
                SelectItem::Wildcard(options) => {
                    grammar::star(options)?;
                    outputs.extend(star(scope, None)?);
                }
                SelectItem::QualifiedWildcard(kind, options) => {
                    grammar::star(options)?;
                    let name = match kind {
                        SelectItemQualifiedWildcardKind::ObjectName(name) => grammar::single(name),
                        SelectItemQualifiedWildcardKind::Expr(_) => None,
                    };
                    let Some(name) = name else {
                        return invalid("the table before .* must be a single identifier");
                    };
                    outputs.extend(star(scope, Some(&name.value))?);
                }
                SelectItem::ExprWithAliases { .. } => {
                    return invalid("a column can have only one name after AS");
                }
            }
            self.count_columns(0)?;
        }
        self.count_columns(outputs.len())?;
        for output in &mut outputs {
            if scope.keys.contains(&output.value.sql) {
                output.value.loose = None;
            }
            if let super::types::Type::Interval(_) = output.value.ty {
                return invalid("an INTERVAL can only be added to a time, not selected");
            }
        }
        Ok(outputs)
    }

    fn tail<'q>(
        &mut self,
        scope: &mut Scope<'q>,
        parts: &SelectParts<'q>,
        keys: Vec<Fragment>,
        outputs: &[Output],
        query: Option<&QueryParts<'q>>,
        rows_max: Option<u64>,
    ) -> Result<Tail> {
        scope.place = Place::Where;
        let (mut conditions, mut narrowings) = (Vec::new(), Vec::new());
        for condition in &parts.conditions {
            scope.is_condition = true;
            let condition = self.expr(scope, condition)?.truth()?;
            narrowings.extend(condition.narrowings);
            conditions.push(condition.sql);
        }
        scope.is_condition = false;
        scope.place = Place::Having;
        let having = match parts.having {
            None => None,
            Some(having) => Some(self.expr(scope, having)?.truth()?),
        };
        scope.place = Place::OrderBy;
        let values: Vec<_> = outputs.iter().map(|output| output.value.clone()).collect();
        let sorted = query.map_or(&[][..], |query| query.order_by);
        let (order_by, sorted) = self.order_by(scope, sorted, &values)?;
        let (limit, offset) = query.map_or((None, None), |query| (query.limit, query.offset));
        let limit = self.limit(limit, offset, rows_max)?;
        Ok(Tail { conditions, narrowings, keys, having, order_by, sorted, limit })
    }

    /// Returns ` ORDER BY …`, and the values to sort by.
    pub fn order_by<'q>(
        &mut self,
        scope: &mut Scope<'q>,
        order_by: &'q [OrderByExpr],
        outputs: &[Typed],
    ) -> Result<(Fragment, Vec<Typed>)> {
        let (mut written, mut sorted) = (Vec::new(), Vec::new());
        for by in order_by {
            let (expr, direction) = grammar::order_by(by)?;
            let value = match position(expr) {
                Some(number) => match outputs.get(number.wrapping_sub(1)) {
                    Some(value) => value.clone(),
                    None => return invalid(format!("there is no column {number}")),
                },
                None => self.expr(scope, expr)?,
            };
            written.push(Fragment::list("", [&value.sql, &Fragment::word(direction)]));
            sorted.push(value);
        }
        if written.is_empty() {
            return Ok((Fragment::default(), sorted));
        }
        let list = Fragment::list(", ", &written);
        Ok((Fragment::fill(" ORDER BY {0}", &[&list]), sorted))
    }

    /// Returns ` LIMIT …`, limited to `rows_max`.
    pub fn limit(
        &mut self,
        limit: Option<&Expr>,
        offset: Option<&Expr>,
        rows_max: Option<u64>,
    ) -> Result<Fragment> {
        let mut number = |expr: Option<&Expr>| -> Result<Option<u64>> {
            let Some(expr) = expr else { return Ok(None) };
            let mut scope = Scope::new(Vec::new());
            match self.expr(&mut scope, expr)?.known {
                Some(Constant::Int(number)) if number >= 0 => Ok(Some(number.unsigned_abs())),
                _ => invalid("LIMIT and OFFSET must be whole numbers"),
            }
        };
        let (limit, offset) = (number(limit)?, number(offset)?);
        let mut written = Fragment::default();
        let rows_limit = limit.into_iter().chain(rows_max).min();
        let value = |number: u64| {
            let number = i64::try_from(number).unwrap_or(ROWS_END);
            Fragment::digits(&[number.min(ROWS_END)])
        };
        match (rows_limit, offset) {
            (Some(limit), _) => written.append(&Fragment::fill(" LIMIT {0}", &[&value(limit)])),
            // SQLite has no OFFSET without LIMIT.
            (None, Some(_)) => written.append(&Fragment::fill(" LIMIT {0}", &[&value(u64::MAX)])),
            (None, None) => {}
        }
        if let Some(offset) = offset {
            written.append(&Fragment::fill(" OFFSET {0}", &[&value(offset)]));
        }
        Ok(written)
    }
}

/// Returns the aliases of the columns.
fn aliases(items: &[SelectItem]) -> Vec<Alias<'_>> {
    let named = items.iter().filter_map(|item| match item {
        SelectItem::ExprWithAlias { expr, alias } => {
            Some(Alias { name: &alias.value, expr, state: State::New })
        }
        _ => None,
    });
    named.collect()
}

/// Returns an alias, with doubled quotes inside a quoted name reduced to one.
fn called(name: &Ident) -> String {
    match name.quote_style {
        Some(quote) => name.value.replace(&format!("{quote}{quote}"), &quote.to_string()),
        None => name.value.clone(),
    }
}

fn star(scope: &Scope<'_>, table: Option<&str>) -> Result<Vec<Output>> {
    let columns = scope.star(table)?.into_iter();
    let output =
        |column: &super::scope::Column| Output { name: column.name.clone(), value: column.typed() };
    Ok(columns.map(output).collect())
}

/// Returns the column number that a plain number in GROUP BY or ORDER BY refers to.
fn position(expr: &Expr) -> Option<usize> {
    match expr {
        Expr::Value(value) => match &value.value {
            sqlparser::ast::Value::Number(number, _) => number.parse().ok(),
            _ => None,
        },
        _ => None,
    }
}

fn refuse_loose<'a>(mut values: impl Iterator<Item = &'a Typed>) -> Result<()> {
    match values.find_map(|value| value.loose.as_ref()) {
        None => Ok(()),
        Some(column) => invalid(format!(
            "column {} is neither in GROUP BY nor inside an aggregate",
            shown(column)
        )),
    }
}

/// Adds conditions to the reads of public tables: each narrowing applies to the read of its column.
fn narrowed(mut from: Fragment, narrowings: &[Narrowing]) -> Fragment {
    let mut rest = narrowings;
    while let Some(Narrowing { read, .. }) = rest.first() {
        let of_read = narrowings.iter().filter(|narrowing| narrowing.read == *read);
        let conditions = Fragment::list(" AND ", of_read.map(|narrowing| &narrowing.sql));
        from = from.fill_gap(*read, &Fragment::fill(" WHERE {0}", &[&conditions]));
        rest = &rest[1..];
    }
    from
}

fn write(
    distinct: &'static str,
    outputs: Vec<Output>,
    first: usize,
    from: &Fragment,
    tail: &Tail,
) -> Rows {
    let named = outputs.iter().zip(first..).map(|(output, number)| {
        Fragment::fill("{0} AS {1}", &[&output.value.sql, &Fragment::name('c', number)])
    });
    let selected = Fragment::list(", ", &named.collect::<Vec<_>>());
    let mut sql =
        Fragment::fill("SELECT {0}{1} FROM {2}", &[&Fragment::word(distinct), &selected, from]);
    if !tail.conditions.is_empty() {
        sql.append(&Fragment::fill(" WHERE {0}", &[&Fragment::list(" AND ", &tail.conditions)]));
    }
    if !tail.keys.is_empty() {
        sql.append(&Fragment::fill(" GROUP BY {0}", &[&Fragment::list(", ", &tail.keys)]));
    }
    if let Some(having) = &tail.having {
        sql.append(&Fragment::fill(" HAVING {0}", &[&having.sql]));
    }
    sql.append(&tail.order_by);
    sql.append(&tail.limit);
    let columns = outputs.into_iter().map(|output| (output.name, output.value.ty)).collect();
    Rows { sql, columns, first }
}

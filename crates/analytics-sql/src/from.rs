//! Translates FROM.

use foundation::error::{QueryErrorKind, Result};
use sqlparser::ast::{JoinConstraint, ObjectName, TableFactor, TableWithJoins};

use super::fragment::Fragment;
use super::scope::{Relation, Scope, ScopeColumn};
use super::tables::PublicTable;
use super::translate::Translator;
use super::types::{ColumnOrigin, SqlDialect};
use super::{excerpt, grammar, invalid, operators, query_fault, unsupported, views};

impl Translator<'_> {
    /// Returns the scope of the names, and the SQL after FROM.
    pub fn translate_from<'q>(
        &mut self,
        from: &'q [TableWithJoins],
    ) -> Result<(Scope<'q>, Fragment)> {
        let mut scope = Scope::new(Vec::new());
        let mut sql = Fragment::default();
        for TableWithJoins { relation, joins } in from {
            if !sql.is_empty() {
                sql.append(&Fragment::word(" CROSS JOIN "));
            }
            sql.append(&self.translate_relation(&mut scope, relation)?);
            for join in joins {
                let (words, constraint) = grammar::parse_join(join)?;
                if from.len() > 1 && [" RIGHT JOIN ", " FULL JOIN "].contains(&words) {
                    return unsupported("RIGHT or FULL JOIN beside a comma");
                }
                let right = self.translate_relation(&mut scope, &join.relation)?;
                sql.append(&Fragment::join("", [&Fragment::word(words), &right]));
                sql.append(&self.translate_constraint(&mut scope, words, constraint)?);
            }
        }
        Ok((scope, sql))
    }

    fn translate_relation(
        &mut self,
        scope: &mut Scope<'_>,
        factor: &TableFactor,
    ) -> Result<Fragment> {
        self.enter()?;
        let (sql, relation) = match factor {
            TableFactor::Table {
                name,
                alias,
                args,
                with_hints,
                version,
                with_ordinality,
                partitions,
                json_path,
                sample,
                index_hints,
            } => {
                if args.is_some() {
                    return query_fault(QueryErrorKind::Function, "FROM cannot contain a function");
                }
                let is_plain = with_hints.is_empty()
                    && version.is_none()
                    && !with_ordinality
                    && partitions.is_empty()
                    && json_path.is_none()
                    && sample.is_none()
                    && index_hints.is_empty();
                if !is_plain {
                    return unsupported("a modifier after a table name");
                }
                let alias = alias.as_ref().map(grammar::parse_table_alias).transpose()?;
                self.resolve_table(name, alias.map(|alias| alias.value.as_str()))?
            }
            TableFactor::Derived { lateral, subquery, alias, sample } => {
                if *lateral || sample.is_some() {
                    return unsupported("LATERAL or SAMPLE");
                }
                let rows = self.translate_query(subquery, self.context.nested_rows_max)?;
                let name = self.new_name('t');
                let alias = alias.as_ref().map(grammar::parse_table_alias).transpose()?;
                let columns = rows.columns_as(&name);
                let relation = Relation { name: alias.map(|alias| alias.value.clone()), columns };
                (Fragment::from_template("({0}) AS {1}", &[&rows.sql, &name]), relation)
            }
            TableFactor::TableFunction { .. } | TableFactor::Function { .. } => {
                return query_fault(QueryErrorKind::Function, "FROM cannot contain a function");
            }
            _ => return unsupported("this kind of FROM"),
        };
        if let Some(name) = &relation.name
            && scope.relations.iter().any(|known| known.name.as_ref() == Some(name))
        {
            return invalid(format!("two tables are named {}; rename one with AS", excerpt(name)));
        }
        scope.relations.push(relation);
        self.leave();
        Ok(sql)
    }

    /// Resolves a query of WITH, or one of the public tables. Nothing else can be named.
    fn resolve_table(
        &mut self,
        name: &ObjectName,
        alias: Option<&str>,
    ) -> Result<(Fragment, Relation)> {
        let Some(ident) = grammar::single_identifier(name) else {
            return query_fault(
                QueryErrorKind::Table,
                "a table name must be a single identifier, without a database",
            );
        };
        let own = self.new_name('t');
        let called = Some(alias.unwrap_or(&ident.value).to_owned());
        if let Some(cte) = self.ctes.iter().rev().find(|cte| cte.user_name == ident.value) {
            let columns = cte.rows.columns_as(&own);
            let sql = match self.engine {
                SqlDialect::Postgres | SqlDialect::Sqlite => {
                    Fragment::from_template("{0} AS {1}", &[&cte.name, &own])
                }
                SqlDialect::ClickHouse => {
                    Fragment::from_template("({0}) AS {1}", &[&cte.rows.sql, &own])
                }
            };
            return Ok((sql, Relation { name: called, columns }));
        }
        let family = self.context.family;
        let table = PublicTable::find_by_name(&ident.value).filter(|table| table.family == family);
        let Some(table) = table else {
            let (name, names) = (excerpt(&ident.value), PublicTable::list_names(family));
            return query_fault(
                QueryErrorKind::Table,
                format!("there is no table {name}; available tables: {names}"),
            );
        };
        let read = self.new_number();
        let column = |(name, ty): (&'static str, _)| ScopeColumn {
            name: name.into(),
            sql: Fragment::from_template("{0}.{1}", &[&own, &Fragment::quoted_column(name)]),
            ty,
            time_table: (name == "time").then_some(table),
            origin: Some(ColumnOrigin { read_number: read, name }),
            is_merged: false,
        };
        let columns = table.columns().into_iter().map(column).collect();
        let sql = self.fence_table(table, read, &own);
        Ok((sql, Relation { name: called, columns }))
    }

    /// Returns a public table under a name: a view of the workspace's rows, behind a fence that no expression of the
    /// caller crosses. An engine may evaluate an expression on any row that it reads, and would otherwise do so on
    /// rows of other workspaces before it filters them out. Postgres and SQLite neither flatten a subquery with
    /// OFFSET nor push conditions into it; ClickHouse does neither with one that has LIMIT.
    ///
    /// Inside the fence there may be [`Narrowing`](super::types::Narrowing)s, by which an engine finds its rows.
    fn fence_table(&self, table: &PublicTable, read: usize, name: &Fragment) -> Fragment {
        let view = match self.engine {
            SqlDialect::ClickHouse => views::clickhouse::build_view(table, self.context),
            engine @ (SqlDialect::Postgres | SqlDialect::Sqlite) => {
                views::build_view(table, engine, &self.context.row_scope)
            }
        };
        let template = self.engine.select([
            "(SELECT * FROM ({0}) AS {1}{2} OFFSET 0) AS {3}",
            "(SELECT * FROM ({0}) AS {1}{2} LIMIT -1 OFFSET 0) AS {3}",
            "(SELECT * FROM ({0}) AS {1}{2} LIMIT 1000000000000) AS {3}",
        ]);
        let mut fenced = Fragment::from_template(
            template,
            &[&view, &Fragment::generated_name('f', read), &Fragment::gap(read), name],
        );
        fenced.append(&Fragment::table_read());
        fenced
    }

    /// Returns ` ON …` for the last relation.
    fn translate_constraint<'q>(
        &mut self,
        scope: &mut Scope<'q>,
        words: &'static str,
        constraint: &'q JoinConstraint,
    ) -> Result<Fragment> {
        if self.engine != SqlDialect::ClickHouse {
            return self.translate_join_condition(scope, words, constraint);
        }
        let plain = hide_plain_columns(scope, words);
        let joined = self.translate_join_condition(scope, words, constraint)?;
        for (column, sql) in columns_mut(scope).zip(plain) {
            column.sql = sql;
        }
        Ok(joined)
    }

    fn translate_join_condition<'q>(
        &mut self,
        scope: &mut Scope<'q>,
        words: &'static str,
        constraint: &'q JoinConstraint,
    ) -> Result<Fragment> {
        let is_cross = words == " CROSS JOIN ";
        match constraint {
            JoinConstraint::On(condition) if !is_cross => {
                scope.is_condition = true;
                let condition = self.translate_expr(scope, condition)?.into_condition()?;
                scope.is_condition = false;
                if !scope.unnested_lists.is_empty() {
                    return invalid("arrayJoin is not allowed in ON");
                }
                Ok(Fragment::from_template(" ON {0}", &[&condition.sql]))
            }
            JoinConstraint::Using(names) if !is_cross && words != " FULL JOIN " => {
                translate_using(scope, words, names)
            }
            JoinConstraint::None if is_cross => Ok(Fragment::default()),
            JoinConstraint::None | JoinConstraint::On(_) => {
                invalid("a JOIN requires ON or USING, and a CROSS JOIN accepts neither")
            }
            JoinConstraint::Natural | JoinConstraint::Using(_) => unsupported("this kind of JOIN"),
        }
    }
}

fn columns_mut<'s>(scope: &'s mut Scope<'_>) -> impl Iterator<Item = &'s mut ScopeColumn> {
    scope.relations.iter_mut().flat_map(|relation| &mut relation.columns)
}

/// Writes columns as expressions in ON for ClickHouse, and returns what they were. Old versions give a plain column
/// the join key or 0 after ON where it should be NULL.
fn hide_plain_columns(scope: &mut Scope<'_>, words: &'static str) -> Vec<Fragment> {
    let plain = columns_mut(scope).map(|column| column.sql.clone()).collect();
    let last = scope.relations.len().saturating_sub(1);
    // If the left side may be missing, it is better that an old version rejects the query than that the result is
    // wrong.
    let from = if [" RIGHT JOIN ", " FULL JOIN "].contains(&words) { 0 } else { last };
    for column in scope.relations[from..].iter_mut().flat_map(|relation| &mut relation.columns) {
        column.sql = Fragment::from_template("materialize({0})", &[&column.sql]);
    }
    plain
}

fn translate_using(
    scope: &mut Scope<'_>,
    words: &'static str,
    names: &[ObjectName],
) -> Result<Fragment> {
    let mut equal = Vec::new();
    let Some((right, left)) = scope.relations.split_last_mut() else {
        return invalid("there is nothing to join");
    };
    for name in names {
        let Some(name) = grammar::single_identifier(name) else {
            return invalid("USING requires column names");
        };
        let named = |column: &&mut ScopeColumn| *column.name == *name.value;
        let mut lefts = left
            .iter_mut()
            .flat_map(|relation| &mut relation.columns)
            .filter(|column| !column.is_merged)
            .filter(named);
        let right_column = right.columns.iter_mut().find(|column| *column.name == *name.value);
        let (Some(left_column), None, Some(right_column)) =
            (lefts.next(), lefts.next(), right_column)
        else {
            let name = excerpt(&name.value);
            return invalid(format!("both sides of the JOIN must have exactly one column {name}"));
        };
        let same = operators::build_equality(left_column.to_typed(), right_column.to_typed())?;
        equal.push(same.sql);
        // The side whose rows are all returned provides the value.
        let hidden = if words == " RIGHT JOIN " { left_column } else { right_column };
        hidden.is_merged = true;
    }
    Ok(Fragment::from_template(" ON {0}", &[&Fragment::join(" AND ", &equal)]))
}

//! Translates a whole query: WITH, UNION, ORDER BY and LIMIT.

use std::rc::Rc;

use foundation::error::{QueryErrorKind, Result};
use sqlparser::ast::{self, SetExpr, SetOperator, SetQuantifier};

use super::fragment::Fragment;
use super::grammar::{self, QueryParts};
use super::scope::{Clause, Relation, Scope, ScopeColumn};
use super::tables::PublicTable;
use super::types::{SqlDialect, Type, TypedExpr};
use super::{
    COLUMNS_MAX, DEPTH_MAX, NODES_MAX, QueryContext, SORTS_MAX, excerpt, invalid, parse,
    query_fault, unsupported,
};

/// The maximum number of pieces that the uses of aliases and parameters copy, a few megabytes.
const PIECES_USED_MAX: usize = 200_000;

/// Rows with columns `c5`, `c6` …: a SELECT, or a query that is used as one.
#[derive(Debug, Clone)]
pub struct RowSet {
    pub sql: Fragment,
    pub columns: Vec<(Rc<str>, Type)>,
    /// The number of the first column.
    pub first_column: usize,
}

impl RowSet {
    /// Returns the columns as seen by a SELECT that reads the rows under a name.
    pub fn columns_as(&self, name: &Fragment) -> Vec<ScopeColumn> {
        let column = |((column, ty), number): (&(Rc<str>, Type), usize)| ScopeColumn {
            name: column.clone(),
            sql: Fragment::from_template(
                "{0}.{1}",
                &[name, &Fragment::generated_name('c', number)],
            ),
            ty: ty.clone(),
            time_table: None,
            origin: None,
            is_merged: false,
        };
        self.columns.iter().zip(self.first_column..).map(column).collect()
    }
}

/// A common table expression of WITH.
pub struct Cte {
    pub user_name: String,
    pub name: Fragment,
    pub rows: RowSet,
}

pub struct Translator<'a> {
    pub engine: SqlDialect,
    pub context: &'a QueryContext,
    /// The common table expressions that can be named, the innermost last.
    pub ctes: Vec<Cte>,
    names_used: usize,
    nodes: usize,
    depth: usize,
    columns: usize,
    sorts: usize,
    /// The number of column names in use.
    column_names_used: usize,
    /// The number of pieces of aliases and parameters, for each use of them.
    pieces_used: usize,
}

impl<'a> Translator<'a> {
    pub fn new(engine: SqlDialect, context: &'a QueryContext) -> Self {
        let ctes = Vec::new();
        Self {
            engine,
            context,
            ctes,
            names_used: 0,
            nodes: 0,
            depth: 0,
            columns: 0,
            sorts: 0,
            column_names_used: 0,
            pieces_used: 0,
        }
    }

    /// Returns a value for one more use of it. Each use copies it, so that a short query could need any amount of memory.
    pub fn use_value(&mut self, value: TypedExpr) -> Result<TypedExpr> {
        self.pieces_used = self.pieces_used.saturating_add(value.sql.piece_count());
        match self.pieces_used > PIECES_USED_MAX {
            true => invalid("the query is too large after its aliases are expanded"),
            false => Ok(value),
        }
    }

    /// Returns a name that the query does not use yet.
    pub fn new_name(&mut self, letter: char) -> Fragment {
        self.names_used += 1;
        Fragment::generated_name(letter, self.names_used)
    }

    pub fn new_number(&mut self) -> usize {
        self.names_used += 1;
        self.names_used
    }

    /// Reserves the numbers of `count` columns and returns the first. No two SELECTs, one within the other, use the
    /// same column names: ClickHouse may mistake one for the other.
    pub fn reserve_columns(&mut self, count: usize) -> usize {
        let first = self.column_names_used;
        self.column_names_used += count;
        first
    }

    /// Counts a node of the syntax tree and its depth. [`Self::leave`] reduces the depth again.
    pub fn enter(&mut self) -> Result<()> {
        self.nodes += 1;
        self.depth += 1;
        if self.nodes > NODES_MAX {
            return invalid(format!("the query has more than {NODES_MAX} parts"));
        }
        if self.depth > DEPTH_MAX {
            return invalid(format!("the query is nested more than {DEPTH_MAX} deep"));
        }
        Ok(())
    }

    pub fn leave(&mut self) {
        self.depth -= 1;
    }

    /// Counts an aggregate that sorts its values, or a window. Postgres has memory for each of them.
    pub fn count_sort(&mut self) -> Result<()> {
        self.sorts += 1;
        match self.sorts > SORTS_MAX {
            true => invalid(format!(
                "the query has more than {SORTS_MAX} windows and aggregates that are a quantile or of distinct values"
            )),
            false => Ok(()),
        }
    }

    pub fn count_columns(&mut self, count: usize) -> Result<()> {
        self.columns += count;
        if self.columns > COLUMNS_MAX {
            return invalid(format!(
                "the query selects more than {COLUMNS_MAX} columns, those of its parts included"
            ));
        }
        Ok(())
    }

    /// Translates a query. `rows_max` limits the rows that it returns.
    pub fn translate_query(&mut self, query: &ast::Query, rows_max: Option<u64>) -> Result<RowSet> {
        self.enter()?;
        let parts = grammar::parse_query_parts(query)?;
        let visible = self.ctes.len();
        let mut with = Vec::new();
        for cte in parts.ctes {
            let (name, query) = grammar::parse_cte(cte)?;
            if PublicTable::is_reserved_name(&name.value) {
                let name = excerpt(&name.value);
                return query_fault(
                    QueryErrorKind::Table,
                    format!("{name} is a table and cannot be redefined"),
                );
            }
            let rows = self.translate_query(query, self.context.nested_rows_max)?;
            let cte_name = self.new_name('w');
            with.push(Fragment::from_template("{0} AS ({1})", &[&cte_name, &rows.sql]));
            self.ctes.push(Cte { user_name: name.value.clone(), name: cte_name, rows });
        }
        let mut rows = match parts.body {
            SetExpr::Select(select) => self.translate_select(select, Some(&parts), rows_max)?,
            body => {
                let rows = self.translate_body(body, None)?;
                self.apply_order_and_limit(rows, &parts, rows_max)?
            }
        };
        // Old versions of ClickHouse have no WITH, so a query of WITH is inlined where it is named.
        if !with.is_empty() && self.engine != SqlDialect::ClickHouse {
            let with = Fragment::join(", ", &with);
            rows.sql = Fragment::from_template("WITH {0} {1}", &[&with, &rows.sql]);
        }
        self.ctes.truncate(visible);
        self.leave();
        Ok(rows)
    }

    fn translate_body(&mut self, body: &SetExpr, rows_max: Option<u64>) -> Result<RowSet> {
        match body {
            SetExpr::Select(select) => self.translate_select(select, None, rows_max),
            SetExpr::Query(query) => self.translate_query(query, rows_max),
            SetExpr::SetOperation { left, op, set_quantifier, right } => {
                self.enter()?;
                let left = self.translate_body(left, self.context.nested_rows_max)?;
                let right = self.translate_body(right, self.context.nested_rows_max)?;
                let rows =
                    self.combine(&left, parse_set_operation(*op, *set_quantifier)?, &right)?;
                self.leave();
                Ok(rows)
            }
            SetExpr::Values(_) => unsupported("VALUES"),
            SetExpr::Table(_) => {
                query_fault(QueryErrorKind::Table, "TABLE is not supported; use SELECT")
            }
            SetExpr::Insert(_) | SetExpr::Update(_) | SetExpr::Delete(_) | SetExpr::Merge(_) => {
                parse::reject_non_select()
            }
        }
    }

    /// Combines two queries. Each becomes a subquery of a SELECT that makes the columns alike, so no engine-specific
    /// rules for ORDER BY and LIMIT next to UNION apply.
    fn combine(&mut self, left: &RowSet, combined: SetOperation, right: &RowSet) -> Result<RowSet> {
        if left.columns.len() != right.columns.len() {
            let (left, right) = (left.columns.len(), right.columns.len());
            return invalid(format!(
                "both sides of UNION must have the same number of columns: {left} and {right}"
            ));
        }
        let mut columns = Vec::new();
        for ((name, left), (_, right)) in left.columns.iter().zip(&right.columns) {
            let Some(ty) = left.common_type(right) else {
                return invalid(format!(
                    "column {} is {left} on one side and {right} on the other",
                    excerpt(name)
                ));
            };
            columns.push((name.clone(), ty));
        }
        let first = self.reserve_columns(columns.len());
        let left = self.cast_columns(left, &columns, first)?;
        let right = self.cast_columns(right, &columns, first)?;
        let words = Fragment::word(combined.sql_words(self.engine));
        let rows = RowSet {
            sql: Fragment::join("", [&left, &words, &right]),
            columns,
            first_column: first,
        };
        if self.engine == SqlDialect::ClickHouse && combined == SetOperation::Distinct {
            return Ok(self.deduplicate(rows));
        }
        Ok(rows)
    }

    fn cast_columns(
        &mut self,
        rows: &RowSet,
        columns: &[(Rc<str>, Type)],
        first: usize,
    ) -> Result<Fragment> {
        let name = self.new_name('t');
        let mut selected = Vec::new();
        for ((column, (_, ty)), number) in rows.columns_as(&name).iter().zip(columns).zip(first..) {
            let value = column.to_typed().widen_to(ty)?;
            let own = Fragment::generated_name('c', number);
            selected.push(Fragment::from_template("{0} AS {1}", &[&value.sql, &own]));
        }
        let selected = Fragment::join(", ", &selected);
        Ok(Fragment::from_template("SELECT {0} FROM ({1}) AS {2}", &[&selected, &rows.sql, &name]))
    }

    /// Removes duplicate rows.
    fn deduplicate(&mut self, rows: RowSet) -> RowSet {
        let name = self.new_name('t');
        let first = self.reserve_columns(rows.columns.len());
        let selected = select_renamed(&rows.columns_as(&name), first);
        let template = "SELECT DISTINCT {0} FROM ({1}) AS {2}";
        let sql = Fragment::from_template(template, &[&selected, &rows.sql, &name]);
        RowSet { sql, columns: rows.columns, first_column: first }
    }

    /// Applies ORDER BY and LIMIT to a query that is not a single SELECT.
    fn apply_order_and_limit(
        &mut self,
        rows: RowSet,
        parts: &QueryParts<'_>,
        rows_max: Option<u64>,
    ) -> Result<RowSet> {
        let name = self.new_name('t');
        let columns = rows.columns_as(&name);
        let first = self.reserve_columns(columns.len());
        let selected = select_renamed(&columns, first);
        let outputs: Vec<_> = columns.iter().map(ScopeColumn::to_typed).collect();
        let mut scope = Scope::new(vec![Relation { name: None, columns }]);
        scope.clause = Clause::Where;
        let (order, _) = self.translate_order_by(&mut scope, parts.order_by, &outputs)?;
        if !scope.unnested_lists.is_empty() {
            return invalid("arrayJoin is not allowed in ORDER BY of a UNION");
        }
        let limit = self.translate_limit(parts.limit, parts.offset, rows_max)?;
        let sql = Fragment::from_template(
            "SELECT {0} FROM ({1}) AS {2}{3}{4}",
            &[&selected, &rows.sql, &name, &order, &limit],
        );
        Ok(RowSet { sql, columns: rows.columns, first_column: first })
    }
}

/// Selects the columns, each under the next name.
fn select_renamed(columns: &[ScopeColumn], first: usize) -> Fragment {
    let named = columns.iter().zip(first..).map(|(column, number)| {
        Fragment::from_template(
            "{0} AS {1}",
            &[&column.sql, &Fragment::generated_name('c', number)],
        )
    });
    Fragment::join(", ", &named.collect::<Vec<_>>())
}

/// A set operation of two queries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SetOperation {
    All,
    /// Without duplicate rows.
    Distinct,
    Except,
    Intersect,
}

impl SetOperation {
    fn sql_words(self, engine: SqlDialect) -> &'static str {
        match self {
            Self::All => " UNION ALL ",
            // For ClickHouse an outer SELECT removes duplicates: old versions support no other UNION.
            Self::Distinct => engine.select([" UNION ", " UNION ", " UNION ALL "]),
            Self::Except => engine.select([" EXCEPT ", " EXCEPT ", " EXCEPT DISTINCT "]),
            Self::Intersect => {
                engine.select([" INTERSECT ", " INTERSECT ", " INTERSECT DISTINCT "])
            }
        }
    }
}

fn parse_set_operation(operator: SetOperator, quantifier: SetQuantifier) -> Result<SetOperation> {
    match (operator, quantifier) {
        (SetOperator::Union, SetQuantifier::All) => Ok(SetOperation::All),
        (SetOperator::Union, SetQuantifier::None | SetQuantifier::Distinct) => {
            Ok(SetOperation::Distinct)
        }
        (SetOperator::Except, SetQuantifier::None | SetQuantifier::Distinct) => {
            Ok(SetOperation::Except)
        }
        (SetOperator::Intersect, SetQuantifier::None | SetQuantifier::Distinct) => {
            Ok(SetOperation::Intersect)
        }
        (SetOperator::Minus, _) => unsupported("MINUS"),
        (
            SetOperator::Union | SetOperator::Except | SetOperator::Intersect,
            SetQuantifier::All
            | SetQuantifier::ByName
            | SetQuantifier::AllByName
            | SetQuantifier::DistinctByName,
        ) => unsupported("this kind of UNION or EXCEPT"),
    }
}

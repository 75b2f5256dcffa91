//! Translates a whole query: WITH, UNION, ORDER BY and LIMIT.

use std::rc::Rc;

use foundation::error::{QueryFault, Result};
use sqlparser::ast::{self, SetExpr, SetOperator, SetQuantifier};

use super::fragment::Fragment;
use super::grammar::{self, QueryParts};
use super::scope::{Column, Place, Relation, Scope};
use super::tables::Table;
use super::types::{SqlDialect, Type};
use super::{
    COLUMNS_MAX, DEPTH_MAX, NODES_MAX, QueryContext, fault, invalid, parse, shown, unsupported,
};

/// Rows with columns `c5`, `c6` …: a SELECT, or a query that is used as one.
#[derive(Debug, Clone)]
pub struct Rows {
    pub sql: Fragment,
    pub columns: Vec<(Rc<str>, Type)>,
    /// The number of the first column.
    pub first: usize,
}

impl Rows {
    /// Returns the columns as seen by a SELECT that reads the rows under a name.
    pub fn seen_as(&self, name: &Fragment) -> Vec<Column> {
        let column = |((column, ty), number): (&(Rc<str>, Type), usize)| Column {
            name: column.clone(),
            sql: Fragment::fill("{0}.{1}", &[name, &Fragment::name('c', number)]),
            ty: ty.clone(),
            time_of: None,
            origin: None,
            is_doubled: false,
        };
        self.columns.iter().zip(self.first..).map(column).collect()
    }
}

/// A common table expression of WITH.
pub struct Cte {
    pub user_name: String,
    pub name: Fragment,
    pub rows: Rows,
}

pub struct Translator<'a> {
    pub engine: SqlDialect,
    pub asked: &'a QueryContext,
    /// The common table expressions that can be named, the innermost last.
    pub ctes: Vec<Cte>,
    names: usize,
    nodes: usize,
    depth: usize,
    columns: usize,
    /// The number of column names in use.
    selected: usize,
}

impl<'a> Translator<'a> {
    pub fn new(engine: SqlDialect, context: &'a QueryContext) -> Self {
        let ctes = Vec::new();
        Self { engine, asked: context, ctes, names: 0, nodes: 0, depth: 0, columns: 0, selected: 0 }
    }

    /// Returns a name that the query does not use yet.
    pub fn name(&mut self, letter: char) -> Fragment {
        self.names += 1;
        Fragment::name(letter, self.names)
    }

    pub fn number(&mut self) -> usize {
        self.names += 1;
        self.names
    }

    /// Reserves the numbers of `count` columns and returns the first. No two SELECTs, one within the other, use the
    /// same column names: ClickHouse may mistake one for the other.
    pub fn first_of(&mut self, count: usize) -> usize {
        let first = self.selected;
        self.selected += count;
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
    pub fn query(&mut self, query: &ast::Query, rows_max: Option<u64>) -> Result<Rows> {
        self.enter()?;
        let parts = grammar::query(query)?;
        let visible = self.ctes.len();
        let mut with = Vec::new();
        for cte in parts.ctes {
            let (name, query) = grammar::cte(cte)?;
            if Table::resembles(&name.value) {
                let name = shown(&name.value);
                return fault(
                    QueryFault::Table,
                    format!("{name} is a table and cannot be redefined"),
                );
            }
            let rows = self.query(query, self.asked.inner_rows_max)?;
            let cte_name = self.name('w');
            with.push(Fragment::fill("{0} AS ({1})", &[&cte_name, &rows.sql]));
            self.ctes.push(Cte { user_name: name.value.clone(), name: cte_name, rows });
        }
        let mut rows = match parts.body {
            SetExpr::Select(select) => self.select(select, Some(&parts), rows_max)?,
            body => {
                let rows = self.body(body, None)?;
                self.ordered(rows, &parts, rows_max)?
            }
        };
        // Old versions of ClickHouse have no WITH, so a query of WITH is inlined where it is named.
        if !with.is_empty() && self.engine != SqlDialect::ClickHouse {
            let with = Fragment::list(", ", &with);
            rows.sql = Fragment::fill("WITH {0} {1}", &[&with, &rows.sql]);
        }
        self.ctes.truncate(visible);
        self.leave();
        Ok(rows)
    }

    fn body(&mut self, body: &SetExpr, rows_max: Option<u64>) -> Result<Rows> {
        match body {
            SetExpr::Select(select) => self.select(select, None, rows_max),
            SetExpr::Query(query) => self.query(query, rows_max),
            SetExpr::SetOperation { left, op, set_quantifier, right } => {
                self.enter()?;
                let left = self.body(left, self.asked.inner_rows_max)?;
                let right = self.body(right, self.asked.inner_rows_max)?;
                let rows = self.both(&left, combined(*op, *set_quantifier)?, &right)?;
                self.leave();
                Ok(rows)
            }
            SetExpr::Values(_) => unsupported("VALUES"),
            SetExpr::Table(_) => fault(QueryFault::Table, "TABLE is not supported; use SELECT"),
            SetExpr::Insert(_) | SetExpr::Update(_) | SetExpr::Delete(_) | SetExpr::Merge(_) => {
                parse::not_a_select()
            }
        }
    }

    /// Combines two queries. Each becomes a subquery of a SELECT that makes the columns alike, so no engine-specific
    /// rules for ORDER BY and LIMIT next to UNION apply.
    fn both(&mut self, left: &Rows, combined: Combined, right: &Rows) -> Result<Rows> {
        if left.columns.len() != right.columns.len() {
            let (left, right) = (left.columns.len(), right.columns.len());
            return invalid(format!(
                "both sides of UNION must have the same number of columns: {left} and {right}"
            ));
        }
        let mut columns = Vec::new();
        for ((name, left), (_, right)) in left.columns.iter().zip(&right.columns) {
            let Some(ty) = left.join(right) else {
                return invalid(format!(
                    "column {} is {left} on one side and {right} on the other",
                    shown(name)
                ));
            };
            columns.push((name.clone(), ty));
        }
        let first = self.first_of(columns.len());
        let left = self.alike(left, &columns, first)?;
        let right = self.alike(right, &columns, first)?;
        let words = Fragment::word(combined.words(self.engine));
        let rows = Rows { sql: Fragment::list("", [&left, &words, &right]), columns, first };
        if self.engine == SqlDialect::ClickHouse && combined == Combined::Once {
            return Ok(self.each_once(rows));
        }
        Ok(rows)
    }

    fn alike(
        &mut self,
        rows: &Rows,
        columns: &[(Rc<str>, Type)],
        first: usize,
    ) -> Result<Fragment> {
        let name = self.name('t');
        let mut selected = Vec::new();
        for ((column, (_, ty)), number) in rows.seen_as(&name).iter().zip(columns).zip(first..) {
            let value = column.typed().widened(ty)?;
            let own = Fragment::name('c', number);
            selected.push(Fragment::fill("{0} AS {1}", &[&value.sql, &own]));
        }
        let selected = Fragment::list(", ", &selected);
        Ok(Fragment::fill("SELECT {0} FROM ({1}) AS {2}", &[&selected, &rows.sql, &name]))
    }

    /// Removes duplicate rows.
    fn each_once(&mut self, rows: Rows) -> Rows {
        let name = self.name('t');
        let first = self.first_of(rows.columns.len());
        let selected = renamed(&rows.seen_as(&name), first);
        let template = "SELECT DISTINCT {0} FROM ({1}) AS {2}";
        let sql = Fragment::fill(template, &[&selected, &rows.sql, &name]);
        Rows { sql, columns: rows.columns, first }
    }

    /// Applies ORDER BY and LIMIT to a query that is not a single SELECT.
    fn ordered(
        &mut self,
        rows: Rows,
        parts: &QueryParts<'_>,
        rows_max: Option<u64>,
    ) -> Result<Rows> {
        let name = self.name('t');
        let columns = rows.seen_as(&name);
        let first = self.first_of(columns.len());
        let selected = renamed(&columns, first);
        let outputs: Vec<_> = columns.iter().map(Column::typed).collect();
        let mut scope = Scope::new(vec![Relation { name: None, columns }]);
        scope.place = Place::Where;
        let (order, _) = self.order_by(&mut scope, parts.order_by, &outputs)?;
        if !scope.unnested.is_empty() {
            return invalid("arrayJoin is not allowed in ORDER BY of a UNION");
        }
        let limit = self.limit(parts.limit, parts.offset, rows_max)?;
        let sql = Fragment::fill(
            "SELECT {0} FROM ({1}) AS {2}{3}{4}",
            &[&selected, &rows.sql, &name, &order, &limit],
        );
        Ok(Rows { sql, columns: rows.columns, first })
    }
}

/// Selects the columns, each under the next name.
fn renamed(columns: &[Column], first: usize) -> Fragment {
    let named = columns.iter().zip(first..).map(|(column, number)| {
        Fragment::fill("{0} AS {1}", &[&column.sql, &Fragment::name('c', number)])
    });
    Fragment::list(", ", &named.collect::<Vec<_>>())
}

/// A set operation of two queries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Combined {
    All,
    /// Without duplicate rows.
    Once,
    Except,
    Intersect,
}

impl Combined {
    fn words(self, engine: SqlDialect) -> &'static str {
        match self {
            Self::All => " UNION ALL ",
            // For ClickHouse an outer SELECT removes duplicates: old versions support no other UNION.
            Self::Once => engine.pick([" UNION ", " UNION ", " UNION ALL "]),
            Self::Except => engine.pick([" EXCEPT ", " EXCEPT ", " EXCEPT DISTINCT "]),
            Self::Intersect => engine.pick([" INTERSECT ", " INTERSECT ", " INTERSECT DISTINCT "]),
        }
    }
}

fn combined(operator: SetOperator, quantifier: SetQuantifier) -> Result<Combined> {
    match (operator, quantifier) {
        (SetOperator::Union, SetQuantifier::All) => Ok(Combined::All),
        (SetOperator::Union, SetQuantifier::None | SetQuantifier::Distinct) => Ok(Combined::Once),
        (SetOperator::Except, SetQuantifier::None | SetQuantifier::Distinct) => {
            Ok(Combined::Except)
        }
        (SetOperator::Intersect, SetQuantifier::None | SetQuantifier::Distinct) => {
            Ok(Combined::Intersect)
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

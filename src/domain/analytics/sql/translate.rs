//! A whole query: WITH, UNION and what is ordered and limited.

use std::rc::Rc;

use sqlparser::ast::{self, SetExpr, SetOperator, SetQuantifier};

use super::fragment::Fragment;
use super::kinds::{Engine, Type};
use super::scope::{Column, Place, Relation, Scope};
use super::shape::{self, QueryParts};
use super::tables::Table;
use super::{Asked, COLUMNS_MAX, DEPTH_MAX, NODES_MAX, fault, invalid, parse, shown, unsupported};
use crate::error::{QueryFault, Result};

/// Rows with columns `c0`, `c1` …: a SELECT, or what stands for one.
#[derive(Debug, Clone)]
pub struct Rows {
    pub sql: Fragment,
    pub columns: Vec<(Rc<str>, Type)>,
}

impl Rows {
    /// As seen from a SELECT that reads from them under a name.
    pub fn columns_of(columns: &[(Rc<str>, Type)], name: &Fragment) -> Vec<Column> {
        let column = |(index, (column, ty)): (usize, &(Rc<str>, Type))| Column {
            name: column.clone(),
            sql: Fragment::fill("{0}.{1}", &[name, &Fragment::name('c', index)]),
            ty: ty.clone(),
            time_of: None,
            is_doubled: false,
        };
        columns.iter().enumerate().map(column).collect()
    }
}

/// A query of WITH.
pub struct Cte {
    pub user_name: String,
    pub name: Fragment,
    pub columns: Vec<(Rc<str>, Type)>,
}

pub struct Translator<'a> {
    pub engine: Engine,
    pub asked: &'a Asked,
    /// Those that can be named here, the innermost last.
    pub ctes: Vec<Cte>,
    /// The tables that are read.
    pub used: Vec<&'static Table>,
    names: usize,
    nodes: usize,
    depth: usize,
    columns: usize,
}

impl<'a> Translator<'a> {
    pub fn new(engine: Engine, asked: &'a Asked) -> Self {
        let (ctes, used) = (Vec::new(), Vec::new());
        Self { engine, asked, ctes, used, names: 0, nodes: 0, depth: 0, columns: 0 }
    }

    /// A name that the query does not have yet.
    pub fn name(&mut self, letter: char) -> Fragment {
        self.names += 1;
        Fragment::name(letter, self.names)
    }

    pub fn number(&mut self) -> usize {
        self.names += 1;
        self.names
    }

    /// Counts a node of the syntax tree and how deep it is; [`Self::leave`] goes up again.
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

    /// A query; `rows_max` bounds how many rows it gives.
    pub fn query(&mut self, query: &ast::Query, rows_max: Option<u64>) -> Result<Rows> {
        self.enter()?;
        let parts = shape::query(query)?;
        let visible = self.ctes.len();
        let mut with = Vec::new();
        for cte in parts.ctes {
            let (name, query) = shape::cte(cte)?;
            if Table::resembles(&name.value) {
                let name = shown(&name.value);
                return fault(QueryFault::Table, format!("{name} is a table, and stays it"));
            }
            let rows = self.query(query, self.asked.inner_rows_max)?;
            let own = self.name('w');
            with.push(Fragment::fill("{0} AS ({1})", &[&own, &rows.sql]));
            let user_name = name.value.clone();
            self.ctes.push(Cte { user_name, name: own, columns: rows.columns });
        }
        let mut rows = match parts.body {
            SetExpr::Select(select) => self.select(select, Some(&parts), rows_max)?,
            body => {
                let rows = self.body(body, None)?;
                self.ordered(rows, &parts, rows_max)?
            }
        };
        if !with.is_empty() {
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
                let both = self.both(&left, operator(*op, *set_quantifier)?, &right)?;
                self.leave();
                Ok(both)
            }
            SetExpr::Values(_) => unsupported("VALUES"),
            SetExpr::Table(_) => fault(QueryFault::Table, "TABLE is not offered: SELECT from it"),
            SetExpr::Insert(_) | SetExpr::Update(_) | SetExpr::Delete(_) | SetExpr::Merge(_) => {
                parse::not_a_select()
            }
        }
    }

    /// Two queries as one. Each stands in a SELECT of its own, which makes the columns alike; so no engine's own rules
    /// for ORDER BY and LIMIT next to UNION come into play.
    fn both(&mut self, left: &Rows, operator: &'static str, right: &Rows) -> Result<Rows> {
        if left.columns.len() != right.columns.len() {
            let (left, right) = (left.columns.len(), right.columns.len());
            return invalid(format!(
                "both sides of UNION have as many columns: {left} and {right}"
            ));
        }
        let mut columns = Vec::new();
        for ((name, left), (_, right)) in left.columns.iter().zip(&right.columns) {
            let Some(ty) = left.join(right) else {
                return invalid(format!("column {} is {left} and {right}", shown(name)));
            };
            columns.push((name.clone(), ty));
        }
        let left = self.alike(left, &columns)?;
        let right = self.alike(right, &columns)?;
        let operator = Fragment::word(operator);
        Ok(Rows { sql: Fragment::list("", [&left, &operator, &right]), columns })
    }

    fn alike(&mut self, rows: &Rows, columns: &[(Rc<str>, Type)]) -> Result<Fragment> {
        let name = self.name('t');
        let mut selected = Vec::new();
        for (index, column) in Rows::columns_of(&rows.columns, &name).iter().enumerate() {
            let value = column.typed().widened(&columns[index].1)?;
            let own = Fragment::name('c', index);
            selected.push(Fragment::fill("{0} AS {1}", &[&value.sql, &own]));
        }
        let selected = Fragment::list(", ", &selected);
        Ok(Fragment::fill("SELECT {0} FROM ({1}) AS {2}", &[&selected, &rows.sql, &name]))
    }

    /// ORDER BY and LIMIT of a query that is not a SELECT by itself.
    fn ordered(
        &mut self,
        rows: Rows,
        parts: &QueryParts<'_>,
        rows_max: Option<u64>,
    ) -> Result<Rows> {
        let name = self.name('t');
        let columns = Rows::columns_of(&rows.columns, &name);
        let names = (0..columns.len()).map(|index| Fragment::name('c', index));
        let selected: Vec<_> = columns
            .iter()
            .zip(names)
            .map(|(column, own)| Fragment::fill("{0} AS {1}", &[&column.sql, &own]))
            .collect();
        let outputs: Vec<_> = columns.iter().map(Column::typed).collect();
        let mut scope = Scope::new(vec![Relation { name: None, columns }]);
        scope.place = Place::Where;
        let (order, _) = self.order_by(&mut scope, parts.order_by, &outputs)?;
        if !scope.unnested.is_empty() {
            return invalid("arrayJoin cannot stand in the ORDER BY of a UNION");
        }
        let limit = self.limit(parts.limit, parts.offset, rows_max)?;
        let selected = Fragment::list(", ", &selected);
        let sql = Fragment::fill(
            "SELECT {0} FROM ({1}) AS {2}{3}{4}",
            &[&selected, &rows.sql, &name, &order, &limit],
        );
        Ok(Rows { sql, columns: rows.columns })
    }
}

fn operator(operator: SetOperator, quantifier: SetQuantifier) -> Result<&'static str> {
    match (operator, quantifier) {
        (SetOperator::Union, SetQuantifier::All) => Ok(" UNION ALL "),
        (SetOperator::Union, SetQuantifier::None | SetQuantifier::Distinct) => Ok(" UNION "),
        (SetOperator::Except, SetQuantifier::None | SetQuantifier::Distinct) => Ok(" EXCEPT "),
        (SetOperator::Intersect, SetQuantifier::None | SetQuantifier::Distinct) => {
            Ok(" INTERSECT ")
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

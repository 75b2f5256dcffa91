//! Resolves the names in a SELECT.

use std::rc::Rc;

use foundation::error::{QueryFault, Result};
use sqlparser::ast::Expr;

use super::fragment::Fragment;
use super::tables::Table;
use super::types::{Origin, Type, Typed};
use super::{fault, invalid, shown};

/// A column of a relation.
#[derive(Debug, Clone)]
pub struct Column {
    pub name: Rc<str>,
    pub sql: Fragment,
    pub ty: Type,
    pub time_of: Option<&'static Table>,
    pub origin: Option<Origin>,
    /// Whether USING joined it with a column of the same name, which represents both.
    pub is_doubled: bool,
}

impl Column {
    pub fn typed(&self) -> Typed {
        let mut typed = Typed::of(self.sql.clone(), self.ty.clone(), &[]);
        typed.loose = Some(self.name.clone());
        typed.time_of = self.time_of;
        typed.origin = self.origin;
        typed
    }
}

/// A table or query in FROM.
#[derive(Debug)]
pub struct Relation {
    pub name: Option<String>,
    pub columns: Vec<Column>,
}

/// The clause of a SELECT that contains an expression.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    Columns,
    Where,
    On,
    GroupBy,
    Having,
    OrderBy,
}

impl Place {
    pub fn may_aggregate(self) -> bool {
        match self {
            Self::Columns | Self::Having | Self::OrderBy => true,
            Self::Where | Self::On | Self::GroupBy => false,
        }
    }

    pub fn may_look_around(self) -> bool {
        match self {
            Self::Columns | Self::OrderBy => true,
            Self::Where | Self::On | Self::GroupBy | Self::Having => false,
        }
    }

    pub fn words(self) -> &'static str {
        match self {
            Self::Columns => "the columns",
            Self::Where => "WHERE",
            Self::On => "ON",
            Self::GroupBy => "GROUP BY",
            Self::Having => "HAVING",
            Self::OrderBy => "ORDER BY",
        }
    }
}

/// A name that the SELECT gives to one of its columns.
#[derive(Debug)]
pub struct Alias<'q> {
    pub name: &'q str,
    pub expr: &'q Expr,
    pub state: State,
}

#[derive(Debug, Clone)]
pub enum State {
    New,
    /// Being resolved: inside its own expression the name refers to a column of a table.
    Open,
    Read(Typed),
}

/// The names that are visible in one SELECT, and the state of its translation.
#[derive(Debug)]
pub struct Scope<'q> {
    pub relations: Vec<Relation>,
    pub aliases: Vec<Alias<'q>>,
    /// The expressions of GROUP BY.
    pub keys: Vec<Fragment>,
    pub place: Place,
    /// Whether the expression is inside an aggregate, or inside a window.
    pub in_aggregate: bool,
    pub in_window: bool,
    /// Whether a row is returned only if the expression is true, or one that is joined to it by AND or OR.
    pub is_condition: bool,
    /// The values of the parameters of lambdas, the innermost last.
    pub parameters: Vec<(&'q str, Typed)>,
    /// The lists that arrayJoin expands, and the numbers of their elements.
    pub unnested: Vec<(Fragment, usize)>,
}

impl Scope<'_> {
    pub fn new(relations: Vec<Relation>) -> Self {
        Self {
            relations,
            aliases: Vec::new(),
            keys: Vec::new(),
            place: Place::On,
            in_aggregate: false,
            in_window: false,
            is_condition: false,
            parameters: Vec::new(),
            unnested: Vec::new(),
        }
    }

    /// Finds the column with a name in all relations.
    pub fn column(&self, name: &str) -> Result<Option<&Column>> {
        let mut found = self
            .relations
            .iter()
            .flat_map(|relation| &relation.columns)
            .filter(|column| *column.name == *name && !column.is_doubled);
        match (found.next(), found.next()) {
            (found, None) => Ok(found),
            (_, Some(_)) => invalid(format!(
                "more than one column is named {}; put the table name before it",
                shown(name)
            )),
        }
    }

    pub fn relation(&self, name: &str) -> Result<&Relation> {
        let found = self.relations.iter().find(|relation| relation.name.as_deref() == Some(name));
        found.map_or_else(
            || fault(QueryFault::Table, format!("there is no table {} in this FROM", shown(name))),
            Ok,
        )
    }

    pub fn qualified(&self, table: &str, name: &str) -> Result<Typed> {
        let mut found = self.relation(table)?.columns.iter().filter(|c| *c.name == *name);
        match (found.next(), found.next()) {
            (Some(column), None) => Ok(column.typed()),
            (None, _) => invalid(format!("{} has no column {}", shown(table), shown(name))),
            (Some(_), Some(_)) => {
                invalid(format!("{} has two columns {}", shown(table), shown(name)))
            }
        }
    }

    /// Lists what `*` stands for: the columns of all relations, or of one.
    pub fn star(&self, table: Option<&str>) -> Result<Vec<&Column>> {
        let columns: Vec<_> = match table {
            Some(name) => self.relation(name)?.columns.iter().collect(),
            None => self
                .relations
                .iter()
                .flat_map(|relation| &relation.columns)
                .filter(|column| !column.is_doubled)
                .collect(),
        };
        Ok(columns)
    }
}

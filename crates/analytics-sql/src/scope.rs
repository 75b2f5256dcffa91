//! Resolves the names in a SELECT.

use std::rc::Rc;

use foundation::error::{QueryErrorKind, Result};
use sqlparser::ast::Expr;

use super::fragment::Fragment;
use super::tables::PublicTable;
use super::types::{ColumnOrigin, Type, TypedExpr};
use super::{excerpt, invalid, query_fault};

/// A column of a relation.
#[derive(Debug, Clone)]
pub struct ScopeColumn {
    pub name: Rc<str>,
    pub sql: Fragment,
    pub ty: Type,
    pub time_table: Option<&'static PublicTable>,
    pub origin: Option<ColumnOrigin>,
    /// Whether USING joined it with a column of the same name, which represents both.
    pub is_merged: bool,
}

impl ScopeColumn {
    pub fn to_typed(&self) -> TypedExpr {
        let mut typed = TypedExpr::from_parts(self.sql.clone(), self.ty.clone(), &[]);
        typed.ungrouped_column = Some(self.name.clone());
        typed.time_table = self.time_table;
        typed.origin = self.origin;
        typed
    }
}

/// A table or query in FROM.
#[derive(Debug)]
pub struct Relation {
    pub name: Option<String>,
    pub columns: Vec<ScopeColumn>,
}

/// The clause of a SELECT that contains an expression.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Clause {
    Columns,
    Where,
    On,
    GroupBy,
    Having,
    OrderBy,
}

impl Clause {
    pub fn may_use_aggregate(self) -> bool {
        match self {
            Self::Columns | Self::Having | Self::OrderBy => true,
            Self::Where | Self::On | Self::GroupBy => false,
        }
    }

    pub fn may_use_window(self) -> bool {
        match self {
            Self::Columns | Self::OrderBy => true,
            Self::Where | Self::On | Self::GroupBy | Self::Having => false,
        }
    }

    pub fn sql_name(self) -> &'static str {
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
    pub state: AliasState,
}

#[derive(Debug, Clone)]
pub enum AliasState {
    Unresolved,
    /// Being resolved: inside its own expression the name refers to a column of a table.
    Resolving,
    Resolved(TypedExpr),
}

/// The names that are visible in one SELECT, and the state of its translation.
#[derive(Debug)]
pub struct Scope<'q> {
    pub relations: Vec<Relation>,
    pub aliases: Vec<Alias<'q>>,
    /// The expressions of GROUP BY.
    pub group_keys: Vec<Fragment>,
    pub clause: Clause,
    /// Whether the expression is inside an aggregate, or inside a window.
    pub in_aggregate: bool,
    pub in_window: bool,
    /// Whether a row is returned only if the expression is true, or one that is joined to it by AND or OR.
    pub is_condition: bool,
    /// The values of the parameters of lambdas, the innermost last.
    pub lambda_parameters: Vec<(&'q str, TypedExpr)>,
    /// The lists that arrayJoin expands, and the numbers of their elements.
    pub unnested_lists: Vec<(Fragment, usize)>,
}

impl Scope<'_> {
    pub fn new(relations: Vec<Relation>) -> Self {
        Self {
            relations,
            aliases: Vec::new(),
            group_keys: Vec::new(),
            clause: Clause::On,
            in_aggregate: false,
            in_window: false,
            is_condition: false,
            lambda_parameters: Vec::new(),
            unnested_lists: Vec::new(),
        }
    }

    /// Finds the column with a name in all relations.
    pub fn find_column(&self, name: &str) -> Result<Option<&ScopeColumn>> {
        let mut found = self
            .relations
            .iter()
            .flat_map(|relation| &relation.columns)
            .filter(|column| *column.name == *name && !column.is_merged);
        match (found.next(), found.next()) {
            (found, None) => Ok(found),
            (_, Some(_)) => invalid(format!(
                "more than one column is named {}; put the table name before it",
                excerpt(name)
            )),
        }
    }

    pub fn get_relation(&self, name: &str) -> Result<&Relation> {
        let found = self.relations.iter().find(|relation| relation.name.as_deref() == Some(name));
        found.map_or_else(
            || {
                query_fault(
                    QueryErrorKind::Table,
                    format!("there is no table {} in this FROM", excerpt(name)),
                )
            },
            Ok,
        )
    }

    pub fn get_qualified_column(&self, table: &str, name: &str) -> Result<TypedExpr> {
        let mut found = self.get_relation(table)?.columns.iter().filter(|c| *c.name == *name);
        match (found.next(), found.next()) {
            (Some(column), None) => Ok(column.to_typed()),
            (None, _) => invalid(format!("{} has no column {}", excerpt(table), excerpt(name))),
            (Some(_), Some(_)) => {
                invalid(format!("{} has two columns {}", excerpt(table), excerpt(name)))
            }
        }
    }

    /// Lists what `*` stands for: the columns of all relations, or of one.
    pub fn list_columns(&self, table: Option<&str>) -> Result<Vec<&ScopeColumn>> {
        let columns: Vec<_> = match table {
            Some(name) => self.get_relation(name)?.columns.iter().collect(),
            None => self
                .relations
                .iter()
                .flat_map(|relation| &relation.columns)
                .filter(|column| !column.is_merged)
                .collect(),
        };
        Ok(columns)
    }
}

//! Defines the types of expressions, and what is known about an expression.
//!
//! Times are Unix milliseconds in the engines and become text only in the result, so that all engines compare, group
//! and sort them alike. A list is JSON, and in ClickHouse an Array.

use std::fmt;
use std::rc::Rc;

use foundation::error::Result;

use super::fragment::Fragment;
use super::tables::PublicTable;
pub use foundation::model::SqlDialect;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Type {
    Null,
    Int,
    Float,
    Text,
    /// `true` and `false`.
    Bool,
    /// The result of a comparison: 1 or 0.
    Flag,
    DateTime,
    /// With milliseconds.
    DateTime64,
    Date,
    /// A number of units of time, to be added to a time.
    Interval(IntervalUnit),
    Array(Box<Type>),
}

/// The units of time. Those without a fixed length are counted in months.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IntervalUnit {
    Nanosecond,
    Microsecond,
    Millisecond,
    Second,
    Minute,
    Hour,
    Day,
    Week,
    Month,
    Quarter,
    Year,
}

impl Type {
    pub fn array_of(of: Self) -> Self {
        Self::Array(Box::new(of))
    }

    pub fn is_number(&self) -> bool {
        matches!(self, Self::Int | Self::Float)
    }

    pub fn is_boolean(&self) -> bool {
        matches!(self, Self::Bool | Self::Flag)
    }

    pub fn is_time(&self) -> bool {
        matches!(self, Self::DateTime | Self::DateTime64 | Self::Date)
    }

    /// Returns the common type of both, or `None` if they have none.
    pub fn common_type(&self, other: &Self) -> Option<Self> {
        match (self, other) {
            (a, b) if a == b => Some(a.clone()),
            (Self::Null, t) | (t, Self::Null) => Some(t.clone()),
            (a, b) if a.is_boolean() && b.is_boolean() => Some(Self::Flag),
            (a, b) if (a.is_number() || a.is_boolean()) && (b.is_number() || b.is_boolean()) => {
                let is_float = *a == Self::Float || *b == Self::Float;
                Some(if is_float { Self::Float } else { Self::Int })
            }
            (a, b) if a.is_time() && b.is_time() => {
                let is_fine = *a == Self::DateTime64 || *b == Self::DateTime64;
                Some(if is_fine { Self::DateTime64 } else { Self::DateTime })
            }
            // A list is not converted, so its elements cannot become numbers.
            (Self::Array(a), Self::Array(b)) if a.is_boolean() == b.is_boolean() => {
                a.common_type(b).map(Self::array_of)
            }
            (Self::Array(a), Self::Array(b)) if **a == Self::Null || **b == Self::Null => {
                a.common_type(b).map(Self::array_of)
            }
            _ => None,
        }
    }
}

impl fmt::Display for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Null => f.write_str("NULL"),
            Self::Int => f.write_str("Int64"),
            Self::Float => f.write_str("Float64"),
            Self::Text => f.write_str("String"),
            Self::Bool => f.write_str("Bool"),
            Self::Flag => f.write_str("UInt8"),
            Self::DateTime => f.write_str("DateTime"),
            Self::DateTime64 => f.write_str("DateTime64"),
            Self::Date => f.write_str("Date"),
            Self::Interval(unit) => write!(f, "Interval{unit:?}"),
            Self::Array(of) => write!(f, "Array({of})"),
        }
    }
}

/// A value that is known before the query runs.
#[derive(Debug, Clone, PartialEq)]
pub enum Constant {
    /// A whole number, a time, or a number of units.
    Int(i64),
    Text(Rc<str>),
}

/// A translated expression.
#[derive(Debug, Clone)]
pub struct TypedExpr {
    pub sql: Fragment,
    pub ty: Type,
    pub constant: Option<Constant>,
    /// Whether it contains an aggregate.
    pub has_aggregate: bool,
    /// Whether it contains a window function.
    pub has_window: bool,
    /// A column in it that is neither aggregated nor in GROUP BY.
    pub ungrouped_column: Option<Rc<str>>,
    /// The table of which it is the column `time`, possibly truncated to a unit.
    pub time_table: Option<&'static PublicTable>,
    /// The column of a public table that it is, and nothing more.
    pub origin: Option<ColumnOrigin>,
    /// For a condition: what its rows satisfy in the public tables by themselves.
    pub narrowings: Vec<Narrowing>,
}

/// A column of a public table, in one of the places that read the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ColumnOrigin {
    /// The number of that place.
    pub read_number: usize,
    pub name: &'static str,
}

/// A comparison of a column with a value that is known before the query runs. It can fail on no row, so it may be
/// evaluated in a public table before the rows of others are filtered out.
#[derive(Debug, Clone)]
pub struct Narrowing {
    pub read_number: usize,
    pub sql: Fragment,
}

impl ColumnOrigin {
    /// Returns its name at the place where the table is read.
    pub fn to_sql(self) -> Fragment {
        let table = Fragment::generated_name('f', self.read_number);
        Fragment::from_template("{0}.{1}", &[&table, &Fragment::quoted_column(self.name)])
    }
}

impl TypedExpr {
    /// Creates an expression from parts, whose properties it inherits.
    pub fn from_parts(sql: Fragment, ty: Type, parts: &[&Self]) -> Self {
        Self {
            sql,
            ty,
            constant: None,
            has_aggregate: parts.iter().any(|part| part.has_aggregate),
            has_window: parts.iter().any(|part| part.has_window),
            ungrouped_column: parts.iter().find_map(|part| part.ungrouped_column.clone()),
            time_table: None,
            origin: None,
            narrowings: Vec::new(),
        }
    }

    pub fn from_template(template: &'static str, ty: Type, parts: &[&Self]) -> Self {
        let fragments: Vec<_> = parts.iter().map(|part| &part.sql).collect();
        Self::from_parts(Fragment::from_template(template, &fragments), ty, parts)
    }

    /// Returns NULL. Postgres requires a type even for NULL.
    pub fn null() -> Self {
        Self::from_parts(Fragment::word("CAST(NULL AS TEXT)"), Type::Null, &[])
    }

    /// Returns a whole number, a time, or a number of units.
    pub fn int(value: i64, ty: Type) -> Self {
        let mut int = Self::from_parts(Fragment::int(value), ty, &[]);
        int.constant = Some(Constant::Int(value));
        int
    }

    pub fn text(value: &str) -> Self {
        let mut text = Self::from_parts(Fragment::text(value), Type::Text, &[]);
        text.constant = Some(Constant::Text(value.into()));
        text
    }

    /// Returns a text that Postgres, too, orders by its bytes, and any other expression as it is. In Postgres, only the
    /// columns of tables are declared so; other texts have the order of the database's locale.
    pub fn ordered_by_bytes(self, engine: SqlDialect) -> Self {
        if engine != SqlDialect::Postgres || self.ty != Type::Text {
            return self;
        }
        Self { sql: Fragment::from_template("({0} COLLATE \"C\")", &[&self.sql]), ..self }
    }

    pub fn constant_int(&self) -> Option<i64> {
        match &self.constant {
            Some(Constant::Int(value)) => Some(*value),
            Some(Constant::Text(_)) | None => None,
        }
    }

    pub fn constant_text(&self) -> Option<&str> {
        match &self.constant {
            Some(Constant::Text(value)) => Some(value),
            Some(Constant::Int(_)) | None => None,
        }
    }

    /// Converts the expression to a condition.
    pub fn into_condition(self) -> Result<Self> {
        match &self.ty {
            Type::Bool | Type::Flag => Ok(self),
            Type::Null => Ok(Self::from_template("CAST({0} AS BOOLEAN)", Type::Flag, &[&self])),
            Type::Int | Type::Float => Ok(Self::from_template("({0} <> 0)", Type::Flag, &[&self])),
            other => {
                super::invalid(format!("a condition must be a comparison or a Bool, not {other}"))
            }
        }
    }

    /// Converts the expression to a number. True is 1.
    pub fn into_number(self, what: &str) -> Result<Self> {
        match &self.ty {
            Type::Int | Type::Float => Ok(self),
            Type::Null => Ok(self.cast_null(&Type::Int)),
            Type::Bool | Type::Flag => {
                Ok(Self::from_template("CAST(CAST({0} AS INTEGER) AS BIGINT)", Type::Int, &[&self]))
            }
            other => super::invalid(format!("{what} takes a number, not {other}")),
        }
    }

    /// Converts the expression to a type that [`Type::common_type`] returned for it.
    pub fn widen_to(self, to: &Type) -> Result<Self> {
        match (&self.ty, to) {
            (from, to) if from == to => Ok(self),
            (Type::Null, to) => Ok(self.cast_null(to)),
            (Type::Int, Type::Float) => {
                Ok(Self::from_template("CAST({0} AS DOUBLE PRECISION)", Type::Float, &[&self]))
            }
            (from, Type::Int) if from.is_boolean() => self.into_number("this"),
            (from, Type::Float) if from.is_boolean() => self.into_number("this")?.widen_to(to),
            (_, to) => Ok(Self { ty: to.clone(), ..self }),
        }
    }

    /// Returns the expression, cast to a type if it is NULL.
    pub fn cast_if_null(self, ty: &Type) -> Self {
        if self.ty == Type::Null { self.cast_null(ty) } else { self }
    }

    /// Returns NULL as a value of a type.
    fn cast_null(&self, to: &Type) -> Self {
        let template = match to {
            Type::Int
            | Type::DateTime
            | Type::DateTime64
            | Type::Date
            | Type::Interval(_)
            | Type::Null => "CAST({0} AS BIGINT)",
            Type::Float => "CAST({0} AS DOUBLE PRECISION)",
            Type::Text => "CAST({0} AS TEXT)",
            Type::Bool | Type::Flag => "CAST({0} AS BOOLEAN)",
            Type::Array(_) => "{0}",
        };
        Self::from_template(template, to.clone(), &[self])
    }
}

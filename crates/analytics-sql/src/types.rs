//! Defines the types of expressions, and what is known about an expression.
//!
//! Times are Unix milliseconds in the engines and become text only in the result, so that all engines compare, group
//! and sort them alike. A list is JSON, and in ClickHouse an Array.

use std::fmt;
use std::rc::Rc;

use foundation::error::Result;

use super::fragment::Fragment;
use super::tables::Table;
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
    Interval(Unit),
    Array(Box<Type>),
}

/// The units of time. Those without a fixed length are counted in months.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
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
    pub fn array(of: Self) -> Self {
        Self::Array(Box::new(of))
    }

    pub fn is_number(&self) -> bool {
        matches!(self, Self::Int | Self::Float)
    }

    pub fn is_truth(&self) -> bool {
        matches!(self, Self::Bool | Self::Flag)
    }

    pub fn is_time(&self) -> bool {
        matches!(self, Self::DateTime | Self::DateTime64 | Self::Date)
    }

    /// Returns the common type of both, or `None` if they have none.
    pub fn join(&self, other: &Self) -> Option<Self> {
        match (self, other) {
            (a, b) if a == b => Some(a.clone()),
            (Self::Null, t) | (t, Self::Null) => Some(t.clone()),
            (a, b) if a.is_truth() && b.is_truth() => Some(Self::Flag),
            (a, b) if (a.is_number() || a.is_truth()) && (b.is_number() || b.is_truth()) => {
                let is_float = *a == Self::Float || *b == Self::Float;
                Some(if is_float { Self::Float } else { Self::Int })
            }
            (a, b) if a.is_time() && b.is_time() => {
                let is_fine = *a == Self::DateTime64 || *b == Self::DateTime64;
                Some(if is_fine { Self::DateTime64 } else { Self::DateTime })
            }
            // A list is not converted, so its elements cannot become numbers.
            (Self::Array(a), Self::Array(b)) if a.is_truth() == b.is_truth() => {
                a.join(b).map(Self::array)
            }
            (Self::Array(a), Self::Array(b)) if **a == Self::Null || **b == Self::Null => {
                a.join(b).map(Self::array)
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
pub struct Typed {
    pub sql: Fragment,
    pub ty: Type,
    pub known: Option<Constant>,
    /// Whether it contains an aggregate.
    pub aggregates: bool,
    /// Whether it contains a window function.
    pub windows: bool,
    /// A column in it that is neither aggregated nor in GROUP BY.
    pub loose: Option<Rc<str>>,
    /// The table of which it is the column `time`, possibly truncated to a unit.
    pub time_of: Option<&'static Table>,
    /// The column of a public table that it is, and nothing more.
    pub origin: Option<Origin>,
    /// For a condition: what its rows satisfy in the public tables by themselves.
    pub narrowings: Vec<Narrowing>,
}

/// A column of a public table, in one of the places that read the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Origin {
    /// The number of that place.
    pub read: usize,
    pub name: &'static str,
}

/// A comparison of a column with a value that is known before the query runs. It can fail on no row, so it may be
/// evaluated in a public table before the rows of others are filtered out.
#[derive(Debug, Clone)]
pub struct Narrowing {
    pub read: usize,
    pub sql: Fragment,
}

impl Origin {
    /// Returns its name at the place where the table is read.
    pub fn sql(self) -> Fragment {
        let table = Fragment::name('f', self.read);
        Fragment::fill("{0}.{1}", &[&table, &Fragment::quoted(self.name)])
    }
}

impl Typed {
    /// Creates an expression from parts, whose properties it inherits.
    pub fn of(sql: Fragment, ty: Type, parts: &[&Self]) -> Self {
        Self {
            sql,
            ty,
            known: None,
            aggregates: parts.iter().any(|part| part.aggregates),
            windows: parts.iter().any(|part| part.windows),
            loose: parts.iter().find_map(|part| part.loose.clone()),
            time_of: None,
            origin: None,
            narrowings: Vec::new(),
        }
    }

    pub fn fill(template: &'static str, ty: Type, parts: &[&Self]) -> Self {
        let fragments: Vec<_> = parts.iter().map(|part| &part.sql).collect();
        Self::of(Fragment::fill(template, &fragments), ty, parts)
    }

    /// Returns NULL. Postgres requires a type even for NULL.
    pub fn null() -> Self {
        Self::of(Fragment::word("CAST(NULL AS TEXT)"), Type::Null, &[])
    }

    /// Returns a whole number, a time, or a number of units.
    pub fn int(value: i64, ty: Type) -> Self {
        let mut int = Self::of(Fragment::int(value), ty, &[]);
        int.known = Some(Constant::Int(value));
        int
    }

    pub fn text(value: &str) -> Self {
        let mut text = Self::of(Fragment::text(value), Type::Text, &[]);
        text.known = Some(Constant::Text(value.into()));
        text
    }

    pub fn known_int(&self) -> Option<i64> {
        match &self.known {
            Some(Constant::Int(value)) => Some(*value),
            Some(Constant::Text(_)) | None => None,
        }
    }

    pub fn known_text(&self) -> Option<&str> {
        match &self.known {
            Some(Constant::Text(value)) => Some(value),
            Some(Constant::Int(_)) | None => None,
        }
    }

    /// Converts the expression to a condition.
    pub fn truth(self) -> Result<Self> {
        match &self.ty {
            Type::Bool | Type::Flag => Ok(self),
            Type::Null => Ok(Self::fill("CAST({0} AS BOOLEAN)", Type::Flag, &[&self])),
            Type::Int | Type::Float => Ok(Self::fill("({0} <> 0)", Type::Flag, &[&self])),
            other => {
                super::invalid(format!("a condition must be a comparison or a Bool, not {other}"))
            }
        }
    }

    /// Converts the expression to a number. True is 1.
    pub fn number(self, what: &str) -> Result<Self> {
        match &self.ty {
            Type::Int | Type::Float => Ok(self),
            Type::Null => Ok(self.cast_null(&Type::Int)),
            Type::Bool | Type::Flag => {
                Ok(Self::fill("CAST(CAST({0} AS INTEGER) AS BIGINT)", Type::Int, &[&self]))
            }
            other => super::invalid(format!("{what} takes a number, not {other}")),
        }
    }

    /// Converts the expression to a type that [`Type::join`] returned for it.
    pub fn widened(self, to: &Type) -> Result<Self> {
        match (&self.ty, to) {
            (from, to) if from == to => Ok(self),
            (Type::Null, to) => Ok(self.cast_null(to)),
            (Type::Int, Type::Float) => {
                Ok(Self::fill("CAST({0} AS DOUBLE PRECISION)", Type::Float, &[&self]))
            }
            (from, Type::Int) if from.is_truth() => self.number("this"),
            (from, Type::Float) if from.is_truth() => self.number("this")?.widened(to),
            (_, to) => Ok(Self { ty: to.clone(), ..self }),
        }
    }

    /// Returns the expression, cast to a type if it is NULL.
    pub fn or_null_of(self, ty: &Type) -> Self {
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
        Self::fill(template, to.clone(), &[self])
    }
}

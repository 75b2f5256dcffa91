//! Questions in SQL about what happened, for callers who may see a part of it.
//!
//! A caller writes in the dialect of ClickHouse over the public tables ([`tables`]). That text is parsed within
//! bounds ([`parse`]); its tree is taken apart piece by piece, and every piece that is not expressly offered is
//! refused ([`shape`], [`functions`]); what is understood is written anew for the engine ([`fragment`]), which knows no
//! words but those of this program. A query can name nothing but the public tables and its own parts: the tables are
//! views that hold the condition on the workspace inside them ([`views`]), each behind a fence that keeps the caller's
//! expressions from the rows of others ([`from`]). What an expression cannot compute is NULL ([`domain`]), so that it
//! fails on no row.
//!
//! The engines are Postgres, SQLite and ClickHouse itself, from version 18.16 on: what an old one does in other words is
//! written in those, and what it cannot do at all in the words of a new one.
//!
//! Results are what ClickHouse would give but for this: times without a zone are UTC; what a LEFT JOIN does not find,
//! `min` of nothing, division by zero and numbers that are too large are NULL; `uniq` is exact; LIMIT bounds the whole query and is not put into
//! its parts, where it would falsify sums.

mod aggregates;
mod arrays;
mod casts;
mod dates;
mod expr;
mod fragment;
mod from;
mod functions;
mod grammar;
mod labels;
mod literals;
mod numbers;
mod operators;
mod parse;
mod patterns;
mod reply;
mod scope;
mod select;
mod tables;
mod times;
mod translate;
mod type_domains;
mod types;
mod views;

use std::panic;
use std::thread;

pub use reply::{Column, object};
pub use tables::{Family, Grain, TABLES};
pub use types::{SqlDialect, Type};
pub use views::RowScope;

use foundation::error::{Error, QueryFault, Result};
use foundation::model::{BoundQuery, DeliverySnapshot, Retention};
use fragment::Fragment;
use translate::{Rows, Translator};

/// The most parts of a query: expressions, tables, SELECTs.
pub const NODES_MAX: usize = 2_000;
/// How deep parts may stand in each other.
pub const DEPTH_MAX: usize = 100;
/// The most columns that all SELECTs of a query have together.
pub const COLUMNS_MAX: usize = 64;

/// The most bytes of an answer.
pub const ANSWER_MAX_BYTES: usize = 4 * 1024 * 1024;
/// The most bytes of a list: in SQLite of each, in Postgres of all lists of a query together.
pub const LISTS_MAX_BYTES: u64 = 4 * 1024 * 1024;

/// Parser and translator call themselves for what stands inside; their bounds keep them within this.
const STACK_BYTES: usize = 64 * 1024 * 1024;

/// Who asks for what.
#[derive(Debug, Clone)]
pub struct QueryContext {
    pub family: Family,
    pub visible: RowScope,
    /// In unix milliseconds.
    pub now: i64,
    pub retention: Retention,
    /// The most rows of an answer.
    pub rows_max: u64,
    /// The most rows of every SELECT within a query. Absent: whatever they come to, because sums over less than all
    /// rows would be wrong.
    pub inner_rows_max: Option<u64>,
    /// Which rows of ClickHouse count.
    pub delivered: DeliverySnapshot,
}

/// A question that can be put to an engine, and what its answer consists of.
#[derive(Debug, Clone)]
pub struct CompiledQuery {
    /// Gives rows of one column: a JSON list of the columns' values, or NULL where these are too long. That of
    /// ClickHouse gives the columns.
    pub query: BoundQuery,
    pub columns: Vec<Column>,
}

/// Reads a query and writes it for an engine. Whatever the text is, the answer is a query that sees only what it may,
/// or an error that says what is wrong with the text.
pub fn translate(text: &str, engine: SqlDialect, asked: &QueryContext) -> Result<CompiledQuery> {
    thread::scope(|scope| {
        let work = || understood(text, engine, asked);
        let thread = thread::Builder::new().stack_size(STACK_BYTES).spawn_scoped(scope, work);
        let thread = thread.map_err(|e| Error::Internal(format!("no thread for a query: {e}")))?;
        thread.join().unwrap_or_else(|panic| panic::resume_unwind(panic))
    })
}

fn understood(text: &str, engine: SqlDialect, asked: &QueryContext) -> Result<CompiledQuery> {
    let query = parse::parse(text)?;
    let mut translator = Translator::new(engine, asked);
    let rows = translator.query(&query, Some(asked.rows_max))?;
    let columns = answered(&rows)?;
    let sql = match engine {
        SqlDialect::Postgres | SqlDialect::Sqlite => whole(engine, &rows),
        SqlDialect::ClickHouse => rows.sql,
    };
    match sql.render(engine) {
        Some((sql, texts)) => Ok(CompiledQuery { query: BoundQuery { sql, texts }, columns }),
        None => {
            invalid("the query is too large once its names are replaced by what they stand for")
        }
    }
}

/// No two columns of an answer have the same name: one of them would be lost.
fn answered(rows: &Rows) -> Result<Vec<Column>> {
    let mut columns: Vec<Column> = Vec::new();
    for (name, ty) in &rows.columns {
        if columns.iter().any(|column| *column.name == **name) {
            let name = shown(name);
            return invalid(format!("two columns are called {name}: name one of them with AS"));
        }
        columns.push(Column { name: name.to_string(), ty: ty.clone() });
    }
    Ok(columns)
}

/// A SELECT that makes each row a JSON list. ClickHouse makes such lists itself.
fn whole(engine: SqlDialect, rows: &Rows) -> Fragment {
    let values = rows.columns.iter().zip(rows.first..).map(|((_, ty), number)| {
        let value = Fragment::fill("q.{0}", &[&Fragment::name('c', number)]);
        match (engine, ty) {
            (SqlDialect::Sqlite, Type::Array(_)) => Fragment::fill("json({0})", &[&value]),
            // Its JSON has fewer digits than a number, and no word for one without end.
            (SqlDialect::Sqlite, Type::Float) => {
                let template = "CASE WHEN {0} IS NOT NULL THEN printf('%!.17g', {0}) END";
                Fragment::fill(template, &[&value])
            }
            (SqlDialect::Postgres | SqlDialect::Sqlite | SqlDialect::ClickHouse, _) => value,
        }
    });
    let values = Fragment::list(", ", &values.collect::<Vec<_>>());
    let template = if engine == SqlDialect::Sqlite {
        "json_array({0})"
    } else {
        "CAST(json_build_array({0}) AS TEXT)"
    };
    let line = Fragment::fill(template, &[&values]);
    let size = size(engine, rows);
    let longest = Fragment::int(i64::try_from(ANSWER_MAX_BYTES).unwrap_or(i64::MAX));
    let template = "SELECT CASE WHEN {0} <= {1} THEN {2} END AS line FROM ({3}) AS q";
    Fragment::fill(template, &[&size, &longest, &line, &rows.sql])
}

/// The bytes of a row's texts and lists. They are summed before the row is made of them: one list may be selected in
/// every column, and each column would have a copy of it.
fn size(engine: SqlDialect, rows: &Rows) -> Fragment {
    let mut size = Fragment::int(0);
    for ((_, ty), number) in rows.columns.iter().zip(rows.first..) {
        let template = match (engine, ty) {
            (SqlDialect::Postgres, Type::Array(_)) => " + COALESCE(pg_column_size(q.{0}), 0)",
            (_, Type::Text | Type::Array(_)) => " + COALESCE(octet_length(q.{0}), 0)",
            _ => continue,
        };
        size.append(&Fragment::fill(template, &[&Fragment::name('c', number)]));
    }
    size
}

fn fault<T>(fault: QueryFault, message: impl Into<String>) -> Result<T> {
    Err(Error::AnalyticsQuery(fault, message.into()))
}

fn invalid<T>(message: impl Into<String>) -> Result<T> {
    fault(QueryFault::Invalid, message)
}

fn unsupported<T>(what: &str) -> Result<T> {
    fault(QueryFault::Invalid, format!("{what} is not offered"))
}

/// A part of a query, as a message repeats it.
fn shown(text: &str) -> String {
    const LENGTH_MAX: usize = 60;
    let mut shown: String = text.chars().take(LENGTH_MAX).collect();
    if shown.len() < text.len() {
        shown.push('…');
    }
    shown
}

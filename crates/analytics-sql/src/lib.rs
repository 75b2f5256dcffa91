//! Compiles SQL queries about events for callers who may see a part of the rows.
//!
//! A caller writes in the dialect of ClickHouse over the public tables ([`tables`]). The text is parsed within limits
//! ([`parse`]). The syntax tree is then taken apart, and every part that is not explicitly supported is rejected
//! ([`grammar`], [`functions`]). The rest is written again for the engine ([`fragment`]), in SQL that consists of
//! words of this program only. A query can name only the public tables and its own parts. The tables are views with
//! the condition on the workspace inside them ([`views`]), each behind a fence that keeps the caller's expressions
//! away from rows of other workspaces ([`from`]). An expression that cannot be computed is NULL ([`type_domains`]),
//! so it fails on no row.
//!
//! The engines are Postgres, SQLite, and ClickHouse from version 18.16. For ClickHouse, the SQL uses constructs
//! that old versions support where there are any, and newer ones otherwise.
//!
//! Results equal those of ClickHouse with these exceptions: times without a zone are UTC; columns that a LEFT JOIN
//! does not find, `min` of no rows, division by zero and numbers that are too large are NULL; `uniq` is exact; LIMIT
//! bounds the whole query and is not added to its parts, where it would falsify sums.

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

pub use reply::{ResultColumn, row_to_object};
pub use tables::{Family, Grain, TABLES};
pub use types::{SqlDialect, Type};
pub use views::RowScope;

use foundation::error::{Error, QueryErrorKind, Result};
use foundation::model::{BoundQuery, DeliverySnapshot, Retention};
use fragment::Fragment;
use translate::{RowSet, Translator};

/// The maximum number of parts of a query: expressions, tables, SELECTs.
pub const NODES_MAX: usize = 2_000;
/// The maximum depth of nested parts.
pub const DEPTH_MAX: usize = 100;
/// The maximum number of columns of all SELECTs of a query together.
pub const COLUMNS_MAX: usize = 64;

/// The maximum number of windows and of aggregates that sort their values.
pub const SORTS_MAX: usize = 16;

/// The maximum number of times that a query reads a public table in Postgres, which plans every partition of the table
/// each time.
pub const TABLE_READS_MAX: usize = 16;

/// The maximum size of a result, in bytes.
pub const RESULT_MAX_BYTES: usize = 4 * 1024 * 1024;
/// The maximum size of lists, in bytes: in SQLite of each list, in Postgres of all lists of a query together.
pub const LISTS_MAX_BYTES: u64 = 4 * 1024 * 1024;

/// The stack size for parser and translator, which are recursive. Their limits keep them within it.
const STACK_BYTES: usize = 64 * 1024 * 1024;

/// The context of a query: what its caller may see, and its limits.
#[derive(Debug, Clone)]
pub struct QueryContext {
    pub family: Family,
    pub row_scope: RowScope,
    /// In Unix milliseconds.
    pub now_ms: i64,
    pub retention: Retention,
    /// The maximum number of rows in the result.
    pub rows_max: u64,
    /// The maximum number of rows of every nested SELECT. `None`: no limit, because sums over fewer than all rows
    /// would be wrong.
    pub nested_rows_max: Option<u64>,
    /// Which rows in ClickHouse count.
    pub delivery_snapshot: DeliverySnapshot,
}

/// A query that an engine can run, and the columns of its result.
#[derive(Debug, Clone)]
pub struct CompiledQuery {
    /// Returns rows of one column: a JSON list of the values of the columns, or NULL if the row is too long. In
    /// ClickHouse it returns the columns themselves.
    pub query: BoundQuery,
    pub columns: Vec<ResultColumn>,
}

/// Compiles a query for an engine. For any text, the result is a query that sees only permitted rows, or an error
/// that says what is wrong with the text.
pub fn compile(text: &str, engine: SqlDialect, context: &QueryContext) -> Result<CompiledQuery> {
    thread::scope(|scope| {
        let work = || compile_on_thread(text, engine, context);
        let thread = thread::Builder::new().stack_size(STACK_BYTES).spawn_scoped(scope, work);
        let thread = thread
            .map_err(|e| Error::Internal(format!("failed to start the thread of a query: {e}")))?;
        thread.join().unwrap_or_else(|panic| panic::resume_unwind(panic))
    })
}

fn compile_on_thread(
    text: &str,
    engine: SqlDialect,
    context: &QueryContext,
) -> Result<CompiledQuery> {
    let query = parse::parse_query(text)?;
    let mut translator = Translator::new(engine, context);
    let rows = translator.translate_query(&query, Some(context.rows_max))?;
    // The compiled query is counted, because each use of an alias repeats the subqueries in it.
    if engine == SqlDialect::Postgres && rows.sql.table_read_count() > TABLE_READS_MAX {
        return invalid(format!(
            "the query reads tables more than {TABLE_READS_MAX} times; each use of an alias reads those of its subqueries again"
        ));
    }
    let columns = result_columns(&rows)?;
    let sql = match engine {
        SqlDialect::Postgres | SqlDialect::Sqlite => select_json_rows(engine, &rows),
        SqlDialect::ClickHouse => rows.sql,
    };
    match sql.render(engine) {
        Some((sql, texts)) => {
            Ok(CompiledQuery { query: BoundQuery { sql, parameters: texts }, columns })
        }
        None => invalid("the query is too large after its aliases are expanded"),
    }
}

/// Returns the columns of the result. Rejects equal names, because one of the columns would be lost.
fn result_columns(rows: &RowSet) -> Result<Vec<ResultColumn>> {
    let mut columns: Vec<ResultColumn> = Vec::new();
    for (name, ty) in &rows.columns {
        if columns.iter().any(|column| *column.name == **name) {
            let name = excerpt(name);
            return invalid(format!("two columns are named {name}; rename one of them with AS"));
        }
        columns.push(ResultColumn { name: name.to_string(), ty: ty.clone() });
    }
    Ok(columns)
}

/// Returns a SELECT that encodes each row as a JSON list. ClickHouse encodes rows itself.
fn select_json_rows(engine: SqlDialect, rows: &RowSet) -> Fragment {
    let values = rows.columns.iter().zip(rows.first_column..).map(|((_, ty), number)| {
        let value = Fragment::from_template("q.{0}", &[&Fragment::generated_name('c', number)]);
        match (engine, ty) {
            (SqlDialect::Sqlite, Type::Array(_)) => Fragment::from_template("json({0})", &[&value]),
            // Its JSON has fewer digits than a number, and cannot represent infinity.
            (SqlDialect::Sqlite, Type::Float) => {
                let template = "CASE WHEN {0} IS NOT NULL THEN printf('%!.17g', {0}) END";
                Fragment::from_template(template, &[&value])
            }
            (SqlDialect::Postgres | SqlDialect::Sqlite | SqlDialect::ClickHouse, _) => value,
        }
    });
    let values = Fragment::join(", ", &values.collect::<Vec<_>>());
    let template = if engine == SqlDialect::Sqlite {
        "json_array({0})"
    } else {
        "CAST(json_build_array({0}) AS TEXT)"
    };
    let line = Fragment::from_template(template, &[&values]);
    let size = row_size(engine, rows);
    let row_max_bytes = Fragment::int(i64::try_from(RESULT_MAX_BYTES).unwrap_or(i64::MAX));
    let template = "SELECT CASE WHEN {0} <= {1} THEN {2} END AS line FROM ({3}) AS q";
    Fragment::from_template(template, &[&size, &row_max_bytes, &line, &rows.sql])
}

/// Returns the size in bytes of a row's texts and lists. It is computed before the row is built from them: one list
/// may be selected in every column, and each column would hold a copy of it.
fn row_size(engine: SqlDialect, rows: &RowSet) -> Fragment {
    let mut size = Fragment::int(0);
    for ((_, ty), number) in rows.columns.iter().zip(rows.first_column..) {
        let template = match (engine, ty) {
            (SqlDialect::Postgres, Type::Array(_)) => " + COALESCE(pg_column_size(q.{0}), 0)",
            (_, Type::Text | Type::Array(_)) => " + COALESCE(octet_length(q.{0}), 0)",
            _ => continue,
        };
        size.append(&Fragment::from_template(template, &[&Fragment::generated_name('c', number)]));
    }
    size
}

fn query_fault<T>(fault: QueryErrorKind, message: impl Into<String>) -> Result<T> {
    Err(Error::AnalyticsQuery(fault, message.into()))
}

fn invalid<T>(message: impl Into<String>) -> Result<T> {
    query_fault(QueryErrorKind::Invalid, message)
}

fn unsupported<T>(what: &str) -> Result<T> {
    query_fault(QueryErrorKind::Invalid, format!("{what} is not supported"))
}

/// Returns a part of a query as error messages quote it.
fn excerpt(text: &str) -> String {
    const LENGTH_MAX: usize = 60;
    let mut excerpt: String = text.chars().take(LENGTH_MAX).collect();
    if excerpt.len() < text.len() {
        excerpt.push('…');
    }
    excerpt
}

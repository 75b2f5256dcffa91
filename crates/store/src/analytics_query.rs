//! Runs the queries of callers about events: within limits, on connections that only read.
//!
//! A query only says which rows it returns; who may see them has been decided before. The messages of an engine are
//! not passed on, because they refer to a query that its author has never seen.

use std::borrow::Cow;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use foundation::clock::Stopwatch;
use foundation::error::{self, Error, QueryErrorKind, Result};
use foundation::model::{BoundQuery, SqlDialect};
use futures_util::future::BoxFuture;
use futures_util::{Stream, StreamExt as _};
use sqlx::{AssertSqlSafe, Postgres, Sqlite, SqlitePool, Transaction};
use tracing::debug;

use super::events::{EventDatabase, EventStore};
use super::{disk, postgres};

/// The limits of a query.
#[derive(Debug, Clone, Copy)]
pub struct QueryLimits {
    pub timeout: Duration,
    /// Of all rows together.
    pub result_max_bytes: usize,
    /// By how much the process of an embedded server may grow.
    pub memory_max_bytes: u64,
    /// The free space that temporary files of an embedded server leave, on the disk of its data and on their own.
    pub disk_reserve_bytes: u64,
    /// For Postgres, which has no memory limit for a query: the maximum number of values in a list of distinct ones,
    /// of bytes in all lists and the distinct values after IN together, and of rows that all joins together return.
    pub list_items_max: u64,
    pub lists_max_bytes: u64,
    pub joined_rows_max: u64,
}

impl EventStore {
    /// Returns the rows of a query, each as text.
    pub fn run_query<'a>(
        &'a self,
        query: &'a BoundQuery,
        limits: &'a QueryLimits,
    ) -> BoxFuture<'a, Result<Vec<String>>> {
        // Boxed, so that the drivers are compiled once, here.
        Box::pin(async move {
            match (self.clickhouse(), &self.database) {
                (Some(clickhouse), _) => clickhouse.run_query(query, limits).await,
                (None, EventDatabase::Postgres { analytics: ask, .. }) => {
                    query_postgres(postgres::begin(ask).await?, query, limits).await
                }
                (None, EventDatabase::Sqlite { analytics: ask, .. }) => {
                    query_sqlite(ask, query, limits).await
                }
            }
        })
    }

    /// Returns the dialect in which queries are written.
    pub fn sql_dialect(&self) -> SqlDialect {
        match (self.clickhouse(), &self.database) {
            (Some(_), _) => SqlDialect::ClickHouse,
            (None, EventDatabase::Postgres { .. }) => SqlDialect::Postgres,
            (None, EventDatabase::Sqlite { .. }) => SqlDialect::Sqlite,
        }
    }
}

/// Sets what a query may use in the database of a replica: to sort and to group, and on disk. The query sorts and
/// merges, which Postgres does on disk: a hash table may have to be in memory as a whole, such as one for a join
/// whose rows all share a key.
const POSTGRES_LIMITS_SQL: &str = "
    SELECT set_config('transaction_read_only', 'on', TRUE),
        set_config('statement_timeout', $1, TRUE),
        set_config('lock_timeout', $1, TRUE),
        set_config('work_mem', '16MB', TRUE),
        set_config('max_parallel_workers_per_gather', '0', TRUE),
        set_config('jit', 'off', TRUE),
        set_config('enable_hashjoin', 'off', TRUE),
        set_config('enable_hashagg', 'off', TRUE),
        set_config('keyward.list_items_max', $2, TRUE),
        set_config('keyward.list_bytes_left', $3, TRUE),
        set_config('keyward.joined_rows_left', $4, TRUE),
        CASE WHEN (SELECT rolsuper FROM pg_roles WHERE rolname = current_user)
            THEN set_config('temp_file_limit', '1GB', TRUE)
        END";

/// Returns the rows of a query in Postgres, each as text. The transaction ends with it.
pub async fn query_postgres(
    mut tx: Transaction<'static, Postgres>,
    query: &BoundQuery,
    limits: &QueryLimits,
) -> Result<Vec<String>> {
    sqlx::query(POSTGRES_LIMITS_SQL)
        .bind(limits.timeout.as_millis().to_string())
        .bind(limits.list_items_max.to_string())
        .bind(limits.lists_max_bytes.to_string())
        .bind(limits.joined_rows_max.to_string())
        .execute(&mut *tx)
        .await?;
    let mut statement = sqlx::query_scalar::<Postgres, Option<String>>(AssertSqlSafe(&*query.sql));
    for text in &query.parameters {
        statement = statement.bind(text);
    }
    let rows = statement.persistent(false).fetch(&mut *tx);
    let rows = collect_rows(rows, limits).await.map_err(|e| sql_query_error(e, limits, None))?;
    tx.rollback().await?;
    Ok(rows)
}

/// Disables features of SQLite that are not needed.
const SQLITE_LIMITS_SQL: &str = "
    PRAGMA query_only = ON;
    PRAGMA trusted_schema = OFF;
    PRAGMA cache_size = -16000;";

/// The number of steps that SQLite makes before it asks whether to continue. A step that copies a list takes a
/// millisecond.
const PROGRESS_STEPS: i32 = 100;

/// The interval between checks of memory and disk, which take some 30 µs.
const CHECK_INTERVAL: Duration = Duration::from_millis(1);

/// Returns the rows of a query in SQLite, each as text. The connection is used for nothing else and closed: what
/// stops this query must not stop another one.
pub async fn query_sqlite(
    pool: &SqlitePool,
    query: &BoundQuery,
    limits: &QueryLimits,
) -> Result<Vec<String>> {
    let mut connection = pool.acquire().await?;
    connection.close_on_drop();
    let options = pool.connect_options();
    // SQLite sorts large data on disk, or in memory if the disk is full already.
    let disks =
        Some(TempFileDisks::new(options.get_filename(), limits)).filter(TempFileDisks::has_room);
    let temp_store = match disks {
        Some(_) => "PRAGMA temp_store = FILE;",
        None => "PRAGMA temp_store = MEMORY;",
    };
    sqlx::raw_sql(SQLITE_LIMITS_SQL).execute(&mut *connection).await?;
    sqlx::raw_sql(temp_store).execute(&mut *connection).await?;
    let interrupt = QueryInterrupt::new();
    let handler = interrupt.progress_handler(limits, disks);
    connection.lock_handle().await?.set_progress_handler(PROGRESS_STEPS, handler);
    let mut statement = sqlx::query_scalar::<Sqlite, Option<String>>(AssertSqlSafe(&*query.sql));
    for text in &query.parameters {
        statement = statement.bind(text);
    }
    let rows = statement.persistent(false).fetch(&mut *connection);
    collect_rows(rows, limits).await.map_err(|e| sql_query_error(e, limits, Some(&interrupt)))
}

/// The disks that temporary files of SQLite could fill.
struct TempFileDisks {
    data: PathBuf,
    temp: PathBuf,
    reserve_bytes: u64,
}

impl TempFileDisks {
    fn new(file: &Path, limits: &QueryLimits) -> Self {
        Self {
            data: file.parent().map(Path::to_owned).unwrap_or_default(),
            temp: disk::sqlite_temp_directory(),
            reserve_bytes: limits.disk_reserve_bytes,
        }
    }

    fn has_room(&self) -> bool {
        let free = [&self.data, &self.temp].into_iter().filter_map(|path| disk::free_bytes(path));
        free.min().is_none_or(|free| free >= self.reserve_bytes)
    }
}

/// Stops a statement of SQLite: because of its time, its memory or the disk, or because its caller no longer waits.
struct QueryInterrupt {
    is_abandoned: Arc<AtomicBool>,
    exceeded_memory: Arc<AtomicBool>,
    exceeded_disk: Arc<AtomicBool>,
}

impl QueryInterrupt {
    fn new() -> Self {
        Self {
            is_abandoned: Arc::default(),
            exceeded_memory: Arc::default(),
            exceeded_disk: Arc::default(),
        }
    }

    /// Returns a function that decides whether to continue.
    fn progress_handler(
        &self,
        limits: &QueryLimits,
        disks: Option<TempFileDisks>,
    ) -> impl FnMut() -> bool + Send + 'static {
        let is_abandoned = self.is_abandoned.clone();
        let (exceeded_memory, exceeded_disk) =
            (self.exceeded_memory.clone(), self.exceeded_disk.clone());
        let (running, time) = (Stopwatch::new(), limits.timeout);
        let max = read_resident_bytes().map(|now| now.saturating_add(limits.memory_max_bytes));
        let mut next_check = Duration::ZERO;
        move || {
            let elapsed = running.elapsed();
            if elapsed >= time || is_abandoned.load(Ordering::Relaxed) {
                return false;
            }
            if elapsed < next_check {
                return true;
            }
            next_check = elapsed + CHECK_INTERVAL;
            if max.zip(read_resident_bytes()).is_some_and(|(max, now)| now > max) {
                exceeded_memory.store(true, Ordering::Relaxed);
                return false;
            }
            if disks.as_ref().is_some_and(|disks| !disks.has_room()) {
                exceeded_disk.store(true, Ordering::Relaxed);
                return false;
            }
            true
        }
    }
}

impl Drop for QueryInterrupt {
    fn drop(&mut self) {
        self.is_abandoned.store(true, Ordering::Relaxed);
    }
}

/// Returns the memory of this process, if the operating system reports it.
fn read_resident_bytes() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    line.trim().strip_suffix(" kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

enum QueryFailure {
    Engine(sqlx::Error),
    ResultTooLarge,
}

/// Collects rows. A row that is NULL was too long by itself.
async fn collect_rows(
    rows: impl Stream<Item = sqlx::Result<Option<String>>>,
    limits: &QueryLimits,
) -> std::result::Result<Vec<String>, QueryFailure> {
    let mut rows = std::pin::pin!(rows);
    let (mut collected, mut bytes) = (Vec::new(), 0);
    while let Some(row) = rows.next().await {
        let Some(row) = row.map_err(QueryFailure::Engine)? else {
            return Err(QueryFailure::ResultTooLarge);
        };
        bytes += row.len();
        if bytes > limits.result_max_bytes {
            return Err(QueryFailure::ResultTooLarge);
        }
        collected.push(row);
    }
    Ok(collected)
}

/// Maps an error to the one that the author of the query sees.
fn sql_query_error(
    failed: QueryFailure,
    limits: &QueryLimits,
    interrupt: Option<&QueryInterrupt>,
) -> Error {
    let QueryFailure::Engine(cause) = failed else {
        let max = limits.result_max_bytes;
        let message = format!(
            "the result is larger than {max} bytes; select fewer columns, or fewer rows with LIMIT"
        );
        return Error::AnalyticsQuery(QueryErrorKind::Memory, message);
    };
    let sqlx::Error::Database(refusal) = &cause else { return Error::Store(cause) };
    let code = primary_code(refusal.code().unwrap_or_default());
    debug!(cause = %refusal, "failed to run a query");
    let exceeded_memory =
        interrupt.is_some_and(|interrupt| interrupt.exceeded_memory.load(Ordering::Relaxed));
    let exceeded_disk =
        interrupt.is_some_and(|interrupt| interrupt.exceeded_disk.load(Ordering::Relaxed));
    let (fault, message) = match &*code {
        "9" if exceeded_disk => (
            QueryErrorKind::Memory,
            "the query took more disk space than is free; query a shorter period or fewer rows",
        ),
        "57014" | "55P03" | "9" if !exceeded_memory => (
            QueryErrorKind::Timeout,
            "the query took too long; query a shorter period or fewer rows",
        ),
        "53200" | "53400" | "54000" | "7" | "9" | "18" => (
            QueryErrorKind::Memory,
            "the query took too much memory; query a shorter period or fewer rows",
        ),
        "KW001" => return Error::AnalyticsQuery(QueryErrorKind::Memory, lists_too_large(limits)),
        "KW002" => {
            return Error::AnalyticsQuery(QueryErrorKind::Rows, too_many_joined_rows(limits));
        }
        // The tables and functions are not created yet, or the role is not granted access to them yet.
        "42P01" | "42883" | "42501" | "3F000" | "14" => return Error::StoreNotReady,
        _ if refusal.message().starts_with("no such table") => return Error::StoreNotReady,
        "22003" => (QueryErrorKind::Invalid, "a number in the query is out of range"),
        "21000" => {
            (QueryErrorKind::Invalid, "a query that is used as a value returned more than one row")
        }
        "22P02" | "22030" | "22032" => {
            (QueryErrorKind::Invalid, "a string is not in the format that it is parsed as")
        }
        _ if refusal.message() == "integer overflow" => {
            (QueryErrorKind::Invalid, "a number in the query is out of range")
        }
        code if error::is_database_outage(&cause) || is_file_error(code) => {
            return Error::Store(cause);
        }
        _ => (QueryErrorKind::Invalid, "the database cannot run this query"),
    };
    Error::AnalyticsQuery(fault, message.to_owned())
}

fn lists_too_large(limits: &QueryLimits) -> String {
    let (items, bytes) = (limits.list_items_max, limits.lists_max_bytes);
    format!(
        "the lists of the query and the values after IN contain more than {bytes} bytes, or a list of groupUniqArray more than {items} values; collect less"
    )
}

fn too_many_joined_rows(limits: &QueryLimits) -> String {
    let rows = limits.joined_rows_max;
    format!("the joins of the query return more than {rows} rows; join less, or aggregate before")
}

/// Returns a SQLSTATE, which has five characters, or the low byte of a code of SQLite.
fn primary_code(code: Cow<'_, str>) -> Cow<'_, str> {
    match code.parse::<u32>() {
        Ok(number) if code.len() < 5 => (number & 0xff).to_string().into(),
        Ok(_) | Err(_) => code,
    }
}

/// Returns whether SQLite found its file damaged, or did not find it.
fn is_file_error(code: &str) -> bool {
    ["6", "8", "10", "11", "13", "26"].contains(&code)
}

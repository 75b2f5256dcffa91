//! Questions about events that somebody else has written: run within bounds, by connections that only read.
//!
//! A question says nothing of itself but which rows it gives: who may see what has been decided before. What an engine
//! says when it fails is not passed on, because it speaks of a query that its author has never seen.

use std::borrow::Cow;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use foundation::clock::Stopwatch;
use foundation::error::{self, Error, QueryFault, Result};
use foundation::model::{BoundQuery, SqlDialect};
use futures_util::{Stream, StreamExt as _};
use sqlx::{AssertSqlSafe, PgPool, Postgres, Sqlite, SqlitePool};
use tracing::debug;

use super::events::{EventDatabase, EventStore};
use super::{disk, postgres};

/// How much a question may take.
#[derive(Debug, Clone, Copy)]
pub struct QueryLimits {
    pub time: Duration,
    /// Of all rows together.
    pub answer_max_bytes: usize,
    /// By which the process of an embedded server may grow.
    pub memory_max_bytes: u64,
    /// What temporary files of an embedded server leave free, on the disk of its data and on their own.
    pub disk_reserve_bytes: u64,
    /// In Postgres, which has no bound of memory for a query: how many values a list of different ones may hold, how
    /// many bytes all lists and the different values after IN together, and how many rows all joins together may give.
    pub list_items_max: u64,
    pub lists_max_bytes: u64,
    pub joined_rows_max: u64,
}

impl EventStore {
    /// The rows that a question yields, each a text.
    pub async fn run_query(&self, query: &BoundQuery, bounds: &QueryLimits) -> Result<Vec<String>> {
        match (self.clickhouse(), &self.tables) {
            (Some(clickhouse), _) => clickhouse.ask(query, bounds).await,
            (None, EventDatabase::Postgres { ask, .. }) => {
                ask_postgres(&ask.get(), query, bounds).await
            }
            (None, EventDatabase::Sqlite { ask, .. }) => ask_sqlite(ask, query, bounds).await,
        }
    }

    /// What questions are written for.
    pub fn engine(&self) -> SqlDialect {
        match (self.clickhouse(), &self.tables) {
            (Some(_), _) => SqlDialect::ClickHouse,
            (None, EventDatabase::Postgres { .. }) => SqlDialect::Postgres,
            (None, EventDatabase::Sqlite { .. }) => SqlDialect::Sqlite,
        }
    }
}

/// What a replica's database gives a question: to sort and to group, and on its disk. It sorts and merges, which it does
/// on disk: a hash table may have to be in memory as a whole, such as one for a join whose rows all share a key.
const LIMIT_POSTGRES: &str = "
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

/// The rows, each a text.
pub async fn ask_postgres(
    pool: &PgPool,
    query: &BoundQuery,
    bounds: &QueryLimits,
) -> Result<Vec<String>> {
    let mut tx = postgres::begin(pool).await?;
    sqlx::query(LIMIT_POSTGRES)
        .bind(bounds.time.as_millis().to_string())
        .bind(bounds.list_items_max.to_string())
        .bind(bounds.lists_max_bytes.to_string())
        .bind(bounds.joined_rows_max.to_string())
        .execute(&mut *tx)
        .await?;
    let mut question = sqlx::query_scalar::<Postgres, Option<String>>(AssertSqlSafe(&*query.sql));
    for text in &query.texts {
        question = question.bind(text);
    }
    let rows = question.persistent(false).fetch(&mut *tx);
    let rows = gathered(rows, bounds).await.map_err(|e| sql_query_error(e, bounds, None))?;
    tx.rollback().await?;
    Ok(rows)
}

/// Opens no door of SQLite's that is not needed.
const LIMIT_SQLITE: &str = "
    PRAGMA query_only = ON;
    PRAGMA trusted_schema = OFF;
    PRAGMA cache_size = -16000;";

/// How many steps SQLite makes before it is asked whether it may go on. A step that copies a list takes a millisecond.
const STEPS: i32 = 100;

/// How often memory and disk are looked at, which takes some 30 µs.
const LOOK_EVERY: Duration = Duration::from_millis(1);

/// The rows, each a text. The connection is used for nothing else and closed: what stops the question must not stop
/// another one.
pub async fn ask_sqlite(
    pool: &SqlitePool,
    query: &BoundQuery,
    bounds: &QueryLimits,
) -> Result<Vec<String>> {
    let mut connection = pool.acquire().await?;
    connection.close_on_drop();
    let options = pool.connect_options();
    // It sorts on disk what is large, or in memory where the disk is full already.
    let disks = Some(Disks::new(options.get_filename(), bounds)).filter(Disks::have_room);
    let temp_store = match disks {
        Some(_) => "PRAGMA temp_store = FILE;",
        None => "PRAGMA temp_store = MEMORY;",
    };
    sqlx::raw_sql(LIMIT_SQLITE).execute(&mut *connection).await?;
    sqlx::raw_sql(temp_store).execute(&mut *connection).await?;
    let stop = QueryInterrupt::new();
    let handler = stop.handler(bounds, disks);
    connection.lock_handle().await?.set_progress_handler(STEPS, handler);
    let mut question = sqlx::query_scalar::<Sqlite, Option<String>>(AssertSqlSafe(&*query.sql));
    for text in &query.texts {
        question = question.bind(text);
    }
    let rows = question.persistent(false).fetch(&mut *connection);
    gathered(rows, bounds).await.map_err(|e| sql_query_error(e, bounds, Some(&stop)))
}

/// The disks that temporary files of SQLite could fill.
struct Disks {
    data: PathBuf,
    temp: PathBuf,
    reserve_bytes: u64,
}

impl Disks {
    fn new(file: &Path, bounds: &QueryLimits) -> Self {
        Self {
            data: file.parent().map(Path::to_owned).unwrap_or_default(),
            temp: disk::sqlite_temp_directory(),
            reserve_bytes: bounds.disk_reserve_bytes,
        }
    }

    fn have_room(&self) -> bool {
        let free = [&self.data, &self.temp].into_iter().filter_map(|path| disk::free_bytes(path));
        free.min().is_none_or(|free| free >= self.reserve_bytes)
    }
}

/// What stops a statement of SQLite: its time, its memory, the disk, or that nobody waits for it any more.
struct QueryInterrupt {
    is_unwanted: Arc<AtomicBool>,
    took_memory: Arc<AtomicBool>,
    took_disk: Arc<AtomicBool>,
}

impl QueryInterrupt {
    fn new() -> Self {
        Self { is_unwanted: Arc::default(), took_memory: Arc::default(), took_disk: Arc::default() }
    }

    /// Tells whether to go on.
    fn handler(
        &self,
        bounds: &QueryLimits,
        disks: Option<Disks>,
    ) -> impl FnMut() -> bool + Send + 'static {
        let is_unwanted = self.is_unwanted.clone();
        let (took_memory, took_disk) = (self.took_memory.clone(), self.took_disk.clone());
        let (running, time) = (Stopwatch::new(), bounds.time);
        let most = resident_bytes().map(|now| now.saturating_add(bounds.memory_max_bytes));
        let mut next_look = Duration::ZERO;
        move || {
            let elapsed = running.elapsed();
            if elapsed >= time || is_unwanted.load(Ordering::Relaxed) {
                return false;
            }
            if elapsed < next_look {
                return true;
            }
            next_look = elapsed + LOOK_EVERY;
            if most.zip(resident_bytes()).is_some_and(|(most, now)| now > most) {
                took_memory.store(true, Ordering::Relaxed);
                return false;
            }
            if disks.as_ref().is_some_and(|disks| !disks.have_room()) {
                took_disk.store(true, Ordering::Relaxed);
                return false;
            }
            true
        }
    }
}

impl Drop for QueryInterrupt {
    fn drop(&mut self) {
        self.is_unwanted.store(true, Ordering::Relaxed);
    }
}

/// How much memory this process has, where the system tells.
fn resident_bytes() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    line.trim().strip_suffix(" kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

enum QueryFailure {
    Engine(sqlx::Error),
    TooLarge,
}

/// A row that is NULL was too long by itself.
async fn gathered(
    rows: impl Stream<Item = sqlx::Result<Option<String>>>,
    bounds: &QueryLimits,
) -> std::result::Result<Vec<String>, QueryFailure> {
    let mut rows = std::pin::pin!(rows);
    let (mut gathered, mut bytes) = (Vec::new(), 0);
    while let Some(row) = rows.next().await {
        let Some(row) = row.map_err(QueryFailure::Engine)? else {
            return Err(QueryFailure::TooLarge);
        };
        bytes += row.len();
        if bytes > bounds.answer_max_bytes {
            return Err(QueryFailure::TooLarge);
        }
        gathered.push(row);
    }
    Ok(gathered)
}

/// What the author of the question is told.
fn sql_query_error(
    failed: QueryFailure,
    bounds: &QueryLimits,
    stop: Option<&QueryInterrupt>,
) -> Error {
    let QueryFailure::Engine(cause) = failed else {
        let most = bounds.answer_max_bytes;
        let message = format!(
            "the answer is larger than {most} bytes: select fewer columns, or fewer rows with LIMIT"
        );
        return Error::AnalyticsQuery(QueryFault::Memory, message);
    };
    let sqlx::Error::Database(refusal) = &cause else { return Error::Store(cause) };
    let code = primary(refusal.code().unwrap_or_default());
    debug!(cause = %refusal, "an engine did not answer a question");
    let took_memory = stop.is_some_and(|stop| stop.took_memory.load(Ordering::Relaxed));
    let took_disk = stop.is_some_and(|stop| stop.took_disk.load(Ordering::Relaxed));
    let (fault, message) = match &*code {
        "9" if took_disk => (
            QueryFault::Memory,
            "the query took more of the disk than is free for it: ask for less at once",
        ),
        "57014" | "55P03" | "9" if !took_memory => {
            (QueryFault::Timeout, "the query took too long: ask for less time or fewer rows")
        }
        "53200" | "53400" | "54000" | "7" | "9" | "18" => {
            (QueryFault::Memory, "the query took too much memory: ask for less at once")
        }
        "KW001" => return Error::AnalyticsQuery(QueryFault::Memory, too_long(bounds)),
        "KW002" => return Error::AnalyticsQuery(QueryFault::Rows, too_many(bounds)),
        // The tables and functions are yet to be made, or the role is yet to be allowed to read them.
        "42P01" | "42883" | "42501" | "3F000" | "14" => return Error::StoreNotReady,
        _ if refusal.message().starts_with("no such table") => return Error::StoreNotReady,
        "22003" => (QueryFault::Invalid, "a number in the query is out of range"),
        "21000" => (QueryFault::Invalid, "a query that stands for a value gave more than one row"),
        "22P02" | "22030" | "22032" => (QueryFault::Invalid, "a text is not what it is read as"),
        _ if refusal.message() == "integer overflow" => {
            (QueryFault::Invalid, "a number in the query is out of range")
        }
        code if error::is_outage(&cause) || is_broken(code) => return Error::Store(cause),
        _ => (QueryFault::Invalid, "the database cannot run this query"),
    };
    Error::AnalyticsQuery(fault, message.to_owned())
}

fn too_long(bounds: &QueryLimits) -> String {
    let (items, bytes) = (bounds.list_items_max, bounds.lists_max_bytes);
    format!(
        "the lists of the query and the values after IN hold more than {bytes} bytes, or a list of groupUniqArray more than {items} values: gather less"
    )
}

fn too_many(bounds: &QueryLimits) -> String {
    let rows = bounds.joined_rows_max;
    format!("the joins of the query give more than {rows} rows: join less, or sum up before")
}

/// A SQLSTATE, which has five characters, or the first byte of a code of SQLite.
fn primary(code: Cow<'_, str>) -> Cow<'_, str> {
    match code.parse::<u32>() {
        Ok(number) if code.len() < 5 => (number & 0xff).to_string().into(),
        Ok(_) | Err(_) => code,
    }
}

/// Whether SQLite found its file in disorder, or not at all.
fn is_broken(code: &str) -> bool {
    ["6", "8", "10", "11", "13", "26"].contains(&code)
}

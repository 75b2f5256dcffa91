//! The SQLite dialect: how to open, how to begin, and the few words that differ from Postgres.

use std::path::Path;
use std::time::Duration;

use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePoolOptions, SqliteSynchronous};
use sqlx::{Sqlite, SqlitePool, Transaction};

/// The items of a JSON list as rows with one column, `item`.
macro_rules! items {
    ($list:literal) => {
        concat!("(SELECT value AS item FROM json_each(", $list, ")) AS items")
    };
}
/// The strings of a JSON list as rows with one column, `item`.
macro_rules! texts {
    ($list:literal) => {
        concat!("(SELECT value AS item FROM json_each(", $list, ")) AS texts")
    };
}
/// All values of an expression as one JSON list.
macro_rules! array {
    ($value:expr) => {
        concat!("json_group_array(", $value, ")")
    };
}
macro_rules! object {
    ($fields:literal) => {
        concat!("json_object(", $fields, ")")
    };
}
/// The database's own time in unix milliseconds.
macro_rules! now_ms {
    () => {
        "CAST(unixepoch('subsec') * 1000 AS INTEGER)"
    };
}
/// The number below which every transaction has ended; here they come one after the other.
macro_rules! transactions_ended_below {
    () => {
        "0"
    };
}
/// As [`transactions_ended_below`].
macro_rules! writers_ended_below {
    () => {
        "0"
    };
}
/// The number of the next transaction; here they come one after the other.
macro_rules! next_transaction {
    () => {
        "0"
    };
}
/// The last position of the change log.
macro_rules! last_position {
    () => {
        "COALESCE((SELECT MAX(seq) FROM changes), 0)"
    };
}
/// Whether a text holds another one.
macro_rules! contains {
    ($text:literal, $part:literal) => {
        concat!("instr(", $text, ", ", $part, ") > 0")
    };
}
/// Keeps the selected rows from being deleted until the transaction ends, as `locked!` does.
macro_rules! held {
    ($select:expr) => {
        $select
    };
}
/// Holds the selected row until the transaction ends; `BEGIN IMMEDIATE` does that already.
macro_rules! locked {
    ($select:expr) => {
        $select
    };
}
/// As `locked!`.
macro_rules! locked_but_key {
    ($select:expr) => {
        $select
    };
}
/// As `locked!`: nobody else holds anything.
macro_rules! claimed {
    ($select:expr) => {
        $select
    };
}
/// A number higher than that of any lease, and of any replica that was counted out.
macro_rules! next_number {
    () => {
        "(SELECT 1 + MAX(COALESCE((SELECT MAX(number) FROM purses), 0),
            COALESCE((SELECT MAX(gone) FROM replicas), 0)))"
    };
}

/// The bytes that a text tells in hexadecimal.
macro_rules! bytes {
    ($text:literal) => {
        concat!("unhex(", $text, ")")
    };
}
/// The truth of `true` and `false`, in JSON or as a text.
macro_rules! flag {
    ($text:literal) => {
        concat!("(", $text, " IN (1, 'true'))")
    };
}
/// The beginning of the month (UTC) of a time, both in unix milliseconds.
macro_rules! month_of {
    ($time:literal) => {
        concat!(
            "CAST(strftime('%s', ",
            $time,
            " / 1000, 'unixepoch', 'start of month') AS INTEGER) * 1000"
        )
    };
}

#[expect(clippy::duplicate_mod, reason = "compiled once for each engine")]
#[path = "queries/mod.rs"]
mod queries;

type Connection = sqlx::SqliteConnection;

/// How the file is opened. Nothing that has been acknowledged is lost, power cut included: that is what `FULL` is for.
pub fn options(path: &Path) -> SqliteConnectOptions {
    SqliteConnectOptions::new()
        .filename(path)
        .create_if_missing(true)
        .journal_mode(SqliteJournalMode::Wal)
        .synchronous(SqliteSynchronous::Full)
        .foreign_keys(true)
        .busy_timeout(Duration::from_secs(5))
}

/// Connections that read. What writes is the [`Writer`](super::writer::Writer).
pub async fn open(options: SqliteConnectOptions) -> sqlx::Result<SqlitePool> {
    SqlitePoolOptions::new()
        .max_connections(8)
        .acquire_timeout(Duration::from_secs(5))
        .test_before_acquire(false)
        .connect_with(options)
        .await
}

/// Connections on which nothing can be written, to a file that is there. They are made when they are first needed.
///
/// Where no log of changes stands beside the file, nobody has it open. Then no connection makes one either: it would
/// stay behind, and belong to whoever looked.
pub fn open_read_only(path: &Path) -> SqlitePool {
    let mut log = path.as_os_str().to_owned();
    log.push("-wal");
    let is_used = Path::new(&log).exists();
    let options = SqliteConnectOptions::new()
        .filename(path)
        .read_only(true)
        .immutable(!is_used)
        .busy_timeout(Duration::from_secs(5));
    SqlitePoolOptions::new()
        .max_connections(2)
        .acquire_timeout(Duration::from_secs(5))
        .connect_lazy_with(options)
}

/// One connection that writes events, some that only read them, and some that answer questions. They are made when they are first needed. What
/// was written last may be gone after a power cut, though never after a crash of the process.
pub fn event_pools(path: &Path) -> [SqlitePool; 3] {
    let options = SqliteConnectOptions::new().filename(path).busy_timeout(Duration::from_secs(5));
    let pool = |connections_max, options| {
        SqlitePoolOptions::new()
            .max_connections(connections_max)
            .acquire_timeout(Duration::from_secs(5))
            .connect_lazy_with(options)
    };
    let writing = options
        .clone()
        .create_if_missing(true)
        .journal_mode(SqliteJournalMode::Wal)
        .synchronous(SqliteSynchronous::Normal);
    let reading = options.read_only(true);
    [pool(1, writing), pool(2, reading.clone()), pool(2, reading)]
}

/// Takes the write lock at once: a transaction that reads first and wants it later fails when
/// another one was faster, however long it is ready to wait.
#[expect(clippy::disallowed_methods, reason = "this is what Events::begin calls")]
pub async fn begin(pool: &SqlitePool) -> sqlx::Result<Transaction<'static, Sqlite>> {
    pool.begin_with("BEGIN IMMEDIATE").await
}

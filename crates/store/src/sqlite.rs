//! Implements the SQLite dialect: opening files, beginning transactions, and the SQL that differs from Postgres.

use std::fs::OpenOptions;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::time::Duration;

use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePoolOptions, SqliteSynchronous};
use sqlx::{Sqlite, SqlitePool, Transaction};

use super::index_pattern::to_fts_pattern as to_index_pattern;

/// Returns the items of a JSON list as rows with one column, `item`.
macro_rules! items {
    ($list:literal) => {
        concat!("(SELECT value AS item FROM json_each(", $list, ")) AS items")
    };
}
/// Returns the strings of a JSON list as rows with one column, `item`.
macro_rules! texts {
    ($list:literal) => {
        concat!("(SELECT value AS item FROM json_each(", $list, ")) AS texts")
    };
}
/// Returns the strings of a JSON list in a column of a table on its left as rows with one column, `value`.
macro_rules! texts_of {
    ($list:literal) => {
        concat!("json_each(", $list, ")")
    };
}
/// Tests whether a text is one of a JSON list.
macro_rules! is_one_of {
    ($list:literal) => {
        concat!("IN (SELECT value FROM json_each(", $list, "))")
    };
}
/// Tests whether a text is that of this field in one of the items of a JSON list.
macro_rules! is_in_items {
    ($list:literal, $field:literal) => {
        concat!("IN (SELECT value ->> '", $field, "' FROM json_each(", $list, "))")
    };
}
/// Tests whether a flag is not set, in the form of the index on such rows.
macro_rules! is_pending {
    ($flag:literal) => {
        concat!($flag, " = 0")
    };
}
/// Aggregates the values of an expression into one JSON list.
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
/// Returns the fields of a JSON object as rows with the columns `key` and `value`.
macro_rules! fields_of {
    ($object:expr) => {
        concat!("json_each(", $object, ")")
    };
}
/// Aggregates names and values into one JSON object.
macro_rules! object_of {
    ($name:literal, $value:literal) => {
        concat!("json_group_object(", $name, ", ", $value, ")")
    };
}
/// Returns the time of the database's clock in Unix milliseconds.
macro_rules! now_ms {
    () => {
        "CAST(unixepoch('subsec') * 1000 AS INTEGER)"
    };
}
/// Returns a transaction number: every transaction with a smaller one has ended. Always 0, because SQLite runs write
/// transactions one at a time.
macro_rules! transactions_ended_below {
    () => {
        "0"
    };
}
/// Like [`transactions_ended_below`].
macro_rules! writers_ended_below {
    () => {
        "0"
    };
}
/// Returns the number of the next transaction. Always 0, because SQLite runs write transactions one at a time.
macro_rules! next_transaction {
    () => {
        "0"
    };
}
/// Returns the last assigned position of the change log.
macro_rules! last_position {
    () => {
        "COALESCE((SELECT MAX(seq) FROM changes), 0)"
    };
}
/// Returns whether a text contains another one.
macro_rules! contains {
    ($text:literal, $part:literal) => {
        concat!("instr(", $text, ", ", $part, ") > 0")
    };
}
/// Returns the rows of a table, as `e`, that a condition selects for each `item` of a JSON list.
macro_rules! rows_of_items {
    ($list:literal, $table:literal, $columns:literal, $condition:literal) => {
        concat!(items!($list), " CROSS JOIN ", $table, " e ON ", $condition)
    };
}
/// Returns batches, as `b`, and the events of each, as `e`.
macro_rules! events_of_batches {
    ($table:literal, $columns:literal) => {
        concat!(
            "batches b CROSS JOIN ",
            $table,
            " e ON e.batch = b.id AND e.time BETWEEN b.first_at AND b.last_at"
        )
    };
}
/// Returns the events, as `e`, of each span of time of a JSON list.
macro_rules! events_of_spans {
    ($list:literal, $table:literal, $columns:literal) => {
        rows_of_items!(
            $list,
            $table,
            $columns,
            "e.time >= CAST(item ->> 0 AS BIGINT) AND e.time < CAST(item ->> 1 AS BIGINT)"
        )
    };
}
/// Joins the series of events `e`, as `s`, whose id is the series of the event.
macro_rules! with_series {
    ($table:literal) => {
        concat!(" CROSS JOIN ", $table, " s")
    };
}
/// Compares a text by its bytes, as every comparison here does.
macro_rules! in_default_collation {
    ($column:literal) => {
        $column
    };
}
/// Selects from the audit entries with a target of this id or name, as `a`.
macro_rules! entries_of_target {
    ($target:literal) => {
        concat!(
            "audit_targets t CROSS JOIN audit a WHERE t.target = ",
            $target,
            " AND a.id = t.entry_id"
        )
    };
}
/// Selects the ids of keys of the workspace `$1`, up to `$3`, whose search text may match `$2`, an index pattern.
macro_rules! keys_by_text {
    () => {
        "SELECT k.id
        FROM key_search
        CROSS JOIN key_search_rows r
        CROSS JOIN keys k
        WHERE key_search MATCH $2 AND r.number = key_search.rowid AND k.id = r.key_id AND k.workspace_id = $1
        LIMIT $3"
    };
}
/// Selects the ids of identities of the workspace `$1`, up to `$3`, whose search text may match `$2`, an index pattern.
macro_rules! identities_by_text {
    () => {
        "SELECT i.id
        FROM identity_search
        CROSS JOIN identity_search_rows r
        CROSS JOIN identities i
        WHERE identity_search MATCH $2 AND r.number = identity_search.rowid AND i.id = r.identity_id
            AND i.workspace_id = $1
        LIMIT $3"
    };
}
/// Selects from the keys whose hash is one of the JSON list `$1`, as `found`.
macro_rules! from_keys_by_hash {
    () => {
        concat!("FROM (", keys_where!(concat!("k.hash ", is_one_of!("$1"))), ") AS found")
    };
}
/// Names a column that is no condition for an index. The planner has no statistics, and would prefer it.
macro_rules! unindexed {
    ($column:literal) => {
        concat!("+", $column)
    };
}
/// Compares a text by its bytes, as every comparison here does.
macro_rules! by_bytes {
    ($column:literal) => {
        $column
    };
}
/// Prevents deletion of the selected rows until the transaction ends. `BEGIN IMMEDIATE` has done that already.
macro_rules! locked_for_key_share {
    ($select:expr) => {
        $select
    };
}
/// Locks the selected rows until the transaction ends. `BEGIN IMMEDIATE` has done that already.
macro_rules! locked {
    ($select:expr) => {
        $select
    };
}
/// Like `locked!`.
macro_rules! locked_for_no_key_update {
    ($select:expr) => {
        $select
    };
}
/// Like `locked!`: no other transaction can hold a lock.
macro_rules! locked_skipping_locked {
    ($select:expr) => {
        $select
    };
}
/// Joins, as `c`, the changes in a range, both ends included.
macro_rules! changes_between {
    ($first:literal, $last:literal, $limit:literal) => {
        concat!(" JOIN changes AS c ON c.seq BETWEEN ", $first, " AND ", $last)
    };
}
/// Returns a number higher than that of any lease, and of any replica that was counted out.
macro_rules! next_number {
    () => {
        "(SELECT 1 + MAX(COALESCE((SELECT MAX(number) FROM purses), 0),
            COALESCE((SELECT MAX(gone) FROM replicas), 0)))"
    };
}

/// Decodes a hexadecimal text into bytes.
macro_rules! hex_bytes {
    ($text:literal) => {
        concat!("unhex(", $text, ")")
    };
}
/// Converts `true` and `false`, in JSON or as a text, to a boolean.
macro_rules! flag {
    ($text:literal) => {
        concat!("(", $text, " IN (1, 'true'))")
    };
}
/// Returns the start of the month (UTC) of a time, both in Unix milliseconds.
macro_rules! month_of {
    ($time:literal) => {
        concat!(
            "CAST(strftime('%s', ",
            $time,
            " / 1000, 'unixepoch', 'start of month') AS INTEGER) * 1000"
        )
    };
}
/// Returns balances of accounts as rows, `items`, from the parameter of `account_rows::bind_balances`.
macro_rules! balance_items {
    () => {
        concat!(
            "(SELECT item ->> 'key' AS key_id, item ->> 'balance' AS balance,
                item ->> 'version' AS version, item ->> 'refilled' AS refilled
            FROM ",
            items!("$1"),
            ") AS items"
        )
    };
}
/// Returns leases as rows, `items`, from the parameter of `account_rows::bind_leases`.
macro_rules! lease_items {
    () => {
        concat!(
            "(SELECT item ->> 'key' AS key_id, item ->> 'epoch' AS epoch, item ->> 'life' AS life,
                item ->> 'granted' AS granted, item ->> 'spent' AS spent,
                item ->> 'opened_at' AS opened_at, item ->> 'asked_at' AS asked_at,
                item ->> 'asked_by' AS asked_by, item ->> 'withheld_at' AS withheld_at, ",
            flag!("item ->> 'closed'"),
            " AS closed, item ->> 'region' AS region FROM ",
            items!("$1"),
            ") AS items"
        )
    };
}

mod account_rows;
mod event_rows;
#[expect(clippy::duplicate_mod, reason = "compiled once for each engine")]
#[path = "queries/mod.rs"]
mod queries;

type Connection = sqlx::SqliteConnection;

/// Returns the options to open the file with. No acknowledged write is lost, even in a power cut, because
/// `synchronous` is `FULL`.
pub fn options(path: &Path) -> SqliteConnectOptions {
    create_private(path);
    SqliteConnectOptions::new()
        .filename(path)
        .create_if_missing(true)
        .journal_mode(SqliteJournalMode::Wal)
        .synchronous(SqliteSynchronous::Full)
        .foreign_keys(true)
        .busy_timeout(Duration::from_secs(5))
}

/// Creates a file that only its owner can read, unless it exists: the directory may be open to others. SQLite creates its other
/// files with the same mode. If this fails, so does SQLite, which reports it.
fn create_private(path: &Path) {
    let _ = OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(path);
}

/// Opens a pool of connections for reads. Writes go through the [`Writer`](super::writer::Writer).
pub async fn open(options: SqliteConnectOptions) -> sqlx::Result<SqlitePool> {
    SqlitePoolOptions::new()
        .max_connections(8)
        .acquire_timeout(Duration::from_secs(5))
        .test_before_acquire(false)
        .connect_with(options)
        .await
}

/// Returns a pool of read-only connections to an existing file. Connections are opened on first use.
///
/// If the file has no write-ahead log beside it, no process has it open. The connections then create no log either:
/// it would remain, owned by the system user who ran the command.
pub fn open_read_only(path: &Path) -> SqlitePool {
    let mut log = path.as_os_str().to_owned();
    log.push("-wal");
    let is_in_use = Path::new(&log).exists();
    let options = SqliteConnectOptions::new()
        .filename(path)
        .read_only(true)
        .immutable(!is_in_use)
        .busy_timeout(Duration::from_secs(5));
    SqlitePoolOptions::new()
        .max_connections(2)
        .acquire_timeout(Duration::from_secs(5))
        .connect_lazy_with(options)
}

/// Returns pools of one connection that writes events, of some that only read them, and of some that run SQL queries
/// of users. Connections are opened on first use. The last writes may be lost in a power cut, but not when the
/// process crashes.
pub fn event_pools(path: &Path) -> [SqlitePool; 3] {
    create_private(path);
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

/// Begins a transaction that acquires the write lock at once. A transaction that reads first and acquires the lock
/// later fails if another one was faster, regardless of its busy timeout.
#[expect(clippy::disallowed_methods, reason = "this is what EventStore::begin calls")]
pub async fn begin(pool: &SqlitePool) -> sqlx::Result<Transaction<'static, Sqlite>> {
    pool.begin_with("BEGIN IMMEDIATE").await
}

#[cfg(test)]
mod tests;

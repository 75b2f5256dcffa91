//! Rewrites the search texts of a database.
//!
//! The first migrations filled them with `lower()`, which converts only the letters A to Z: in SQLite always, and in
//! Postgres because of the collation of the ids in the same text. So did a trigger that writes the search texts of keys
//! for replicas of a previous version. What a search matches is converted by the program, so the program converts the
//! search texts too.

use std::time::Duration;

use foundation::clock::Stopwatch;
use sqlx::postgres::PgConnection;
use sqlx::sqlite::SqliteConnection;
use sqlx::{AssertSqlSafe, query, query_as};
use tokio::time::sleep;

use super::LogTimer;
use super::online::BATCH_ROWS;
use super::postgres::{LOCK_TIMEOUT, is_in_use, set_lock_timeout, wait_for_lock};

/// A table whose search texts are rewritten with a migration.
struct SearchedTable {
    version: i64,
    name: &'static str,
    /// What the search text contains, in the original case. Null if the row has an empty one.
    text: &'static str,
}

const fn table(version: i64, name: &'static str, text: &'static str) -> SearchedTable {
    SearchedTable { version, name, text }
}

/// The tables in the schema of the migration.
const TABLES: [SearchedTable; 9] = [
    table(20, "apis", "id || '\n' || name"),
    table(20, "identities", "id || '\n' || external_id"),
    table(20, "migrations", "id || '\n' || COALESCE(name, '')"),
    table(20, "namespaces", "id || '\n' || name"),
    table(20, "overrides", "id || '\n' || identifier"),
    table(
        20,
        "permissions",
        "id || '\n' || slug || '\n' || name || '\n' || COALESCE(description, '')",
    ),
    table(20, "roles", "id || '\n' || name || '\n' || COALESCE(description, '')"),
    table(20, "root_keys", "id || '\n' || start || '\n' || COALESCE(name, '')"),
    table(25, "keys", KEY_TEXT),
];
/// The tables whose search texts a trigger has written, which only Postgres has.
const POSTGRES_TABLES: [SearchedTable; 1] = [table(29, "keys", KEY_TEXT)];

/// The texts of a key. Most keys of some installations have neither.
const KEY_TEXT: &str = "COALESCE(name || '\n' || owner_id, name, owner_id)";

/// Returns those of the tables that a migration rewrites: their names and texts.
fn tables_of(
    version: i64,
    tables: &'static [SearchedTable],
) -> impl Iterator<Item = (&'static str, &'static str)> {
    tables
        .iter()
        .filter(move |table| table.version == version)
        .map(|table| (table.name, table.text))
}

/// A row with its search text, and the text of which this is the lower case.
#[derive(sqlx_macros::FromRow)]
struct SearchedRow {
    id: String,
    search: String,
    text: String,
}

/// Returns the statement that selects the rows with ids above `$1`.
fn page_sql(table: &str, text: &str) -> AssertSqlSafe<String> {
    AssertSqlSafe(format!(
        "SELECT id, search, {text} AS text FROM {table}
        WHERE id > $1 AND {text} IS NOT NULL ORDER BY id LIMIT {BATCH_ROWS}"
    ))
}

/// Returns the rows whose search text is wrong, with the correct one as their text.
fn list_outdated(page: Vec<SearchedRow>) -> Vec<SearchedRow> {
    let lower = page.into_iter().map(|row| SearchedRow { text: row.text.to_lowercase(), ..row });
    lower.filter(|row| row.search != row.text).collect()
}

/// Rewrites the search texts of a migration in its transaction.
pub(super) async fn rewrite_in_sqlite(
    connection: &mut SqliteConnection,
    version: i64,
) -> sqlx::Result<()> {
    for (table, text) in tables_of(version, &TABLES) {
        let mut last_id = String::new();
        loop {
            let query_page = query_as(page_sql(table, text)).bind(&last_id);
            let page: Vec<SearchedRow> = query_page.fetch_all(&mut *connection).await?;
            let Some(last) = page.last() else { break };
            last_id.clone_from(&last.id);
            for row in list_outdated(page) {
                let sql = AssertSqlSafe(format!("UPDATE {table} SET search = $2 WHERE id = $1"));
                query(sql).bind(row.id).bind(row.text).execute(&mut *connection).await?;
            }
        }
    }
    Ok(())
}

/// Rewrites the search texts of a migration in a database in use.
pub(super) async fn rewrite_in_postgres(
    connection: &mut PgConnection,
    version: i64,
) -> sqlx::Result<()> {
    set_lock_timeout(connection, LOCK_TIMEOUT).await?;
    let tables = tables_of(version, &TABLES).chain(tables_of(version, &POSTGRES_TABLES));
    for (table, text) in tables {
        let mut log_timer = LogTimer::default();
        let (mut last_id, mut scanned, mut changed) = (String::new(), 0, 0);
        loop {
            let stopwatch = Stopwatch::new();
            let query_page = query_as(page_sql(table, text)).bind(&last_id);
            let page: Vec<SearchedRow> = query_page.fetch_all(&mut *connection).await?;
            let Some(last) = page.last() else { break };
            last_id.clone_from(&last.id);
            scanned += page.len();
            changed += update_batch(connection, table, &list_outdated(page)).await?;
            if log_timer.is_due() {
                tracing::info!("scanned {scanned} rows of {table}, changed {changed}");
            }
            // Pauses for as long as the batch took, so that the database can serve other work.
            sleep(stopwatch.elapsed().min(Duration::from_secs(1))).await;
        }
    }
    Ok(())
}

/// Updates the search texts of rows, except those that a replica has changed in the meantime: replicas write the
/// correct search text.
async fn update_batch(
    connection: &mut PgConnection,
    table: &str,
    rows: &[SearchedRow],
) -> sqlx::Result<u64> {
    let list = |column: fn(&SearchedRow) -> &str| rows.iter().map(column).collect::<Vec<_>>();
    let (ids, old, new) = (list(|r| &r.id), list(|r| &r.search), list(|r| &r.text));
    if ids.is_empty() {
        return Ok(0);
    }
    let sql = format!(
        "UPDATE {table} AS t SET search = changed.new
        FROM unnest($1::TEXT[], $2::TEXT[], $3::TEXT[]) AS changed (id, old, new)
        WHERE t.id = changed.id AND t.search = changed.old"
    );
    let mut log_timer = LogTimer::default();
    loop {
        let update = query(AssertSqlSafe(sql.clone())).bind(&ids).bind(&old).bind(&new);
        match update.execute(&mut *connection).await {
            Err(e) if is_in_use(&e) => wait_for_lock(connection, &mut log_timer).await?,
            done => return Ok(done?.rows_affected()),
        }
    }
}

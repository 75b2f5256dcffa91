//! Runs migrations of a Postgres database in use. Each is a file of steps that block no other client: columns that
//! need no rewrite, indexes that are built concurrently, and rows that are updated a few thousand at a time. A
//! completed step has no effect when it runs again, so an interrupted migration resumes where it stopped. The tests
//! compare the result with that of the migration's own file.

use std::time::Duration;

use foundation::clock::Stopwatch;
use sqlx::postgres::PgConnection;
use sqlx::{AssertSqlSafe, query, query_scalar};
use tokio::time::sleep;

use super::postgres::{
    LOCK_TIMEOUT, is_in_use, run_with_lock_retries, set_lock_timeout, wait_for_lock,
};
use super::{LogTimer, search_texts};

macro_rules! steps {
    ($name:literal) => {
        include_str!(concat!("../../../../migrations/online/postgres/", $name, ".sql"))
    };
}

pub(super) static MIGRATIONS: [(i64, &str); 12] = [
    (4, steps!("0004_lists")),
    (8, steps!("0008_version_1")),
    (11, steps!("0011_key_lists")),
    (12, steps!("0012_holders")),
    (13, steps!("0013_audit_changes")),
    (15, steps!("0015_imports")),
    (16, steps!("0016_search")),
    (20, steps!("0020_search_texts")),
    (25, steps!("0025_key_search")),
    (27, steps!("0027_audit_filters")),
    (28, steps!("0028_api_names")),
    (29, steps!("0029_search_collation")),
];

/// The number of rows per batch, which takes less than a tenth of a second.
pub(super) const BATCH_ROWS: i64 = 2_000;

#[derive(Debug, PartialEq, Eq)]
enum MigrationStep {
    /// A statement that runs once.
    Once(&'static str),
    /// A statement for the rows of a table with ids above `$1` and up to `$2`, repeated until it changes no row.
    Batches { table: &'static str, sql: &'static str },
    /// The rewrite of the search texts of the migration, which no statement can do.
    SearchTexts,
}

/// Returns the steps of a file. Each begins with a line that states its kind.
fn parse_steps(file: &'static str) -> impl Iterator<Item = MigrationStep> {
    let sections = file.split("\n-- ").skip(1);
    sections.filter_map(|section| {
        let (kind, sql) = section.split_once('\n').unwrap_or((section, ""));
        let sql = sql.trim();
        match kind.split_once(' ') {
            None if kind == "step" => Some(MigrationStep::Once(sql)),
            Some(("search", "texts")) => Some(MigrationStep::SearchTexts),
            Some(("batches", of)) => {
                let sql = sql.trim_end_matches(';');
                of.strip_prefix("of ").map(|table| MigrationStep::Batches { table, sql })
            }
            _ => None,
        }
    })
}

pub(super) async fn run(
    connection: &mut PgConnection,
    version: i64,
    file: &'static str,
) -> sqlx::Result<()> {
    for step in parse_steps(file) {
        match step {
            MigrationStep::Once(sql) => match concurrent_index_name(sql) {
                Some(index) => build_index(connection, sql, index).await?,
                None => drop(
                    run_with_lock_retries(connection, sql, sql.contains(" CONCURRENTLY ")).await?,
                ),
            },
            MigrationStep::Batches { table, sql } => {
                update_in_batches(connection, table, sql).await?;
            }
            MigrationStep::SearchTexts => {
                search_texts::rewrite_in_postgres(connection, version).await?;
            }
        }
    }
    Ok(())
}

/// Returns the name of the index that a statement builds concurrently.
fn concurrent_index_name(sql: &str) -> Option<&str> {
    let (_, rest) = sql.split_once("INDEX CONCURRENTLY IF NOT EXISTS ")?;
    rest.split(' ').next()
}

/// Builds an index, and retries if Postgres canceled it in favor of another transaction.
async fn build_index(
    connection: &mut PgConnection,
    sql: &'static str,
    index: &str,
) -> sqlx::Result<()> {
    let mut log_timer = LogTimer::default();
    set_lock_timeout(connection, "0").await?;
    loop {
        drop_invalid_index(connection, index).await?;
        match sqlx::raw_sql(sql).execute(&mut *connection).await {
            Err(e) if is_in_use(&e) => wait_for_lock(connection, &mut log_timer).await?,
            built => return built.map(drop),
        }
    }
}

/// Drops an index whose build was interrupted. Such an index remains, and no query uses it.
async fn drop_invalid_index(connection: &mut PgConnection, index: &str) -> sqlx::Result<()> {
    let unfinished: bool = query_scalar(
        "SELECT EXISTS (SELECT FROM pg_index WHERE indexrelid = to_regclass($1) AND NOT indisvalid)",
    )
    .bind(index)
    .fetch_one(&mut *connection)
    .await?;
    if unfinished {
        let sql = format!("DROP INDEX CONCURRENTLY {index}");
        query(AssertSqlSafe(sql)).execute(connection).await?;
    }
    Ok(())
}

/// Runs a statement over a table until no row is left to change, because replicas continue to write to it.
async fn update_in_batches(
    connection: &mut PgConnection,
    table: &'static str,
    sql: &'static str,
) -> sqlx::Result<()> {
    let mut log_timer = LogTimer::default();
    let mut changed = 0;
    set_lock_timeout(connection, LOCK_TIMEOUT).await?;
    loop {
        let (mut from, mut scanned, before) = (String::new(), 0, changed);
        while let Some((until, rows)) = next_page(connection, table, &from).await? {
            let stopwatch = Stopwatch::new();
            changed += update_batch(connection, sql, &from, &until).await?;
            scanned += rows;
            from = until;
            if log_timer.is_due() {
                tracing::info!("scanned {scanned} rows of {table}, changed {changed}");
            }
            // Pauses for as long as the batch took, so that the database can serve other work.
            sleep(stopwatch.elapsed().min(Duration::from_secs(1))).await;
        }
        if changed == before {
            return Ok(());
        }
    }
}

/// Returns the last id of the next batch of rows, and their number.
async fn next_page(
    connection: &mut PgConnection,
    table: &str,
    from: &str,
) -> sqlx::Result<Option<(String, i64)>> {
    let sql = format!(
        "SELECT MAX(id), COUNT(*) FROM (SELECT id FROM {table} WHERE id > $1 ORDER BY id LIMIT $2) page"
    );
    let (until, rows): (Option<String>, i64) = sqlx::query_as(AssertSqlSafe(sql))
        .bind(from)
        .bind(BATCH_ROWS)
        .fetch_one(connection)
        .await?;
    Ok(until.map(|until| (until, rows)))
}

async fn update_batch(
    connection: &mut PgConnection,
    sql: &'static str,
    from: &str,
    until: &str,
) -> sqlx::Result<u64> {
    let mut log_timer = LogTimer::default();
    loop {
        match query(sql).bind(from).bind(until).execute(&mut *connection).await {
            Err(e) if is_in_use(&e) => wait_for_lock(connection, &mut log_timer).await?,
            done => return Ok(done?.rows_affected()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_returns_every_step_of_a_file() {
        let file = "-- What it makes.\n-- step\nCREATE INDEX CONCURRENTLY IF NOT EXISTS a ON b (c);\n\
            -- batches of keys\nUPDATE keys SET x = 1\nWHERE id > $1 AND id <= $2;\n-- search texts\n-- search texts\n";

        let index = "CREATE INDEX CONCURRENTLY IF NOT EXISTS a ON b (c);";
        let update = "UPDATE keys SET x = 1\nWHERE id > $1 AND id <= $2";
        let expected = [
            MigrationStep::Once(index),
            MigrationStep::Batches { table: "keys", sql: update },
            MigrationStep::SearchTexts,
            MigrationStep::SearchTexts,
        ];
        assert_eq!(parse_steps(file).collect::<Vec<_>>(), expected);
        assert_eq!(concurrent_index_name(index), Some("a"));
    }

    #[test]
    fn steps_parses_every_section_of_the_migrations() {
        for (version, file) in MIGRATIONS {
            let sections = file.split("\n-- ").skip(1).count();
            assert_eq!(parse_steps(file).count(), sections, "{version}");
            assert!(sections > 0, "{version}");
        }
    }
}

//! Migrations of a Postgres that others are using. Each is a file of steps that leave nobody waiting: columns that need no
//! rewriting, indexes that are built concurrently, and rows that are changed a few thousand at a time. A step that has been
//! taken does nothing when it is taken again, so a migration that was broken off goes on where it stopped. The tests hold
//! what comes of it against what the migration's own file makes.

use std::time::Duration;

use foundation::clock::Stopwatch;
use sqlx::postgres::PgConnection;
use sqlx::{AssertSqlSafe, query, query_scalar};
use tokio::time::sleep;

use super::Told;
use super::postgres::{is_in_use, run_patiently, set_lock_timeout, wait};

macro_rules! steps {
    ($name:literal) => {
        include_str!(concat!("../../../../migrations/online/postgres/", $name, ".sql"))
    };
}

pub(super) static MIGRATIONS: [(i64, &str); 7] = [
    (4, steps!("0004_lists")),
    (8, steps!("0008_version_1")),
    (11, steps!("0011_key_lists")),
    (12, steps!("0012_holders")),
    (13, steps!("0013_audit_changes")),
    (15, steps!("0015_imports")),
    (16, steps!("0016_search")),
];

/// How many rows a batch goes through: less than a tenth of a second's work.
const BATCH: i64 = 2_000;

#[derive(Debug, PartialEq, Eq)]
enum Step {
    /// A statement that stands by itself.
    Once(&'static str),
    /// A statement for the rows of a table whose ids are above `$1` and up to `$2`, until it changes none of them.
    Batches { table: &'static str, sql: &'static str },
}

/// The steps of a file: each begins with a line that says of which kind it is.
fn steps(file: &'static str) -> impl Iterator<Item = Step> {
    let sections = file.split("\n-- ").skip(1);
    sections.filter_map(|section| {
        let (kind, sql) = section.split_once('\n')?;
        let sql = sql.trim();
        match kind.split_once(' ') {
            None if kind == "step" => Some(Step::Once(sql)),
            Some(("batches", of)) => {
                let sql = sql.trim_end_matches(';');
                of.strip_prefix("of ").map(|table| Step::Batches { table, sql })
            }
            _ => None,
        }
    })
}

pub(super) async fn run(connection: &mut PgConnection, file: &'static str) -> sqlx::Result<()> {
    for step in steps(file) {
        match step {
            Step::Once(sql) => match concurrent_index(sql) {
                Some(index) => build(connection, sql, index).await?,
                None => drop(run_patiently(connection, sql, sql.contains(" CONCURRENTLY ")).await?),
            },
            Step::Batches { table, sql } => change_all(connection, table, sql).await?,
        }
    }
    Ok(())
}

/// The index that a statement builds concurrently.
fn concurrent_index(sql: &str) -> Option<&str> {
    let (_, rest) = sql.split_once("INDEX CONCURRENTLY IF NOT EXISTS ")?;
    rest.split(' ').next()
}

/// Builds an index, and again where that was ended for the sake of another transaction.
async fn build(connection: &mut PgConnection, sql: &'static str, index: &str) -> sqlx::Result<()> {
    let mut told = Told::default();
    set_lock_timeout(connection, "0").await?;
    loop {
        drop_unfinished(connection, index).await?;
        match sqlx::raw_sql(sql).execute(&mut *connection).await {
            Err(e) if is_in_use(&e) => wait(connection, &mut told).await?,
            built => return built.map(drop),
        }
    }
}

/// An index whose building was broken off stays behind, used by nobody.
async fn drop_unfinished(connection: &mut PgConnection, index: &str) -> sqlx::Result<()> {
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

/// Goes through a table until there is nothing left to change: replicas go on writing to it.
async fn change_all(
    connection: &mut PgConnection,
    table: &'static str,
    sql: &'static str,
) -> sqlx::Result<()> {
    let mut told = Told::default();
    let mut changed = 0;
    loop {
        let (mut from, mut looked_at, before) = (String::new(), 0, changed);
        while let Some((until, rows)) = page(connection, table, &from).await? {
            let began = Stopwatch::new();
            changed += change(connection, sql, &from, &until).await?;
            looked_at += rows;
            from = until;
            if told.is_due() {
                tracing::info!("{table}: {looked_at} rows looked at, {changed} changed in all");
            }
            // As long a pause as the batch took, for what else the database has to do.
            sleep(began.elapsed().min(Duration::from_secs(1))).await;
        }
        if changed == before {
            return Ok(());
        }
    }
}

/// The last id of the next rows, and how many they are.
async fn page(
    connection: &mut PgConnection,
    table: &str,
    from: &str,
) -> sqlx::Result<Option<(String, i64)>> {
    let sql = format!(
        "SELECT MAX(id), COUNT(*) FROM (SELECT id FROM {table} WHERE id > $1 ORDER BY id LIMIT $2) page"
    );
    let (until, rows): (Option<String>, i64) =
        sqlx::query_as(AssertSqlSafe(sql)).bind(from).bind(BATCH).fetch_one(connection).await?;
    Ok(until.map(|until| (until, rows)))
}

async fn change(
    connection: &mut PgConnection,
    sql: &'static str,
    from: &str,
    until: &str,
) -> sqlx::Result<u64> {
    let mut told = Told::default();
    loop {
        match query(sql).bind(from).bind(until).execute(&mut *connection).await {
            Err(e) if is_in_use(&e) => wait(connection, &mut told).await?,
            done => return Ok(done?.rows_affected()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_is_read_as_its_steps() {
        let file = "-- What it makes.\n-- step\nCREATE INDEX CONCURRENTLY IF NOT EXISTS a ON b (c);\n\
            -- batches of keys\nUPDATE keys SET x = 1\nWHERE id > $1 AND id <= $2;\n";

        let index = "CREATE INDEX CONCURRENTLY IF NOT EXISTS a ON b (c);";
        let update = "UPDATE keys SET x = 1\nWHERE id > $1 AND id <= $2";
        let expected = [Step::Once(index), Step::Batches { table: "keys", sql: update }];
        assert_eq!(steps(file).collect::<Vec<_>>(), expected);
        assert_eq!(concurrent_index(index), Some("a"));
    }

    #[test]
    fn no_line_of_a_file_is_left_out() {
        for (version, file) in MIGRATIONS {
            let sections = file.split("\n-- ").skip(1).count();
            assert_eq!(steps(file).count(), sections, "{version}");
            assert!(sections > 0, "{version}");
        }
    }
}

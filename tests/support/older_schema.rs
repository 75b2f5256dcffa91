//! Creates filled databases of older schemas.
//!
//! `tests/store/schemas` contains a file for each older schema: the rows and values that a server of that version
//! writes, and one of an earlier version does not. The database of a version is created with the migrations up to it,
//! and filled with the files up to it. So each of its tables has rows, each of its columns has values, and none of
//! them is the result of a migration. A file whose name ends with an engine is for that engine only.

use std::path::Path;

use sqlx::migrate::Migrator;
use sqlx::sqlite::{SqliteConnectOptions, SqliteConnection};
use sqlx::{AssertSqlSafe, ConnectOptions as _, Connection as _, raw_sql};

use super::database::Database;

/// Returns the versions of the schemas before the current one.
pub async fn older_versions() -> Vec<i64> {
    let mut versions: Vec<_> = migrations("sqlite").await.iter().map(|m| m.version).collect();
    versions.pop();
    versions
}

/// Returns the migrations of an engine.
pub async fn migrations(engine: &str) -> Migrator {
    Migrator::new(&*Path::new("migrations").join(engine)).await.expect("the migrations")
}

pub async fn filled_postgres(version: i64) -> Database {
    let database = Database::empty().await;
    let mut connection = database.connect().await;
    migrations("postgres")
        .await
        .run_to(version, &mut connection)
        .await
        .expect("the schema is created");
    for sql in rows(version, "postgres") {
        raw_sql(AssertSqlSafe(sql)).execute(&mut connection).await.expect("its rows are inserted");
    }
    database
}

/// Creates the file.
pub async fn fill_sqlite(path: &Path, version: i64) {
    let mut connection = connect_sqlite(path).await;
    migrations("sqlite")
        .await
        .run_to(version, &mut connection)
        .await
        .expect("the schema is created");
    for sql in rows(version, "sqlite") {
        raw_sql(AssertSqlSafe(sql)).execute(&mut connection).await.expect("its rows are inserted");
    }
    connection.close().await.expect("it is closed");
}

/// Connects to a file, which is created if it does not exist.
pub async fn connect_sqlite(path: &Path) -> SqliteConnection {
    let options = SqliteConnectOptions::new().filename(path).create_if_missing(true);
    options.connect().await.expect("the file is opened")
}

/// Returns the contents of the files up to a version.
fn rows(version: i64, engine: &str) -> Vec<String> {
    let folder = Path::new("tests/store/schemas");
    let mut files = Vec::new();
    for version in 1..=version {
        let common = folder.join(format!("{version:04}.sql"));
        assert!(common.exists(), "{} is missing: see CONTRIBUTING.md", common.display());
        let of_engine = folder.join(format!("{version:04}_{engine}.sql"));
        files.push(common);
        files.extend(of_engine.exists().then_some(of_engine));
    }
    files.iter().map(|file| std::fs::read_to_string(file).expect("its rows")).collect()
}

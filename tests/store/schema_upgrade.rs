//! Tests upgrades of filled databases of every older schema to the current one, on both engines: no row and no value
//! is lost, derived values are correct, and the schema is that of a new database. See
//! [`older_schema`](crate::support::older_schema) for the databases.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};
use sqlx::postgres::PgConnection;
use sqlx::sqlite::SqliteConnection;

use super::schema_migration::schema_lines;
use super::schema_upgrade_reads::assert_store_reads;
use super::*;
use crate::support::older_schema::{
    connect_sqlite, fill_sqlite, filled_postgres, migrations, older_versions,
};

type Row = Map<String, Value>;
/// The rows of each table.
type Rows = BTreeMap<String, Vec<Row>>;

/// Each table with a search text, and the columns that it contains.
const SEARCHED: [(&str, &[&str]); 10] = [
    ("apis", &["id", "name"]),
    ("gateway_policies", &["id", "name"]),
    ("identities", &["id", "external_id"]),
    ("keys", &["name", "owner_id"]),
    ("migrations", &["id", "name"]),
    ("namespaces", &["id", "name"]),
    ("overrides", &["id", "identifier"]),
    ("permissions", &["id", "slug", "name", "description"]),
    ("roles", &["id", "name", "description"]),
    ("root_keys", &["id", "start", "name"]),
];

#[tokio::test]
async fn every_older_schema_is_upgraded_in_postgres() {
    let new = Database::create().await;
    let expected_schema = schema_lines(&mut new.connect().await).await;
    for version in older_versions().await {
        let database = filled_postgres(version).await;
        let mut connection = database.connect().await;
        let before = postgres_rows(&mut connection).await;

        let store = Store::connect(&database.url, 2).await.unwrap();
        store.migrate().await.unwrap();

        assert_eq!(expected_schema, schema_lines(&mut connection).await, "{version}");
        assert_rows(version, &before, &postgres_rows(&mut connection).await);
        assert_store_reads(&store, version).await;
    }
}

#[tokio::test]
async fn every_older_schema_is_upgraded_in_sqlite() {
    let directory = tempfile::tempdir().unwrap();
    let new = directory.path().join("new.db");
    Store::open(&new).await.unwrap().migrate().await.unwrap();
    let expected_schema = sqlite_schema(&mut connect_sqlite(&new).await).await;
    for version in older_versions().await {
        let path = directory.path().join(format!("{version}.db"));
        fill_sqlite(&path, version).await;
        let mut connection = connect_sqlite(&path).await;
        let before = sqlite_rows(&mut connection).await;

        let store = Store::open(&path).await.unwrap();
        store.migrate().await.unwrap();

        assert_eq!(expected_schema, sqlite_schema(&mut connection).await, "{version}");
        assert_rows(version, &before, &sqlite_rows(&mut connection).await);
        assert_store_reads(&store, version).await;
    }
}

/// The files of the migrations and their online forms have the same result, except for search texts, which no
/// file can write.
#[tokio::test]
async fn every_older_schema_is_upgraded_alike_by_files_and_online() {
    for version in older_versions().await {
        let (one, other) = (filled_postgres(version).await, filled_postgres(version).await);
        let (mut by_files, mut online) = (one.connect().await, other.connect().await);

        migrations("postgres").await.run(&mut by_files).await.unwrap();
        Store::connect(&other.url, 2).await.unwrap().migrate().await.unwrap();

        assert_eq!(schema_lines(&mut by_files).await, schema_lines(&mut online).await, "{version}");
        let mut rows = [postgres_rows(&mut by_files).await, postgres_rows(&mut online).await];
        for row in rows.iter_mut().flat_map(Rows::values_mut).flatten() {
            row.remove("search");
        }
        assert_eq!(rows[0], rows[1], "{version}");
    }
}

/// Every table of an older schema has rows, and every column a value, so that the tests miss no migration.
#[tokio::test]
async fn older_schemas_are_filled() {
    let directory = tempfile::tempdir().unwrap();
    for version in older_versions().await {
        let path = directory.path().join(format!("{version}.db"));
        fill_sqlite(&path, version).await;

        for (table, rows) in sqlite_rows(&mut connect_sqlite(&path).await).await {
            assert!(!rows.is_empty(), "{version}: {table}");
            for column in rows[0].keys() {
                let is_filled = rows.iter().any(|row| !row[column].is_null() && row[column] != "");
                assert!(is_filled, "{version}: {table}.{column}");
            }
        }
    }
}

async fn sqlite_schema(connection: &mut SqliteConnection) -> Vec<String> {
    let sql = "
        SELECT type || ' ' || name || ' ' || COALESCE(sql, '') FROM sqlite_schema
        UNION ALL
        SELECT 'migration ' || version || hex(checksum) || success FROM _sqlx_migrations
        ORDER BY 1";
    sqlx::query_scalar(sql).fetch_all(connection).await.unwrap()
}

async fn postgres_rows(connection: &mut PgConnection) -> Rows {
    let tables: Vec<String> = sqlx::query_scalar(
        "SELECT relname FROM pg_class WHERE relkind = 'r' AND relname <> '_sqlx_migrations'
            AND relnamespace = 'public'::regnamespace",
    )
    .fetch_all(&mut *connection)
    .await
    .unwrap();
    let mut all = Rows::new();
    for table in tables {
        let sql = format!("SELECT row_to_json(t)::text FROM {table} t ORDER BY 1");
        let rows: Vec<String> =
            sqlx::query_scalar(AssertSqlSafe(sql)).fetch_all(&mut *connection).await.unwrap();
        all.insert(table, rows.iter().map(|row| serde_json::from_str(row).unwrap()).collect());
    }
    all
}

async fn sqlite_rows(connection: &mut SqliteConnection) -> Rows {
    let tables: Vec<(String, String)> = sqlx::query_as(
        "SELECT t.name, group_concat('''' || c.name || ''', \"' || c.name || '\"')
        FROM sqlite_schema t, pragma_table_info(t.name) c
        WHERE t.type = 'table' AND t.name <> '_sqlx_migrations' AND t.name NOT LIKE 'sqlite!_%' ESCAPE '!'
            AND t.name NOT LIKE 'key!_search%' ESCAPE '!' AND t.name NOT LIKE 'identity!_search%' ESCAPE '!'
            AND t.name <> 'audit_targets'
        GROUP BY t.name",
    )
    .fetch_all(&mut *connection)
    .await
    .unwrap();
    let mut all = Rows::new();
    for (table, columns) in tables {
        let sql = format!("SELECT json_object({columns}) FROM {table} ORDER BY 1");
        let rows: Vec<String> =
            sqlx::query_scalar(AssertSqlSafe(sql)).fetch_all(&mut *connection).await.unwrap();
        all.insert(table, rows.iter().map(|row| serde_json::from_str(row).unwrap()).collect());
    }
    all
}

/// Checks that an upgrade has kept every row and value, and that new columns have the values that older rows imply.
fn assert_rows(version: i64, before: &Rows, after: &Rows) {
    for (table, rows) in after {
        let old_rows = before.get(table).map_or(&[][..], Vec::as_slice);
        assert_eq!(rows.len(), old_rows.len(), "{version}: {table}");
        for old in old_rows {
            let is_kept = |row: &&Row| {
                old.iter().all(|(name, value)| name == "search" || row[name] == *value)
            };
            let row = rows.iter().find(is_kept);
            let row = row.unwrap_or_else(|| panic!("{version}: {table} lacks {old:?} in {rows:?}"));
            for (name, value) in row.iter().filter(|(name, _)| !old.contains_key(*name)) {
                let is_expected = is_expected(before, table, name, row, value);
                assert!(is_expected, "{version}: {table}.{name} is {value} in {row:?}");
            }
        }
        assert_search_texts(version, table, rows);
    }
}

/// Returns whether a column that a migration has added has the right value in a row that is older.
fn is_expected(before: &Rows, table: &str, column: &str, row: &Row, value: &Value) -> bool {
    match (table, column) {
        (_, "search") => true,
        ("keys", "owner_id") => {
            let identity = before["identities"].iter().find(|i| i["id"] == row["identity_id"]);
            *value == identity.map_or(Value::Null, |identity| identity["external_id"].clone())
        }
        ("migrations", "came") => {
            let keys = before["keys"].iter().filter(|key| key["migration_id"] == row["id"]);
            *value == json!(keys.count())
        }
        ("purses" | "replicas", "region") => *value == json!(""),
        ("purses", "number") | ("replicas", "heartbeat") => *value == json!(0),
        (_, "is_async" | "recoverable_keys" | "delete_protection" | "closed") => {
            *value == json!(false) || *value == json!(0)
        }
        _ => value.is_null(),
    }
}

/// Checks that search texts are those that the store writes.
fn assert_search_texts(version: i64, table: &str, rows: &[Row]) {
    let Some((_, columns)) = SEARCHED.iter().find(|(searched, _)| *searched == table) else {
        assert!(rows.iter().all(|row| !row.contains_key("search")), "{table}");
        return;
    };
    for row in rows {
        let texts = columns.iter().map(|column| row[*column].as_str());
        let texts: Vec<_> = match table {
            "keys" => texts.flatten().collect(),
            _ => texts.map(Option::unwrap_or_default).collect(),
        };
        assert_eq!(row["search"], json!(texts.join("\n").to_lowercase()), "{version}: {row:?}");
    }
}

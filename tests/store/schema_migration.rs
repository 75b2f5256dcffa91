//! Tests schema migrations: migrating a database in use and applying the files to an empty one have the same result.

use std::path::Path;

use sqlx::migrate::{Migrate as _, Migrator};
use sqlx::postgres::PgConnection;
use sqlx::{Connection as _, Executor as _, raw_sql};

use store::SchemaError;

use super::*;
use crate::support::database::Database;
use crate::support::random_letters;

async fn migrations() -> Migrator {
    Migrator::new(Path::new("migrations/postgres")).await.unwrap()
}

/// Creates a database with the oldest schema and with rows that later migrations change.
async fn oldest_schema() -> Database {
    let database = Database::empty().await;
    let mut connection = database.connect().await;
    migrations().await.run_to(1, &mut connection).await.unwrap();
    connection
        .execute(
            "INSERT INTO workspaces (id, name, created_at) VALUES ('ws_1', 'One', 1);
            INSERT INTO root_keys (id, workspace_id, hash, start, name, permissions, created_at)
                VALUES ('rk_1', 'ws_1', 'h', 'keyward', 'CI', '[]', 1);
            INSERT INTO apis (id, workspace_id, name, created_at) VALUES ('api_1', 'ws_1', 'Ünï', 1);
            INSERT INTO identities (id, workspace_id, external_id, created_at)
                SELECT 'id_' || n, 'ws_1', 'User ' || n, 1 FROM generate_series(1, 5000) n;
            INSERT INTO keys (id, workspace_id, api_id, hash, start, byte_length, identity_id, enabled, created_at)
                SELECT 'key_' || n, 'ws_1', 'api_1', 'hash_' || n, 's', 16,
                    CASE WHEN n % 2 = 0 THEN 'id_' || n END, TRUE, n
                FROM generate_series(1, 5000) n;
            INSERT INTO permissions (id, workspace_id, slug, name, created_at)
                VALUES ('perm_1', 'ws_1', 'Docs.Read', 'Docs', 1);
            INSERT INTO roles (id, workspace_id, name, description, created_at)
                VALUES ('role_1', 'ws_1', 'Editor', NULL, 1);
            INSERT INTO key_permissions VALUES ('key_1', 'perm_1');
            INSERT INTO key_roles VALUES ('key_1', 'role_1');
            INSERT INTO audit (id, workspace_id, at, event, actor_type, actor_id, targets)
                VALUES ('log_1', 'ws_1', 1, 'key.create', 'key', 'rk_1', '[]');",
        )
        .await
        .unwrap();
    database
}

/// Returns everything visible of a schema and its rows, one line each: columns, indexes, constraints, rows.
async fn dump(connection: &mut PgConnection) -> Vec<String> {
    let mut lines = schema_lines(connection).await;
    let tables: Vec<String> = sqlx::query_scalar(
        "SELECT relname FROM pg_class WHERE relkind = 'r' AND relname <> '_sqlx_migrations'
            AND relnamespace = 'public'::regnamespace ORDER BY relname",
    )
    .fetch_all(&mut *connection)
    .await
    .unwrap();
    for table in tables {
        // No file of a migration can write search texts, so they are tested in `schema_upgrade`.
        let sql = format!("SELECT (to_jsonb(t) - 'search')::text FROM {table} t ORDER BY 1");
        let rows: Vec<String> =
            sqlx::query_scalar(AssertSqlSafe(sql)).fetch_all(&mut *connection).await.unwrap();
        lines.extend(rows.into_iter().map(|row| format!("{table} {row}")));
    }
    lines
}

/// Returns everything visible of a schema, one line each: columns, indexes, constraints, triggers, migrations.
pub(super) async fn schema_lines(connection: &mut PgConnection) -> Vec<String> {
    sqlx::query_scalar(
        "SELECT concat_ws(' ', 'column', c.relname, a.attname, format_type(a.atttypid, a.atttypmod),
                a.attnotnull, pg_get_expr(d.adbin, d.adrelid), a.attcollation)
            FROM pg_attribute a
            JOIN pg_class c ON c.oid = a.attrelid AND c.relkind = 'r'
                AND c.relnamespace = 'public'::regnamespace
            LEFT JOIN pg_attrdef d ON d.adrelid = c.oid AND d.adnum = a.attnum
            WHERE a.attnum > 0 AND NOT a.attisdropped
        UNION ALL
        SELECT concat_ws(' ', 'index', pg_get_indexdef(i.indexrelid), i.indisvalid, i.indisunique)
            FROM pg_index i
            JOIN pg_class c ON c.oid = i.indrelid AND c.relnamespace = 'public'::regnamespace
        UNION ALL
        SELECT concat_ws(' ', 'constraint', conrelid::regclass, conname, pg_get_constraintdef(oid))
            FROM pg_constraint WHERE connamespace = 'public'::regnamespace
        UNION ALL
        SELECT concat_ws(' ', 'trigger', pg_get_triggerdef(oid), tgenabled)
            FROM pg_trigger WHERE NOT tgisinternal
        UNION ALL
        SELECT concat_ws(' ', 'function', pg_get_functiondef(p.oid))
            FROM pg_proc p JOIN pg_language l ON l.oid = p.prolang AND l.lanname = 'plpgsql'
            WHERE pronamespace = 'public'::regnamespace
        UNION ALL
        SELECT concat_ws(' ', 'extension', extname) FROM pg_extension
        UNION ALL
        SELECT concat_ws(' ', 'migration', version, description, success, encode(checksum, 'hex'))
            FROM _sqlx_migrations
        ORDER BY 1",
    )
    .fetch_all(connection)
    .await
    .unwrap()
}

#[tokio::test]
async fn online_migration_has_the_same_result_as_the_files() {
    let (one, other) = (oldest_schema().await, oldest_schema().await);
    let mut by_files = one.connect().await;
    migrations().await.run(&mut by_files).await.unwrap();

    let store = Store::connect(&other.url, 2).await.unwrap();
    store.migrate().await.unwrap();

    let (expected, found) = (dump(&mut by_files).await, dump(&mut other.connect().await).await);
    for (expected, found) in expected.iter().zip(&found) {
        assert_eq!(expected, found);
    }
    assert_eq!(expected.len(), found.len());
    assert!(expected.iter().any(|line| line.contains(r#""owner_id": "User 2""#)));
}

#[tokio::test]
async fn migration_resumes_when_it_was_interrupted() {
    let database = oldest_schema().await;
    let mut connection = database.connect().await;
    migrations().await.run_to(7, &mut connection).await.unwrap();
    // The state that a killed process leaves: a column, some rows, and an invalid index.
    raw_sql(
        "ALTER TABLE keys ADD COLUMN owner_id TEXT COLLATE \"C\";
        UPDATE keys SET owner_id = 'User 2' WHERE id = 'key_2';
        CREATE INDEX keys_owner ON keys (api_id, owner_id, id) WHERE owner_id IS NOT NULL;
        UPDATE pg_index SET indisvalid = FALSE WHERE indexrelid = 'keys_owner'::regclass;",
    )
    .execute(&mut connection)
    .await
    .unwrap();

    let store = Store::connect(&database.url, 2).await.unwrap();
    store.migrate().await.unwrap();

    let all = dump(&mut connection).await;
    assert!(all.iter().any(|line| line.contains("INDEX keys_owner ") && line.ends_with(" t f")));
    let owned: i64 = sqlx::query_scalar("SELECT COUNT(*) FROM keys WHERE owner_id IS NOT NULL")
        .fetch_one(&mut connection)
        .await
        .unwrap();
    assert_eq!(owned, 2_500);
}

/// Any user that may create tables cannot create extensions.
#[tokio::test]
async fn migration_tells_which_extension_is_missing() {
    let database = Database::empty().await;
    let role = format!("kw_role_{}", random_letters());
    let mut admin = database.connect().await;
    let sql = format!(
        "CREATE ROLE {role} LOGIN PASSWORD 'secret'; GRANT ALL ON SCHEMA public TO {role};
        REVOKE ALL ON DATABASE {} FROM PUBLIC; GRANT CONNECT ON DATABASE {} TO {role};",
        database.name(),
        database.name()
    );
    raw_sql(AssertSqlSafe(sql)).execute(&mut admin).await.unwrap();
    let store = Store::connect(&database.url_as(&role, "secret"), 2).await.unwrap();

    let error = store.migrate().await.unwrap_err();
    store.close().await;
    let sql = format!("DROP OWNED BY {role}; DROP ROLE {role};");
    raw_sql(AssertSqlSafe(sql)).execute(&mut admin).await.unwrap();

    assert!(matches!(error, SchemaError::MissingExtension(_)), "{error}");
    assert!(!error.is_outage());
    for text in ["pg_trgm", "permission denied", "CREATE EXTENSION"] {
        assert!(error.to_string().contains(text), "{error}");
    }
}

/// A statement on any other connection is limited to 5 seconds.
#[tokio::test]
async fn migration_waits_for_another_one_beyond_the_statement_timeout() {
    let database = Database::empty().await;
    let mut other = PgConnection::connect(&database.url).await.unwrap();
    other.lock().await.unwrap();
    let store = Store::connect(&database.url, 2).await.unwrap();

    let waiting = tokio::spawn(async move { store.migrate().await });
    tokio::time::sleep(Duration::from_secs(6)).await;
    assert!(!waiting.is_finished());
    other.unlock().await.unwrap();

    waiting.await.unwrap().unwrap();
}

#[tokio::test]
async fn migration_does_not_block_others_while_it_waits_for_a_table() {
    let database = oldest_schema().await;
    let mut holder = database.connect().await;
    holder.execute("BEGIN; LOCK TABLE keys IN ACCESS SHARE MODE").await.unwrap();
    let store = Store::connect(&database.url, 2).await.unwrap();
    let migrating = tokio::spawn(async move { store.migrate().await });

    let mut slowest = Duration::ZERO;
    let mut reader = database.connect().await;
    for _ in 0..20 {
        let began = Stopwatch::new();
        reader.execute("SELECT FROM keys WHERE id = 'key_1'").await.unwrap();
        slowest = slowest.max(began.elapsed());
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    assert!(!migrating.is_finished());
    holder.execute("COMMIT").await.unwrap();

    migrating.await.unwrap().unwrap();
    assert!(slowest < Duration::from_secs(2), "{slowest:?}");
}

/// The migration before has built indexes, whose locks block no other client.
#[tokio::test]
async fn migration_after_the_build_of_an_index_does_not_block_others() {
    let database = oldest_schema().await;
    let mut holder = database.connect().await;
    migrations().await.run_to(24, &mut holder).await.unwrap();
    // Migration 26 creates a table that references this one.
    holder.execute("BEGIN; LOCK TABLE sessions IN ROW EXCLUSIVE MODE").await.unwrap();
    let store = Store::connect(&database.url, 2).await.unwrap();
    let migrating = tokio::spawn(async move { store.migrate().await });
    let mut writer = database.connect().await;
    let sql = "SELECT EXISTS (SELECT FROM pg_locks
        WHERE relation = CAST('sessions' AS REGCLASS) AND NOT granted)";
    while !sqlx::query_scalar::<_, bool>(sql).fetch_one(&mut writer).await.unwrap() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }

    writer.execute("SET statement_timeout = '2s'").await.unwrap();
    let written = writer.execute("DELETE FROM sessions WHERE FALSE").await;
    holder.execute("COMMIT").await.unwrap();

    migrating.await.unwrap().unwrap();
    written.unwrap();
}

/// From version 17 on, a migration that can block a database in use has a separate form for it.
#[test]
fn migration_has_an_online_form_when_it_scans_or_rewrites_a_table() {
    let mut wrong = Vec::new();
    for entry in std::fs::read_dir("migrations/postgres").unwrap() {
        let path = entry.unwrap().path();
        let file = path.file_name().unwrap().to_str().unwrap().to_owned();
        let sql = std::fs::read_to_string(&path).unwrap();
        let is_online = Path::new("migrations/online/postgres").join(&file).exists();
        let is_registered = include_str!("../../crates/store/src/schema/online.rs")
            .contains(&format!("\"{}\"", file.trim_end_matches(".sql")));
        assert_eq!(is_online, is_registered, "{file}");
        if file.as_str() >= "0017" && !is_online {
            wrong.extend(heavy(&sql).into_iter().map(|statement| format!("{file}: {statement}")));
        }
    }
    assert!(wrong.is_empty(), "see docs/decisions/0018: {wrong:#?}");
}

/// Returns the statements that read or rewrite an existing table completely.
fn heavy(sql: &str) -> Vec<String> {
    let code: Vec<_> = sql.lines().filter(|line| !line.trim_start().starts_with("--")).collect();
    let code = code.join(" ").split_whitespace().collect::<Vec<_>>().join(" ");
    let is_new = |table: &str| code.contains(&format!("CREATE TABLE {table} "));
    let is_heavy = |statement: &&str| {
        let words: Vec<_> = statement.split(' ').collect();
        let after = |word: &str| {
            words.iter().position(|w| *w == word).and_then(|at| words.get(at + 1)).copied()
        };
        match words.first().copied() {
            Some("UPDATE" | "DELETE") => true,
            Some("INSERT") => words.contains(&"SELECT"),
            Some("CREATE") if words.contains(&"INDEX") => !after("ON").is_some_and(is_new),
            Some("ALTER") => {
                !after("TABLE").is_some_and(is_new)
                    && ["CHECK", "UNIQUE", "FOREIGN", "TYPE", "PRIMARY", "SET NOT NULL"]
                        .iter()
                        .any(|words| statement.contains(words))
            }
            _ => false,
        }
    };
    code.split(';').map(str::trim).filter(is_heavy).map(str::to_owned).collect()
}

#[test]
fn heavy_statements_are_recognized() {
    let heavy_ones = [
        "UPDATE keys SET a = 1;",
        "CREATE INDEX a ON keys (b);",
        "ALTER TABLE keys ADD CONSTRAINT a UNIQUE (b);",
        "ALTER TABLE keys ALTER COLUMN a TYPE TEXT;",
        "INSERT INTO a SELECT b FROM keys;",
    ];
    let light =
        "CREATE TABLE a (b TEXT); CREATE INDEX c ON a (b); ALTER TABLE keys ADD COLUMN d BIGINT;";

    for sql in heavy_ones {
        assert_eq!(heavy(sql).len(), 1, "{sql}");
    }
    assert_eq!(heavy(light), Vec::<String>::new());
}

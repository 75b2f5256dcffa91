//! Tests schema migrations of a database in use, with real processes, and what these do at the same time.

use std::io::Write as _;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use foundation::clock::Stopwatch;
use serde_json::json;
use sqlx::migrate::{Migrate as _, Migrator};
use sqlx::postgres::{PgConnectOptions, PgConnection};
use sqlx::{AssertSqlSafe, ConnectOptions as _, Executor as _, query, query_scalar};
use tokio::runtime::Runtime;

use crate::faults::{ROOT_KEY, replica_command};
use crate::support::database::Database;
use crate::support::process::{Server, get};
use crate::support::redis_url;
use crate::{acquire_turn, share_turn};

/// Creates a database with the oldest schema.
async fn oldest_schema() -> Database {
    let database = Database::empty().await;
    let migrations = Migrator::new(Path::new("migrations/postgres")).await.unwrap();
    migrations.run_to(1, &mut database.connect().await).await.unwrap();
    database
}

fn command(database: &Database) -> Command {
    let mut command = replica_command(&database.url, &redis_url());
    // A late reply of Redis would be a reason not to be ready.
    command.env("KEYWARD_LOG", "info").env("KEYWARD_REDIS_TIMEOUT_MS", "2000");
    command
}

/// Waits until a log contains these words.
fn wait_for_log(log: &Path, words: &str) {
    let began = Stopwatch::new();
    loop {
        let text = std::fs::read_to_string(log).unwrap();
        if text.contains(words) {
            return;
        }
        assert!(began.elapsed() < Duration::from_secs(20), "{words:?} is not in {text}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Waits until a request that needs the whole schema succeeds. It returns 503 until then.
fn wait_until_ready(server: &Server) {
    let began = Stopwatch::new();
    loop {
        let api = json!({ "name": "payments" });
        let (status, answer) = server.v2(ROOT_KEY, "apis.createApi", &api);
        if status == 200 {
            return;
        }
        assert_eq!(status, 503, "{answer}");
        assert!(began.elapsed() < Duration::from_mins(1), "still refused");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Starts a replica that waits for its schema. It serves other requests.
fn launch(database: &Database, log: &Path) -> Server {
    let began = Stopwatch::new();
    let server = Server::launch(command(database), std::fs::File::create(log).unwrap().into());
    assert_eq!(get(server.address, "/livez").unwrap().0, 200);
    assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
    server
}

#[test]
fn replica_serves_and_logs_the_blocking_process_when_another_process_migrates() {
    let _turn = share_turn();
    let runtime = Runtime::new().unwrap();
    let database = runtime.block_on(oldest_schema());
    let mut other = runtime.block_on(async {
        let options: PgConnectOptions = database.url.parse().unwrap();
        let mut other = options.application_name("another one").connect().await.unwrap();
        other.lock().await.unwrap();
        other
    });
    let directory = tempfile::tempdir().unwrap();
    let log = directory.path().join("log");
    let server = launch(&database, &log);

    wait_for_log(&log, "waiting for another process to migrate the schema: \"another one\" from ");
    runtime.block_on(other.unlock()).unwrap();

    wait_until_ready(&server);
    let text = std::fs::read_to_string(&log).unwrap();
    assert!(text.contains("started schema migration 0008 (version 1)"), "{text}");
    assert!(text.contains("finished schema migration 0008 (version 1) in "), "{text}");
    let (_, ready) = get(server.address, "/readyz").unwrap();
    assert!(ready.contains("\"ready\""), "{ready}");
}

#[test]
fn failing_migration_fails_commands_and_is_logged_by_replicas() {
    let _turn = share_turn();
    let runtime = Runtime::new().unwrap();
    let database = runtime.block_on(oldest_schema());
    let run = |sql: &'static str| {
        runtime.block_on(async { database.connect().await.execute(sql).await.map(drop) }).unwrap();
    };
    run("CREATE TABLE namespaces ()");
    let fault = "while executing migration 2: error returned from database: \
        relation \"namespaces\" already exists";

    let output = command(&database).arg("migrate").output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    assert!(stderr.lines().last().unwrap().contains(fault), "{stderr}");

    let directory = tempfile::tempdir().unwrap();
    let log = directory.path().join("log");
    let server = launch(&database, &log);
    wait_for_log(&log, fault);
    let text = std::fs::read_to_string(&log).unwrap();
    let line = text.lines().find(|line| line.contains(fault)).unwrap();
    assert!(line.contains("ERROR"), "{line}");
    run("DROP TABLE namespaces");
    wait_until_ready(&server);
}

/// Returns the number of keys when the database is migrated: that of `KEYWARD_TEST_MIGRATION_KEYS`, or 200,000.
fn count_of_keys() -> u32 {
    let count = std::env::var("KEYWARD_TEST_MIGRATION_KEYS").ok();
    count.map_or(200_000, |count| count.parse().expect("a number of keys"))
}

/// Returns the maximum wait of a replica's statement during the migration: a statement that blocks all others takes longer the
/// more keys there are. Of a million keys, it is 3 seconds; replicas limit each statement to 5 seconds. A pause of the machine is
/// as long for a few keys.
fn wait_max(keys: u32) -> Duration {
    Duration::from_millis(500) + Duration::from_secs(3) * keys / 1_000_000
}

fn fill_statements(keys: u32) -> String {
    format!(
        "INSERT INTO workspaces (id, name, created_at) VALUES ('ws_1', 'One', 1);
        INSERT INTO apis (id, workspace_id, name, created_at) VALUES ('api_1', 'ws_1', 'Payments', 1);
        INSERT INTO permissions (id, workspace_id, slug, name, created_at)
            VALUES ('perm_1', 'ws_1', 'docs.read', 'Docs', 1);
        INSERT INTO identities (id, workspace_id, external_id, created_at)
            SELECT 'id_' || md5(n::TEXT), 'ws_1', 'user_' || n, 1 FROM generate_series(1, {identities}) n;
        INSERT INTO keys (id, workspace_id, api_id, hash, start, byte_length, identity_id, enabled, created_at)
            SELECT 'key_' || md5(n::TEXT), 'ws_1', 'api_1', 'hash_' || n, 'start', 16,
                CASE WHEN n % 2 = 0 THEN 'id_' || md5((n % {identities} + 1)::TEXT) END, TRUE, n
            FROM generate_series(1, {keys}) n;
        INSERT INTO key_permissions SELECT 'key_' || md5(n::TEXT), 'perm_1' FROM generate_series(1, {keys} / 20) n;
        INSERT INTO audit (id, workspace_id, at, event, actor_type, actor_id, targets)
            SELECT 'log_' || n, 'ws_1', n, 'key.create', 'key', 'rk_1', '[]' FROM generate_series(1, {keys} / 20) n;
        ANALYZE;",
        identities = keys / 10
    )
}

/// Runs the statements of replicas of the oldest schema repeatedly until the end. Returns the duration of the slowest
/// statement and the number of statements.
async fn run_replica_statements(
    url: String,
    keys: u32,
    number: usize,
    stop: Arc<AtomicBool>,
) -> (Duration, usize) {
    let options: PgConnectOptions = url.parse().unwrap();
    let options = options.options([("statement_timeout", "5000")]);
    let mut connection = options.connect().await.unwrap();
    let (mut slowest, mut done) = (Duration::ZERO, 0);
    while !stop.load(Ordering::Relaxed) {
        let n = 1 + (number * 7_919 + done * 104_729) % usize::try_from(keys).unwrap();
        for step in 0..5 {
            let began = Stopwatch::new();
            run_step(&mut connection, step, number, n, done).await;
            slowest = slowest.max(began.elapsed());
        }
        done += 1;
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    (slowest, done)
}

async fn run_step(
    connection: &mut PgConnection,
    step: usize,
    number: usize,
    n: usize,
    done: usize,
) {
    let sql = match step {
        0 => "SELECT k.id, k.enabled, i.external_id FROM keys k LEFT JOIN identities i ON i.id = k.identity_id
            WHERE k.hash = 'hash_' || $1 AND $2 > ''",
        1 => "UPDATE keys SET updated_at = 1 WHERE hash = 'hash_' || $1 AND $2 > ''",
        2 => "INSERT INTO keys (id, workspace_id, api_id, hash, start, byte_length, enabled, created_at)
            SELECT 'new_' || $2, 'ws_1', 'api_1', 'new_' || $2, 'start', 16, TRUE, 1 WHERE $1 > ''",
        3 => "INSERT INTO audit (id, workspace_id, at, event, actor_type, actor_id, targets)
            SELECT 'new_' || $2, 'ws_1', 1, 'key.create', 'key', $1, '[]'",
        _ => "INSERT INTO key_permissions SELECT 'new_' || $2, 'perm_1' WHERE $1 > ''",
    };
    let name = format!("{number}_{done}");
    let ran = query(sql).bind(n.to_string()).bind(name).execute(connection).await;
    ran.unwrap_or_else(|e| panic!("step {step}: {e}"));
}

#[test]
fn migration_of_many_keys_does_not_block_replicas() {
    let _turn = acquire_turn();
    let keys = count_of_keys();
    let runtime = Runtime::new().unwrap();
    let database = runtime.block_on(async {
        let database = oldest_schema().await;
        database.connect().await.execute(AssertSqlSafe(fill_statements(keys))).await.unwrap();
        database
    });
    let stop = Arc::new(AtomicBool::new(false));
    let using: Vec<_> = (0..4)
        .map(|n| runtime.spawn(run_replica_statements(database.url.clone(), keys, n, stop.clone())))
        .collect();

    let began = Stopwatch::new();
    let output = command(&database).arg("migrate").output().unwrap();
    let took = began.elapsed();
    stop.store(true, Ordering::Relaxed);
    let used: Vec<_> = using.into_iter().map(|used| runtime.block_on(used).unwrap()).collect();

    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{stderr}");
    assert!(stderr.contains("scanned ") && stderr.contains(" rows of keys, changed "), "{stderr}");
    let slowest = used.iter().map(|(slowest, _)| *slowest).max().unwrap();
    let done: usize = used.iter().map(|(_, done)| done).sum();
    let statements = done * 5;
    let summary =
        format!("migrated in {took:.1?}; the slowest of {statements} statements: {slowest:.1?}");
    let _ = writeln!(std::io::stdout(), "{summary}");
    assert!(slowest < wait_max(keys), "{summary}; {stderr}");
    let owned = "SELECT COUNT(*) FROM keys WHERE owner_id IS NOT NULL";
    let owned: i64 = runtime.block_on(async {
        query_scalar(owned).fetch_one(&mut database.connect().await).await.unwrap()
    });
    assert_eq!(owned, i64::from(keys / 2));
}

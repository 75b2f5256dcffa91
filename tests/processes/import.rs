//! Tests the import of keys that were issued elsewhere, in batches of 100: 10,000 keys, or as many as
//! `KEYWARD_TEST_IMPORT_KEYS` says.

use std::process::Command;
use std::time::Duration;

use foundation::clock::Stopwatch;
use foundation::secret::KeyHash;
use serde_json::{Value, json};
use sqlx::{Executor as _, query_scalar};

use crate::acquire_turn;
use crate::stage::Stage;
use crate::support::database::Database;
use crate::support::process::{Server, keyward_command};
use crate::support::{random_letters, redis_url};

const ROOT_KEY: &str = "a_root_key_of_an_operator_1";
const BATCH: usize = 100;
const PROGRESS_EVERY: usize = 20_000;

fn count_of_keys() -> usize {
    let count = std::env::var("KEYWARD_TEST_IMPORT_KEYS").ok();
    let keys = count.map_or(10_000, |count| count.parse().expect("a number of keys"));
    assert!(keys >= BATCH && keys.is_multiple_of(BATCH), "batches of {BATCH} keys");
    keys
}

fn secret_of(number: usize) -> String {
    format!("issued_elsewhere_{number}")
}

fn key_import(number: usize) -> Value {
    json!({
        "hash": KeyHash::compute(secret_of(number)).to_base64(),
        "externalId": format!("user_{}", number / 10),
        "permissions": ["docs.read"],
        "credits": { "remaining": 1000 },
        "ratelimits": [{ "name": "one", "limit": 10, "duration": 60_000, "autoApply": true }],
    })
}

fn assert_imports_all(command: impl Fn() -> Command) {
    let keys = count_of_keys();
    let migration = command()
        .args(["migration", "create", "--algorithm", "sha256", "--json"])
        .output()
        .unwrap();
    let migration: Value = serde_json::from_slice(&migration.stdout).unwrap();
    let server = Server::start(command());
    let ok = |operation: &str, body: &Value| {
        let (status, answer) = server.v2(ROOT_KEY, operation, body);
        assert_eq!(status, 200, "{operation}: {answer}");
        answer["data"].clone()
    };
    let api = ok("apis.createApi", &json!({ "name": "payments" }))["apiId"].clone();
    let send = |first: usize| {
        let batch: Vec<_> = (first..first + BATCH).map(key_import).collect();
        let migration = &migration["migrationId"];
        ok("keys.migrateKeys", &json!({ "migrationId": migration, "apiId": api, "keys": batch }))
    };
    let began = Stopwatch::new();

    for first in (0..keys).step_by(BATCH) {
        let done = send(first);
        assert_eq!(done["migrated"].as_array().unwrap().len(), BATCH, "{done}");
        assert_eq!(done["failed"], json!([]));
        if (first + BATCH).is_multiple_of(PROGRESS_EVERY) {
            let seconds = began.elapsed().as_secs_f64();
            eprintln!("{} of {keys} keys in {seconds:.1} s", first + BATCH);
        }
    }
    let again = send(0);

    assert_eq!(again["migrated"], json!([]));
    assert_eq!(again["failed"].as_array().unwrap().len(), BATCH);
    for number in (0..keys).step_by(keys / 100) {
        let request = json!({ "key": secret_of(number), "permissions": "docs.read" });
        let verified = ok("keys.verifyKey", &request);
        assert_eq!((&verified["code"], &verified["credits"]), (&json!("VALID"), &json!(999)));
    }
    let request = json!({ "apiId": api, "externalId": format!("user_{}", keys / 10 - 1) });
    assert_eq!(ok("apis.listKeys", &request).as_array().unwrap().len(), 10);
}

#[test]
fn embedded_server_imports_keys_issued_elsewhere() {
    let _turn = acquire_turn();
    let data = tempfile::tempdir().unwrap();

    assert_imports_all(|| {
        let mut command = keyward_command();
        command.env("KEYWARD_DATA_DIR", data.path()).env("KEYWARD_ROOT_KEY", ROOT_KEY);
        command.env("KEYWARD_LOG", "warn").env("KEYWARD_DRAIN_SECONDS", "0");
        command
    });
}

#[test]
fn replica_imports_keys_issued_elsewhere() {
    let _turn = acquire_turn();
    let database = tokio::runtime::Runtime::new().unwrap().block_on(Database::create());
    let prefix = format!("t{}:", random_letters());

    assert_imports_all(|| {
        let mut command = keyward_command();
        command
            .env("KEYWARD_DATABASE_URL", &database.url)
            .env("KEYWARD_REDIS_URL", redis_url())
            .env("KEYWARD_REDIS_PREFIX", &prefix)
            .env("KEYWARD_REDIS_TIMEOUT_MS", "2000")
            .env("KEYWARD_ROOT_KEY", ROOT_KEY)
            .env("KEYWARD_DRAIN_SECONDS", "0")
            .env("KEYWARD_LOG", "warn");
        command
    });
}

#[test]
fn postgres_knows_the_number_of_keys_when_many_were_imported() {
    const KEYS: usize = 10_000;
    let _turn = acquire_turn();
    let stage = Stage::new();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let mut connection = runtime.block_on(stage.database.connect());
    // Otherwise Postgres itself would count them, up to a minute later.
    let sql = "ALTER TABLE keys SET (autovacuum_enabled = false)";
    runtime.block_on(connection.execute(sql)).unwrap();
    let mut estimate = || -> i64 {
        let sql =
            "SELECT CAST(reltuples AS BIGINT) FROM pg_class WHERE oid = CAST('keys' AS REGCLASS)";
        runtime.block_on(query_scalar(sql).fetch_one(&mut connection)).unwrap()
    };
    let replica = stage.replica();
    let migration = stage.run(&["migration", "create", "--algorithm", "sha256"]);
    let api = replica.ok("apis.createApi", &json!({ "name": "payments" }))["apiId"].clone();
    let import = |numbers: std::ops::Range<usize>| {
        let hash = |number| json!({ "hash": KeyHash::compute(secret_of(number)).to_base64() });
        let keys: Vec<_> = numbers.map(hash).collect();
        let migration = &migration["migrationId"];
        let request = json!({ "migrationId": migration, "apiId": api, "keys": keys });
        replica.ok("keys.migrateKeys", &request)
    };

    for first in (0..KEYS - BATCH).step_by(BATCH) {
        import(first..first + BATCH);
    }
    import(KEYS - BATCH..KEYS - 1);
    std::thread::sleep(Duration::from_millis(2500));
    let before = estimate();
    import(KEYS - 1..KEYS);
    let since = Stopwatch::new();
    while estimate() < 0 && since.elapsed() < Duration::from_secs(5) {
        std::thread::sleep(Duration::from_millis(50));
    }

    assert!(before < 0, "{before} keys are known too early");
    assert_eq!(estimate(), 10_000);
    import(KEYS..KEYS + 1);
    std::thread::sleep(Duration::from_millis(2500));
    assert_eq!(estimate(), 10_000, "one key more does not matter");
}

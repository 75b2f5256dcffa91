//! A backup is made while a server serves, more happens, and the backup is restored elsewhere: what holds then.

use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};
use sqlx::{AssertSqlSafe, Connection as _, SqliteConnection};

use crate::alone;
use crate::engines::{self, Postgres};
use crate::faults::{ROOT_KEY, is_valid, verify};
use crate::servers::Redis;
use crate::support::process::{Server, keyward};

/// What there was when the backup was made, and what came after it.
struct Made {
    api: Value,
    metered: String,
    limited: String,
    revoked_later: String,
    revoked_id: Value,
}

fn ok(server: &Server, operation: &str, request: &Value) -> Value {
    let (status, answer) = server.v2(ROOT_KEY, operation, request);
    assert_eq!(status, 200, "{operation}: {answer}");
    answer["data"].clone()
}

fn text(value: &Value) -> String {
    value.as_str().unwrap().to_owned()
}

fn credits(server: &Server, key: &str, cost: i64) -> i64 {
    let request = json!({ "key": key, "credits": { "cost": cost } });
    ok(server, "keys.verifyKey", &request)["credits"].as_i64().unwrap()
}

/// Makes keys, and spends 90 of 1000 credits, a part of what a replica lends to Redis, and 3 of a limit of 5.
fn before(server: &Server) -> Made {
    let api = ok(server, "apis.createApi", &json!({ "name": "payments" }))["apiId"].clone();
    let limit = json!({ "name": "one", "limit": 5, "duration": 86_400_000, "autoApply": true });
    let make = |fields: Value| {
        let mut request = fields;
        request["apiId"] = api.clone();
        ok(server, "keys.createKey", &request)
    };
    let metered = text(&make(json!({ "credits": { "remaining": 1000 } }))["key"]);
    let limited = text(&make(json!({ "ratelimits": [limit] }))["key"]);
    let revoked = make(json!({}));
    for spent in 1..=9 {
        assert_eq!(credits(server, &metered, 10), 1000 - 10 * spent);
    }
    for _ in 0..3 {
        is_valid(&verify(server, &limited));
    }
    let (revoked_later, revoked_id) = (text(&revoked["key"]), revoked["keyId"].clone());
    Made { api, metered, limited, revoked_later, revoked_id }
}

/// More happens: 200 credits are spent, a key is deleted and another one made, which is what is told.
fn after(server: &Server, made: &Made) -> String {
    assert_eq!(credits(server, &made.metered, 200), 710);
    ok(server, "keys.deleteKey", &json!({ "keyId": made.revoked_id }));
    text(&ok(server, "keys.createKey", &json!({ "apiId": made.api }))["key"])
}

/// Fails unless what was restored is what there was; of credits and limits others say.
fn holds(server: &Server, made: &Made, made_later: &str, entries: &Value) {
    is_valid(&verify(server, &made.revoked_later));
    assert_eq!(verify(server, made_later).1["data"]["code"], "NOT_FOUND");
    let events: Vec<_> =
        entries.as_array().unwrap().iter().map(|entry| text(&entry["event"])).collect();
    let count = |event: &str| events.iter().filter(|known| *known == event).count();
    assert_eq!((count("api.create"), count("key.create"), count("key.delete")), (1, 3, 0));
    // The window has begun anew: all of it passes, and not one more.
    for _ in 0..5 {
        is_valid(&verify(server, &made.limited));
    }
    assert_eq!(verify(server, &made.limited).1["data"]["code"], "RATE_LIMITED");
}

fn json_of(mut command: Command, arguments: &[&str]) -> Value {
    let output = command.args(arguments).arg("--json").output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

fn embedded(data_dir: &Path) -> Command {
    let mut command = keyward();
    command
        .env("KEYWARD_DATA_DIR", data_dir)
        .env("KEYWARD_ROOT_KEY", ROOT_KEY)
        .env("KEYWARD_DRAIN_SECONDS", "0");
    command
}

/// As the command line of SQLite does it, beside the running server.
fn copy(from: &Path, to: &Path) {
    let url = format!("sqlite://{}", from.display());
    let sql = format!("VACUUM INTO '{}'", to.display());
    tokio::runtime::Runtime::new().unwrap().block_on(async {
        let mut file = SqliteConnection::connect(&url).await.unwrap();
        sqlx::query(AssertSqlSafe(sql)).execute(&mut file).await.unwrap();
    });
}

#[test]
fn an_embedded_server_is_copied_while_it_writes_and_restored() {
    let _turn = alone();
    let (data, restored) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let server = Server::start(embedded(data.path()));
    let made = before(&server);

    // Somebody writes all the while.
    let address = server.address;
    let writer = std::thread::spawn(move || {
        for n in 0..200 {
            let request = json!({ "externalId": format!("user_{n}") });
            let answer = crate::support::process::v2(
                address,
                ROOT_KEY,
                "identities.createIdentity",
                &request,
            );
            assert_eq!(answer.unwrap().0, 200);
        }
    });
    for name in ["keyward.db", "keyward-events.db"] {
        copy(&data.path().join(name), &restored.path().join(name));
    }
    writer.join().unwrap();
    std::fs::copy(data.path().join("master.key"), restored.path().join("master.key")).unwrap();
    let made_later = after(&server, &made);
    drop(server);

    let entries = json_of(embedded(restored.path()), &["audit", "list", "--limit", "1000"]);
    let server = Server::start(embedded(restored.path()));
    holds(&server, &made, &made_later, &entries);
    assert_eq!(credits(&server, &made.metered, 0), 910);
    let found = json_of(embedded(restored.path()), &["doctor"]);
    let faults = found.as_array().unwrap().iter().filter(|found| found["state"] == "problem");
    assert_eq!(faults.count(), 0, "{found}");
}

fn replica(postgres: &Postgres, redis: &Redis) -> Command {
    let mut command = keyward();
    command
        .env("KEYWARD_DATABASE_URL", postgres.url())
        .env("KEYWARD_REDIS_URL", redis.url())
        .env("KEYWARD_ROOT_KEY", ROOT_KEY)
        .env("KEYWARD_DRAIN_SECONDS", "0");
    command
}

/// Beside the server's programs, or wherever the system keeps them.
fn postgres_tool(name: &str) -> Command {
    let beside = Path::new(&std::env::var("POSTGRES_BIN").expect("./test sets it")).join(name);
    if beside.exists() { Command::new(beside) } else { Command::new(name) }
}

#[track_caller]
fn runs(command: &mut Command) {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn a_postgres_is_dumped_while_replicas_serve_and_restored_on_another_server() {
    let _turn = alone();
    let (first, second) = (engines::directory(), engines::directory());
    let (here, there) = (Postgres::start(first.path(), || 0), Postgres::start(second.path(), || 0));
    let (redis, empty) = (Redis::start(), Redis::start());
    let dump = first.path().join("keyward.dump");
    let server = Server::start(replica(&here, &redis));
    let made = before(&server);

    let to = format!("--file={}", dump.display());
    runs(postgres_tool("pg_dump").args(["--format=custom", &to]).arg(here.url()));
    let made_later = after(&server, &made);
    // The whole place is lost.
    server.signal("KILL");
    drop((server, redis));
    let into = format!("--dbname={}", there.url());
    runs(postgres_tool("pg_restore").args(["--no-owner", "--exit-on-error", &into]).arg(&dump));

    let command = || replica(&there, &empty);
    let entries = json_of(command(), &["audit", "list"]);
    let server = Server::start(command());
    holds(&server, &made, &made_later, &entries);
    // What was in the lost Redis is withheld until somebody says that it will not come back.
    let left = credits(&server, &made.metered, 10);
    let withheld = json_of(command(), &["credits", "list"])[0]["withheld"].as_i64().unwrap();
    let released = json_of(command(), &["credits", "release", "--all"])["released"].as_i64();
    assert!(withheld > 0, "nothing was lent");
    assert_eq!(released, Some(withheld));
    // Of the 90 that were spent from it the bank had not been told all, and of what came later it knows nothing.
    let known = left + withheld;
    assert!((900..=990).contains(&known), "{left} and {withheld}");
    // More than a purse holds, so the bank is asked.
    assert_eq!(credits(&server, &made.metered, 200), known - 200);
}

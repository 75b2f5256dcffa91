//! Tests that a running server does its work beside the requests: a task that is never started would be noticed when a
//! disk is full.

use std::time::Duration;

use foundation::clock::{DAY_MS, Stopwatch};
use serde_json::json;
use sqlx::{Connection as _, PgConnection};
use tokio::time::sleep;

use crate::support::database::Database;
use crate::support::process::{Server, keyward_command, v2};
use crate::support::{random_letters, redis_url};

const ROOT_KEY: &str = "a_root_key_of_an_operator_1";
/// The longest interval that the test waits for is half a minute.
const WITHIN: Duration = Duration::from_mins(1);

async fn count(connection: &mut PgConnection, sql: &'static str) -> i64 {
    sqlx::query_scalar(sql).fetch_one(connection).await.unwrap()
}

#[tokio::test]
async fn old_rows_are_deleted_and_new_ones_rolled_up_when_a_server_runs() {
    let database = Database::create().await;
    let mut connection = PgConnection::connect(&database.url).await.unwrap();
    let old = "INSERT INTO changes (at, subject)
        SELECT CAST(EXTRACT(EPOCH FROM now()) * 1000 AS BIGINT) - $1, 'key:key_old'
        FROM generate_series(1, 20000)";
    sqlx::query(old).bind(DAY_MS + 60_000).execute(&mut connection).await.unwrap();
    let old = "INSERT INTO keyward_events.verifications_per_minute
        VALUES ('\\x00', 0, 1, 0, 0, 0, 0, 0, 0, 0, 0)";
    sqlx::query(old).execute(&mut connection).await.unwrap();
    let mut command = keyward_command();
    command
        .env("KEYWARD_DATABASE_URL", &database.url)
        .env("KEYWARD_REDIS_URL", redis_url())
        .env("KEYWARD_REDIS_PREFIX", format!("t{}:", random_letters()))
        .env("KEYWARD_ROOT_KEY", ROOT_KEY)
        .env("KEYWARD_DRAIN_SECONDS", "0");
    let server = Server::start(command);
    let send = |operation: &str, body: &serde_json::Value| {
        let (status, reply) = v2(server.address, ROOT_KEY, operation, body).unwrap();
        assert_eq!(status, 200, "{reply}");
        reply["data"].clone()
    };
    let api = send("apis.createApi", &json!({ "name": "payments" }));
    let key = send("keys.createKey", &json!({ "apiId": api["apiId"] }));
    let verified = send("keys.verifyKey", &json!({ "key": key["key"] }));
    assert_eq!(verified["code"], "VALID");

    let began = Stopwatch::new();
    for (what, sql) in [
        ("the change log is pruned", "SELECT COUNT(*) FROM changes WHERE subject = 'key:key_old'"),
        (
            "old rollups are deleted",
            "SELECT COUNT(*) FROM keyward_events.verifications_per_minute WHERE time = 0",
        ),
        (
            "events are rolled up",
            "SELECT 1 - COUNT(*) FROM keyward_events.verifications_per_minute WHERE time > 0",
        ),
        ("the last use is recorded", "SELECT 1 - COUNT(*) FROM key_uses"),
    ] {
        while count(&mut connection, sql).await != 0 {
            assert!(began.elapsed() < WITHIN, "{what}: not within {WITHIN:?}");
            sleep(Duration::from_millis(200)).await;
        }
    }
}

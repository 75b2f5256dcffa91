//! Tests what an operator finds by the request id that a caller reports.

use std::process::Stdio;

use sqlx::{Row as _, SqliteConnection};

use super::*;

#[test]
fn log_contains_failed_request_by_id() {
    let data = tempfile::tempdir().unwrap();
    let log = data.path().join("log");
    let mut command = keyward_command();
    command
        .env("KEYWARD_DATABASE_URL", format!("postgres://nobody@127.0.0.1:{}/none", free_port()))
        .env("KEYWARD_REDIS_URL", redis_url())
        .env("KEYWARD_LOG_FORMAT", "json");
    let log_file = std::fs::File::create(&log).unwrap();
    let server = Server::launch(command, Stdio::from(log_file));

    let (status, answer) = server.v2(ROOT_KEY, "keys.verifyKey", &json!({ "key": "x" }));

    assert_eq!(status, 503, "{answer}");
    let id = &answer["meta"]["requestId"];
    let text = std::fs::read_to_string(&log).unwrap();
    let lines = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let found: Vec<_> = lines.filter(|line| &line["request.id"] == id).collect();
    assert_eq!(found.len(), 1, "{text}");
    assert_eq!(found[0]["level"], "ERROR");
    let message = found[0]["message"].as_str().unwrap();
    assert!(
        message.starts_with("keys.verifyKey failed: the database is not available"),
        "{message}"
    );
}

#[test]
fn events_contain_verification_by_request_id() {
    let data = tempfile::tempdir().unwrap();
    let mut command = embedded(data.path());
    command.env("KEYWARD_ROOT_KEY", ROOT_KEY);
    let server = Server::start(command);
    let (_, api) = server.v2(ROOT_KEY, "apis.createApi", &json!({ "name": "payments" }));
    let request = json!({ "apiId": api["data"]["apiId"], "enabled": false });
    let (_, issued) = server.v2(ROOT_KEY, "keys.createKey", &request);
    let verify = json!({ "key": issued["data"]["key"] });
    let (_, answer) = server.v2(ROOT_KEY, "keys.verifyKey", &verify);
    // The last events are written when a server stops.
    server.signal("TERM");
    server.wait();

    let document = include_str!("../../docs/troubleshoot.md");
    let mut queries =
        document.split("```sql\n").skip(1).filter_map(|rest| rest.split("```").next());
    let shown = queries.find(|sql| sql.contains("req_…")).unwrap();
    let id = answer["meta"]["requestId"].as_str().unwrap();
    let sql = shown.replace("keyward_events.", "").replace("req_…", id);
    let url = format!("sqlite://{}", data.path().join("keyward-events.db").display());
    let row = tokio::runtime::Runtime::new().unwrap().block_on(async {
        let mut file = SqliteConnection::connect(&url).await.unwrap();
        sqlx::query(sqlx::AssertSqlSafe(sql)).fetch_one(&mut file).await.unwrap()
    });

    assert_eq!(row.get::<&str, _>("key_id"), issued["data"]["keyId"].as_str().unwrap());
    assert_eq!(row.get::<&str, _>("outcome"), "DISABLED");
    assert_eq!(row.get::<&str, _>("reason"), "The key is disabled");
}

//! Tests the checks of the ClickHouse that receives events.

use std::path::Path;
use std::time::Duration;

use serde_json::json;

use super::*;
use crate::support::clickhouse::ClickHouseDatabase;

fn with_clickhouse(data: &Path, url: &str) -> Command {
    let mut command = embedded(data);
    command
        .env("KEYWARD_ROOT_KEY", ROOT_KEY)
        .env("KEYWARD_DRAIN_SECONDS", "0")
        .env("KEYWARD_CLICKHOUSE_URL", url);
    command
}

/// Returns how many verifications have been delivered.
fn count_delivered(warehouse: &ClickHouseDatabase) -> usize {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let counting =
        warehouse.client.fetch_rows::<(String,)>("SELECT key_id FROM verifications", &[]);
    runtime.block_on(counting).map_or(0, |rows| rows.len())
}

#[test]
fn server_delivers_every_second_and_when_it_stops() {
    let (data, warehouse) = (tempfile::tempdir().unwrap(), ClickHouseDatabase::uninitialized());
    let start = || Server::start(with_clickhouse(data.path(), warehouse.url.as_str()));
    let server = start();
    let (_, api) = server.v2(ROOT_KEY, "apis.createApi", &json!({ "name": "payments" }));
    let request = json!({ "apiId": api["data"]["apiId"] });
    let (_, issued) = server.v2(ROOT_KEY, "keys.createKey", &request);
    let verify = |server: &Server| {
        let (_, verified) =
            server.v2(ROOT_KEY, "keys.verifyKey", &json!({ "key": issued["data"]["key"] }));
        assert_eq!(verified["data"]["code"], "VALID", "{verified}");
    };
    verify(&server);
    for _ in 0..200 {
        if count_delivered(&warehouse) == 1 {
            break;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    assert_eq!(count_delivered(&warehouse), 1);

    verify(&server);
    server.signal("TERM");
    server.wait();

    assert_eq!(count_delivered(&warehouse), 2);
    let told = DoctorReport::by(&mut with_clickhouse(data.path(), warehouse.url.as_str()));
    told.assert_problems(&[]).assert_finding(
        "clickhouse",
        "ok",
        &["responds", "no events are pending"],
    );
}

#[test]
fn unreachable_clickhouse_is_reported_and_server_keeps_running() {
    let data = tempfile::tempdir().unwrap();
    let url = format!("http://keyward:secret@127.0.0.1:{}/events", free_port());
    let log = data.path().join("log");
    let server = Server::start_logging(with_clickhouse(data.path(), &url), &log);
    let said = || std::fs::read_to_string(&log).unwrap();
    for _ in 0..200 {
        if said().contains("failed to deliver events to ClickHouse") {
            break;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    server.signal("TERM");
    server.wait();

    let told = DoctorReport::by(&mut with_clickhouse(data.path(), &url));

    assert!(said().contains("failed to deliver events to ClickHouse"), "{}", said());
    assert!(!said().contains("secret"), "{}", said());
    told.assert_problems(&["clickhouse"]).assert_finding(
        "clickhouse",
        "problem",
        &["cannot be reached", "refused", "no events are pending", "KEYWARD_CLICKHOUSE_URL"],
    );
    assert!(!format!("{:?}", told.findings).contains("secret"), "{:?}", told.findings);
}

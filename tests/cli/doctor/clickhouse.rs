//! The ClickHouse that events go to.

use std::path::Path;
use std::time::Duration;

use serde_json::json;

use super::*;
use crate::support::clickhouse::Warehouse;

fn with_clickhouse(data: &Path, url: &str) -> Command {
    let mut command = embedded(data);
    command
        .env("KEYWARD_ROOT_KEY", ROOT_KEY)
        .env("KEYWARD_DRAIN_SECONDS", "0")
        .env("KEYWARD_CLICKHOUSE_URL", url);
    command
}

/// How many verifications have arrived.
fn arrived(warehouse: &Warehouse) -> usize {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let counting = warehouse.client.rows::<(String,)>("SELECT key_id FROM verifications", &[]);
    runtime.block_on(counting).map_or(0, |rows| rows.len())
}

#[test]
fn a_server_delivers_every_second_and_once_more_when_it_stops() {
    let (data, warehouse) = (tempfile::tempdir().unwrap(), Warehouse::unmade());
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
        if arrived(&warehouse) == 1 {
            break;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    assert_eq!(arrived(&warehouse), 1);

    verify(&server);
    server.signal("TERM");
    server.wait();

    assert_eq!(arrived(&warehouse), 2);
    let told = Told::by(&mut with_clickhouse(data.path(), warehouse.url.as_str()));
    told.has_problems(&[]).has("clickhouse", "ok", &["answers", "no event waits"]);
}

#[test]
fn one_that_cannot_be_reached_is_told_and_stops_no_server() {
    let data = tempfile::tempdir().unwrap();
    let url = format!("http://keyward:secret@127.0.0.1:{}/events", free_port());
    let log = data.path().join("log");
    let server = Server::start_logging(with_clickhouse(data.path(), &url), &log);
    let said = || std::fs::read_to_string(&log).unwrap();
    for _ in 0..200 {
        if said().contains("cannot deliver events to ClickHouse") {
            break;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    server.signal("TERM");
    server.wait();

    let told = Told::by(&mut with_clickhouse(data.path(), &url));

    assert!(said().contains("cannot deliver events to ClickHouse"), "{}", said());
    assert!(!said().contains("secret"), "{}", said());
    told.has_problems(&["clickhouse"]).has(
        "clickhouse",
        "problem",
        &["cannot be reached", "no event waits", "KEYWARD_CLICKHOUSE_URL"],
    );
    assert!(!format!("{:?}", told.findings).contains("secret"), "{:?}", told.findings);
}

//! Tests replicas whose address of Postgres leads to a standby.

use std::time::Duration;

use foundation::clock::Stopwatch;
use serde_json::{Value, json};

use crate::acquire_turn;
use crate::client::Client;
use crate::fleet::{Fleet, ROOT_KEY};

/// How long a replica may take to notice, and to recover.
const RECOVERY_MAX: Duration = Duration::from_secs(10);

fn call(client: &mut Client, operation: &str, body: &Value) -> (u16, Value) {
    let response = client.v2(ROOT_KEY, operation, body).expect("an answer");
    (response.status, serde_json::from_str(&response.body).expect("JSON"))
}

#[test]
fn replica_reads_nothing_from_standby_until_it_is_promoted() {
    let _turn = acquire_turn();
    let mut fleet = Fleet::prepare(1);
    fleet.replicas[0].start();
    fleet.replicas[0].await_ready();
    let mut client = Client::new(fleet.replicas[0].address);
    let (_, api) = call(&mut client, "apis.createApi", &json!({ "name": "payments" }));
    let issue = json!({ "apiId": api["data"]["apiId"] });
    let [cached, uncached] = [(); 2].map(|()| {
        let (status, issued) = call(&mut client, "keys.createKey", &issue);
        assert_eq!(status, 200, "{issued}");
        json!({ "key": issued["data"]["key"] })
    });
    let code = |client: &mut Client, key: &Value| {
        let (status, response) = call(client, "keys.verifyKey", key);
        (status, response["data"]["code"].as_str().unwrap_or_default().to_owned())
    };
    assert_eq!(code(&mut client, &cached), (200, "VALID".to_owned()));
    // Wait until announcements are relied on.
    std::thread::sleep(Duration::from_secs(2));

    fleet.postgres.restart_as_standby();

    let began = Stopwatch::new();
    while began.elapsed() < Duration::from_secs(7) {
        assert_eq!(code(&mut client, &uncached).0, 503);
        assert_eq!(call(&mut client, "keys.createKey", &issue).0, 503);
        assert_eq!(code(&mut client, &cached), (200, "VALID".to_owned()));
        std::thread::sleep(Duration::from_millis(200));
    }

    fleet.postgres.execute("SELECT pg_promote()");

    let began = Stopwatch::new();
    while call(&mut client, "keys.createKey", &issue).0 != 200 {
        assert!(began.elapsed() < RECOVERY_MAX, "still refused");
        std::thread::sleep(Duration::from_millis(100));
    }
    assert_eq!(code(&mut client, &uncached), (200, "VALID".to_owned()));
}

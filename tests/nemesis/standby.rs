//! The address of Postgres leads to a standby.

use std::time::Duration;

use foundation::clock::Stopwatch;
use serde_json::{Value, json};

use crate::alone;
use crate::client::Client;
use crate::fleet::{Fleet, ROOT_KEY};

/// How long a replica takes to notice, and to be back to normal.
const NOTICED: Duration = Duration::from_secs(10);

fn ask(client: &mut Client, operation: &str, body: &Value) -> (u16, Value) {
    let told = client.v2(ROOT_KEY, operation, body).expect("an answer");
    (told.status, serde_json::from_str(&told.body).expect("JSON"))
}

#[test]
fn nothing_is_read_from_a_standby_and_all_works_when_it_is_promoted() {
    let _turn = alone();
    let mut fleet = Fleet::prepare(1);
    fleet.replicas[0].start();
    fleet.replicas[0].await_ready();
    let mut client = Client::of(fleet.replicas[0].address);
    let (_, api) = ask(&mut client, "apis.createApi", &json!({ "name": "payments" }));
    let issue = json!({ "apiId": api["data"]["apiId"] });
    let [cached, uncached] = [(); 2].map(|()| {
        let (status, issued) = ask(&mut client, "keys.createKey", &issue);
        assert_eq!(status, 200, "{issued}");
        json!({ "key": issued["data"]["key"] })
    });
    let code = |client: &mut Client, key: &Value| {
        let (status, told) = ask(client, "keys.verifyKey", key);
        (status, told["data"]["code"].as_str().unwrap_or_default().to_owned())
    };
    assert_eq!(code(&mut client, &cached), (200, "VALID".to_owned()));
    // Until announcements are relied on.
    std::thread::sleep(Duration::from_secs(2));

    fleet.postgres.restart_as_standby();

    let began = Stopwatch::new();
    while began.elapsed() < Duration::from_secs(7) {
        assert_eq!(code(&mut client, &uncached).0, 503);
        assert_eq!(ask(&mut client, "keys.createKey", &issue).0, 503);
        assert_eq!(code(&mut client, &cached), (200, "VALID".to_owned()));
        std::thread::sleep(Duration::from_millis(200));
    }

    fleet.postgres.execute("SELECT pg_promote()");

    let began = Stopwatch::new();
    while ask(&mut client, "keys.createKey", &issue).0 != 200 {
        assert!(began.elapsed() < NOTICED, "it is still refused");
        std::thread::sleep(Duration::from_millis(100));
    }
    assert_eq!(code(&mut client, &uncached), (200, "VALID".to_owned()));
}

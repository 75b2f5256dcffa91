//! What there is when all is over: balances, the ledger, the audit log.

use std::collections::HashMap;
use std::time::Duration;

use foundation::clock::Stopwatch;
use serde_json::{Value, json};
use sqlx::Connection as _;
use sqlx::postgres::PgConnection;

use crate::client::Client;
use crate::fleet::{Fleet, ROOT_KEY};
use crate::load::REROLLED_CREDITS;
use crate::record::{Answer, Asked, Ending, KeyFacts};
use crate::servers::block_on;

/// Of keys with at most so much left, all is spent at the end.
const DRAINED_MAX: i64 = 400;

/// Asks for every key, releases what is withheld, and empties what is small.
pub fn of(fleet: &Fleet, keys: &[KeyFacts]) -> Vec<Ending> {
    let mut client = Client::of(fleet.replicas[0].address);
    let audit = audit(fleet);
    for facts in keys.iter().filter(|facts| facts.credits == Some(REROLLED_CREDITS)) {
        settle(&mut client, facts);
    }
    let (mut endings, ledger) = settled(fleet, &mut client, keys);
    for ending in &mut endings {
        let id = &keys[ending.key].id;
        let entries = ledger.iter().filter(|(key, _)| key == id).map(|(_, units)| *units);
        ending.withheld = entries.clone().filter(|units| *units > 0).sum();
        ending.below_zero = entries.filter(|units| *units < 0).sum();
        ending.audit = audit.get(id).cloned().unwrap_or_default();
    }
    fleet.command(&["credits", "release", "--all", "--json"]);
    assert!(ledger_of(fleet).is_empty(), "the ledger is empty once all is released");
    std::thread::sleep(Duration::from_secs(1));
    for ending in endings.iter_mut().filter(|ending| ending.credits.is_some()) {
        ending.told = ask_for(&mut client, &keys[ending.key]).credits;
        ending.released = Some(spend_one(&mut client, &keys[ending.key]));
        if ending.released.is_some_and(|left| left <= DRAINED_MAX) {
            let one = i64::from(ending.released > Some(0));
            ending.drained = drain(&mut client, &keys[ending.key]).map(|drained| one + drained);
        }
    }
    endings
}

/// Has all leases of a key closed or withheld, such as those of a key that nobody has asked for since its re-roll failed.
fn settle(client: &mut Client, facts: &KeyFacts) {
    let request = json!({ "keyId": facts.id, "operation": "increment", "value": 0 });
    let began = Stopwatch::new();
    while client.v2(ROOT_KEY, "keys.updateCredits", &request).expect("an answer").status != 200 {
        assert!(began.elapsed() < Duration::from_secs(30), "its balance cannot be changed");
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// What is told of every key, and the ledger, at one moment: while the ledger did not change.
fn settled(
    fleet: &Fleet,
    client: &mut Client,
    keys: &[KeyFacts],
) -> (Vec<Ending>, Vec<(String, i64)>) {
    let began = Stopwatch::new();
    loop {
        let before = ledger_of(fleet);
        let all = keys.iter().enumerate();
        let endings = all.map(|(key, facts)| Ending { key, ..ask_for(client, facts) }).collect();
        if ledger_of(fleet) == before {
            return (endings, before);
        }
        assert!(began.elapsed() < Duration::from_mins(1), "the ledger does not come to rest");
    }
}

/// The keys in the ledger, with what is withheld from them.
fn ledger_of(fleet: &Fleet) -> Vec<(String, i64)> {
    let told: Value = serde_json::from_str(&fleet.command(&["credits", "list", "--json"]))
        .expect("the ledger as JSON");
    let entry = |entry: &Value| {
        let key = entry["keyId"].as_str().expect("a key").to_owned();
        (key, entry["withheld"].as_i64().expect("a number"))
    };
    told.as_array().expect("a list").iter().map(entry).collect()
}

fn ask_for(client: &mut Client, facts: &KeyFacts) -> Ending {
    let request = json!({ "keyId": facts.id });
    let told = client.v2(ROOT_KEY, "keys.getKey", &request).expect("an answer when all is well");
    let body: Value = serde_json::from_str(&told.body).unwrap_or(Value::Null);
    let data = &body["data"];
    Ending {
        status: told.status,
        name: data["name"].as_str().map(str::to_owned),
        enabled: data["enabled"] == true,
        credits: data["credits"]["remaining"].as_i64(),
        ..Ending::default()
    }
}

/// What is left before one is spent, by the word of who spends it.
fn spend_one(client: &mut Client, facts: &KeyFacts) -> i64 {
    loop {
        let told = spend(client, facts);
        match told.code.as_str() {
            "VALID" => return told.credits.unwrap_or(0) + 1,
            "RATE_LIMITED" => std::thread::sleep(Duration::from_millis(100)),
            _ if told.status == 200 => return told.credits.unwrap_or(0),
            _ => std::thread::sleep(Duration::from_millis(100)),
        }
    }
}

/// Spends one after the other until there is nothing left; how many there were. Limits are waited for. `None`: of some
/// nobody knows whether they were spent.
fn drain(client: &mut Client, facts: &KeyFacts) -> Option<i64> {
    let (mut drained, mut is_known) = (0, true);
    loop {
        let told = spend(client, facts);
        is_known &= told.status == 200 && !told.degraded;
        match told.code.as_str() {
            "VALID" => drained += 1,
            "RATE_LIMITED" => std::thread::sleep(Duration::from_millis(100)),
            _ if told.status == 200 => return is_known.then_some(drained),
            _ => std::thread::sleep(Duration::from_millis(100)),
        }
    }
}

fn spend(client: &mut Client, facts: &KeyFacts) -> Answer {
    let request = json!({ "key": facts.key });
    let told = client.v2(ROOT_KEY, "keys.verifyKey", &request).expect("an answer");
    Answer::read(told.status, &told.body, &Asked::Verify { key: 0, cost: 1 })
}

/// The events of the audit log by their targets, oldest first.
fn audit(fleet: &Fleet) -> HashMap<String, Vec<String>> {
    let rows: Vec<(String, String)> = block_on(async {
        let mut connection = PgConnection::connect(&fleet.postgres.url()).await.expect("Postgres");
        sqlx::query_as("SELECT event, targets FROM audit ORDER BY at")
            .fetch_all(&mut connection)
            .await
            .expect("the audit log")
    });
    let mut audit: HashMap<String, Vec<String>> = HashMap::new();
    for (event, targets) in rows {
        let targets: Value = serde_json::from_str(&targets).expect("targets as JSON");
        for target in targets.as_array().into_iter().flatten() {
            let id = target["id"].as_str().unwrap_or_default().to_owned();
            audit.entry(id).or_default().push(event.clone());
        }
    }
    audit
}

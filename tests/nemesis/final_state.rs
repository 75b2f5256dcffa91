//! Reads the final state of a run: balances, withheld credits and the audit log.

use std::collections::HashMap;
use std::time::Duration;

use foundation::clock::Stopwatch;
use serde_json::{Value, json};
use sqlx::Connection as _;
use sqlx::postgres::PgConnection;

use crate::client::Client;
use crate::fleet::{Fleet, ROOT_KEY};
use crate::load::REROLLED_CREDITS;
use crate::record::{Action, Answer, KeyFinalState, KeyInfo};
use crate::servers::block_on;

/// Keys with at most this many remaining credits are spent completely at the end.
const DRAINED_MAX: i64 = 400;

/// Reads every key, releases withheld credits, and spends small balances.
pub fn read_all(fleet: &Fleet, keys: &[KeyInfo]) -> Vec<KeyFinalState> {
    let mut client = Client::new(fleet.replicas[0].address);
    let audit = audit(fleet);
    // A region knows nothing of the leases of the others.
    let is_closed = |info: &&KeyInfo| match fleet.has_regions() {
        true => info.credits.is_some(),
        false => info.credits == Some(REROLLED_CREDITS),
    };
    for info in keys.iter().filter(is_closed) {
        close_leases(&mut client, info);
    }
    let (mut final_states, ledger) = read_consistently(fleet, &mut client, keys);
    for final_state in &mut final_states {
        let id = &keys[final_state.key].id;
        let entries = ledger.iter().filter(|(key, _)| key == id).map(|(_, units)| *units);
        final_state.withheld = entries.clone().filter(|units| *units > 0).sum();
        final_state.below_zero = entries.filter(|units| *units < 0).sum();
        final_state.audit = audit.get(id).cloned().unwrap_or_default();
    }
    fleet.command(&["credits", "release", "--all", "--json"]);
    assert!(withheld_credits(fleet).is_empty(), "credits are still withheld after the release");
    std::thread::sleep(Duration::from_secs(1));
    for final_state in final_states.iter_mut().filter(|final_state| final_state.credits.is_some()) {
        final_state.credits_reported = get_key(&mut client, &keys[final_state.key]).credits;
        final_state.credits_released = Some(spend_one(&mut client, &keys[final_state.key]));
        if final_state.credits_released.is_some_and(|left| left <= DRAINED_MAX) {
            let one = i64::from(final_state.credits_released > Some(0));
            final_state.drained =
                drain(&mut client, &keys[final_state.key]).map(|drained| one + drained);
        }
    }
    final_states
}

/// Makes the server close or withhold all leases of a key, including those of a key that was not used since its re-roll
/// failed.
fn close_leases(client: &mut Client, info: &KeyInfo) {
    let request = json!({ "keyId": info.id, "operation": "increment", "value": 0 });
    let began = Stopwatch::new();
    while client.v2(ROOT_KEY, "keys.updateCredits", &request).expect("an answer").status != 200 {
        assert!(began.elapsed() < Duration::from_secs(30), "the balance cannot be changed");
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// Reads every key and the withheld credits at one moment: while the withheld credits did not change.
fn read_consistently(
    fleet: &Fleet,
    client: &mut Client,
    keys: &[KeyInfo],
) -> (Vec<KeyFinalState>, Vec<(String, i64)>) {
    let began = Stopwatch::new();
    loop {
        let before = withheld_credits(fleet);
        let all = keys.iter().enumerate();
        let final_states =
            all.map(|(key, info)| KeyFinalState { key, ..get_key(client, info) }).collect();
        if withheld_credits(fleet) == before {
            return (final_states, before);
        }
        assert!(began.elapsed() < Duration::from_mins(1), "withheld credits keep changing");
    }
}

/// Returns the keys with withheld credits, and the amounts.
fn withheld_credits(fleet: &Fleet) -> Vec<(String, i64)> {
    let response: Value = serde_json::from_str(&fleet.command(&["credits", "list", "--json"]))
        .expect("withheld credits as JSON");
    let entry = |entry: &Value| {
        let key = entry["keyId"].as_str().expect("a key").to_owned();
        (key, entry["withheld"].as_i64().expect("a number"))
    };
    response.as_array().expect("a list").iter().map(entry).collect()
}

fn get_key(client: &mut Client, info: &KeyInfo) -> KeyFinalState {
    let request = json!({ "keyId": info.id });
    let response =
        client.v2(ROOT_KEY, "keys.getKey", &request).expect("an answer when all is well");
    let body: Value = serde_json::from_str(&response.body).unwrap_or(Value::Null);
    let data = &body["data"];
    KeyFinalState {
        status: response.status,
        name: data["name"].as_str().map(str::to_owned),
        enabled: data["enabled"] == true,
        credits: data["credits"]["remaining"].as_i64(),
        ..KeyFinalState::default()
    }
}

/// Returns the balance before one credit is spent, according to the reply to that spend.
fn spend_one(client: &mut Client, info: &KeyInfo) -> i64 {
    loop {
        let response = spend(client, info);
        match response.code.as_str() {
            "VALID" => return response.credits.unwrap_or(0) + 1,
            "RATE_LIMITED" => std::thread::sleep(Duration::from_millis(100)),
            _ if response.status == 200 => return response.credits.unwrap_or(0),
            _ => std::thread::sleep(Duration::from_millis(100)),
        }
    }
}

/// Spends one credit at a time until none is left, waiting for limits. Returns how many there were, or `None` if the
/// outcome of some spends is unknown.
fn drain(client: &mut Client, info: &KeyInfo) -> Option<i64> {
    let (mut drained, mut is_known) = (0, true);
    loop {
        let response = spend(client, info);
        is_known &= response.status == 200 && !response.degraded;
        match response.code.as_str() {
            "VALID" => drained += 1,
            "RATE_LIMITED" => std::thread::sleep(Duration::from_millis(100)),
            _ if response.status == 200 => return is_known.then_some(drained),
            _ => std::thread::sleep(Duration::from_millis(100)),
        }
    }
}

fn spend(client: &mut Client, info: &KeyInfo) -> Answer {
    let request = json!({ "key": info.key });
    let response = client.v2(ROOT_KEY, "keys.verifyKey", &request).expect("an answer");
    Answer::parse(response.status, &response.body, &Action::Verify { key: 0, cost: 1 })
}

/// Returns the events of the audit log by target, oldest first.
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

//! Tests a replica that reads uncached keys from a streaming standby of Postgres, with real processes.

mod doctor;
mod site;

use std::time::Duration;

use foundation::clock::Stopwatch;
use serde_json::json;

use self::site::{Site, wait};
use crate::stage::{Key, Replica};
use crate::support::process::exchange;
use crate::{acquire_turn, share_turn};

/// A change is known on every replica within this time.
const PROPAGATION_MAX: Duration = Duration::from_secs(1);

#[test]
fn uncached_key_is_read_from_standby_with_all_that_it_needs() {
    let _turn = acquire_turn();
    let site = Site::new();
    let writer = &site.writer;
    let permission = json!({ "name": "read", "slug": "docs.read" });
    writer.ok("permissions.createPermission", &permission);
    writer.ok("permissions.createRole", &json!({ "name": "reader" }));
    let limit = json!({ "name": "all", "limit": 2, "duration": 86_400_000, "autoApply": true });
    writer.ok("identities.createIdentity", &json!({ "externalId": "u", "ratelimits": [limit] }));
    let fields = json!({ "externalId": "u", "permissions": ["docs.read"], "roles": ["reader"] });
    let key = writer.create_key_with(&fields);
    let check =
        json!({ "namespace": "email", "identifier": "u", "limit": 2, "duration": 86_400_000 });
    writer.ok("ratelimit.limit", &check);
    let root_key = site.create_root_key();
    site.await_replay();
    let before = site.loads("served");

    let request = json!({ "key": key.key, "permissions": "docs.read" });
    let call =
        |operation, body| site.reader.server.v2(&root_key, operation, body).1["data"].clone();
    let verified = call("keys.verifyKey", &request);
    let checked = call("ratelimit.limit", &check);

    assert_eq!(verified["code"], "VALID", "{verified}");
    assert_eq!(verified["roles"], json!(["reader"]), "{verified}");
    assert_eq!(verified["ratelimits"][0]["remaining"], 1, "{verified}");
    assert_eq!(checked["remaining"], 0, "{checked}");
    // The root key, the key, its identity, its role, and the namespace.
    assert_eq!(site.loads("served") - before, 5);
    assert!(site.lag_seconds() < 5.0, "{}", site.lag_seconds());
}

#[test]
fn unknown_key_and_key_with_credits_are_read_from_primary() {
    let _turn = acquire_turn();
    let site = Site::new();
    let metered = site.writer.create_key_with(&json!({ "credits": { "remaining": 3 } }));
    site.await_replay();
    let unknown = Key { id: String::new(), key: "nobody_has_this_key".into() };
    let (absent, of_credits) = (site.loads("absent"), site.loads("metered"));

    let codes: Vec<_> = (0..4).map(|_| site.reader.verification_code(&metered)).collect();

    assert_eq!(codes, ["VALID", "VALID", "VALID", "USAGE_EXCEEDED"]);
    site.reader.assert_code(&unknown, "NOT_FOUND");
    assert_eq!(site.loads("metered") - of_credits, 1);
    assert_eq!(site.loads("absent") - absent, 1);
}

/// Changes keys that the reader has not cached while the standby is paused, and waits until the reader must know of the
/// changes. Returns the key that was disabled, the one whose limit was lowered to 0, and one that has not changed.
fn change_while_replay_is_paused(site: &Site) -> [Key; 3] {
    let keys: [Key; 3] = site.writer.create_keys(3).try_into().ok().expect("three keys");
    site.await_replay();
    site.pause_replay();
    assert_eq!(site.writer.disable(&keys[0]), 200);
    let limit = json!({ "name": "all", "limit": 1, "duration": 86_400_000, "autoApply": true });
    let change = json!({ "keyId": keys[1].id, "ratelimits": [limit] });
    site.writer.ok("keys.updateKey", &change);
    site.writer.assert_code(&keys[1], "VALID");
    let created = site.writer.create_keys(1);
    site.reader.assert_code(&created[0], "VALID");
    std::thread::sleep(PROPAGATION_MAX);
    keys
}

#[test]
fn changes_apply_when_standby_has_not_replayed_them() {
    let _turn = acquire_turn();
    let site = Site::new();
    let before = (site.loads("stale"), site.loads("served"));

    let [disabled, limited, unchanged] = change_while_replay_is_paused(&site);
    site.reader.assert_code(&disabled, "DISABLED");
    site.reader.assert_code(&limited, "RATE_LIMITED");
    site.reader.assert_code(&unchanged, "VALID");

    assert_eq!(site.loads("stale") - before.0, 2, "the standby was read");
    // At least the key that has not changed; those of the wait for the standby came before.
    assert!(site.loads("served") > before.1, "the standby was still in use");
}

#[test]
fn revoked_key_stays_valid_when_position_of_standby_is_ignored() {
    let _turn = acquire_turn();
    let site = Site::with_reader(&[("KEYWARD_DISABLE_SAFEGUARD", "standby-position")]);

    let [disabled, limited, _] = change_while_replay_is_paused(&site);

    site.reader.assert_code(&disabled, "VALID");
    site.reader.assert_code(&limited, "VALID");
}

#[test]
fn lagging_standby_is_skipped_until_it_has_caught_up() {
    let _turn = share_turn();
    let site = Site::new();
    site.pause_replay();
    let created = site.writer.create_keys(2);

    wait("the lag is noticed", || site.lag_seconds() > 4.0);
    let before = site.loads("skipped");
    site.reader.assert_code(&created[0], "VALID");
    assert_eq!(site.loads("skipped") - before, 1);
    site.resume_replay();
    site.await_use();

    assert!(site.lag_seconds() < 4.0);
}

/// Verifies keys that the reader has not cached, one after the other. Returns how long the slowest took.
fn slowest_verification(reader: &Replica, keys: &[Key]) -> Duration {
    let verify = |key| {
        let began = Stopwatch::new();
        reader.assert_code(key, "VALID");
        began.elapsed()
    };
    keys.iter().map(verify).max().expect("a key")
}

#[test]
fn primary_serves_without_delay_when_standby_hangs_or_is_killed() {
    let _turn = acquire_turn();
    let mut site = Site::new();
    let keys = site.writer.create_keys(60);
    site.await_replay();

    site.standby.signal("STOP");
    let (first, rest) = (
        slowest_verification(&site.reader, &keys[..1]),
        slowest_verification(&site.reader, &keys[1..20]),
    );
    std::thread::sleep(Duration::from_secs(4));
    let later = slowest_verification(&site.reader, &keys[20..40]);
    site.standby.signal("CONT");
    site.await_use();

    // The one that notices it, which waits for 100 ms.
    assert!(first < Duration::from_millis(500), "{first:?}");
    assert!(rest < Duration::from_millis(100), "{rest:?}");
    assert!(later < Duration::from_millis(100), "{later:?}");
    site.standby.kill();
    let killed = slowest_verification(&site.reader, &keys[40..]);
    assert!(killed < Duration::from_millis(200), "{killed:?}");
    site.standby.restart();
    site.await_use();
}

#[test]
fn uncached_key_verifies_from_standby_when_primary_is_unreachable() {
    let _turn = acquire_turn();
    let site = Site::new();
    let keys = site.writer.create_keys(4);
    let metered = site.writer.create_key_with(&json!({ "credits": { "remaining": 3 } }));
    site.await_replay();
    let unknown = Key { id: String::new(), key: "nobody_has_this_key".into() };
    site.reader.assert_code(&keys[0], "VALID");

    site.reader.postgres.cut();
    // From here on, only announcements let it trust what it reads.
    std::thread::sleep(Duration::from_secs(6));
    site.reader.assert_code(&keys[1], "VALID");
    site.reader.assert_code(&unknown, "503");
    site.reader.assert_code(&metered, "503");
    assert_eq!(site.reader.change_status(), 503);
    for key in [&keys[0], &keys[2]] {
        assert_eq!(site.writer.disable(key), 200);
    }
    std::thread::sleep(PROPAGATION_MAX);
    site.reader.assert_code(&keys[0], "503");
    site.reader.assert_code(&keys[2], "503");
    site.reader.assert_code(&keys[3], "VALID");

    site.reader.postgres.mend();
    site.reader.wait_for_code(&keys[2], "DISABLED", 3.0);
    site.reader.wait_for_code(&unknown, "NOT_FOUND", 3.0);
}

#[test]
fn row_of_standby_is_trusted_for_five_seconds_when_nothing_proves_it() {
    let _turn = acquire_turn();
    let site = Site::new();
    let keys = site.writer.create_keys(2);
    site.await_replay();
    // Without a root key, whose own age would decide.
    let status = |key: &Key| verify_without_root_key(&site.reader, key);

    site.reader.postgres.cut();
    site.reader.redis.cut();
    std::thread::sleep(Duration::from_secs(3));
    assert_eq!(status(&keys[0]), 200);
    std::thread::sleep(Duration::from_millis(3_500));

    // Not five seconds after it was read from the standby, but after the heartbeat that dates it.
    assert_eq!([status(&keys[0]), status(&keys[1])], [503, 503]);
}

/// Returns the status of a verification of version 1.
fn verify_without_root_key(replica: &Replica, key: &Key) -> u16 {
    let (address, body) = (replica.server.address, json!({ "key": key.key }).to_string());
    let request = format!(
        "POST /v1/keys.verifyKey HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\
        Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    exchange(address, request.as_bytes()).expect("a reply").0
}

//! Tests two replicas on one Postgres and one Redis under load, with real processes.

use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use foundation::clock::Stopwatch;
use serde_json::{Value, json};

use crate::support::database::Database;
use crate::support::process::{Server, keyward_command, v2};
use crate::support::{random_letters, redis_url};
use crate::{acquire_turn, share_turn};

const ROOT_KEY: &str = "a_root_key_of_an_operator_1";

struct ReplicaPair {
    one: Server,
    other: Server,
    _database: Database,
}

fn start_pair() -> ReplicaPair {
    let database = tokio::runtime::Runtime::new().unwrap().block_on(Database::create());
    let prefix = format!("t{}:", random_letters());
    let command = || -> Command {
        let mut command = keyward_command();
        command
            .env("KEYWARD_DATABASE_URL", &database.url)
            .env("KEYWARD_REDIS_URL", redis_url())
            .env("KEYWARD_REDIS_PREFIX", &prefix)
            .env("KEYWARD_ROOT_KEY", ROOT_KEY)
            // The machine may be compiling at the same time.
            .env("KEYWARD_REDIS_TIMEOUT_MS", "2000")
            .env("KEYWARD_LOG", "warn");
        command
    };
    ReplicaPair {
        one: Server::start(command()),
        other: Server::start(command()),
        _database: database,
    }
}

/// The pause of a caller between two requests: at a few hundred requests per second, the databases get part of the two
/// cores that all processes share. Without it, they were starved for seconds.
const PAUSE: Duration = Duration::from_millis(3);

/// Verifies on both replicas until it is dropped.
struct Load {
    stop: Arc<AtomicBool>,
    threads: Vec<std::thread::JoinHandle<()>>,
    verified: Arc<AtomicU64>,
}

impl Load {
    fn on(pair: &ReplicaPair, key: &str) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let verified = Arc::new(AtomicU64::new(0));
        let threads = [pair.one.address, pair.other.address].map(|address| {
            let (stop, verified, body) = (stop.clone(), verified.clone(), json!({ "key": key }));
            std::thread::spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    let (status, answer) = v2(address, ROOT_KEY, "keys.verifyKey", &body).unwrap();
                    assert_eq!(status, 200, "{answer}");
                    verified.fetch_add(1, Ordering::Relaxed);
                    std::thread::sleep(PAUSE);
                }
            })
        });
        Self { stop, threads: threads.into(), verified }
    }

    fn end(self) -> u64 {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads {
            thread.join().expect("a verification under load failed");
        }
        self.verified.load(Ordering::Relaxed)
    }
}

fn ok(server: &Server, operation: &str, body: &Value) -> Value {
    let (status, answer) = server.v2(ROOT_KEY, operation, body);
    assert_eq!(status, 200, "{operation}: {answer}");
    answer["data"].clone()
}

/// Returns the time until a replica's verification of the key has this code.
fn time_until_code(server: &Server, key: &str, code: &str) -> Duration {
    let began = Stopwatch::new();
    let request = json!({ "key": key, "permissions": "read OR write" });
    while ok(server, "keys.verifyKey", &request)["code"] != code {
        assert!(began.elapsed() < Duration::from_secs(1), "still not {code}");
        std::thread::sleep(PAUSE);
    }
    began.elapsed()
}

#[test]
fn change_is_visible_on_other_replica_within_250_ms() {
    let _turn = acquire_turn();
    let pair = start_pair();
    let api = ok(&pair.one, "apis.createApi", &json!({ "name": "payments" }))["apiId"].clone();
    let busy = ok(&pair.one, "keys.createKey", &json!({ "apiId": api }))["key"].clone();
    let issued = ok(&pair.one, "keys.createKey", &json!({ "apiId": api, "permissions": [] }));
    let (id, key) = (issued["keyId"].clone(), issued["key"].as_str().unwrap().to_owned());
    let one_a_minute =
        json!([{ "name": "one", "limit": 1, "duration": 86_400_000, "autoApply": true }]);
    let role =
        ok(&pair.one, "permissions.createRole", &json!({ "name": "reader" }))["roleId"].clone();
    let update = |mut change: Value| {
        change["keyId"] = id.clone();
        ("keys.updateKey", change)
    };
    let of_role = |slugs: Value| {
        ("permissions.setRolePermissions", json!({ "roleId": role, "permissions": slugs }))
    };
    let of_key =
        |operation, slugs: Value| (operation, json!({ "keyId": id, "permissions": slugs }));
    let roles = |operation| (operation, json!({ "keyId": id, "roles": ["reader"] }));
    let changes = [
        (update(json!({ "permissions": ["read"] })), "VALID"),
        (update(json!({ "enabled": false })), "DISABLED"),
        (update(json!({ "enabled": true })), "VALID"),
        (update(json!({ "expires": 1000 })), "EXPIRED"),
        (update(json!({ "expires": null })), "VALID"),
        (update(json!({ "permissions": [] })), "INSUFFICIENT_PERMISSIONS"),
        (of_key("keys.setPermissions", json!(["write"])), "VALID"),
        (update(json!({ "credits": { "remaining": 0 } })), "USAGE_EXCEEDED"),
        (update(json!({ "credits": null })), "VALID"),
        (of_key("keys.removePermissions", json!(["write"])), "INSUFFICIENT_PERMISSIONS"),
        (of_role(json!(["read"])), "INSUFFICIENT_PERMISSIONS"),
        (roles("keys.setRoles"), "VALID"),
        (of_role(json!([])), "INSUFFICIENT_PERMISSIONS"),
        (of_role(json!(["read"])), "VALID"),
        (roles("keys.removeRoles"), "INSUFFICIENT_PERMISSIONS"),
        (of_key("keys.addPermissions", json!(["read"])), "VALID"),
        (
            ("permissions.deletePermission", json!({ "permission": "read" })),
            "INSUFFICIENT_PERMISSIONS",
        ),
    ];
    let load = Load::on(&pair, busy.as_str().unwrap());

    let mut took = Vec::new();
    for round in 0..20 {
        let (writer, reader) =
            if round % 2 == 0 { (&pair.one, &pair.other) } else { (&pair.other, &pair.one) };
        for ((operation, request), code) in &changes {
            ok(writer, operation, request);
            took.push(time_until_code(reader, &key, code));
            // The replica that wrote the change sees it at once.
            let request = json!({ "key": key, "permissions": "read OR write" });
            assert_eq!(ok(writer, "keys.verifyKey", &request)["code"], *code);
        }
    }
    let limit = json!({ "keyId": id, "permissions": ["read"], "ratelimits": one_a_minute });
    ok(&pair.one, "keys.updateKey", &limit);
    took.push(time_until_code(&pair.other, &key, "RATE_LIMITED"));
    ok(&pair.one, "keys.deleteKey", &json!({ "keyId": id }));
    took.push(time_until_code(&pair.other, &key, "NOT_FOUND"));
    let verified = load.end();

    took.sort();
    let p99 = took[took.len() * 99 / 100];
    assert!(p99 <= Duration::from_millis(250), "{p99:?} of {took:?}");
    assert!(verified > 100, "{verified}");
}

#[test]
fn new_key_verifies_at_once_on_other_replica() {
    let _turn = share_turn();
    let pair = start_pair();
    let api = ok(&pair.one, "apis.createApi", &json!({ "name": "payments" }))["apiId"].clone();

    for _ in 0..50 {
        let key = ok(&pair.one, "keys.createKey", &json!({ "apiId": api }))["key"].clone();
        let verified = ok(&pair.other, "keys.verifyKey", &json!({ "key": key }));
        assert_eq!(verified["code"], "VALID");
    }
}

#[test]
fn credits_and_limits_are_exact_with_two_replicas() {
    let _turn = share_turn();
    let pair = start_pair();
    let api = ok(&pair.one, "apis.createApi", &json!({ "name": "payments" }))["apiId"].clone();
    let limit = json!([{ "name": "all", "limit": 70, "duration": 86_400_000, "autoApply": true }]);
    for (fields, admitted) in [
        (json!({ "credits": { "remaining": 60 } }), 60),
        (json!({ "ratelimits": limit }), 70),
        (json!({ "credits": { "remaining": 1500 } }), 400),
    ] {
        let mut request = fields;
        request["apiId"] = api.clone();
        let key = ok(&pair.one, "keys.createKey", &request)["key"].clone();
        let threads: Vec<_> = (0..8)
            .map(|n| {
                let address = if n % 2 == 0 { pair.one.address } else { pair.other.address };
                let body = json!({ "key": key });
                std::thread::spawn(move || {
                    let ask = |_: &i32| {
                        v2(address, ROOT_KEY, "keys.verifyKey", &body).unwrap().1["data"]["valid"]
                            == true
                    };
                    (0..50).filter(ask).count()
                })
            })
            .collect();
        let valid: usize = threads.into_iter().map(|thread| thread.join().unwrap()).sum();

        assert_eq!(valid, admitted);
    }
}

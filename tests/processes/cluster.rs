//! Tests two replicas on a Redis Cluster of three masters, with real processes.

use std::time::Duration;

use foundation::clock::Stopwatch;
use serde_json::{Value, json};

use crate::acquire_turn;
use crate::servers::Cluster;
use crate::support::database::Database;
use crate::support::process::{Server, keyward_command, v2};
use crate::support::random_letters;

const ROOT_KEY: &str = "a_root_key_of_an_operator_1";

struct ClusterStack {
    one: Server,
    other: Server,
    api: String,
    cluster: Cluster,
    database: Database,
}

fn start_stack() -> ClusterStack {
    let database = tokio::runtime::Runtime::new().unwrap().block_on(Database::create());
    let cluster = Cluster::start(3);
    let prefix = format!("t{}:", random_letters());
    let start = || {
        let mut command = keyward_command();
        command
            .env("KEYWARD_DATABASE_URL", &database.url)
            .env("KEYWARD_REDIS_URL", cluster.url())
            .env("KEYWARD_REDIS_PREFIX", &prefix)
            .env("KEYWARD_ROOT_KEY", ROOT_KEY)
            // The machine may be compiling at the same time.
            .env("KEYWARD_REDIS_TIMEOUT_MS", "2000")
            .env("KEYWARD_LOG", "error");
        Server::start(command)
    };
    let (one, other) = (start(), start());
    let (_, api) = one.v2(ROOT_KEY, "apis.createApi", &json!({ "name": "payments" }));
    let api = api["data"]["apiId"].as_str().unwrap().to_owned();
    ClusterStack { one, other, api, cluster, database }
}

impl ClusterStack {
    fn create_key(&self, fields: &Value) -> String {
        let mut request = fields.clone();
        request["apiId"] = json!(self.api);
        let (status, issued) = self.one.v2(ROOT_KEY, "keys.createKey", &request);
        assert_eq!(status, 200, "{issued}");
        issued["data"]["key"].as_str().unwrap().to_owned()
    }

    /// Sets a shared limit for the identity with this external id.
    fn set_identity_limit(&self, external_id: &str, limit: i64) {
        let runtime = tokio::runtime::Runtime::new().unwrap();
        runtime.block_on(async {
            let sql = "
                INSERT INTO ratelimits
                    (id, workspace_id, identity_id, name, \"limit\", duration_ms, auto_apply)
                SELECT 'rl_' || id, workspace_id, id, 'shared', $2, 86400000, TRUE
                FROM identities WHERE external_id = $1";
            let mut connection = self.database.connect().await;
            sqlx::query(sql).bind(external_id).bind(limit).execute(&mut connection).await.unwrap();
        });
    }

    /// Returns how many of the concurrent verifications on both replicas were valid.
    fn count_valid(&self, keys: &[&str], threads: usize, each: usize) -> usize {
        let addresses = [self.one.address, self.other.address];
        let threads: Vec<_> = (0..threads)
            .map(|n| {
                let (address, key) = (addresses[n % 2], keys[n % keys.len()].to_owned());
                std::thread::spawn(move || {
                    let ask = |_: &usize| {
                        let body = json!({ "key": key });
                        let (status, answer) =
                            v2(address, ROOT_KEY, "keys.verifyKey", &body).unwrap();
                        assert_eq!(status, 200, "{answer}");
                        assert_eq!(answer["meta"].get("degraded"), None, "{answer}");
                        answer["data"]["valid"] == true
                    };
                    (0..each).filter(ask).count()
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).sum()
    }
}

#[test]
fn limits_and_credits_are_exact_when_keys_are_in_different_slots() {
    let _turn = acquire_turn();
    let stack = start_stack();
    let limit = |limit: i64| json!([{ "name": "own", "limit": limit, "duration": 86_400_000, "autoApply": true }]);

    let limited = stack.create_key(&json!({ "ratelimits": limit(70) }));
    assert_eq!(stack.count_valid(&[&limited], 8, 20), 70);

    let metered = stack.create_key(&json!({ "credits": { "remaining": 1_100 } }));
    assert_eq!(stack.count_valid(&[&metered], 8, 150), 1_100);

    // A key's own limit and that of its identity are in different slots.
    let both = |external_id: &str, own: i64, credits: i64| {
        stack.create_key(&json!({
            "externalId": external_id, "ratelimits": limit(own),
            "credits": { "remaining": credits },
        }))
    };
    let (a, b) = (both("user_1", 30, 1_000), both("user_1", 50, 1_000));
    stack.set_identity_limit("user_1", 60);
    let valid = stack.count_valid(&[&a, &b], 8, 30);
    assert!((50..=60).contains(&valid), "{valid} of a shared limit of 60");
    // What one slot rejected was not consumed in the other: the rest is still available.
    let rest = stack.count_valid(&[&b], 1, 60);
    assert_eq!(valid + rest, 60);

    let names = stack.cluster.names();
    assert!(names.iter().filter(|names| **names > 0).count() >= 2, "{names:?}");
}

#[test]
fn lost_master_degrades_only_keys_in_its_slots() {
    let _turn = acquire_turn();
    let mut stack = start_stack();
    let limit =
        json!([{ "name": "own", "limit": 1000, "duration": 86_400_000, "autoApply": true }]);
    let keys: Vec<_> = (0..24).map(|_| stack.create_key(&json!({ "ratelimits": limit }))).collect();
    let verify = |stack: &ClusterStack, key: &str| {
        stack.one.v2(ROOT_KEY, "keys.verifyKey", &json!({ "key": key }))
    };
    for key in &keys {
        assert_eq!(verify(&stack, key).1["data"]["valid"], true);
    }

    stack.cluster.kill_one();
    let began = Stopwatch::new();
    let degraded = loop {
        let answers: Vec<_> = keys.iter().map(|key| verify(&stack, key)).collect();
        assert!(
            answers
                .iter()
                .all(|(status, answer)| *status == 200 && answer["data"]["valid"] == true)
        );
        let degraded =
            answers.iter().filter(|(_, answer)| answer["meta"]["degraded"] == true).count();
        if degraded < keys.len() || began.elapsed() > Duration::from_secs(15) {
            break degraded;
        }
    };

    assert!((1..keys.len()).contains(&degraded), "{degraded} of {}", keys.len());
}

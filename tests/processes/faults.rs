//! Tests replicas whose Postgres or Redis restarts, hangs or becomes unreachable, with real processes.

mod postgres;

use std::net::SocketAddr;
use std::process::Command;
use std::time::Duration;

use foundation::clock::Stopwatch;
use serde_json::{Value, json};

use crate::acquire_turn;
use crate::servers::{Proxy, Redis};
use crate::support::database::Database;
use crate::support::process::{Server, get, keyward_command};
use crate::support::random_letters;

pub const ROOT_KEY: &str = "a_root_key_of_an_operator_1";

/// Starts a replica on these two servers.
fn replica(database_url: &str, redis_url: &str) -> Server {
    Server::start(replica_command(database_url, redis_url))
}

pub fn replica_command(database_url: &str, redis_url: &str) -> Command {
    let mut command = keyward_command();
    command
        .env("KEYWARD_DATABASE_URL", database_url)
        .env("KEYWARD_REDIS_URL", redis_url)
        .env("KEYWARD_REDIS_PREFIX", format!("t{}:", random_letters()))
        .env("KEYWARD_ROOT_KEY", ROOT_KEY)
        .env("KEYWARD_DRAIN_SECONDS", "0")
        .env("KEYWARD_LOG", "error");
    command
}

pub fn database() -> Database {
    tokio::runtime::Runtime::new().unwrap().block_on(Database::create())
}

/// Creates a key with these fields.
pub fn create_key(server: &Server, fields: &Value) -> String {
    let (_, api) = server.v2(ROOT_KEY, "apis.createApi", &json!({ "name": "payments" }));
    let mut request = fields.clone();
    request["apiId"] = api["data"]["apiId"].clone();
    let (status, issued) = server.v2(ROOT_KEY, "keys.createKey", &request);
    assert_eq!(status, 200, "{issued}");
    issued["data"]["key"].as_str().unwrap().to_owned()
}

pub fn limited() -> Value {
    let limit =
        json!({ "name": "requests", "limit": 1000, "duration": 86_400_000, "autoApply": true });
    json!({ "ratelimits": [limit] })
}

pub fn verify(server: &Server, key: &str) -> (u16, Value) {
    server.v2(ROOT_KEY, "keys.verifyKey", &json!({ "key": key }))
}

#[track_caller]
pub fn assert_valid(answer: &(u16, Value)) {
    assert_eq!((answer.0, &answer.1["data"]["code"]), (200, &json!("VALID")), "{}", answer.1);
}

/// Returns the duration of each response, shortest first. Fails unless each was decided without Redis and has this
/// code.
fn degraded(server: &Server, key: &str, code: &str) -> Vec<Duration> {
    let mut took: Vec<_> = (0..20)
        .map(|_| {
            let began = Stopwatch::new();
            let (status, answer) = verify(server, key);
            let took = began.elapsed();
            assert_eq!((status, &answer["data"]["code"]), (200, &json!(code)), "{answer}");
            assert_eq!(answer["meta"]["degraded"], true, "{answer}");
            took
        })
        .collect();
    took.sort();
    took
}

/// Fails unless the key's limits are counted in Redis again within a second.
pub fn assert_recovers(server: &Server, key: &str) {
    assert_recovers_within(1.0, server, key);
}

/// Fails unless the key's limits are counted in Redis again within this many seconds.
pub fn assert_recovers_within(seconds: f32, server: &Server, key: &str) {
    let began = Stopwatch::new();
    while verify(server, key).1["meta"]["degraded"] == true {
        assert!(began.elapsed().as_secs_f32() < seconds, "still degraded");
    }
}

fn credits(balance: i64) -> Value {
    json!({ "credits": { "remaining": balance } })
}

/// Returns how many of this many verifications were valid.
pub fn count_valid(server: &Server, key: &str, verifications: usize) -> usize {
    (0..verifications).filter(|_| verify(server, key).1["data"]["valid"] == true).count()
}

/// Returns the total of withheld credits over all keys.
pub fn withheld(database_url: &str, redis_url: &str) -> i64 {
    let entries = command_json(database_url, redis_url, &["credits", "list", "--json"]);
    entries.as_array().unwrap().iter().map(|entry| entry["withheld"].as_i64().unwrap()).sum()
}

fn command_json(database_url: &str, redis_url: &str, arguments: &[&str]) -> Value {
    let mut command = replica_command(database_url, redis_url);
    let output = command.args(arguments).output().expect("it runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("JSON")
}

/// Fails unless `/metrics` has this sample within three seconds, of which one is for a machine that is busy, and most scrapes are answered at once: one that waits for a server
/// does so each time.
pub fn wait_for_metric(server: &Server, sample: &str) {
    let began = Stopwatch::new();
    let mut durations = Vec::new();
    let mut is_found = false;
    while !is_found || durations.len() < 5 {
        let asked_at = Stopwatch::new();
        let (_, metrics) = get(server.address, "/metrics").unwrap();
        durations.push(asked_at.elapsed());
        is_found |= metrics.lines().any(|line| line == sample);
        assert!(began.elapsed() < Duration::from_secs(3), "not in metrics: {sample}\n{metrics}");
        std::thread::sleep(Duration::from_millis(20));
    }
    durations.sort();
    assert!(durations[durations.len() / 2] < Duration::from_millis(30), "{durations:?}");
}

#[test]
fn verify_succeeds_when_redis_restarts() {
    let _turn = acquire_turn();
    let (database, mut redis) = (database(), Redis::start());
    let server = replica(&database.url, &redis.url());
    let key = create_key(&server, &limited());
    assert_valid(&verify(&server, &key));

    for _ in 0..3 {
        redis.kill();
        redis.restart();

        assert_valid(&verify(&server, &key));
    }
}

#[test]
fn limits_are_enforced_locally_and_reported_degraded_when_redis_is_unreachable() {
    let _turn = acquire_turn();
    let (database, mut redis) = (database(), Redis::start());
    let server = replica(&database.url, &redis.url());
    let (limited, unlimited) = (create_key(&server, &limited()), create_key(&server, &json!({})));
    assert_valid(&verify(&server, &limited));

    redis.kill();
    let took = degraded(&server, &limited, "VALID");
    let plain = verify(&server, &unlimited);
    let (status, ready) = get(server.address, "/readyz").unwrap();
    redis.restart();

    assert!(took[10] <= Duration::from_millis(50), "{took:?}");
    assert_valid(&plain);
    assert_eq!(plain.1["meta"].get("degraded"), None, "nothing had to be counted");
    assert_eq!(status, 200);
    assert!(ready.contains("\"degraded\"") && ready.contains("\"counters\":\"away\""), "{ready}");
    assert_recovers(&server, &limited);
}

#[test]
fn verify_is_not_delayed_when_redis_never_replies() {
    let _turn = acquire_turn();
    let (database, redis) = (database(), Redis::start());
    let server = replica(&database.url, &redis.url());
    let (limited, unlimited) = (create_key(&server, &limited()), create_key(&server, &json!({})));
    assert_valid(&verify(&server, &limited));

    redis.signal("STOP");
    let took = degraded(&server, &limited, "VALID");
    assert_valid(&verify(&server, &unlimited));
    wait_for_metric(&server, "keyward_counters_reachable 0");
    redis.signal("CONT");
    wait_for_metric(&server, "keyward_counters_reachable 1");

    // A call to Redis may take 40 ms until the circuit breaker opens; the rest is the connection of this test.
    assert!(took[10] <= Duration::from_millis(50), "{took:?}");
    assert_recovers(&server, &limited);
}

#[test]
fn outage_policy_is_applied_when_redis_is_unreachable() {
    let _turn = acquire_turn();
    let (database, mut redis) = (database(), Redis::start());
    let started = |policy: &str| {
        let mut command = replica_command(&database.url, &redis.url());
        command.env("KEYWARD_KEYS_ON_OUTAGE", policy);
        Server::start(command)
    };
    let (local, open, closed) = (started("local"), started("open"), started("closed"));
    let limit = json!({ "name": "few", "limit": 6, "duration": 86_400_000, "autoApply": true });
    let key = create_key(&local, &json!({ "ratelimits": [limit] }));
    for server in [&local, &open, &closed] {
        assert_valid(&verify(server, &key));
    }
    // Time for the three replicas to learn of each other.
    std::thread::sleep(Duration::from_millis(2_500));

    redis.kill();
    let valid = [&local, &open, &closed].map(|server| count_valid(server, &key, 20));
    degraded(&closed, &key, "RATE_LIMITED");

    // Of the remaining five, the share of one of three replicas is one or two.
    assert!(matches!(valid, [1 | 2, 20, 0]), "{valid:?}");
}

#[test]
fn credits_are_debited_directly_and_exactly_when_redis_is_unreachable() {
    let _turn = acquire_turn();
    let (database, mut redis) = (database(), Redis::start());
    let server = replica(&database.url, &redis.url());
    let key = create_key(&server, &credits(30));
    assert_valid(&verify(&server, &key));

    redis.kill();
    let without = count_valid(&server, &key, 20);
    redis.restart();
    let began = Stopwatch::new();
    let mut more = 0;
    while began.elapsed() < Duration::from_secs(4) {
        more += count_valid(&server, &key, 1);
        std::thread::sleep(Duration::from_millis(20));
    }

    assert_eq!((without, more), (20, 9));
    assert_eq!(withheld(&database.url, &redis.url()), 0);
}

#[test]
fn unspent_credits_are_returned_once_when_redis_restarts_with_or_without_data() {
    let _turn = acquire_turn();
    for keeps in [false, true] {
        let (database, mut redis) = (database(), Redis::start_keeping(keeps));
        let server = replica(&database.url, &redis.url());
        let key = create_key(&server, &credits(1_000));
        let mut valid = 0;

        for _ in 0..3 {
            valid += count_valid(&server, &key, 40);
            redis.kill();
            redis.restart();
        }
        let began = Stopwatch::new();
        while began.elapsed() < Duration::from_secs(10) && valid < 1_000 {
            valid += count_valid(&server, &key, 20);
            std::thread::sleep(Duration::from_millis(20));
        }
        valid += count_valid(&server, &key, 20);

        assert_eq!(valid, 1_000);
        assert_eq!(withheld(&database.url, &redis.url()), 0);
    }
}

#[test]
fn credits_stay_withheld_until_released_when_replica_was_killed() {
    let _turn = acquire_turn();
    let (database, mut redis) = (database(), Redis::start());
    let (killed, other) =
        (replica(&database.url, &redis.url()), replica(&database.url, &redis.url()));
    let key = create_key(&killed, &credits(1_000));
    let valid = i64::try_from(count_valid(&killed, &key, 60)).unwrap();
    drop(killed);
    redis.kill();
    redis.restart();

    assert_valid(&verify(&other, &key));
    std::thread::sleep(Duration::from_secs(3));
    let held = withheld(&database.url, &redis.url());
    let read_credits = || {
        let peek = json!({ "key": key, "credits": { "cost": 0 } });
        other.v2(ROOT_KEY, "keys.verifyKey", &peek).1["data"]["credits"].as_i64().unwrap()
    };
    let before = read_credits();
    let released =
        command_json(&database.url, &redis.url(), &["credits", "release", "--all", "--json"]);

    assert!(held > 0, "no credits were leased");
    assert!(valid + 1 + before + held >= 1_000, "nothing vanishes");
    assert!(valid + 1 + before <= 1_000, "credits were granted twice");
    assert_eq!(released, json!({ "released": held }));
    assert_eq!(withheld(&database.url, &redis.url()), 0);
    let began = Stopwatch::new();
    while read_credits() != before + held {
        assert!(
            began.elapsed() < Duration::from_secs(3),
            "{} of {}",
            read_credits(),
            before + held
        );
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn lease_is_closed_when_idle_or_replica_stops() {
    let _turn = acquire_turn();
    let (database, redis) = (database(), Redis::start());
    let start = |idle: &str| {
        let mut command = replica_command(&database.url, &redis.url());
        command.env("KEYWARD_LEASE_IDLE_SECONDS", idle);
        Server::start(command)
    };
    let in_purses = || {
        let runtime = tokio::runtime::Runtime::new().unwrap();
        runtime.block_on(async {
            let sql = "SELECT COUNT(*) FROM purses";
            let mut connection = database.connect().await;
            sqlx::query_scalar::<_, i64>(sql).fetch_one(&mut connection).await.unwrap()
        })
    };
    let impatient = start("1");
    let key = create_key(&impatient, &credits(1_000));
    assert_eq!(count_valid(&impatient, &key, 50), 50);
    assert_eq!(in_purses(), 1);
    let began = Stopwatch::new();
    while in_purses() > 0 {
        assert!(began.elapsed() < Duration::from_secs(5), "the lease was not closed");
        std::thread::sleep(Duration::from_millis(50));
    }
    impatient.signal("TERM");
    assert_eq!(impatient.wait(), Some(0));

    let patient = start("3600");
    assert_eq!(count_valid(&patient, &key, 50), 50);
    assert_eq!(in_purses(), 1);
    patient.signal("TERM");
    assert_eq!(patient.wait(), Some(0));
    assert_eq!(in_purses(), 0);

    let last = start("3600");
    let (_, body) = verify(&last, &key);
    assert_eq!(body["data"]["credits"], 899);
}

#[test]
fn replica_starts_when_redis_is_unreachable() {
    let _turn = acquire_turn();
    let (database, mut redis) = (database(), Redis::start());
    redis.kill();

    let server = replica(&database.url, &redis.url());
    let unlimited = create_key(&server, &json!({}));
    assert_valid(&verify(&server, &unlimited));
    redis.restart();

    let limited = create_key(&server, &limited());
    assert_recovers(&server, &limited);
}

/// Puts a proxy in front of the database.
pub fn start_proxy(database: &Database) -> (String, Proxy) {
    let (_, target) = replace_address(database, SocketAddr::from(([127, 0, 0, 1], 0)));
    let proxy = Proxy::to(target);
    (replace_address(database, proxy.address).0, proxy)
}

/// Returns the database's URL with another address, and its own address.
pub fn replace_address(database: &Database, address: SocketAddr) -> (String, String) {
    let (scheme, rest) = database.url.split_once("://").unwrap();
    let (user, location) = rest.split_once('@').unwrap_or(("", rest));
    let (server, path) = location.split_once('/').unwrap();
    let at = if user.is_empty() { String::new() } else { format!("{user}@") };
    (format!("{scheme}://{at}{address}/{path}"), server.to_owned())
}

//! A server behind Keyward restarts, hangs or goes away: real processes.

use std::net::SocketAddr;
use std::process::Command;
use std::time::Duration;

use keyward::clock::Stopwatch;
use serde_json::{Value, json};

use crate::alone;
use crate::servers::{Proxy, Redis};
use crate::support::database::Database;
use crate::support::process::{Server, get, keyward};
use crate::support::{random, redis_url};

pub const ROOT_KEY: &str = "a_root_key_of_an_operator_1";

/// A replica on these two, and its database.
fn replica(database_url: &str, redis_url: &str) -> Server {
    Server::start(replica_command(database_url, redis_url))
}

pub fn replica_command(database_url: &str, redis_url: &str) -> Command {
    let mut command = keyward();
    command
        .env("KEYWARD_DATABASE_URL", database_url)
        .env("KEYWARD_REDIS_URL", redis_url)
        .env("KEYWARD_REDIS_PREFIX", format!("t{}:", random()))
        .env("KEYWARD_ROOT_KEY", ROOT_KEY)
        .env("KEYWARD_DRAIN_SECONDS", "0")
        .env("KEYWARD_LOG", "error");
    command
}

pub fn database() -> Database {
    tokio::runtime::Runtime::new().unwrap().block_on(Database::create())
}

/// A new key with these fields.
pub fn key(server: &Server, fields: &Value) -> String {
    let (_, api) = server.v2(ROOT_KEY, "apis.createApi", &json!({ "name": "payments" }));
    let mut request = fields.clone();
    request["apiId"] = api["data"]["apiId"].clone();
    let (status, issued) = server.v2(ROOT_KEY, "keys.createKey", &request);
    assert_eq!(status, 200, "{issued}");
    issued["data"]["key"].as_str().unwrap().to_owned()
}

pub fn limited() -> Value {
    let limit =
        json!({ "name": "requests", "limit": 1000, "duration": 3_600_000, "autoApply": true });
    json!({ "ratelimits": [limit] })
}

pub fn verify(server: &Server, key: &str) -> (u16, Value) {
    server.v2(ROOT_KEY, "keys.verifyKey", &json!({ "key": key }))
}

#[track_caller]
pub fn is_valid(answer: &(u16, Value)) {
    assert_eq!((answer.0, &answer.1["data"]["code"]), (200, &json!("VALID")), "{}", answer.1);
}

/// How long each of these answers took, shortest first, and that none was anything but a refusal.
fn refused(server: &Server, key: &str) -> Vec<Duration> {
    let mut took: Vec<_> = (0..20)
        .map(|_| {
            let began = Stopwatch::new();
            let (status, answer) = verify(server, key);
            assert_eq!(status, 503, "{answer}");
            let name = answer["error"]["type"].as_str().unwrap();
            assert!(name.ends_with("/errors/service_unavailable"), "{name}");
            began.elapsed()
        })
        .collect();
    took.sort();
    took
}

/// Fails unless the key is valid again within a second.
pub fn heals(server: &Server, key: &str) {
    let began = Stopwatch::new();
    while verify(server, key).0 != 200 {
        assert!(began.elapsed() < Duration::from_secs(1), "still refused");
    }
}

/// Fails unless `/metrics` tells this within two seconds, and each time at once.
pub fn until_told(server: &Server, sample: &str) {
    let began = Stopwatch::new();
    loop {
        let asked = Stopwatch::new();
        let (_, told) = get(server.address, "/metrics").unwrap();
        assert!(asked.elapsed() < Duration::from_millis(30), "{:?}", asked.elapsed());
        if told.lines().any(|line| line == sample) {
            return;
        }
        assert!(began.elapsed() < Duration::from_secs(2), "not told: {sample}\n{told}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn a_restarted_redis_is_noticed_by_nobody() {
    let _turn = alone();
    let (database, mut redis) = (database(), Redis::start());
    let server = replica(&database.url, &redis.url());
    let key = key(&server, &limited());
    is_valid(&verify(&server, &key));

    for _ in 0..3 {
        redis.kill();
        redis.restart();

        is_valid(&verify(&server, &key));
    }
}

#[test]
fn without_redis_a_limited_key_is_refused_at_once_and_an_unlimited_one_verifies() {
    let _turn = alone();
    let (database, mut redis) = (database(), Redis::start());
    let server = replica(&database.url, &redis.url());
    let (limited, unlimited) = (key(&server, &limited()), key(&server, &json!({})));
    is_valid(&verify(&server, &limited));

    redis.kill();
    let took = refused(&server, &limited);
    is_valid(&verify(&server, &unlimited));
    let (status, ready) = get(server.address, "/readyz").unwrap();
    redis.restart();

    assert!(took[10] <= Duration::from_millis(50), "{took:?}");
    assert_eq!(status, 200);
    assert!(ready.contains("\"degraded\"") && ready.contains("\"counters\":\"away\""), "{ready}");
    heals(&server, &limited);
}

#[test]
fn a_redis_that_accepts_and_never_answers_holds_no_request() {
    let _turn = alone();
    let (database, redis) = (database(), Redis::start());
    let server = replica(&database.url, &redis.url());
    let (limited, unlimited) = (key(&server, &limited()), key(&server, &json!({})));
    is_valid(&verify(&server, &limited));

    redis.signal("STOP");
    let took = refused(&server, &limited);
    is_valid(&verify(&server, &unlimited));
    until_told(&server, "keyward_counters_reachable 0");
    redis.signal("CONT");
    until_told(&server, "keyward_counters_reachable 1");

    // 40 ms are allowed to Redis; the rest is this test's own connection.
    assert!(took[10] <= Duration::from_millis(60), "{took:?}");
    heals(&server, &limited);
}

#[test]
fn a_replica_starts_while_redis_is_away() {
    let _turn = alone();
    let (database, mut redis) = (database(), Redis::start());
    redis.kill();

    let server = replica(&database.url, &redis.url());
    let unlimited = key(&server, &json!({}));
    is_valid(&verify(&server, &unlimited));
    redis.restart();

    let limited = key(&server, &limited());
    heals(&server, &limited);
}

#[test]
fn without_postgres_a_cached_key_verifies_and_an_unknown_one_is_not_called_unknown() {
    let _turn = alone();
    let database = database();
    let (proxied, proxy) = proxied(&database);
    let server = replica(&proxied, &redis_url());
    let (cached, uncached) = (key(&server, &limited()), key(&server, &json!({})));
    is_valid(&verify(&server, &cached));

    proxy.cut();
    let began = Stopwatch::new();
    while began.elapsed() < Duration::from_secs(7) {
        is_valid(&verify(&server, &cached));
        std::thread::sleep(Duration::from_millis(200));
    }
    let (status, answer) = verify(&server, &uncached);
    let (change, _) = server.v2(ROOT_KEY, "apis.createApi", &json!({ "name": "payments" }));
    proxy.mend();

    assert_eq!(status, 503, "{answer}");
    assert_eq!(change, 503);
    let began = Stopwatch::new();
    while verify(&server, &uncached).0 != 200 {
        assert!(began.elapsed() < Duration::from_secs(2), "still refused");
    }
}

/// The database behind a way that can be cut.
pub fn proxied(database: &Database) -> (String, Proxy) {
    let (_, target) = behind(database, SocketAddr::from(([127, 0, 0, 1], 0)));
    let proxy = Proxy::to(target);
    (behind(database, proxy.address).0, proxy)
}

/// The database's URL with another address, and the address that it had.
pub fn behind(database: &Database, address: SocketAddr) -> (String, String) {
    let (scheme, rest) = database.url.split_once("://").unwrap();
    let (user, place) = rest.split_once('@').unwrap_or(("", rest));
    let (server, path) = place.split_once('/').unwrap();
    let at = if user.is_empty() { String::new() } else { format!("{user}@") };
    (format!("{scheme}://{at}{address}/{path}"), server.to_owned())
}

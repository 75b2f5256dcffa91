//! A server behind Keyward restarts, hangs or goes away: real processes.

use std::net::SocketAddr;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use foundation::clock::Stopwatch;
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

/// How long each of these answers took, shortest first; each was decided without Redis, and came to this.
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
pub fn heals(server: &Server, key: &str) {
    let began = Stopwatch::new();
    while verify(server, key).1["meta"]["degraded"] == true {
        assert!(began.elapsed() < Duration::from_secs(1), "still degraded");
    }
}

fn credits(balance: i64) -> Value {
    json!({ "credits": { "remaining": balance } })
}

/// How many of so many verifications were valid.
pub fn valid_of(server: &Server, key: &str, verifications: usize) -> usize {
    (0..verifications).filter(|_| verify(server, key).1["data"]["valid"] == true).count()
}

/// What the ledger says: credits withheld, over all keys.
pub fn withheld(database_url: &str, redis_url: &str) -> i64 {
    let told = command_json(database_url, redis_url, &["credits", "list", "--json"]);
    told.as_array().unwrap().iter().map(|entry| entry["withheld"].as_i64().unwrap()).sum()
}

fn command_json(database_url: &str, redis_url: &str, arguments: &[&str]) -> Value {
    let mut command = replica_command(database_url, redis_url);
    let output = command.args(arguments).output().expect("it runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("JSON")
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
fn without_redis_limits_are_enforced_here_at_once_and_it_is_told() {
    let _turn = alone();
    let (database, mut redis) = (database(), Redis::start());
    let server = replica(&database.url, &redis.url());
    let (limited, unlimited) = (key(&server, &limited()), key(&server, &json!({})));
    is_valid(&verify(&server, &limited));

    redis.kill();
    let took = degraded(&server, &limited, "VALID");
    let plain = verify(&server, &unlimited);
    let (status, ready) = get(server.address, "/readyz").unwrap();
    redis.restart();

    assert!(took[10] <= Duration::from_millis(50), "{took:?}");
    is_valid(&plain);
    assert_eq!(plain.1["meta"].get("degraded"), None, "nothing was to be counted");
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
    let took = degraded(&server, &limited, "VALID");
    is_valid(&verify(&server, &unlimited));
    until_told(&server, "keyward_counters_reachable 0");
    redis.signal("CONT");
    until_told(&server, "keyward_counters_reachable 1");

    // 40 ms are allowed to Redis, until it is given up; the rest is this test's own connection.
    assert!(took[10] <= Duration::from_millis(50), "{took:?}");
    heals(&server, &limited);
}

#[test]
fn the_policy_decides_what_is_said_of_limits_without_redis() {
    let _turn = alone();
    let (database, mut redis) = (database(), Redis::start());
    let started = |policy: &str| {
        let mut command = replica_command(&database.url, &redis.url());
        command.env("KEYWARD_KEYS_ON_OUTAGE", policy);
        Server::start(command)
    };
    let (local, open, closed) = (started("local"), started("open"), started("closed"));
    let limit = json!({ "name": "few", "limit": 6, "duration": 3_600_000, "autoApply": true });
    let key = key(&local, &json!({ "ratelimits": [limit] }));
    for server in [&local, &open, &closed] {
        is_valid(&verify(server, &key));
    }
    // Time for the three to know of each other.
    std::thread::sleep(Duration::from_millis(2_500));

    redis.kill();
    let valid = [&local, &open, &closed].map(|server| valid_of(server, &key, 20));
    degraded(&closed, &key, "RATE_LIMITED");

    // Of the five that were left, one or two are the share of one of three.
    assert!(matches!(valid, [1 | 2, 20, 0]), "{valid:?}");
}

#[test]
fn without_redis_credits_are_spent_from_the_bank_to_the_unit() {
    let _turn = alone();
    let (database, mut redis) = (database(), Redis::start());
    let server = replica(&database.url, &redis.url());
    let key = key(&server, &credits(30));
    is_valid(&verify(&server, &key));

    redis.kill();
    let without = valid_of(&server, &key, 20);
    redis.restart();
    let began = Stopwatch::new();
    let mut more = 0;
    while began.elapsed() < Duration::from_secs(4) {
        more += valid_of(&server, &key, 1);
        std::thread::sleep(Duration::from_millis(20));
    }

    assert_eq!((without, more), (20, 9));
    assert_eq!(withheld(&database.url, &redis.url()), 0);
}

#[test]
fn a_redis_that_lost_or_kept_its_data_gives_no_credit_twice_and_what_is_proven_unspent_back() {
    let _turn = alone();
    for keeps in [false, true] {
        let (database, mut redis) = (database(), Redis::start_keeping(keeps));
        let server = replica(&database.url, &redis.url());
        let key = key(&server, &credits(1_000));
        let mut valid = 0;

        for _ in 0..3 {
            valid += valid_of(&server, &key, 40);
            redis.kill();
            redis.restart();
        }
        let began = Stopwatch::new();
        while began.elapsed() < Duration::from_secs(10) && valid < 1_000 {
            valid += valid_of(&server, &key, 20);
            std::thread::sleep(Duration::from_millis(20));
        }
        valid += valid_of(&server, &key, 20);

        assert_eq!(valid, 1_000);
        assert_eq!(withheld(&database.url, &redis.url()), 0);
    }
}

#[test]
fn what_a_killed_replica_may_have_spent_stays_withheld_until_an_operator_says_so() {
    let _turn = alone();
    let (database, mut redis) = (database(), Redis::start());
    let (killed, other) =
        (replica(&database.url, &redis.url()), replica(&database.url, &redis.url()));
    let key = key(&killed, &credits(1_000));
    let valid = i64::try_from(valid_of(&killed, &key, 60)).unwrap();
    drop(killed);
    redis.kill();
    redis.restart();

    is_valid(&verify(&other, &key));
    std::thread::sleep(Duration::from_secs(3));
    let held = withheld(&database.url, &redis.url());
    let told = || {
        let look = json!({ "key": key, "credits": { "cost": 0 } });
        other.v2(ROOT_KEY, "keys.verifyKey", &look).1["data"]["credits"].as_i64().unwrap()
    };
    let before = told();
    let released =
        command_json(&database.url, &redis.url(), &["credits", "release", "--all", "--json"]);

    assert!(held > 0, "a block was out");
    assert!(valid + 1 + before + held >= 1_000, "nothing vanishes");
    assert!(valid + 1 + before <= 1_000, "nothing is given twice");
    assert_eq!(released, json!({ "released": held }));
    assert_eq!(withheld(&database.url, &redis.url()), 0);
    let began = Stopwatch::new();
    while told() != before + held {
        assert!(began.elapsed() < Duration::from_secs(3), "{} of {}", told(), before + held);
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn a_purse_that_rests_goes_back_and_so_does_that_of_a_replica_that_stops() {
    let _turn = alone();
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
    let key = key(&impatient, &credits(1_000));
    assert_eq!(valid_of(&impatient, &key, 50), 50);
    assert_eq!(in_purses(), 1);
    let began = Stopwatch::new();
    while in_purses() > 0 {
        assert!(began.elapsed() < Duration::from_secs(5), "the purse was not settled");
        std::thread::sleep(Duration::from_millis(50));
    }
    impatient.signal("TERM");
    assert_eq!(impatient.wait(), Some(0));

    let patient = start("3600");
    assert_eq!(valid_of(&patient, &key, 50), 50);
    assert_eq!(in_purses(), 1);
    patient.signal("TERM");
    assert_eq!(patient.wait(), Some(0));
    assert_eq!(in_purses(), 0);

    let last = start("3600");
    let (_, told) = verify(&last, &key);
    assert_eq!(told["data"]["credits"], 899);
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
    // Until the transactions of before it began to read announcements have ended.
    std::thread::sleep(Duration::from_secs(1));
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

#[test]
fn connections_on_which_postgres_vanished_without_a_word_are_given_up() {
    let _turn = alone();
    let database = database();
    let (proxied, proxy) = proxied(&database);
    let server = replica(&proxied, &redis_url());
    let cached = key(&server, &limited());
    is_valid(&verify(&server, &cached));
    let create = || server.v2(ROOT_KEY, "apis.createApi", &json!({ "name": "payments" })).0;

    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        // Enough that most connections are in use when they are lost.
        for _ in 0..16 {
            scope.spawn(|| {
                while !is_over.load(Ordering::SeqCst) {
                    create();
                }
            });
        }
        std::thread::sleep(Duration::from_secs(1));
        proxy.swallow();
        proxy.silence();
        std::thread::sleep(Duration::from_secs(8));
        is_valid(&verify(&server, &cached));
        proxy.mend();
        std::thread::sleep(Duration::from_secs(2));
        is_over.store(true, Ordering::SeqCst);
    });

    let began = Stopwatch::new();
    for _ in 0..40 {
        assert_eq!(create(), 200);
    }
    assert!(began.elapsed() < Duration::from_secs(2), "connections still hang");
    // What runs beside requests goes on as well.
    let (status, lists) = get(server.address, "/metrics").unwrap();
    assert_eq!(status, 200);
    assert!(lists.contains("keyward_database_reachable 1"), "{lists}");
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

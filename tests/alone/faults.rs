//! A server behind Keyward restarts, hangs or goes away: real processes.

use std::io::BufRead as _;
use std::net::SocketAddr;
use std::process::{Command, Stdio};
use std::time::Duration;

use keyward::clock::Stopwatch;
use serde_json::{Value, json};

use crate::alone;
use crate::servers::{Proxy, Redis};
use crate::support::database::Database;
use crate::support::process::{Server, free_port, get, keyward};
use crate::support::{random, redis_url};

const ROOT_KEY: &str = "a_root_key_of_an_operator_1";

/// A replica on these two, and its database.
fn replica(database_url: &str, redis_url: &str) -> Server {
    Server::start(replica_command(database_url, redis_url))
}

fn replica_command(database_url: &str, redis_url: &str) -> Command {
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

fn database() -> Database {
    tokio::runtime::Runtime::new().unwrap().block_on(Database::create())
}

/// A new key with these fields.
fn key(server: &Server, fields: &Value) -> String {
    let (_, api) = server.v2(ROOT_KEY, "apis.createApi", &json!({ "name": "payments" }));
    let mut request = fields.clone();
    request["apiId"] = api["data"]["apiId"].clone();
    let (status, issued) = server.v2(ROOT_KEY, "keys.createKey", &request);
    assert_eq!(status, 200, "{issued}");
    issued["data"]["key"].as_str().unwrap().to_owned()
}

fn limited() -> Value {
    let limit =
        json!({ "name": "requests", "limit": 1000, "duration": 3_600_000, "autoApply": true });
    json!({ "ratelimits": [limit] })
}

fn verify(server: &Server, key: &str) -> (u16, Value) {
    server.v2(ROOT_KEY, "keys.verifyKey", &json!({ "key": key }))
}

#[track_caller]
fn is_valid(answer: &(u16, Value)) {
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
fn heals(server: &Server, key: &str) {
    let began = Stopwatch::new();
    while verify(server, key).0 != 200 {
        assert!(began.elapsed() < Duration::from_secs(1), "still refused");
    }
}

/// Fails unless `/metrics` tells this within two seconds, and each time at once.
fn until_told(server: &Server, sample: &str) {
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

/// A Postgres that is away when a replica starts, and how it comes back.
struct Away {
    url: String,
    back: Box<dyn FnOnce() -> Proxy>,
}

fn refusing(database: &Database) -> Away {
    let address = SocketAddr::from(([127, 0, 0, 1], free_port()));
    let (url, target) = behind(database, address);
    Away { url, back: Box::new(move || Proxy::at(address, target)) }
}

fn cut(database: &Database) -> Away {
    let (url, proxy) = proxied(database);
    proxy.cut();
    Away { url, back: Box::new(move || mended(proxy)) }
}

fn swallowing(database: &Database) -> Away {
    let (url, proxy) = proxied(database);
    proxy.swallow();
    Away { url, back: Box::new(move || mended(proxy)) }
}

fn mended(proxy: Proxy) -> Proxy {
    proxy.mend();
    proxy
}

/// Fails unless the server listens within a second and refuses what needs the database.
fn starts_away(command: Command) -> Server {
    let began = Stopwatch::new();
    let server = Server::launch(command, Stdio::inherit());
    let (status, ready) = get(server.address, "/readyz").unwrap();
    assert!(began.elapsed() < Duration::from_secs(1), "{:?}", began.elapsed());
    assert_eq!(status, 200);
    assert!(ready.contains("\"degraded\"") && ready.contains("\"database\":\"away\""), "{ready}");
    until_told(&server, "keyward_database_reachable 0");
    for root_key in [ROOT_KEY, "a_root_key_that_nobody_knows"] {
        let (status, answer) = server.v2(root_key, "keys.verifyKey", &json!({ "key": "x" }));
        assert_eq!(status, 503, "{answer}");
        let name = answer["error"]["type"].as_str().unwrap();
        assert!(name.ends_with("/errors/service_unavailable"), "{name}");
    }
    server
}

/// Fails unless the root key makes an API within this time, and is refused as away until then.
fn opens(server: &Server, root_key: &str, within: Duration) {
    let began = Stopwatch::new();
    loop {
        let (status, answer) =
            server.v2(root_key, "apis.createApi", &json!({ "name": "payments" }));
        if status == 200 {
            return;
        }
        assert_eq!(status, 503, "{answer}");
        assert!(began.elapsed() < within, "still refused");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn empty_database() -> Database {
    tokio::runtime::Runtime::new().unwrap().block_on(Database::empty())
}

const BACK_WITHIN: Duration = Duration::from_secs(2);

#[test]
fn a_replica_starts_while_postgres_is_away_and_serves_when_it_is_back() {
    let _turn = alone();
    for away in [refusing, cut, swallowing] {
        let database = empty_database();
        let Away { url, back } = away(&database);
        let server = starts_away(replica_command(&url, &redis_url()));

        let _proxy = back();

        opens(&server, ROOT_KEY, BACK_WITHIN);
        let (_, ready) = get(server.address, "/readyz").unwrap();
        assert!(ready.contains("\"ready\""), "{ready}");
        until_told(&server, "keyward_database_reachable 1");
        let key = key(&server, &limited());
        is_valid(&verify(&server, &key));
    }
}

#[test]
fn the_first_root_key_is_shown_when_postgres_is_back() {
    let _turn = alone();
    let database = empty_database();
    let Away { url, back } = cut(&database);
    let mut command = replica_command(&url, &redis_url());
    command.env_remove("KEYWARD_ROOT_KEY");
    let mut server = starts_away(command);

    let _proxy = back();

    let mut lines = (&mut server.out).lines().map(Result::unwrap);
    assert_eq!(lines.next().unwrap(), "");
    assert!(lines.next().unwrap().starts_with("Your root key."));
    let root_key = lines.find(|line| !line.is_empty()).unwrap().trim().to_owned();
    opens(&server, &root_key, Duration::ZERO);
}

#[test]
fn a_replica_starts_while_both_are_away_and_can_be_stopped_and_heals() {
    let _turn = alone();
    let (database, mut redis) = (database(), Redis::start());
    redis.kill();
    let Away { url, back } = cut(&database);
    let stopped = starts_away(replica_command(&url, &redis.url()));
    let server = starts_away(replica_command(&url, &redis.url()));

    stopped.signal("TERM");
    assert_eq!(stopped.wait(), Some(0));
    let _proxy = back();
    opens(&server, ROOT_KEY, BACK_WITHIN);
    let unlimited = key(&server, &json!({}));
    is_valid(&verify(&server, &unlimited));
    redis.restart();

    let limited = key(&server, &limited());
    heals(&server, &limited);
}

#[test]
fn a_wrong_password_and_a_database_that_does_not_exist_stop_the_start() {
    let _turn = alone();
    let database = database();
    let (scheme, rest) = database.url.split_once("://").unwrap();
    let (_, place) = rest.split_once('@').unwrap();
    let wrong = format!("{scheme}://keyward:not-the-password@{place}");
    let (server, _) = database.url.rsplit_once('/').unwrap();
    let missing = format!("{server}/kw_nowhere_{}", random());

    for (url, words) in [(wrong, "password authentication failed"), (missing, "does not exist")] {
        let output = replica_command(&url, &redis_url()).output().unwrap();

        let sentence = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{sentence}");
        assert!(output.stdout.is_empty());
        assert_eq!(sentence.trim().lines().count(), 1, "{sentence}");
        for words in [words, "cannot reach the database", "KEYWARD_DATABASE_URL"] {
            assert!(sentence.contains(words), "{words:?} is not in {sentence:?}");
        }
    }
}

#[test]
fn a_mistake_that_shows_only_when_postgres_is_back_is_logged_until_it_is_put_right() {
    let _turn = alone();
    let database = database();
    let run = |sql: &'static str| {
        let runtime = tokio::runtime::Runtime::new().unwrap();
        runtime.block_on(async {
            sqlx::query(sql).execute(&mut database.connect().await).await.unwrap();
        });
    };
    run("INSERT INTO _sqlx_migrations (version, description, success, checksum, execution_time)
        VALUES (9999, 'from the future', TRUE, '', 0)");
    let Away { url, back } = cut(&database);
    let directory = tempfile::tempdir().unwrap();
    let log = directory.path().join("log");
    let file = std::fs::File::create(&log).unwrap();
    let server = Server::launch(replica_command(&url, &redis_url()), file.into());

    let _proxy = back();
    let began = Stopwatch::new();
    while !std::fs::read_to_string(&log).unwrap().contains("newer than this keyward") {
        assert!(began.elapsed() < BACK_WITHIN, "nothing is logged");
        std::thread::sleep(Duration::from_millis(20));
    }
    let (status, answer) = server.v2(ROOT_KEY, "apis.createApi", &json!({ "name": "payments" }));
    assert_eq!(status, 503, "{answer}");
    run("DELETE FROM _sqlx_migrations WHERE version = 9999");

    opens(&server, ROOT_KEY, Duration::from_secs(7));
}

/// The database behind a way that can be cut.
fn proxied(database: &Database) -> (String, Proxy) {
    let (_, target) = behind(database, SocketAddr::from(([127, 0, 0, 1], 0)));
    let proxy = Proxy::to(target);
    (behind(database, proxy.address).0, proxy)
}

/// The database's URL with another address, and the address that it had.
fn behind(database: &Database, address: SocketAddr) -> (String, String) {
    let (scheme, rest) = database.url.split_once("://").unwrap();
    let (user, place) = rest.split_once('@').unwrap_or(("", rest));
    let (server, path) = place.split_once('/').unwrap();
    let at = if user.is_empty() { String::new() } else { format!("{user}@") };
    (format!("{scheme}://{at}{address}/{path}"), server.to_owned())
}

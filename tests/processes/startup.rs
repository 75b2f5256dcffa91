//! Tests replicas that start while Postgres or Redis is unreachable, with real processes.

use std::io::BufRead as _;
use std::net::SocketAddr;
use std::process::{Command, Stdio};
use std::time::Duration;

use foundation::clock::Stopwatch;
use serde_json::json;

use crate::faults::{
    ROOT_KEY, assert_recovers, assert_valid, create_key, database, limited, replace_address,
    replica_command, start_proxy, verify, wait_for_metric,
};
use crate::servers::{Proxy, Redis};
use crate::support::database::Database;
use crate::support::process::{Server, free_port, get, keyward_command};
use crate::support::{random_letters, redis_url};
use crate::{acquire_turn, share_turn};

/// A Postgres that is unreachable when a replica starts, and a function that makes it reachable.
struct UnreachablePostgres {
    url: String,
    make_reachable: Box<dyn FnOnce() -> Proxy>,
}

fn refusing(database: &Database) -> UnreachablePostgres {
    let address = SocketAddr::from(([127, 0, 0, 1], free_port()));
    let (url, target) = replace_address(database, address);
    UnreachablePostgres { url, make_reachable: Box::new(move || Proxy::at(address, target)) }
}

fn cut(database: &Database) -> UnreachablePostgres {
    let (url, proxy) = start_proxy(database);
    proxy.cut();
    UnreachablePostgres { url, make_reachable: Box::new(move || restore(proxy)) }
}

fn swallowing(database: &Database) -> UnreachablePostgres {
    let (url, proxy) = start_proxy(database);
    proxy.swallow();
    UnreachablePostgres { url, make_reachable: Box::new(move || restore(proxy)) }
}

fn restore(proxy: Proxy) -> Proxy {
    proxy.mend();
    proxy
}

/// Fails unless the server listens within a second, is not ready, and rejects requests that need the database. A program that
/// only prints its usage shows how long this machine takes to start one.
fn start_degraded(command: Command) -> Server {
    let began = Stopwatch::new();
    keyward_command().arg("--help").output().unwrap();
    let program_start = began.elapsed();
    let began = Stopwatch::new();
    let server = Server::launch(command, Stdio::inherit());
    let (status, ready) = get(server.address, "/readyz").unwrap();
    let took = began.elapsed();
    assert!(took < Duration::from_secs(1) + 3 * program_start, "{took:?}");
    assert_eq!(status, 503);
    assert!(ready.contains("\"starting\"") && ready.contains("\"database\":\"away\""), "{ready}");
    wait_for_metric(&server, "keyward_database_reachable 0");
    for root_key in [ROOT_KEY, "a_root_key_that_nobody_knows"] {
        let (status, answer) = server.v2(root_key, "keys.verifyKey", &json!({ "key": "x" }));
        assert_eq!(status, 503, "{answer}");
        let name = answer["error"]["type"].as_str().unwrap();
        assert!(name.ends_with("/errors/service_unavailable"), "{name}");
    }
    server
}

/// Fails unless the root key creates an API within this time and gets 503 until then.
fn assert_opens_within(server: &Server, root_key: &str, within: Duration) {
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

const RECOVERY_MAX: Duration = Duration::from_secs(2);

#[test]
fn replica_starts_when_postgres_is_unreachable_and_serves_when_it_returns() {
    let _turn = acquire_turn();
    for make_unreachable in [refusing, cut, swallowing] {
        let database = database();
        let UnreachablePostgres { url, make_reachable } = make_unreachable(&database);
        let server = start_degraded(replica_command(&url, &redis_url()));

        let _proxy = make_reachable();

        assert_opens_within(&server, ROOT_KEY, RECOVERY_MAX);
        let (_, ready) = get(server.address, "/readyz").unwrap();
        assert!(ready.contains("\"ready\""), "{ready}");
        wait_for_metric(&server, "keyward_database_reachable 1");
        let key = create_key(&server, &limited());
        assert_valid(&verify(&server, &key));
    }
}

#[test]
fn first_root_key_is_printed_when_postgres_returns() {
    let _turn = acquire_turn();
    let database = empty_database();
    let UnreachablePostgres { url, make_reachable } = cut(&database);
    let mut command = replica_command(&url, &redis_url());
    command.env_remove("KEYWARD_ROOT_KEY");
    let mut server = start_degraded(command);

    let _proxy = make_reachable();

    let mut lines = (&mut server.stdout).lines().map(Result::unwrap);
    assert_eq!(lines.next().unwrap(), "");
    assert!(lines.next().unwrap().starts_with("Your root key."));
    let root_key = lines.find(|line| !line.is_empty()).unwrap().trim().to_owned();
    assert_opens_within(&server, &root_key, Duration::ZERO);
}

#[test]
fn replica_starts_stops_and_recovers_when_postgres_and_redis_are_unreachable() {
    let _turn = acquire_turn();
    let (database, mut redis) = (database(), Redis::start());
    redis.kill();
    let UnreachablePostgres { url, make_reachable } = cut(&database);
    let stopped = start_degraded(replica_command(&url, &redis.url()));
    let server = start_degraded(replica_command(&url, &redis.url()));

    stopped.signal("TERM");
    assert_eq!(stopped.wait(), Some(0));
    let _proxy = make_reachable();
    assert_opens_within(&server, ROOT_KEY, RECOVERY_MAX);
    let unlimited = create_key(&server, &json!({}));
    assert_valid(&verify(&server, &unlimited));
    redis.restart();

    let limited = create_key(&server, &limited());
    assert_recovers(&server, &limited);
}

#[test]
fn start_fails_when_password_or_database_name_is_wrong() {
    let _turn = share_turn();
    let database = database();
    let (scheme, rest) = database.url.split_once("://").unwrap();
    let (_, location) = rest.split_once('@').unwrap();
    let wrong = format!("{scheme}://keyward:not-the-password@{location}");
    let (server, _) = database.url.rsplit_once('/').unwrap();
    let missing = format!("{server}/kw_nowhere_{}", random_letters());

    for (url, words) in [(wrong, "password authentication failed"), (missing, "does not exist")] {
        let output = replica_command(&url, &redis_url()).output().unwrap();

        let sentence = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{sentence}");
        assert!(output.stdout.is_empty());
        assert_eq!(sentence.trim().lines().count(), 1, "{sentence}");
        for words in [words, "failed to reach the database", "KEYWARD_DATABASE_URL"] {
            assert!(sentence.contains(words), "{words:?} is not in {sentence:?}");
        }
    }
}

#[test]
fn configuration_error_is_logged_until_fixed_when_postgres_returns() {
    let _turn = share_turn();
    let database = database();
    let run = |sql: &'static str| {
        let runtime = tokio::runtime::Runtime::new().unwrap();
        runtime.block_on(async {
            sqlx::query(sql).execute(&mut database.connect().await).await.unwrap();
        });
    };
    run("INSERT INTO _sqlx_migrations (version, description, success, checksum, execution_time)
        VALUES (9999, 'from the future', TRUE, '', 0)");
    let UnreachablePostgres { url, make_reachable } = cut(&database);
    let directory = tempfile::tempdir().unwrap();
    let log = directory.path().join("log");
    let file = std::fs::File::create(&log).unwrap();
    let server = Server::launch(replica_command(&url, &redis_url()), file.into());

    let _proxy = make_reachable();
    let began = Stopwatch::new();
    while !std::fs::read_to_string(&log).unwrap().contains("newer than this keyward") {
        assert!(began.elapsed() < RECOVERY_MAX, "nothing was logged");
        std::thread::sleep(Duration::from_millis(20));
    }
    let (status, answer) = server.v2(ROOT_KEY, "apis.createApi", &json!({ "name": "payments" }));
    assert_eq!(status, 503, "{answer}");
    run("DELETE FROM _sqlx_migrations WHERE version = 9999");

    assert_opens_within(&server, ROOT_KEY, Duration::from_secs(7));
}

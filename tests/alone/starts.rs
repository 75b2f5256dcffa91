//! A replica starts while a server behind it is away: real processes.

use std::io::BufRead as _;
use std::net::SocketAddr;
use std::process::{Command, Stdio};
use std::time::Duration;

use foundation::clock::Stopwatch;
use serde_json::json;

use crate::alone;
use crate::faults::{
    ROOT_KEY, behind, database, heals, is_valid, key, limited, proxied, replica_command,
    until_told, verify,
};
use crate::servers::{Proxy, Redis};
use crate::support::database::Database;
use crate::support::process::{Server, free_port, get};
use crate::support::{random, redis_url};

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

/// Fails unless the server listens within a second, is not ready, and refuses what needs the database.
fn starts_away(command: Command) -> Server {
    let began = Stopwatch::new();
    let server = Server::launch(command, Stdio::inherit());
    let (status, ready) = get(server.address, "/readyz").unwrap();
    assert!(began.elapsed() < Duration::from_secs(1), "{:?}", began.elapsed());
    assert_eq!(status, 503);
    assert!(ready.contains("\"starting\"") && ready.contains("\"database\":\"away\""), "{ready}");
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

//! Servers behind a replica that have no room left: they answer, and refuse what is to be written.

use keyward::clock::Stopwatch;
use serde_json::{Value, json};
use sqlx::Executor as _;
use std::time::Duration;

use crate::alone;
use crate::faults::{ROOT_KEY, database, heals, is_valid, key, limited, replica_command, verify};
use crate::servers::Redis;
use crate::support::database::Database;
use crate::support::process::Server;

const GRANTED: i64 = 1_000;

fn replica(database: &Database, redis: &Redis) -> Server {
    let mut command = replica_command(&database.url, &redis.url());
    // A machine that compiles meanwhile is slow; these servers refuse at once.
    command.env("KEYWARD_REDIS_TIMEOUT_MS", "2000").env("KEYWARD_LOG", "off");
    Server::start(command)
}

fn set(redis: &Redis, name: &str, value: &str) {
    redis::cmd("CONFIG").arg(&["SET", name, value]).exec(&mut redis.connect()).unwrap();
}

/// What is left, as the database has it: leases go back while they are closed.
fn left(server: &Server, key: &str) -> i64 {
    let look = json!({ "key": key, "credits": { "cost": 0 } });
    let (status, answer) = server.v2(ROOT_KEY, "keys.verifyKey", &look);
    assert_eq!(status, 200, "{answer}");
    answer["data"]["credits"].as_i64().unwrap()
}

/// Verifies keys while Redis refuses what is written, and after it has room again.
fn is_an_outage_of_the_counters(refuse: impl Fn(&Redis), accept: impl Fn(&Redis)) {
    let (database, redis) = (database(), Redis::start_keeping(true));
    let server = replica(&database, &redis);
    let window = key(&server, &limited());
    let mut fields = limited();
    fields["credits"] = json!({ "remaining": GRANTED });
    let metered = key(&server, &fields);
    is_valid(&verify(&server, &window));
    is_valid(&verify(&server, &metered));
    let mut valid = 1;

    refuse(&redis);
    for _ in 0..20 {
        let answer = verify(&server, &window);
        is_valid(&answer);
        assert_eq!(answer.1["meta"]["degraded"], true, "{}", answer.1);
        let answer = verify(&server, &metered);
        is_valid(&answer);
        assert_eq!(answer.1["meta"]["degraded"], true, "{}", answer.1);
        valid += 1;
    }
    let check = json!({ "namespace": "n", "identifier": "i", "limit": 5, "duration": 60_000 });
    let (status, answer) = server.v2(ROOT_KEY, "ratelimit.limit", &check);
    assert_eq!((status, &answer["data"]["success"]), (200, &json!(true)), "{answer}");

    accept(&redis);
    heals(&server, &window);
    is_valid(&verify(&server, &metered));
    assert_eq!(left(&server, &metered), GRANTED - valid - 1);
}

#[test]
fn redis_at_maxmemory_is_an_outage_of_the_counters() {
    let _turn = alone();
    is_an_outage_of_the_counters(
        |redis| set(redis, "maxmemory", "1"),
        |redis| set(redis, "maxmemory", "0"),
    );
}

#[test]
fn redis_that_cannot_save_is_an_outage_of_the_counters() {
    let _turn = alone();
    let refuse = |redis: &Redis| {
        let directory: Vec<String> =
            redis::cmd("CONFIG").arg(&["GET", "dir"]).query(&mut redis.connect()).unwrap();
        std::fs::remove_dir_all(&directory[1]).unwrap();
        set(redis, "save", "3600 1000000");
        redis::cmd("BGSAVE").exec(&mut redis.connect()).unwrap();
        let began = Stopwatch::new();
        loop {
            let written = redis::cmd("SET").arg(&["probe", "1"]).exec(&mut redis.connect());
            match written {
                Err(e) if e.code() == Some("MISCONF") => return,
                _ => assert!(began.elapsed() < Duration::from_secs(10), "{written:?}"),
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    };
    is_an_outage_of_the_counters(refuse, |redis| set(redis, "stop-writes-on-bgsave-error", "no"));
}

fn execute(database: &Database, statements: &'static str) {
    tokio::runtime::Runtime::new().unwrap().block_on(async {
        database.connect().await.execute(statements).await.unwrap();
    });
}

/// Postgres reports a full disk by an error of the statement, as the trigger does here.
#[test]
fn postgres_with_a_full_disk_is_answered_503_and_recovers_by_itself() {
    let _turn = alone();
    let (database, mut redis) = (database(), Redis::start());
    let server = replica(&database, &redis);
    let metered = key(&server, &json!({ "credits": { "remaining": GRANTED } }));
    let plain = key(&server, &json!({}));
    is_valid(&verify(&server, &plain));
    // What follows is debited directly.
    redis.kill();
    is_valid(&verify(&server, &metered));

    execute(
        &database,
        "CREATE FUNCTION full_disk() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
            RAISE EXCEPTION 'could not extend file: No space left on device'
            USING ERRCODE = '53100';
        END $$;
        CREATE TRIGGER full_disk BEFORE INSERT OR UPDATE ON keys
            FOR EACH ROW EXECUTE FUNCTION full_disk()",
    );
    for _ in 0..10 {
        let (status, answer) = verify(&server, &metered);
        assert_eq!(status, 503, "{answer}");
        is_valid(&verify(&server, &plain));
    }
    let (_, api) = server.v2(ROOT_KEY, "apis.createApi", &json!({ "name": "payments" }));
    let request: Value = json!({ "apiId": api["data"]["apiId"] });
    let (status, answer) = server.v2(ROOT_KEY, "keys.createKey", &request);
    assert_eq!(status, 503, "{answer}");
    execute(&database, "DROP TRIGGER full_disk ON keys");

    let began = Stopwatch::new();
    while verify(&server, &metered).0 != 200 {
        assert!(began.elapsed() < Duration::from_secs(2), "it does not recover");
    }
    assert_eq!(left(&server, &metered), GRANTED - 2);
    assert_eq!(server.v2(ROOT_KEY, "keys.createKey", &request).0, 200);
}

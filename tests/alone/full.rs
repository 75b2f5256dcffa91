//! Servers behind a replica that have no room left: they answer, and refuse what is to be written.

use std::time::Duration;

use foundation::clock::Stopwatch;
use serde_json::{Value, json};
use sqlx::Executor as _;

use crate::alone;
use crate::faults::{ROOT_KEY, database, heals, is_valid, key, limited, replica_command, verify};
use crate::servers::Redis;
use crate::stage::{Key, Replica, Stage};
use crate::support::database::Database;
use crate::support::process::Server;
use crate::support::random;

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

/// What a check of a key without a cost is answered.
fn peek(server: &Server, key: &str) -> (u16, Value) {
    server.v2(ROOT_KEY, "keys.verifyKey", &json!({ "key": key, "credits": { "cost": 0 } }))
}

/// What is left, as the database has it: leases go back while they are closed.
fn left(server: &Server, key: &str) -> i64 {
    let (status, answer) = peek(server, key);
    assert_eq!(status, 200, "{answer}");
    answer["data"]["credits"].as_i64().unwrap()
}

/// Fails unless a replica says within ten seconds that this is left: withheld credits are returned by then.
#[track_caller]
fn left_comes_to(replica: &Replica, key: &Key, balance: i64) {
    let began = Stopwatch::new();
    loop {
        let (status, answer) = peek(&replica.server, &key.key);
        if status == 200 && answer["data"]["credits"] == balance {
            return;
        }
        assert!(began.elapsed() < Duration::from_secs(10), "not {balance} but {status} {answer}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// A way to make Redis refuse what is written, and the way back.
struct Refusal {
    begin: fn(&Redis),
    end: fn(&Redis),
}

/// Redis has more than it may.
const FULL: Refusal = Refusal {
    begin: |redis| set(redis, "maxmemory", "1"),
    end: |redis| set(redis, "maxmemory", "0"),
};

/// Redis cannot save a snapshot.
const UNSAVED: Refusal = Refusal {
    begin: |redis| {
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
    },
    end: |redis| set(redis, "stop-writes-on-bgsave-error", "no"),
};

/// Verifies keys while Redis refuses what is written, and after it has room again.
fn is_an_outage_of_the_counters(refusal: &Refusal) {
    let (database, redis) = (database(), Redis::start_keeping(true));
    let server = replica(&database, &redis);
    let window = key(&server, &limited());
    let mut fields = limited();
    fields["credits"] = json!({ "remaining": GRANTED });
    let metered = key(&server, &fields);
    is_valid(&verify(&server, &window));
    is_valid(&verify(&server, &metered));
    let mut valid = 1;

    (refusal.begin)(&redis);
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

    (refusal.end)(&redis);
    heals(&server, &window);
    is_valid(&verify(&server, &metered));
    assert_eq!(left(&server, &metered), GRANTED - valid - 1);
}

#[test]
fn redis_at_maxmemory_is_an_outage_of_the_counters() {
    let _turn = alone();
    is_an_outage_of_the_counters(&FULL);
}

#[test]
fn redis_that_cannot_save_is_an_outage_of_the_counters() {
    let _turn = alone();
    is_an_outage_of_the_counters(&UNSAVED);
}

/// Sets the balance of a key; the status.
fn set_balance(replica: &Replica, key: &Key, balance: i64) -> u16 {
    let request = json!({ "keyId": key.id, "operation": "set", "value": balance });
    replica.server.v2(ROOT_KEY, "keys.updateCredits", &request).0
}

/// Fails unless a key has just so many credits, which are spent on the replicas in turn.
#[track_caller]
fn has_left(replicas: [&Replica; 2], key: &Key, balance: i64) {
    for replica in replicas {
        left_comes_to(replica, key, balance);
    }
    let mut spent = 0;
    for replica in replicas.into_iter().cycle() {
        match replica.code(key).as_str() {
            "VALID" => spent += 1,
            code => {
                assert_eq!(code, "USAGE_EXCEEDED");
                break;
            }
        }
    }
    assert_eq!(spent, balance);
}

/// Fails unless a request succeeds within so many seconds, refused with 503 until then.
fn succeeds(seconds: f32, request: impl Fn() -> u16) {
    let began = Stopwatch::new();
    loop {
        match request() {
            200 => return,
            status => assert_eq!(status, 503),
        }
        assert!(began.elapsed().as_secs_f32() < seconds, "it is still refused");
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// Changes keys while Redis refuses what is written, and after it has room again.
fn changes_are_made_everywhere_or_nowhere(refusal: &Refusal) {
    let redis = Redis::start_keeping(true);
    let stage = Stage { database: database(), redis, prefix: format!("t{}:", random()) };
    let (writer, reader) = stage.pair();
    let both = [&writer, &reader];
    let window = writer.key_with(&limited());
    let [revoked, other] = [(); 2].map(|()| writer.key());
    // Credits of two of these are leased to Redis; the third was never spent from.
    let [spent, resting, unleased] =
        [(); 3].map(|()| writer.key_with(&json!({ "credits": { "remaining": 40 } })));
    for replica in both {
        for key in [&window, &revoked, &other, &spent, &resting] {
            replica.is(key, "VALID");
        }
    }

    (refusal.begin)(&stage.redis);
    assert_eq!(writer.disable(&revoked), 200);
    writer.is(&revoked, "DISABLED");
    reader.comes_to(&revoked, "DISABLED", 1.0);
    assert_eq!(set_balance(&writer, &unleased, 7), 200);
    // The leases of these cannot be seen closed, so that others may be spending from them.
    for key in [&spent, &resting] {
        assert_eq!(set_balance(&writer, key, 25), 503);
    }
    for replica in both {
        replica.is(&spent, "VALID");
    }
    // Neither Redis nor the database leads to the reader now.
    reader.postgres.cut();
    assert_eq!(writer.disable(&other), 503);
    for replica in both {
        replica.stays(&other, "VALID", 0.5);
    }
    reader.postgres.mend();

    (refusal.end)(&stage.redis);
    for replica in both {
        heals(&replica.server, &window.key);
        replica.is(&revoked, "DISABLED");
        // The reader finds in the change log that a change was begun, and then that it was not made.
        replica.comes_to(&other, "VALID", 5.0);
    }
    succeeds(10.0, || writer.disable(&other));
    reader.comes_to(&other, "DISABLED", 1.0);
    has_left(both, &spent, 40 - 4);
    has_left(both, &resting, 40 - 2);
    has_left(both, &unleased, 7);
    for key in [&spent, &resting, &unleased] {
        succeeds(10.0, || set_balance(&writer, key, 11));
        has_left(both, key, 11);
    }
}

#[test]
fn changes_are_made_everywhere_or_nowhere_when_redis_is_at_maxmemory() {
    let _turn = alone();
    changes_are_made_everywhere_or_nowhere(&FULL);
}

#[test]
fn changes_are_made_everywhere_or_nowhere_when_redis_cannot_save() {
    let _turn = alone();
    changes_are_made_everywhere_or_nowhere(&UNSAVED);
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

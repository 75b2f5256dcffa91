//! Tests servers behind a replica that have no space left: they reply, and reject writes.

use std::time::Duration;

use foundation::clock::Stopwatch;
use serde_json::{Value, json};
use sqlx::Executor as _;

use crate::faults::{
    ROOT_KEY, assert_recovers_within, assert_valid, create_key, database, limited, replica_command,
    verify,
};
use crate::servers::Redis;
use crate::stage::{Key, Replica, Stage};
use crate::support::database::Database;
use crate::support::process::Server;
use crate::{SLACK_SECONDS, share_turn};

const GRANTED: i64 = 1_000;

fn replica(database: &Database, redis: &Redis) -> Server {
    let mut command = replica_command(&database.url, &redis.url());
    // The machine may be compiling at the same time; these servers reject at once.
    command.env("KEYWARD_REDIS_TIMEOUT_MS", "2000").env("KEYWARD_LOG", "off");
    Server::start(command)
}

fn set_redis_option(redis: &Redis, name: &str, value: &str) {
    redis::cmd("CONFIG").arg(&["SET", name, value]).exec(&mut redis.connect()).unwrap();
}

/// Verifies a key at cost 0.
fn peek(server: &Server, key: &str) -> (u16, Value) {
    server.v2(ROOT_KEY, "keys.verifyKey", &json!({ "key": key, "credits": { "cost": 0 } }))
}

/// Fails unless a server reports this balance within ten seconds: by then withheld credits are returned.
#[track_caller]
fn assert_balance_becomes(server: &Server, key: &str, balance: i64) {
    let began = Stopwatch::new();
    loop {
        let (status, answer) = peek(server, key);
        if status == 200 && answer["data"]["credits"] == balance {
            return;
        }
        assert!(began.elapsed() < Duration::from_secs(10), "not {balance} but {status} {answer}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// A way to make Redis reject writes, and to end that.
struct WriteRejection {
    begin: fn(&Redis),
    end: fn(&Redis),
}

/// Redis exceeds its memory limit.
const FULL: WriteRejection = WriteRejection {
    begin: |redis| set_redis_option(redis, "maxmemory", "1"),
    end: |redis| set_redis_option(redis, "maxmemory", "0"),
};

/// Redis cannot save a snapshot.
const UNSAVED: WriteRejection = WriteRejection {
    begin: |redis| {
        let directory: Vec<String> =
            redis::cmd("CONFIG").arg(&["GET", "dir"]).query(&mut redis.connect()).unwrap();
        std::fs::remove_dir_all(&directory[1]).unwrap();
        set_redis_option(redis, "save", "3600 1000000");
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
    end: |redis| set_redis_option(redis, "stop-writes-on-bgsave-error", "no"),
};

/// Verifies keys while Redis rejects writes, and after that.
fn assert_limits_degrade_during(rejection: &WriteRejection) {
    let (database, redis) = (database(), Redis::start_keeping(true));
    let server = replica(&database, &redis);
    let window = create_key(&server, &limited());
    let mut fields = limited();
    fields["credits"] = json!({ "remaining": GRANTED });
    let metered = create_key(&server, &fields);
    assert_valid(&verify(&server, &window));
    assert_valid(&verify(&server, &metered));
    let mut valid = 1;

    (rejection.begin)(&redis);
    for _ in 0..20 {
        let answer = verify(&server, &window);
        assert_valid(&answer);
        assert_eq!(answer.1["meta"]["degraded"], true, "{}", answer.1);
        let answer = verify(&server, &metered);
        assert_valid(&answer);
        assert_eq!(answer.1["meta"]["degraded"], true, "{}", answer.1);
        valid += 1;
    }
    let check = json!({ "namespace": "n", "identifier": "i", "limit": 5, "duration": 60_000 });
    let (status, answer) = server.v2(ROOT_KEY, "ratelimit.limit", &check);
    assert_eq!((status, &answer["data"]["success"]), (200, &json!(true)), "{answer}");

    (rejection.end)(&redis);
    assert_recovers_within(1.0 + SLACK_SECONDS, &server, &window);
    assert_valid(&verify(&server, &metered));
    assert_balance_becomes(&server, &metered, GRANTED - valid - 1);
}

#[test]
fn limits_are_degraded_when_redis_is_at_maxmemory() {
    let _turn = share_turn();
    assert_limits_degrade_during(&FULL);
}

#[test]
fn limits_are_degraded_when_redis_cannot_save() {
    let _turn = share_turn();
    assert_limits_degrade_during(&UNSAVED);
}

/// Sets the balance of a key. Returns the status.
fn set_balance(replica: &Replica, key: &Key, balance: i64) -> u16 {
    let request = json!({ "keyId": key.id, "operation": "set", "value": balance });
    replica.server.v2(ROOT_KEY, "keys.updateCredits", &request).0
}

/// Fails unless a key has exactly this many credits, spent on the replicas in turn.
#[track_caller]
fn assert_balance(replicas: [&Replica; 2], key: &Key, balance: i64) {
    for replica in replicas {
        assert_balance_becomes(&replica.server, &key.key, balance);
    }
    let mut spent = 0;
    for replica in replicas.into_iter().cycle() {
        match replica.verification_code(key).as_str() {
            "VALID" => spent += 1,
            code => {
                assert_eq!(code, "USAGE_EXCEEDED");
                break;
            }
        }
    }
    assert_eq!(spent, balance);
}

/// Fails unless a request succeeds within this many seconds and returns 503 until then.
fn assert_succeeds_within(seconds: f32, request: impl Fn() -> u16) {
    let began = Stopwatch::new();
    loop {
        match request() {
            200 => return,
            status => assert_eq!(status, 503),
        }
        assert!(began.elapsed().as_secs_f32() < seconds, "still refused");
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// Changes keys while Redis rejects writes, and after that.
fn assert_changes_are_atomic_during(rejection: &WriteRejection) {
    let mut stage = Stage::new();
    stage.redis = Redis::start_keeping(true);
    let (writer, reader) = stage.pair();
    let both = [&writer, &reader];
    let window = writer.create_key_with(&limited());
    let [revoked, other] = [(); 2].map(|()| writer.create_key());
    // Credits of two of these keys are leased; the third was never spent from.
    let [spent, resting, unleased] =
        [(); 3].map(|()| writer.create_key_with(&json!({ "credits": { "remaining": 40 } })));
    for replica in both {
        for key in [&window, &revoked, &other, &spent, &resting] {
            replica.assert_code(key, "VALID");
        }
    }

    (rejection.begin)(&stage.redis);
    assert_eq!(writer.disable(&revoked), 200);
    writer.assert_code(&revoked, "DISABLED");
    reader.wait_for_code(&revoked, "DISABLED", 1.0 + SLACK_SECONDS);
    assert_eq!(set_balance(&writer, &unleased, 7), 200);
    // It cannot be observed that the leases of these keys are closed, so others may be spending from them.
    for key in [&spent, &resting] {
        assert_eq!(set_balance(&writer, key, 25), 503);
    }
    for replica in both {
        replica.assert_code(&spent, "VALID");
    }
    // Neither Redis nor the database is reachable for the reader now.
    reader.postgres.cut();
    assert_eq!(writer.disable(&other), 503);
    for replica in both {
        replica.assert_code_stays(&other, "VALID", 0.5);
    }
    reader.postgres.mend();

    (rejection.end)(&stage.redis);
    for replica in both {
        assert_recovers_within(1.0 + SLACK_SECONDS, &replica.server, &window.key);
        replica.assert_code(&revoked, "DISABLED");
        // The reader finds in the change log that a change was started, and then that it was not made.
        replica.wait_for_code(&other, "VALID", 5.0);
    }
    assert_succeeds_within(10.0, || writer.disable(&other));
    reader.wait_for_code(&other, "DISABLED", 1.0 + SLACK_SECONDS);
    assert_balance(both, &spent, 40 - 4);
    assert_balance(both, &resting, 40 - 2);
    assert_balance(both, &unleased, 7);
    for key in [&spent, &resting, &unleased] {
        assert_succeeds_within(10.0, || set_balance(&writer, key, 11));
        assert_balance(both, key, 11);
    }
}

#[test]
fn changes_are_visible_on_all_replicas_or_none_when_redis_is_at_maxmemory() {
    let _turn = share_turn();
    assert_changes_are_atomic_during(&FULL);
}

#[test]
fn changes_are_visible_on_all_replicas_or_none_when_redis_cannot_save() {
    let _turn = share_turn();
    assert_changes_are_atomic_during(&UNSAVED);
}

fn execute(database: &Database, statements: &'static str) {
    tokio::runtime::Runtime::new().unwrap().block_on(async {
        database.connect().await.execute(statements).await.unwrap();
    });
}

/// Postgres reports a full disk as an error of the statement, as the trigger does here.
#[test]
fn replica_returns_503_when_postgres_disk_is_full_and_recovers() {
    let _turn = share_turn();
    let (database, mut redis) = (database(), Redis::start());
    let server = replica(&database, &redis);
    let metered = create_key(&server, &json!({ "credits": { "remaining": GRANTED } }));
    let plain = create_key(&server, &json!({}));
    assert_valid(&verify(&server, &plain));
    // The following spends are direct debits.
    redis.kill();
    assert_valid(&verify(&server, &metered));

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
        assert_valid(&verify(&server, &plain));
    }
    let (_, api) = server.v2(ROOT_KEY, "apis.createApi", &json!({ "name": "payments" }));
    let request: Value = json!({ "apiId": api["data"]["apiId"] });
    let (status, answer) = server.v2(ROOT_KEY, "keys.createKey", &request);
    assert_eq!(status, 503, "{answer}");
    execute(&database, "DROP TRIGGER full_disk ON keys");

    let began = Stopwatch::new();
    while verify(&server, &metered).0 != 200 {
        assert!(began.elapsed() < Duration::from_secs(2), "the replica does not recover");
    }
    assert_balance_becomes(&server, &metered, GRANTED - 2);
    assert_eq!(server.v2(ROOT_KEY, "keys.createKey", &request).0, 200);
}

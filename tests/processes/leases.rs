//! Tests leases with several replicas: how many credits may be leased, and what proves that no replica spends from a
//! lease.

mod locked_accounts;
mod many_keys;

use std::sync::Barrier;
use std::time::Duration;

use foundation::clock::Stopwatch;
use serde_json::{Value, json};
use sqlx::AssertSqlSafe;

use crate::faults::{
    ROOT_KEY, assert_valid, count_valid, database, replica_command, verify, withheld,
};
use crate::servers::Redis;
use crate::stage::{Replica, Stage};
use crate::support::database::Database;
use crate::support::process::{Server, get};
use crate::support::random_letters;
use crate::{acquire_turn, share_turn};

/// Starts replicas on one database, each with its own Redis.
fn replicas(database: &Database, redis: &[&Redis]) -> Vec<Server> {
    let prefix = format!("t{}:", random_letters());
    let start = |redis: &&Redis| {
        let mut command = replica_command(&database.url, &redis.url());
        command.env("KEYWARD_REDIS_PREFIX", &prefix);
        // The machine may be compiling at the same time.
        command.env("KEYWARD_REDIS_TIMEOUT_MS", "2000");
        Server::start(command)
    };
    redis.iter().map(start).collect()
}

/// Creates a key with this many credits. Returns its id and the key.
fn create_key(server: &Server, credits: i64) -> (String, String) {
    let (_, api) = server.v2(ROOT_KEY, "apis.createApi", &json!({ "name": "payments" }));
    let fields = json!({ "apiId": api["data"]["apiId"], "credits": { "remaining": credits } });
    let (status, issued) = server.v2(ROOT_KEY, "keys.createKey", &fields);
    assert_eq!(status, 200, "{issued}");
    let text = |field: &str| issued["data"][field].as_str().unwrap().to_owned();
    (text("keyId"), text("key"))
}

/// Runs statements without the server. Returns the number that the last one yields.
fn sql(database: &Database, statement: &str) -> i64 {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let mut connection = database.connect().await;
        let statement = AssertSqlSafe(statement.to_owned());
        sqlx::query_scalar(statement).fetch_optional(&mut connection).await.unwrap().unwrap_or(0)
    })
}

fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let began = Stopwatch::new();
    while !is_so() {
        assert!(began.elapsed() < Duration::from_secs(30), "not within 30 s: {what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

const LEASED: &str =
    "SELECT CAST(COALESCE(SUM(GREATEST(granted - spent, 0)), 0) AS BIGINT) FROM purses";

/// Returns how many top-ups the replicas have made.
fn top_ups(replicas: &[Server]) -> i64 {
    let of = |server: &Server| {
        let (_, metrics) = get(server.address, "/metrics").unwrap();
        let sample =
            metrics.lines().find(|it| it.starts_with("keyward_credits_withdrawals_total "));
        sample.and_then(|it| it.rsplit(' ').next()?.parse::<i64>().ok()).unwrap_or(0)
    };
    replicas.iter().map(of).sum()
}

#[test]
fn leased_credits_are_at_most_a_tenth_when_three_replicas_start_at_once() {
    let _turn = acquire_turn();
    let (database, mut redis) = (database(), Redis::start());
    let mut replicas = replicas(&database, &[&redis, &redis, &redis]);
    let (_, key) = create_key(&replicas[0], 1_000);
    let barrier = Barrier::new(9);
    let (mut most, mut valid) = (0, 0);
    std::thread::scope(|scope| {
        let (replicas, key, barrier) = (&replicas, &key, &barrier);
        let spend = |n: usize| {
            move || {
                barrier.wait();
                count_valid(&replicas[n % 3], key, 20)
            }
        };
        let spending: Vec<_> = (0..9).map(|n| scope.spawn(spend(n))).collect();
        while !spending.iter().all(std::thread::ScopedJoinHandle::is_finished) {
            most = most.max(sql(&database, LEASED));
        }
        valid = spending.into_iter().map(|thread| thread.join().unwrap()).sum();
    });
    let topped_up = top_ups(&replicas);

    assert_eq!(valid, 180);
    assert!(most <= 100, "{most} of 1,000 were leased at once");
    // The bounds must not make every spend a top-up.
    assert!(
        (1..=40).contains(&topped_up),
        "{topped_up} top-ups for {valid} spends, at most {most} leased"
    );
    redis.kill();
    drop(replicas.pop());
    redis.restart();
    assert_valid(&verify(&replicas[0], &key));
    wait_until("the other replicas report", || {
        sql(&database, "SELECT COUNT(*) FROM purse_accounts") >= 2
    });
    let held = withheld(&database.url, &redis.url());
    assert!(held <= 100, "{held} of 1,000 are withheld");
    let more = count_valid(&replicas[1], &key, 100);
    assert_eq!(more, 100, "withheld credits block other credits");
    assert!(sql(&database, LEASED) <= 100);
}

#[test]
fn cost_above_a_tenth_is_leased_one_call_at_a_time() {
    let _turn = acquire_turn();
    let (database, redis) = (database(), Redis::start());
    let replicas = replicas(&database, &[&redis, &redis, &redis]);
    let (_, key) = create_key(&replicas[0], 6_000);
    let spend = |server: &Server| {
        let request = json!({ "key": key, "credits": { "cost": 250 } });
        let (status, body) = server.v2(ROOT_KEY, "keys.verifyKey", &request);
        assert_eq!(status, 200, "{body}");
        body["data"]["valid"] == true
    };
    let valid: usize = std::thread::scope(|scope| {
        let spend = &spend;
        let replicas = &replicas;
        let callers: Vec<_> = (0..12)
            .map(|n| scope.spawn(move || (0..3).filter(|_| spend(&replicas[n % 3])).count()))
            .collect();
        callers.into_iter().map(|caller| caller.join().unwrap()).sum()
    });

    assert_eq!(valid, 24);
}

#[test]
fn lease_waits_for_paused_replica_when_clock_steps() {
    let _turn = share_turn();
    let (database, mut redis) = (database(), Redis::start());
    let replicas = replicas(&database, &[&redis, &redis]);
    let [awake, stopped] = &replicas[..] else { unreachable!() };
    let (_, key) = create_key(awake, 1_000);
    assert_valid(&verify(awake, &key));
    assert_eq!(count_valid(stopped, &key, 60), 60);

    stopped.signal("STOP");
    // The state after a clock steps back by a minute once the lease was opened.
    sql(&database, "UPDATE replicas SET seen_at = seen_at - 60000 RETURNING seen_at");
    redis.kill();
    redis.restart();
    assert_valid(&verify(awake, &key));
    let counted_out = "SELECT COUNT(*) FROM replicas WHERE gone IS NOT NULL";
    wait_until("the silent replica is no longer counted", || sql(&database, counted_out) == 1);
    std::thread::sleep(Duration::from_secs(2));
    let held = withheld(&database.url, &redis.url());
    stopped.signal("CONT");
    wait_until("the replica has reported", || withheld(&database.url, &redis.url()) == 0);
    assert_eq!(sql(&database, counted_out), 0, "the replica is not registered again");
    let began = Stopwatch::new();
    let mut valid = 62;
    while began.elapsed() < Duration::from_mins(1) {
        let more = count_valid(awake, &key, 20) + count_valid(stopped, &key, 20);
        valid += more;
        if more == 0 {
            break;
        }
    }

    assert!(held > 0, "its spend is unknown");
    assert_eq!(valid, 1_000);
}

fn set_balance(server: &Server, id: &str, value: i64) -> (u16, Value) {
    let request = json!({ "keyId": id, "operation": "set", "value": value });
    server.v2(ROOT_KEY, "keys.updateCredits", &request)
}

#[test]
fn changes_wait_when_only_another_master_has_the_lease() {
    let _turn = share_turn();
    let (database, here, there) = (database(), Redis::start(), Redis::start());
    let replicas = replicas(&database, &[&here, &there]);
    let [one, other] = &replicas[..] else { unreachable!() };
    let update = |id: &str| {
        let request = json!({ "keyId": id, "credits": { "remaining": 5 } });
        one.v2(ROOT_KEY, "keys.updateKey", &request).0
    };
    for name in ["updateCredits", "updateKey"] {
        let change =
            |id: &str| if name == "updateKey" { update(id) } else { set_balance(one, id, 5).0 };
        let (id, key) = create_key(one, 1_000);
        assert_eq!(count_valid(other, &key, 10), 10);

        assert_eq!(change(&id), 503, "{name}");
        wait_until("both replicas have reported", || change(&id) == 200);
        let valid = count_valid(other, &key, 20) + count_valid(one, &key, 20);

        assert_eq!(valid, 5, "{name}");
    }

    let (id, key) = create_key(one, 1_000);
    assert_eq!(count_valid(other, &key, 10), 10);
    let reroll = || one.v2(ROOT_KEY, "keys.rerollKey", &json!({ "keyId": id, "expiration": 0 }));
    assert_eq!(reroll().0, 503);
    let mut rerolled = Value::Null;
    wait_until("both replicas have reported", || {
        let (status, body) = reroll();
        rerolled = body;
        status == 200
    });
    let new = rerolled["data"]["key"].as_str().unwrap();
    let peek = json!({ "key": new, "credits": { "cost": 0 } });
    assert_eq!(one.v2(ROOT_KEY, "keys.verifyKey", &peek).1["data"]["credits"], 990);

    let (id, key) = create_key(one, 1_000);
    assert_eq!(count_valid(other, &key, 10), 10);
    let (deleted, body) = one.v2(ROOT_KEY, "keys.deleteKey", &json!({ "keyId": id }));
    assert_eq!(deleted, 200, "{body}");
}

#[test]
fn balance_can_be_set_when_operator_has_released_the_lease() {
    let _turn = share_turn();
    let (database, here, there) = (database(), Redis::start(), Redis::start());
    let replicas = replicas(&database, &[&here, &there]);
    let [one, other] = &replicas[..] else { unreachable!() };
    let (id, key) = create_key(one, 1_000);
    assert_eq!(count_valid(other, &key, 10), 10);

    other.signal("STOP");
    for _ in 0..20 {
        assert_eq!(set_balance(one, &id, 5).0, 503);
        std::thread::sleep(Duration::from_millis(100));
    }
    let mut release = replica_command(&database.url, &here.url());
    let released = release.args(["credits", "release", "--all"]).status().unwrap();
    let (status, body) = set_balance(one, &id, 5);
    other.signal("CONT");

    assert!(released.success());
    assert_eq!(status, 200, "{body}");
    assert_eq!(count_valid(one, &key, 20), 5);
}

#[test]
fn balance_is_exact_when_another_replica_debited_the_account_directly() {
    let _turn = share_turn();
    let stage = Stage::new();
    let (here, there) = stage.pair();
    let key = there.create_key_with(&json!({ "credits": { "remaining": 1_000 } }));
    let credits_shown = |replica: &Replica| {
        let verified =
            replica.ok("keys.verifyKey", &json!({ "key": key.key, "credits": { "cost": 0 } }));
        let found = replica.ok("keys.getKey", &json!({ "keyId": key.id }));
        [&verified["credits"], &found["credits"]["remaining"]].map(|it| it.as_i64().unwrap())
    };
    for replica in [&here, &there] {
        replica.assert_code(&key, "VALID");
    }

    here.redis.cut();
    for _ in 0..50 {
        here.assert_code(&key, "VALID");
    }
    here.redis.mend();

    let mended = Stopwatch::new();
    for replica in [&there, &here] {
        while credits_shown(replica) != [948; 2] {
            assert!(mended.elapsed() < Duration::from_secs(3), "{:?}", credits_shown(replica));
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

#[test]
fn balance_can_be_set_without_redis_when_every_replica_has_reported_its_lease() {
    let _turn = share_turn();
    let (database, mut redis) = (database(), Redis::start());
    let replicas = replicas(&database, &[&redis, &redis]);
    let (id, key) = create_key(&replicas[0], 1_000);
    assert_eq!(count_valid(&replicas[0], &key, 5) + count_valid(&replicas[1], &key, 5), 10);
    redis.kill();
    let set_balance = || {
        let request = json!({ "keyId": id, "operation": "set", "value": 7 });
        replicas[0].v2(ROOT_KEY, "keys.updateCredits", &request).0
    };

    assert_eq!(set_balance(), 503);
    wait_until("the balance can be set", || set_balance() == 200);

    assert_eq!(count_valid(&replicas[1], &key, 10) + count_valid(&replicas[0], &key, 10), 7);
}

#[test]
fn balance_is_set_when_one_redis_reply_is_late() {
    // Longer than the timeout of one call, shorter than that of two.
    const LATE_BY: Duration = Duration::from_millis(2_700);
    let _turn = share_turn();
    let (database, redis) = (database(), Redis::start());
    let replicas = replicas(&database, &[&redis]);
    let (id, key) = create_key(&replicas[0], 1_000);
    assert_eq!(count_valid(&replicas[0], &key, 5), 5);
    let request = json!({ "keyId": id, "operation": "set", "value": 7 });

    redis.signal("STOP");
    let (status, reply) = std::thread::scope(|scope| {
        let setting = scope.spawn(|| replicas[0].v2(ROOT_KEY, "keys.updateCredits", &request));
        std::thread::sleep(LATE_BY);
        redis.signal("CONT");
        setting.join().unwrap()
    });

    assert_eq!(status, 200, "{reply}");
    assert_eq!(count_valid(&replicas[0], &key, 10), 7);
}

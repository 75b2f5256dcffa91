//! Leases over several replicas: how much may be out, and what proves that nobody spends from one any more.

use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use foundation::clock::Stopwatch;
use serde_json::{Value, json};
use sqlx::{AssertSqlSafe, Executor as _};

use crate::alone;
use crate::faults::{ROOT_KEY, database, is_valid, replica_command, valid_of, verify, withheld};
use crate::servers::Redis;
use crate::stage::{Replica, Stage};
use crate::support::database::Database;
use crate::support::process::{Server, get};
use crate::support::random;

/// Replicas on one database, each with a Redis.
fn replicas(database: &Database, redis: &[&Redis]) -> Vec<Server> {
    let prefix = format!("t{}:", random());
    let start = |redis: &&Redis| {
        let mut command = replica_command(&database.url, &redis.url());
        command.env("KEYWARD_REDIS_PREFIX", &prefix);
        // A machine that compiles meanwhile is slow.
        command.env("KEYWARD_REDIS_TIMEOUT_MS", "2000");
        Server::start(command)
    };
    redis.iter().map(start).collect()
}

/// The id of a new key with so many credits, and the key.
fn issue(server: &Server, credits: i64) -> (String, String) {
    let (_, api) = server.v2(ROOT_KEY, "apis.createApi", &json!({ "name": "payments" }));
    let fields = json!({ "apiId": api["data"]["apiId"], "credits": { "remaining": credits } });
    let (status, issued) = server.v2(ROOT_KEY, "keys.createKey", &fields);
    assert_eq!(status, 200, "{issued}");
    let text = |field: &str| issued["data"][field].as_str().unwrap().to_owned();
    (text("keyId"), text("key"))
}

/// Runs statements besides the server; the number that the last one yields.
fn sql(database: &Database, statement: &str) -> i64 {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let mut connection = database.connect().await;
        let statement = AssertSqlSafe(statement.to_owned());
        sqlx::query_scalar(statement).fetch_optional(&mut connection).await.unwrap().unwrap_or(0)
    })
}

fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let began = Stopwatch::new();
    while !is_so() {
        assert!(began.elapsed() < Duration::from_secs(30), "not within 30 s: {what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

const LEASED: &str =
    "SELECT CAST(COALESCE(SUM(GREATEST(granted - spent, 0)), 0) AS BIGINT) FROM purses";

/// How often the replicas went to an account for more.
fn top_ups(replicas: &[Server]) -> i64 {
    let of = |server: &Server| {
        let (_, told) = get(server.address, "/metrics").unwrap();
        let sample = told.lines().find(|it| it.starts_with("keyward_credits_withdrawals_total "));
        sample.and_then(|it| it.rsplit(' ').next()?.parse::<i64>().ok()).unwrap_or(0)
    };
    replicas.iter().map(of).sum()
}

#[test]
fn leased_credits_are_at_most_a_tenth_when_three_replicas_begin_at_once() {
    let _turn = alone();
    let (database, mut redis) = (database(), Redis::start());
    let mut replicas = replicas(&database, &[&redis, &redis, &redis]);
    let (_, key) = issue(&replicas[0], 1_000);
    let barrier = Barrier::new(9);
    let (mut most, mut valid) = (0, 0);
    std::thread::scope(|scope| {
        let (replicas, key, barrier) = (&replicas, &key, &barrier);
        let spend = |n: usize| {
            move || {
                barrier.wait();
                valid_of(&replicas[n % 3], key, 20)
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
    // Bounds must not make every spend a top-up.
    assert!(
        (1..=40).contains(&topped_up),
        "{topped_up} top-ups for {valid} spends, at most {most} leased"
    );
    redis.kill();
    drop(replicas.pop());
    redis.restart();
    is_valid(&verify(&replicas[0], &key));
    until("the others report", || sql(&database, "SELECT COUNT(*) FROM purse_accounts") >= 2);
    let held = withheld(&database.url, &redis.url());
    assert!(held <= 100, "{held} of 1,000 are withheld");
    let more = valid_of(&replicas[1], &key, 100);
    assert_eq!(more, 100, "what is withheld stops nobody");
    assert!(sql(&database, LEASED) <= 100);
}

#[test]
fn a_cost_above_a_tenth_is_leased_by_one_caller_after_the_other() {
    let _turn = alone();
    let (database, redis) = (database(), Redis::start());
    let replicas = replicas(&database, &[&redis, &redis, &redis]);
    let (_, key) = issue(&replicas[0], 6_000);
    let spend = |server: &Server| {
        let request = json!({ "key": key, "credits": { "cost": 250 } });
        let (status, told) = server.v2(ROOT_KEY, "keys.verifyKey", &request);
        assert_eq!(status, 200, "{told}");
        told["data"]["valid"] == true
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
fn a_lease_waits_for_a_replica_that_stands_still_whatever_the_clock_says() {
    let _turn = alone();
    let (database, mut redis) = (database(), Redis::start());
    let replicas = replicas(&database, &[&redis, &redis]);
    let [awake, stopped] = &replicas[..] else { unreachable!() };
    let (_, key) = issue(awake, 1_000);
    is_valid(&verify(awake, &key));
    assert_eq!(valid_of(stopped, &key, 60), 60);

    stopped.signal("STOP");
    // As a clock leaves it that has stepped back by a minute after the lease was opened.
    sql(&database, "UPDATE replicas SET seen_at = seen_at - 60000 RETURNING seen_at");
    redis.kill();
    redis.restart();
    is_valid(&verify(awake, &key));
    let counted_out = "SELECT COUNT(*) FROM replicas WHERE gone IS NOT NULL";
    until("the silent one is counted out", || sql(&database, counted_out) == 1);
    std::thread::sleep(Duration::from_secs(2));
    let held = withheld(&database.url, &redis.url());
    stopped.signal("CONT");
    until("it has reported", || withheld(&database.url, &redis.url()) == 0);
    assert_eq!(sql(&database, counted_out), 0, "it is registered again");
    let began = Stopwatch::new();
    let mut valid = 62;
    while began.elapsed() < Duration::from_mins(1) {
        let more = valid_of(awake, &key, 20) + valid_of(stopped, &key, 20);
        valid += more;
        if more == 0 {
            break;
        }
    }

    assert!(held > 0, "nobody knows what it has spent");
    assert_eq!(valid, 1_000);
}

#[test]
fn a_replica_that_stops_signs_off_though_an_account_of_its_leases_is_locked() {
    let _turn = alone();
    let (database, redis) = (database(), Redis::start());
    let mut replicas = replicas(&database, &[&redis, &redis]);
    let (id, key) = issue(&replicas[0], 1_000);
    is_valid(&verify(&replicas[0], &key));
    assert!(sql(&database, LEASED) > 0);
    let registered = || sql(&database, "SELECT COUNT(*) FROM replicas");
    until("both are registered", || registered() == 2);
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let lock = format!("SELECT 1 FROM keys WHERE id = '{id}' FOR UPDATE");
    let _somebody = runtime.block_on(async {
        let mut connection = database.connect().await;
        connection.execute("BEGIN").await.unwrap();
        connection.execute(AssertSqlSafe(lock)).await.unwrap();
        connection
    });

    let stopping = replicas.swap_remove(0);
    stopping.signal("TERM");
    let began = Stopwatch::new();
    let status = stopping.wait();

    assert_eq!(status, Some(0));
    assert!(began.elapsed() < Duration::from_secs(12), "it took {:?}", began.elapsed());
    assert_eq!(registered(), 1, "others would wait for its word");
}

fn set(server: &Server, id: &str, value: i64) -> (u16, Value) {
    let request = json!({ "keyId": id, "operation": "set", "value": value });
    server.v2(ROOT_KEY, "keys.updateCredits", &request)
}

#[test]
fn changes_wait_for_a_lease_that_only_another_master_knows() {
    let _turn = alone();
    let (database, here, there) = (database(), Redis::start(), Redis::start());
    let replicas = replicas(&database, &[&here, &there]);
    let [one, other] = &replicas[..] else { unreachable!() };
    let update = |id: &str| {
        let request = json!({ "keyId": id, "credits": { "remaining": 5 } });
        one.v2(ROOT_KEY, "keys.updateKey", &request).0
    };
    for name in ["updateCredits", "updateKey"] {
        let change = |id: &str| if name == "updateKey" { update(id) } else { set(one, id, 5).0 };
        let (id, key) = issue(one, 1_000);
        assert_eq!(valid_of(other, &key, 10), 10);

        assert_eq!(change(&id), 503, "{name}");
        until("both have reported", || change(&id) == 200);
        let valid = valid_of(other, &key, 20) + valid_of(one, &key, 20);

        assert_eq!(valid, 5, "{name}");
    }

    let (id, key) = issue(one, 1_000);
    assert_eq!(valid_of(other, &key, 10), 10);
    let reroll = || one.v2(ROOT_KEY, "keys.rerollKey", &json!({ "keyId": id, "expiration": 0 }));
    assert_eq!(reroll().0, 503);
    let mut rerolled = Value::Null;
    until("both have reported", || {
        let (status, told) = reroll();
        rerolled = told;
        status == 200
    });
    let new = rerolled["data"]["key"].as_str().unwrap();
    let look = json!({ "key": new, "credits": { "cost": 0 } });
    assert_eq!(one.v2(ROOT_KEY, "keys.verifyKey", &look).1["data"]["credits"], 990);

    let (id, key) = issue(one, 1_000);
    assert_eq!(valid_of(other, &key, 10), 10);
    let (deleted, told) = one.v2(ROOT_KEY, "keys.deleteKey", &json!({ "keyId": id }));
    assert_eq!(deleted, 200, "{told}");
}

#[test]
fn a_balance_is_set_once_an_operator_has_released_the_lease() {
    let _turn = alone();
    let (database, here, there) = (database(), Redis::start(), Redis::start());
    let replicas = replicas(&database, &[&here, &there]);
    let [one, other] = &replicas[..] else { unreachable!() };
    let (id, key) = issue(one, 1_000);
    assert_eq!(valid_of(other, &key, 10), 10);

    other.signal("STOP");
    for _ in 0..20 {
        assert_eq!(set(one, &id, 5).0, 503);
        std::thread::sleep(Duration::from_millis(100));
    }
    let mut release = replica_command(&database.url, &here.url());
    let released = release.args(["credits", "release", "--all"]).status().unwrap();
    let (status, told) = set(one, &id, 5);
    other.signal("CONT");

    assert!(released.success());
    assert_eq!(status, 200, "{told}");
    assert_eq!(valid_of(one, &key, 20), 5);
}

#[test]
fn balance_is_told_exactly_after_another_replica_has_debited_the_account_directly() {
    let _turn = alone();
    let stage = Stage::new();
    let (here, there) = stage.pair();
    let key = there.key_with(&json!({ "credits": { "remaining": 1_000 } }));
    let told = |replica: &Replica| {
        let verified =
            replica.ok("keys.verifyKey", &json!({ "key": key.key, "credits": { "cost": 0 } }));
        let found = replica.ok("keys.getKey", &json!({ "keyId": key.id }));
        [&verified["credits"], &found["credits"]["remaining"]].map(|it| it.as_i64().unwrap())
    };
    for replica in [&here, &there] {
        replica.is(&key, "VALID");
    }

    here.redis.cut();
    for _ in 0..50 {
        here.is(&key, "VALID");
    }
    here.redis.mend();

    let mended = Stopwatch::new();
    for replica in [&there, &here] {
        while told(replica) != [948; 2] {
            assert!(mended.elapsed() < Duration::from_secs(3), "{:?}", told(replica));
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

#[test]
fn a_balance_can_be_set_without_redis_once_every_replica_has_reported_its_lease() {
    let _turn = alone();
    let (database, mut redis) = (database(), Redis::start());
    let replicas = replicas(&database, &[&redis, &redis]);
    let (id, key) = issue(&replicas[0], 1_000);
    assert_eq!(valid_of(&replicas[0], &key, 5) + valid_of(&replicas[1], &key, 5), 10);
    redis.kill();
    let set = || {
        let request = json!({ "keyId": id, "operation": "set", "value": 7 });
        replicas[0].v2(ROOT_KEY, "keys.updateCredits", &request).0
    };

    assert_eq!(set(), 503);
    until("the balance can be set", || set() == 200);

    assert_eq!(valid_of(&replicas[1], &key, 10) + valid_of(&replicas[0], &key, 10), 7);
}

#[test]
fn verify_is_valid_when_the_accounts_of_many_other_keys_are_locked() {
    const LOCKED: usize = 20;
    let _turn = alone();
    let (database, redis) = (database(), Redis::start());
    let replicas = replicas(&database, &[&redis]);
    let replica = &replicas[0];
    let keys: Vec<_> = (0..LOCKED + 20).map(|_| issue(replica, 1_000)).collect();
    let (locked, others) = keys.split_at(LOCKED);
    let ids: Vec<_> = locked.iter().map(|(id, _)| format!("'{id}'")).collect();
    let lock = format!("SELECT 1 FROM keys WHERE id IN ({}) FOR UPDATE", ids.join(", "));
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let somebody = runtime.block_on(async {
        let mut connection = database.connect().await;
        connection.execute("BEGIN").await.unwrap();
        connection.execute(AssertSqlSafe(lock)).await.unwrap();
        connection
    });
    let is_over = AtomicBool::new(false);
    let (refused, valid) = std::thread::scope(|scope| {
        let is_over = &is_over;
        let ask = |key: &String| {
            let key = key.clone();
            move || {
                let mut refused = 0;
                while !is_over.load(Ordering::Relaxed) {
                    refused += usize::from(verify(replica, &key).0 == 503);
                }
                refused
            }
        };
        let asking: Vec<_> = locked.iter().map(|(_, key)| scope.spawn(ask(key))).collect();
        let valid = others.iter().filter(|(_, key)| {
            std::thread::sleep(Duration::from_millis(100));
            verify(replica, key).1["data"]["valid"] == true
        });
        let valid = valid.count();
        is_over.store(true, Ordering::Relaxed);
        (asking.into_iter().map(|it| it.join().unwrap()).sum::<usize>(), valid)
    });
    drop(somebody);

    assert!(refused > 0, "the others were locked");
    assert_eq!(valid, others.len());
}

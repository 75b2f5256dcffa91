//! Tests direct debits: in an embedded server always, in a replica while Redis is unreachable.

mod journal;
mod without_redis;

use std::time::Duration;

use axum::http::StatusCode;
use domain::credits::DEBIT_QUEUE_MAX;
use foundation::clock::Stopwatch;
use foundation::config::{Deployment, Settings};
use futures_util::StreamExt as _;
use futures_util::future::join_all;
use futures_util::stream::FuturesUnordered;
use serde_json::{Value, json};
use sqlx::{Connection as _, Executor as _, PgConnection};
use tokio::time::{sleep, timeout};

use crate::support::process::free_port;
use crate::support::seed::IssuedKey;
use crate::support::{Keyward, Stack};

async fn embedded() -> Keyward {
    Keyward::start(Stack::Embedded).await
}

/// Starts a replica whose Redis refuses connections.
async fn without_redis(change: impl FnOnce(&mut Settings)) -> Keyward {
    Keyward::start_with(Stack::Replica, |settings| {
        if let Deployment::Replica { redis_url, .. } = &mut settings.deployment {
            *redis_url = format!("redis://127.0.0.1:{}", free_port());
        }
        change(settings);
    })
    .await
}

fn limited(credits: i64, limit: i64) -> Value {
    let limit =
        json!({ "name": "requests", "limit": limit, "duration": 60_000, "autoApply": true });
    json!({ "credits": { "remaining": credits }, "ratelimits": [limit] })
}

async fn remaining(kw: &Keyward, key: &IssuedKey) -> i64 {
    kw.get_key(&key.id).await["credits"]["remaining"].as_i64().unwrap()
}

async fn assert_spends_are_exact(kw: &Keyward) {
    let key = kw.create_key(limited(2_000, 1_000_000)).await;
    let spend = async |caller: i64| {
        let cost = 1 + caller % 3;
        let mut spent = 0;
        for _ in 0..30 {
            let reply = kw.verify_with(&key.key, json!({ "credits": { "cost": cost } })).await;
            if reply.data()["valid"] == true {
                spent += cost;
            }
        }
        spent
    };

    let spent: i64 = join_all((0..64).map(spend)).await.iter().sum();

    let left = remaining(kw, &key).await;
    assert_eq!(spent + left, 2_000);
    assert_eq!(left, 0, "credits are left although the cost is 1");
}

async fn assert_windows_and_credits_are_atomic(kw: &Keyward) {
    let key = kw.create_key(limited(1_000, 100)).await;

    let replies = join_all((0..320).map(|_| kw.verify(&key.key))).await;

    let came_to = |code: &str| replies.iter().filter(|reply| reply.data()["code"] == code).count();
    assert_eq!((came_to("VALID"), came_to("RATE_LIMITED")), (100, 220));
    assert_eq!(remaining(kw, &key).await, 900);
    let poor = kw.create_key(limited(40, 100)).await;
    let replies = join_all((0..320).map(|_| kw.verify(&poor.key))).await;
    let valid = replies.iter().filter(|reply| reply.data()["valid"] == true).count();
    assert_eq!((valid, remaining(kw, &poor).await), (40, 0));
    let refused = kw.verify(&poor.key).await;
    assert_eq!(refused.data()["ratelimits"][0]["remaining"], 60, "a rejection consumed the limit");
}

async fn assert_aborted_calls_spend_at_most_once(kw: &Keyward) {
    let key = kw.create_key(limited(1_000_000, 1_000_000)).await;
    let (mut answered, mut left) = (0, 0);
    for round in 0..40 {
        let patience = Duration::from_micros(100 * round);
        let calls = (0..16).map(|_| timeout(patience, kw.verify(&key.key)));
        for reply in join_all(calls).await {
            match reply {
                Ok(reply) => {
                    reply.assert_code("VALID");
                    answered += 1;
                }
                Err(_) => left += 1,
            }
        }
    }

    kw.verify(&key.key).await.assert_code("VALID");

    let spent = 1_000_000 - remaining(kw, &key).await;
    answered += 1;
    assert!((answered..=answered + left).contains(&spent), "{spent}; {answered}, {left} left");
}

#[tokio::test]
async fn concurrent_spends_are_exact_when_embedded() {
    assert_spends_are_exact(&embedded().await).await;
}

#[tokio::test]
async fn concurrent_spends_are_exact_when_redis_is_unreachable() {
    assert_spends_are_exact(&without_redis(|_| ()).await).await;
}

#[tokio::test]
async fn windows_and_credits_are_consumed_atomically_when_embedded() {
    assert_windows_and_credits_are_atomic(&embedded().await).await;
}

#[tokio::test]
async fn windows_and_credits_are_consumed_atomically_when_redis_is_unreachable() {
    assert_windows_and_credits_are_atomic(&without_redis(|_| ()).await).await;
}

/// Debits are written to a journal, and other transactions write the balances.
#[tokio::test]
async fn concurrent_spends_are_exact_when_balance_is_changed_meanwhile() {
    let kw = embedded().await;
    let api = kw.create_api().await;
    let make = async || kw.create_key_in(&api, json!({ "credits": { "remaining": 50_000 } })).await;
    let (key, other) = (make().await, make().await);
    let spend = async |cost: i64| {
        for _ in 0..40 {
            let cost = json!({ "credits": { "cost": cost } });
            kw.verify_with(&key.key, cost).await.assert_code("VALID");
            kw.verify(&other.key).await.assert_code("VALID");
        }
        40 * cost
    };
    let change = async |operation: &str, value: i64| {
        for _ in 0..20 {
            let request = json!({ "keyId": key.id, "operation": operation, "value": value });
            kw.v2("keys.updateCredits", request).await.data();
        }
        20 * value
    };

    let (spent, added, removed) =
        tokio::join!(join_all((1..=16).map(spend)), change("increment", 7), change("decrement", 3));

    let left = 50_000 + added - removed - spent.iter().sum::<i64>();
    assert_eq!(remaining(&kw, &key).await, left);
    let listed = kw.v2("apis.listKeys", json!({ "apiId": api })).await;
    let listed = listed.data().as_array().unwrap().iter();
    let mut listed: Vec<_> = listed.map(|key| key["credits"]["remaining"].as_i64()).collect();
    listed.sort_unstable();
    let mut expected = [Some(left), Some(50_000 - 16 * 40)];
    expected.sort_unstable();
    assert_eq!(listed, expected);
}

#[tokio::test]
async fn aborted_calls_affect_no_others_when_embedded() {
    assert_aborted_calls_spend_at_most_once(&embedded().await).await;
}

#[tokio::test]
async fn aborted_calls_affect_no_others_when_redis_is_unreachable() {
    assert_aborted_calls_spend_at_most_once(&without_redis(|_| ()).await).await;
}

#[tokio::test]
async fn verify_returns_503_when_debit_queue_of_all_keys_is_full() {
    const TOO_MANY: usize = 50;
    let kw = embedded().await;
    let keys = [(); 2].map(|()| kw.create_key(limited(1_000_000, 1_000_000)));
    let keys = join_all(keys).await;
    for key in &keys {
        kw.verify(&key.key).await.assert_code("VALID");
    }
    let writing = kw.store().begin().await.unwrap();

    // One call is in the batch that waits for the writer, and the queue behind it is full.
    let calls = (0..=DEBIT_QUEUE_MAX + TOO_MANY).map(|n| kw.verify(&keys[n % 2].key));
    let mut replies: FuturesUnordered<_> = calls.collect();
    for _ in 0..TOO_MANY {
        let refused = timeout(Duration::from_secs(30), replies.next()).await;
        let refused = refused.expect("a reply while others wait").unwrap();
        assert_eq!(refused.status, StatusCode::SERVICE_UNAVAILABLE, "{}", refused.text);
        assert_eq!(refused.headers["retry-after"], "1");
    }
    drop(writing);
    while let Some(reply) = replies.next().await {
        reply.assert_code("VALID");
    }

    let served = i64::try_from(DEBIT_QUEUE_MAX).unwrap() + 3;
    let left = remaining(&kw, &keys[0]).await + remaining(&kw, &keys[1]).await;
    assert_eq!(left, 2_000_000 - served);
}

/// Opens a connection to the database of a replica that the replica does not use.
async fn open_session(kw: &Keyward) -> PgConnection {
    let Deployment::Replica { database_url, .. } = &kw.app.context.settings.deployment else {
        panic!("no URL")
    };
    PgConnection::connect(database_url).await.unwrap()
}

/// Returns how long ago the replica registered as alive, in milliseconds.
async fn silent_for_ms(session: &mut PgConnection, kw: &Keyward) -> i64 {
    let sql = "SELECT CAST(EXTRACT(EPOCH FROM clock_timestamp()) * 1000 AS BIGINT) - seen_at
        FROM replicas WHERE id = $1";
    sqlx::query_scalar(sql).bind(&kw.app.context.replica_id).fetch_one(session).await.unwrap()
}

#[tokio::test]
async fn locked_account_delays_only_its_own_key() {
    const LOCKED_FOR: Duration = Duration::from_secs(6);
    // Also the time that a direct debit has, which a busy machine must not exceed.
    let kw = without_redis(|settings| settings.redis_timeout_ms = 2_000).await;
    let api = kw.create_api().await;
    let make = async || kw.create_key_in(&api, json!({ "credits": { "remaining": 1_000 } })).await;
    let locked = make().await;
    let mut others = vec![kw.create_key_in(&api, json!({})).await];
    for _ in 0..8 {
        others.push(make().await);
    }
    for key in others.iter().chain([&locked]) {
        kw.verify(&key.key).await.assert_code("VALID");
    }
    let mut session = open_session(&kw).await;
    session.execute("BEGIN").await.unwrap();
    let sql = "SELECT id FROM keys WHERE id = $1 FOR UPDATE";
    sqlx::query(sql).bind(&locked.id).execute(&mut session).await.unwrap();

    let began = Stopwatch::new();
    let callers = join_all((0..50).map(async |_| {
        let mut refused = 0;
        while began.elapsed() < LOCKED_FOR {
            let asked = Stopwatch::new();
            let reply = kw.verify(&locked.key).await;
            assert_eq!(reply.status, StatusCode::SERVICE_UNAVAILABLE, "{}", reply.text);
            assert!(asked.elapsed() < Duration::from_secs(5), "{:?}", asked.elapsed());
            refused += 1;
            sleep(Duration::from_millis(20)).await;
        }
        refused
    }));
    let rest = async {
        let mut valid = 0;
        while began.elapsed() < LOCKED_FOR {
            for key in &others {
                kw.verify(&key.key).await.assert_code("VALID");
            }
            valid += 1;
            sleep(Duration::from_millis(20)).await;
        }
        valid
    };
    let (refused, valid) = tokio::join!(callers, rest);
    let absent_for_ms = silent_for_ms(&mut session, &kw).await;
    session.execute("ROLLBACK").await.unwrap();
    let unlocked = Stopwatch::new();
    while kw.verify(&locked.key).await.status != StatusCode::OK {
        assert!(unlocked.elapsed() < Duration::from_secs(2), "the key is still rejected");
        sleep(Duration::from_millis(10)).await;
    }

    assert!(refused.iter().all(|refused| *refused > 1) && valid > 1);
    assert!(absent_for_ms < 3_000, "{absent_for_ms} ms");
    // Rejected callers have not been debited.
    assert_eq!(remaining(&kw, &locked).await, 998);
    assert_eq!(remaining(&kw, &others[1]).await, 999 - valid);
}

/// With Redis, callers wait for their key's turn and not for a connection.
#[tokio::test]
async fn locked_account_delays_only_its_own_key_when_lease_is_exhausted() {
    const LOCKED_FOR: Duration = Duration::from_secs(4);
    let kw = Keyward::start(Stack::Replica).await;
    let api = kw.create_api().await;
    let locked = kw.create_key_in(&api, json!({ "credits": { "remaining": 1_000 } })).await;
    let other = kw.create_key_in(&api, json!({ "credits": { "remaining": 2_000 } })).await;
    for key in [&locked, &other] {
        kw.verify(&key.key).await.assert_code("VALID");
    }
    let mut session = open_session(&kw).await;
    session.execute("BEGIN").await.unwrap();
    let sql = "SELECT id FROM keys WHERE id = $1 FOR UPDATE";
    sqlx::query(sql).bind(&locked.id).execute(&mut session).await.unwrap();
    let mut admitted = 1;
    while kw.verify(&locked.key).await.status == StatusCode::OK {
        admitted += 1;
    }

    let began = Stopwatch::new();
    let callers = join_all((0..50).map(async |_| {
        let mut longest = Duration::ZERO;
        while began.elapsed() < LOCKED_FOR {
            let asked = Stopwatch::new();
            let reply = kw.verify(&locked.key).await;
            assert_eq!(reply.status, StatusCode::SERVICE_UNAVAILABLE, "{}", reply.text);
            longest = longest.max(asked.elapsed());
        }
        longest
    }));
    let rest = async {
        let mut valid = 0;
        while began.elapsed() < LOCKED_FOR {
            kw.verify(&other.key).await.assert_code("VALID");
            valid += 1;
            sleep(Duration::from_millis(2)).await;
        }
        valid
    };
    let (longest, valid) = tokio::join!(callers, rest);
    session.execute("ROLLBACK").await.unwrap();

    let longest = longest.into_iter().max().unwrap();
    assert!(longest < Duration::from_secs(5), "{longest:?}");
    // Each one that waits for the other key takes seconds; a busy machine still serves one in a tenth of a second.
    assert!(valid > 40, "the other key was delayed: {valid}");
    kw.verify(&locked.key).await.assert_code("VALID");
    assert_eq!(remaining(&kw, &locked).await, 1_000 - admitted - 1);
    assert_eq!(remaining(&kw, &other).await, 2_000 - 1 - valid);
}

#[tokio::test]
async fn change_feed_and_heartbeats_work_when_all_other_connections_are_in_use() {
    let kw = without_redis(|_| ()).await;
    let key = kw.create_key(json!({})).await;
    let mut session = open_session(&kw).await;
    // The change log is read twice a second, and a row that it reads after the value may make the value stale.
    let began = Stopwatch::new();
    while began.elapsed() < Duration::from_secs(2) {
        kw.verify(&key.key).await.assert_code("VALID");
        sleep(Duration::from_millis(100)).await;
    }
    let connections = kw.app.context.settings.database_connections_max;
    let held = join_all((0..connections).map(|_| kw.store().read())).await;
    assert!(held.iter().all(Result::is_ok));

    // Longer than caches are trusted without the change feed.
    sleep(Duration::from_secs(7)).await;

    kw.verify(&key.key).await.assert_code("VALID");
    let absent_for_ms = silent_for_ms(&mut session, &kw).await;
    assert!(absent_for_ms < 3_000, "{absent_for_ms} ms");
}

//! Tests what a verification does when the lease of its key lacks credits: it tops up the lease, or debits the account
//! itself although Redis is reachable.

use std::time::Duration;

use foundation::clock::Stopwatch;
use foundation::config::Deployment;
use futures_util::future::join_all;
use serde_json::{Value, json};
use sqlx::{Connection as _, Executor as _, PgConnection};
use tokio::time::{sleep, timeout};

use crate::servers::Redis;
use crate::support::seed::IssuedKey;
use crate::support::{Keyward, Reply, Stack};

/// What the lease of a key of [`create_key_with_lost_lease`] holds, and what its lost lease withholds.
const LEASED: i64 = 9;
const WITHHELD: i64 = 20;

async fn start() -> Keyward {
    let kw = Keyward::start(Stack::Replica).await;
    wait_until_registered(&kw).await;
    kw
}

/// Starts a replica with a Redis of its own.
async fn start_with(redis: &Redis) -> Keyward {
    let kw = Keyward::start_with(Stack::Replica, |settings| {
        settings.redis_timeout_ms = 300;
        if let Deployment::Replica { redis_url, .. } = &mut settings.deployment {
            *redis_url = redis.url();
        }
    })
    .await;
    wait_until_registered(&kw).await;
    kw
}

async fn wait_until_registered(kw: &Keyward) {
    while !kw.app.context.is_registered() {
        sleep(Duration::from_millis(5)).await;
    }
}

/// Opens a connection to the database that the server does not use.
async fn open_session(kw: &Keyward) -> PgConnection {
    let Deployment::Replica { database_url, .. } = &kw.app.context.settings.deployment else {
        panic!("no URL")
    };
    PgConnection::connect(database_url).await.unwrap()
}

fn limited(credits: i64, limit: i64) -> Value {
    let limit =
        json!({ "name": "requests", "limit": limit, "duration": 3_600_000, "autoApply": true });
    json!({ "credits": { "remaining": credits }, "ratelimits": [limit] })
}

/// Creates a key with a limit of 10 that has verified once. Its account has `balance`, its lease [`LEASED`] credits, and
/// a lost lease withholds so many that no more can be leased.
async fn create_key_with_lost_lease(kw: &Keyward, balance: i64) -> IssuedKey {
    let key = kw.create_key(limited(100, 10)).await;
    kw.verify(&key.key).await.assert_code("VALID");
    let sql = "SELECT granted FROM purses WHERE key_id = $1";
    let granted: i64 =
        sqlx::query_scalar(sql).bind(&key.id).fetch_one(&mut open_session(kw).await).await.unwrap();
    assert_eq!(granted, LEASED + 1);
    // Withheld credits wait for the report of a replica that was killed.
    let sql = "INSERT INTO replicas (id, started_at, seen_at)
        VALUES ('rep_killed', 1, (SELECT MAX(seen_at) FROM replicas) + 3600000)
        ON CONFLICT DO NOTHING";
    kw.execute_sql(sql.into()).await;
    let sql = format!(
        "INSERT INTO purses (key_id, epoch, life, granted, spent, opened_at, asked_at, asked_by,
            withheld_at) VALUES ('{}', 0, 7, {WITHHELD}, 0, 1, 1, 'rep_killed', 1)",
        key.id
    );
    kw.execute_sql(sql).await;
    kw.execute_sql(format!("UPDATE keys SET credits = {balance} WHERE id = '{}'", key.id)).await;
    key
}

async fn spend(kw: &Keyward, key: &IssuedKey, cost: i64) -> Reply {
    kw.verify_with(&key.key, json!({ "credits": { "cost": cost } })).await
}

async fn remaining(kw: &Keyward, key: &IssuedKey) -> i64 {
    kw.get_key(&key.id).await["credits"]["remaining"].as_i64().unwrap()
}

/// Waits until the key has this balance: until its lease is closed, it reports an older one.
async fn wait_for_remaining(kw: &Keyward, key: &IssuedKey, expected: i64) {
    let began = Stopwatch::new();
    loop {
        let found = remaining(kw, key).await;
        if found == expected {
            return;
        }
        assert!(began.elapsed() < Duration::from_secs(10), "{found} instead of {expected}");
        sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn account_pays_a_cost_of_all_its_credits_when_no_more_can_be_leased() {
    let kw = start().await;
    let key = create_key_with_lost_lease(&kw, 12).await;

    let paid = spend(&kw, &key, 12).await;

    paid.assert_code("VALID");
    assert_eq!(paid.data()["ratelimits"][0]["remaining"], 8);
    wait_for_remaining(&kw, &key, LEASED).await;
}

#[tokio::test]
async fn lease_is_closed_when_only_account_and_lease_together_cover_the_cost() {
    let kw = start().await;
    let key = create_key_with_lost_lease(&kw, 6).await;

    let paid = spend(&kw, &key, 12).await;

    assert_eq!(paid.assert_code("VALID")["credits"], 6 + LEASED - 12);
    assert_eq!(paid.data()["ratelimits"][0]["remaining"], 8);
    assert_eq!(remaining(&kw, &key).await, 6 + LEASED - 12);
}

#[tokio::test]
async fn debit_is_refused_and_consumes_nothing_when_the_closed_lease_returns_too_little() {
    let kw = start().await;
    let key = create_key_with_lost_lease(&kw, 6).await;
    // As if another replica spent what the request has seen in the lease, before the lease is closed.
    let sql = format!("UPDATE purses SET granted = 1 WHERE key_id = '{}' AND epoch > 0", key.id);
    kw.execute_sql(sql).await;

    let refused = spend(&kw, &key, 12).await;
    let paid = spend(&kw, &key, 6).await;

    assert_eq!(refused.assert_code("USAGE_EXCEEDED")["credits"], 6);
    assert_eq!(refused.data()["ratelimits"][0]["remaining"], 9);
    assert_eq!(paid.assert_code("VALID")["credits"], 0);
    assert_eq!(paid.data()["ratelimits"][0]["remaining"], 8);
}

#[tokio::test]
async fn lease_is_closed_and_returns_a_top_up_that_stays_in_flight() {
    let kw = start().await;
    let key = kw.create_key(json!({ "credits": { "remaining": 100 } })).await;
    for left in (90..100).rev() {
        assert_eq!(kw.verify(&key.key).await.assert_code("VALID")["credits"], left);
    }
    // A replica was killed after it had debited a top-up, and before it added that to the lease, which is empty.
    let id = &key.id;
    kw.execute_sql(format!("UPDATE purses SET granted = granted + 10 WHERE key_id = '{id}'")).await;
    kw.execute_sql(format!("UPDATE keys SET credits = credits - 10 WHERE id = '{id}'")).await;

    let verified = timeout(Duration::from_secs(30), kw.verify(&key.key)).await.expect("a reply");

    assert_eq!(verified.assert_code("VALID")["credits"], 89);
    assert_eq!(remaining(&kw, &key).await, 89);
}

#[tokio::test]
async fn concurrent_requests_share_the_top_up_of_an_empty_lease() {
    let kw = start().await;
    let key = kw.create_key(json!({ "credits": { "remaining": 100_000 } })).await;
    let before = kw.app.context.metrics.lease_top_ups.get();

    let replies = join_all((0..50).map(|_| kw.verify(&key.key))).await;

    for reply in &replies {
        reply.assert_code("VALID");
    }
    // One suffices. A request may arrive at the lock of the key after it was released.
    let top_ups = kw.app.context.metrics.lease_top_ups.get() - before;
    assert!((1..=3).contains(&top_ups), "{top_ups}");
    assert_eq!(remaining(&kw, &key).await, 99_950);
}

/// A script counts in doubles, and does not know a large balance.
#[tokio::test]
async fn verify_returns_valid_when_credits_were_spent_and_the_balance_cannot_be_loaded() {
    let kw = start().await;
    let key = kw.create_key(json!({ "credits": { "remaining": i64::MAX } })).await;
    assert_eq!(kw.verify(&key.key).await.assert_code("VALID")["credits"], i64::MAX - 1);
    let mut session = open_session(&kw).await;
    session.execute("BEGIN").await.unwrap();
    session.execute("LOCK TABLE purses IN ACCESS EXCLUSIVE MODE").await.unwrap();

    let verified = kw.verify(&key.key).await;
    session.execute("ROLLBACK").await.unwrap();

    let credits = verified.assert_code("VALID")["credits"].as_i64().unwrap();
    assert!(credits > i64::MAX - 1_000, "{credits}");
    assert_eq!(remaining(&kw, &key).await, i64::MAX - 2);
}

/// Redis executes a request after its caller has been answered without Redis.
#[tokio::test]
async fn limit_counts_once_when_credits_were_debited_before_a_late_reply() {
    let redis = Redis::start();
    let kw = start_with(&redis).await;

    for _ in 0..20 {
        let key = kw.create_key(limited(1_000, 100)).await;
        kw.verify(&key.key).await.assert_code("VALID");
        redis.signal("STOP");
        let late = kw.verify(&key.key).await;
        redis.signal("CONT");
        wait_for_limit(&kw, &key, None).await;
        if late.status == 503 {
            // The debit has 10 ms, which a busy database may exceed.
            continue;
        }
        late.assert_code("VALID");
        assert_eq!(late.body["meta"]["degraded"], true, "{late}");
        for _ in 0..3 {
            kw.verify(&key.key).await.assert_code("VALID");
        }
        return wait_for_limit(&kw, &key, Some(95)).await;
    }
    panic!("no debit was in time");
}

#[tokio::test]
async fn limit_counts_once_when_redis_hangs_while_the_account_itself_is_debited() {
    let redis = Redis::start();
    let kw = start_with(&redis).await;

    for _ in 0..20 {
        let key = create_key_with_lost_lease(&kw, 12).await;
        let mut session = open_session(&kw).await;
        session.execute("BEGIN").await.unwrap();
        let sql = "SELECT id FROM keys WHERE id = $1 FOR UPDATE";
        sqlx::query(sql).bind(&key.id).execute(&mut session).await.unwrap();
        let stop = async {
            // Until the request has read its lease and waits for the account.
            sleep(Duration::from_millis(100)).await;
            redis.signal("STOP");
            session.execute("ROLLBACK").await.unwrap();
        };
        let (late, ()) = tokio::join!(spend(&kw, &key, 12), stop);
        redis.signal("CONT");
        wait_for_limit(&kw, &key, None).await;
        if late.status == 503 {
            continue;
        }
        late.assert_code("VALID");
        for _ in 0..3 {
            kw.verify(&key.key).await.assert_code("VALID");
        }
        return wait_for_limit(&kw, &key, Some(5)).await;
    }
    panic!("no debit was in time");
}

/// Waits until Redis answers that this much of the key's limit remains, or anything.
async fn wait_for_limit(kw: &Keyward, key: &IssuedKey, expected: Option<i64>) {
    let peek = json!({
        "credits": { "cost": 0 }, "ratelimits": [{ "name": "requests", "cost": 0 }],
    });
    let began = Stopwatch::new();
    loop {
        let reply = kw.verify_with(&key.key, peek.clone()).await;
        let is_degraded = reply.status != 200 || reply.body["meta"]["degraded"] == true;
        let found = reply.body["data"]["ratelimits"][0]["remaining"].as_i64();
        if !is_degraded && (expected.is_none() || found == expected) {
            return;
        }
        assert!(began.elapsed() < Duration::from_secs(10), "{reply}");
        sleep(Duration::from_millis(20)).await;
    }
}

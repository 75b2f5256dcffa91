//! Tests credit leases of a server with Postgres and Redis: how they are closed, and how many are returned at once.

mod closing;
mod exports;
mod registration;
mod releases;
mod reports;
mod top_up_batches;

use std::time::Duration;

use foundation::clock::{Monotonic, Stopwatch};
use foundation::config::Deployment;
use futures_util::future::join_all;
use limiter::{ConsumeRequest, LeaseSpend, LeaseState};
use serde_json::json;
use sqlx::postgres::PgConnection;
use sqlx::{AssertSqlSafe, Connection as _, Executor as _};

use crate::support::seed::IssuedKey;
use crate::support::{Keyward, Stack, redis_url};

const DAY_MS: i64 = 86_400_000;

async fn postgres(kw: &Keyward) -> PgConnection {
    let Deployment::Replica { database_url, .. } = &kw.app.context.settings.deployment else {
        unreachable!()
    };
    PgConnection::connect(database_url).await.unwrap()
}

/// Returns the numbers of a key's leases according to its account.
async fn lease_numbers(kw: &Keyward, key: &IssuedKey) -> Vec<i64> {
    let sql = "SELECT epoch FROM purses WHERE key_id = $1 ORDER BY epoch";
    sqlx::query_scalar(sql).bind(&key.id).fetch_all(&mut postgres(kw).await).await.unwrap()
}

/// Returns the state of a lease in Redis.
async fn lease_state(kw: &Keyward, key: &IssuedKey, number: i64) -> LeaseState {
    let purse = kw.app.context.keyspace.lease(&key.id, number);
    let spend = LeaseSpend { lease: purse, cost: 0, top_up: None };
    let peek = ConsumeRequest::with_spend(Vec::new(), spend);
    let redis = kw.app.context.redis.as_ref().unwrap();
    redis.consume(&peek, kw.app.context.clock.fixed_time()).await.unwrap().lease.unwrap().state
}

async fn verify(kw: &Keyward, key: &IssuedKey) {
    kw.v2("keys.verifyKey", json!({ "key": key.key })).await.assert_code("VALID");
}

async fn wait_until_registered(kw: &Keyward) {
    while !kw.app.context.is_registered() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Starts a replica that may open leases.
async fn start() -> Keyward {
    let kw = Keyward::start(Stack::Replica).await;
    wait_until_registered(&kw).await;
    kw
}

async fn create_key(kw: &Keyward, credits: i64) -> IssuedKey {
    kw.create_key(json!({ "credits": { "remaining": credits } })).await
}

async fn remaining(kw: &Keyward, key: &IssuedKey) -> i64 {
    kw.get_key(&key.id).await["credits"]["remaining"].as_i64().unwrap()
}

/// Deletes a lease in Redis, as if it were lost.
async fn lose_lease(kw: &Keyward, key: &IssuedKey, number: i64) {
    let client = redis::Client::open(redis_url()).unwrap();
    let mut connection = client.get_multiplexed_async_connection().await.unwrap();
    let lost: i64 = redis::cmd("DEL")
        .arg(kw.app.context.keyspace.lease(&key.id, number))
        .query_async(&mut connection)
        .await
        .unwrap();
    assert_eq!(lost, 1);
}

#[tokio::test]
async fn lease_is_closed_in_redis_when_the_next_period_begins() {
    let kw = start().await;
    let credits = json!({ "remaining": 50, "refill": { "interval": "daily", "amount": 50 } });
    let key = kw.create_key(json!({ "credits": credits })).await;
    verify(&kw, &key).await;
    let first = lease_numbers(&kw, &key).await;

    kw.clock.advance_ms(DAY_MS);
    verify(&kw, &key).await;

    assert_eq!(first.len(), 1);
    assert_eq!(lease_state(&kw, &key, first[0]).await, LeaseState::Closed);
    let second = lease_numbers(&kw, &key).await;
    assert_eq!(second.len(), 1, "the first lease is closed");
    assert_ne!(first, second);
    let reply = kw.v2("keys.getKey", json!({ "keyId": key.id })).await;
    assert_eq!(reply.data()["credits"]["remaining"], 49);
}

/// A replica that has not learned of a deletion yet requests more credits from the database.
#[tokio::test]
async fn deleted_key_without_credits_is_not_treated_as_unlimited() {
    let kw = start().await;
    let key = kw.create_key(json!({ "credits": { "remaining": 0 } })).await;
    kw.v2("keys.verifyKey", json!({ "key": key.key })).await.assert_code("USAGE_EXCEEDED");
    let sql = "UPDATE keys SET deleted_at = 1 WHERE id = $1";
    sqlx::query(sql).bind(&key.id).execute(&mut postgres(&kw).await).await.unwrap();
    // Until the replica no longer assumes that the account is empty as well.
    tokio::time::sleep(Duration::from_millis(1_100)).await;

    kw.v2("keys.verifyKey", json!({ "key": key.key })).await.assert_code("NOT_FOUND");
}

#[tokio::test]
async fn lease_is_closed_in_redis_when_its_key_is_deleted() {
    let kw = start().await;
    let key = kw.create_key(json!({ "credits": { "remaining": 50 } })).await;
    verify(&kw, &key).await;
    let first = lease_numbers(&kw, &key).await;

    kw.v2("keys.deleteKey", json!({ "keyId": key.id })).await.data();

    assert_eq!(first.len(), 1);
    assert_eq!(lease_state(&kw, &key, first[0]).await, LeaseState::Closed);
    assert!(lease_numbers(&kw, &key).await.is_empty());
}

#[tokio::test]
async fn lease_is_returned_to_account_when_all_keys_of_an_api_are_deleted() {
    let kw = Keyward::start_with(Stack::Replica, |settings| settings.lease_idle_seconds = 1).await;
    wait_until_registered(&kw).await;
    let api = kw.create_api().await;
    let key = kw.create_key_in(&api, json!({ "credits": { "remaining": 1_000 } })).await;
    verify(&kw, &key).await;
    assert_eq!(lease_numbers(&kw, &key).await.len(), 1);

    kw.v1("apis.deleteKeys", json!({ "apiId": api })).await.v1_body();
    kw.clock.advance_ms(60_000);
    let mut connection = postgres(&kw).await;
    wait_for_value(&mut connection, "SELECT COUNT(*) FROM purses", 0).await;

    let left: i64 = sqlx::query_scalar("SELECT credits FROM keys WHERE id = $1")
        .bind(&key.id)
        .fetch_one(&mut connection)
        .await
        .unwrap();
    assert_eq!(left, 999, "the balance if the key were restored");
}

/// Withholds ten of a hundred credits, for a replica that was killed and a lease of a Redis that was lost.
async fn withhold_leasable_credits(connection: &mut PgConnection, key: &IssuedKey) {
    let sql = "INSERT INTO replicas (id, started_at, seen_at)
        VALUES ('rep_killed', 1, (SELECT MAX(seen_at) FROM replicas) + 3600000)";
    sqlx::query(sql).execute(&mut *connection).await.unwrap();
    let sql =
        "INSERT INTO purses (key_id, epoch, life, granted, spent, opened_at, asked_at, asked_by,
            withheld_at) VALUES ($1, 0, 7, 10, 0, 1, 1, 'rep_killed', 1)";
    sqlx::query(sql).bind(&key.id).execute(&mut *connection).await.unwrap();
    let sql = "UPDATE keys SET credits = credits - 10 WHERE id = $1";
    sqlx::query(sql).bind(&key.id).execute(&mut *connection).await.unwrap();
}

#[tokio::test]
async fn direct_debit_succeeds_when_the_remaining_balance_cannot_be_read() {
    let kw = start().await;
    let key = create_key(&kw, 100).await;
    let mut connection = postgres(&kw).await;
    withhold_leasable_credits(&mut connection, &key).await;
    // Postgres closes all other connections of the server when it commits the debit.
    let sql = "CREATE FUNCTION close_connections() RETURNS trigger LANGUAGE plpgsql AS $$
        BEGIN
            PERFORM pg_terminate_backend(pid) FROM pg_stat_activity
                WHERE datname = current_database() AND pid <> pg_backend_pid()
                    AND application_name = 'keyward';
            -- A process ends a moment after its signal.
            PERFORM pg_sleep(0.02);
            RETURN NULL;
        END
        $$;
        CREATE CONSTRAINT TRIGGER close_connections AFTER UPDATE OF credits ON keys
            DEFERRABLE INITIALLY DEFERRED FOR EACH ROW WHEN (OLD.credits <> NEW.credits)
            EXECUTE FUNCTION close_connections()";
    connection.execute(sql).await.unwrap();
    let connections_max = kw.app.context.settings.database_connections_max;
    drop(join_all((0..connections_max).map(|_| kw.store().read())).await);

    let reply = kw.verify(&key.key).await;

    assert_eq!(reply.assert_code("VALID")["credits"], 89);
}

#[tokio::test]
async fn credits_are_debited_directly_when_leasable_credits_are_withheld() {
    let kw = start().await;
    let limit = json!({ "name": "all", "limit": 30, "duration": 3_600_000, "autoApply": true });
    let key =
        kw.create_key(json!({ "credits": { "remaining": 100 }, "ratelimits": [limit] })).await;
    let mut connection = postgres(&kw).await;
    withhold_leasable_credits(&mut connection, &key).await;

    for spent in 1..=30 {
        let reply = kw.v2("keys.verifyKey", json!({ "key": key.key })).await;
        reply.assert_code("VALID");
        assert_eq!(reply.data()["credits"], 90 - spent);
        assert_eq!(reply.data()["ratelimits"][0]["remaining"], 30 - spent);
    }
    // A rejection by a window costs no credits.
    let refused = kw.v2("keys.verifyKey", json!({ "key": key.key })).await;
    refused.assert_code("RATE_LIMITED");
    let sql = "SELECT CAST(SUM(granted - spent) AS BIGINT) FROM purses WHERE key_id = $1";
    let leased: i64 =
        sqlx::query_scalar(sql).bind(&key.id).fetch_one(&mut connection).await.unwrap();
    assert_eq!(leased, 10, "credits were leased beside withheld ones");
    let reply = kw.v2("keys.getKey", json!({ "keyId": key.id })).await;
    assert_eq!(reply.data()["credits"]["remaining"], 60);
}

/// The state is as if a replica had been killed after it debited the rest of the balance, before the lease received it.
#[tokio::test]
async fn rest_of_the_balance_is_spent_when_its_top_up_was_lost() {
    let kw = start().await;
    let key = create_key(&kw, 500).await;
    let verify = || kw.v2("keys.verifyKey", json!({ "key": key.key, "credits": { "cost": 250 } }));
    verify().await.assert_code("VALID");
    let [lost] = lease_numbers(&kw, &key).await[..] else { panic!("one lease") };
    for sql in ["UPDATE keys SET credits = credits - 250", "UPDATE purses SET granted = 500"] {
        kw.execute_sql(sql.into()).await;
    }

    let reply = verify().await;

    reply.assert_code("VALID");
    assert_eq!(reply.data()["credits"], 0);
    assert_eq!(lease_state(&kw, &key, lost).await, LeaseState::Closed);
    verify().await.assert_code("USAGE_EXCEEDED");
}

/// Scripts count in doubles, which are exact up to 2^53.
#[tokio::test]
async fn cost_is_exact_when_a_script_cannot_count_it() {
    let kw = start().await;
    let cost = (1_i64 << 53) + 1;
    let key = create_key(&kw, 2 * cost + 1).await;

    for left in [cost + 1, 1] {
        let reply = kw.verify_v1(&key.key, json!({ "remaining": { "cost": cost } })).await;
        assert_eq!(reply.assert_v1_code("VALID")["remaining"], left);
    }

    // Closes the leases.
    let request = json!({ "keyId": key.id, "operation": "increment", "value": 0 });
    kw.v2("keys.updateCredits", request).await.data();
    assert_eq!(remaining(&kw, &key).await, 1);
}

/// The unspent credits of a lease that Redis has lost are returned to the key that it was leased to.
#[tokio::test]
async fn reroll_waits_until_credits_of_lost_lease_are_returned() {
    let kw = start().await;
    let key = kw.create_key(json!({ "credits": { "remaining": 1_000 } })).await;
    verify(&kw, &key).await;
    let [number] = lease_numbers(&kw, &key).await[..] else { panic!("one lease") };
    lose_lease(&kw, &key, number).await;

    let request = json!({ "keyId": key.id, "expiration": 0 });
    let refused = kw.v2("keys.rerollKey", request.clone()).await;
    refused.assert_error(503, "service_unavailable");
    let began = Stopwatch::new();
    let rerolled = loop {
        let reply = kw.v2("keys.rerollKey", request.clone()).await;
        if reply.status == 200 {
            break reply;
        }
        assert!(began.elapsed() < Duration::from_secs(10), "{reply:?}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    };

    let reply = kw.v2("keys.getKey", json!({ "keyId": rerolled.data()["keyId"] })).await;
    assert_eq!(reply.data()["credits"]["remaining"], 999);
    let reply = kw.v2("keys.getKey", json!({ "keyId": key.id })).await;
    assert_eq!(reply.data()["credits"]["remaining"], 0);
}

/// Waits until a query returns this number.
async fn wait_for_value(connection: &mut PgConnection, sql: &'static str, expected: i64) {
    let began = Stopwatch::new();
    loop {
        let found: i64 = sqlx::query_scalar(sql).fetch_one(&mut *connection).await.unwrap();
        if found == expected {
            return;
        }
        assert!(began.elapsed() < Duration::from_mins(5), "{found} of {expected}: {sql}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// Identifies the statement that wrote a row: its transaction, and the statement in it.
const STATEMENTS: &str = "COUNT(DISTINCT (CAST(xmin AS TEXT), CAST(cmin AS TEXT)))";

#[tokio::test]
async fn leases_are_reported_and_returned_in_batches_of_a_thousand() {
    let one = start().await;
    let key = one.create_key(json!({ "credits": { "remaining": 5 } })).await;
    let mut connection = postgres(&one).await;
    let read_before = one.app.context.freshness.read_version(Monotonic::now());
    // A third replica has not reported anything yet.
    for sql in [
        "INSERT INTO replicas (id, started_at, seen_at)
        VALUES ('rep_late', 1, (SELECT MAX(seen_at) FROM replicas) + 3600000)"
            .to_owned(),
        format!(
            "INSERT INTO keys (id, workspace_id, api_id, hash, start, byte_length, enabled, credits,
                created_at)
            SELECT 'key_' || n, workspace_id, api_id, 'hash_' || n, 'start', 16, TRUE, n, 1
            FROM keys, generate_series(1, 100001) AS n WHERE id = '{}'",
            key.id
        ),
        "INSERT INTO purses (key_id, epoch, life, granted, spent, opened_at, asked_at, asked_by,
            withheld_at)
        SELECT 'key_' || n, 1, 7, 100 + n, 40, 1, 1, 'rep_late', n
        FROM generate_series(1, 100001) AS n"
            .to_owned(),
    ] {
        connection.execute(AssertSqlSafe(sql)).await.unwrap();
    }

    wait_for_value(&mut connection, "SELECT COUNT(*) FROM purse_accounts", 100_001).await;
    let sql = format!("SELECT {STATEMENTS} FROM purse_accounts");
    let reports: i64 =
        sqlx::query_scalar(AssertSqlSafe(sql)).fetch_one(&mut connection).await.unwrap();
    // They are more than can be marked as reported. So all leases that were learned before are learned again.
    let began = Stopwatch::new();
    while one.app.ledger.mark_generation() == 0 {
        assert!(began.elapsed() < Duration::from_mins(1), "the marks are kept");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert!(!one.app.context.freshness.is_fresh(read_before, &[], Monotonic::now()));
    let untouched = "SELECT COUNT(*) FROM keys WHERE hash LIKE 'hash%' AND credits_version > 0";
    wait_for_value(&mut connection, untouched, 0).await;
    connection.execute("DELETE FROM replicas WHERE id = 'rep_late'").await.unwrap();
    // Another replica reports them last.
    let _other = one.replica().await;
    wait_for_value(&mut connection, "SELECT COUNT(*) FROM purses WHERE withheld_at IS NOT NULL", 0)
        .await;
    let sql = format!("SELECT {STATEMENTS} FROM keys WHERE hash LIKE 'hash%'");
    let returns: i64 =
        sqlx::query_scalar(AssertSqlSafe(sql)).fetch_one(&mut connection).await.unwrap();
    let wrong =
        "SELECT COUNT(*) FROM keys, LATERAL (SELECT CAST(SUBSTR(hash, 6) AS BIGINT) AS n) AS t
        WHERE hash LIKE 'hash%' AND credits <> n + (100 + n - 40)";

    // Two tasks of a replica may share a batch.
    assert!((100..=210).contains(&reports), "{reports} statements reported");
    assert!((100..=420).contains(&returns), "{returns} statements returned credits");
    wait_for_value(&mut connection, wrong, 0).await;
    wait_for_value(&mut connection, "SELECT COUNT(*) FROM purse_accounts", 0).await;
}

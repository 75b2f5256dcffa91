//! Tests top-ups of several keys at the same time, which share transactions.

use futures_util::future::join_all;

use super::*;

const KEYS: i64 = 40;

async fn create_keys(kw: &Keyward, count: i64) -> Vec<IssuedKey> {
    let api = kw.create_api().await;
    let mut keys = Vec::new();
    for _ in 0..count {
        keys.push(kw.create_key_in(&api, json!({ "credits": { "remaining": 1_000 } })).await);
    }
    keys
}

/// Returns how many leases there are, what was debited for them in total, and how many transactions wrote them last.
async fn sum_leases(kw: &Keyward) -> (i64, i64, i64) {
    let sql = "SELECT COUNT(*), CAST(SUM(granted) AS BIGINT), COUNT(DISTINCT CAST(xmin AS TEXT))
        FROM purses";
    sqlx::query_as(sql).fetch_one(&mut postgres(kw).await).await.unwrap()
}

/// Redis alone does not show whether what it holds was debited.
#[tokio::test]
async fn top_ups_that_share_a_transaction_are_debited() {
    let kw = start().await;
    let keys = create_keys(&kw, KEYS).await;

    let replies = join_all(keys.iter().map(|key| kw.verify(&key.key))).await;

    for reply in &replies {
        assert_eq!(reply.assert_code("VALID")["credits"], 999);
    }
    let (leases, granted, transactions) = sum_leases(&kw).await;
    assert_eq!((leases, granted), (KEYS, KEYS * 100));
    assert!(transactions * 2 <= KEYS, "{transactions} transactions");
    let sql = "SELECT CAST(SUM(credits) AS BIGINT) FROM keys";
    let balances: i64 = sqlx::query_scalar(sql).fetch_one(&mut postgres(&kw).await).await.unwrap();
    assert_eq!(balances, KEYS * 900);
}

#[tokio::test]
async fn locked_account_delays_only_its_own_key_when_others_share_its_transaction() {
    let kw = start().await;
    let keys = create_keys(&kw, KEYS).await;
    let locked = &keys[20];
    let mut session = postgres(&kw).await;
    session.execute("BEGIN").await.unwrap();
    let sql = "SELECT id FROM keys WHERE id = $1 FOR UPDATE";
    sqlx::query(sql).bind(&locked.id).execute(&mut session).await.unwrap();

    let replies = join_all(keys.iter().map(|key| kw.verify(&key.key))).await;
    let (leases, _, transactions) = sum_leases(&kw).await;
    session.execute("ROLLBACK").await.unwrap();

    for (key, reply) in keys.iter().zip(&replies) {
        if key.id == locked.id {
            reply.assert_error(503, "service_unavailable");
        } else {
            assert_eq!(reply.assert_code("VALID")["credits"], 999);
        }
    }
    assert_eq!(leases, KEYS - 1);
    assert!(transactions * 2 <= KEYS, "{transactions} transactions");
    assert_eq!(kw.verify(&locked.key).await.assert_code("VALID")["credits"], 999);
}

/// The first two of the keys use the connections for debits.
#[tokio::test]
async fn top_ups_of_open_leases_share_a_transaction_when_no_connection_is_free() {
    let kw = start().await;
    let keys = create_keys(&kw, KEYS).await;
    for reply in join_all(keys.iter().map(|key| kw.verify(&key.key))).await {
        reply.assert_code("VALID");
    }

    // A lease holds 99 credits.
    let cost = json!({ "credits": { "cost": 100 } });
    let replies = join_all(keys.iter().map(|key| kw.verify_with(&key.key, cost.clone()))).await;

    for reply in &replies {
        assert_eq!(reply.assert_code("VALID")["credits"], 899);
    }
    let (leases, granted, transactions) = sum_leases(&kw).await;
    assert_eq!((leases, granted), (KEYS, KEYS * 101));
    assert!(transactions < KEYS, "no two top-ups shared a transaction");
}

#[tokio::test]
async fn verify_returns_503_when_all_accounts_of_a_shared_transaction_are_locked() {
    let kw = start().await;
    let keys = create_keys(&kw, 3).await;
    let mut session = postgres(&kw).await;
    session.execute("BEGIN").await.unwrap();
    session.execute("SELECT id FROM keys FOR UPDATE").await.unwrap();

    let replies = join_all(keys.iter().map(|key| kw.verify(&key.key))).await;
    session.execute("ROLLBACK").await.unwrap();

    for reply in &replies {
        reply.assert_error(503, "service_unavailable");
    }
    for key in &keys {
        assert_eq!(kw.verify(&key.key).await.assert_code("VALID")["credits"], 999);
    }
}

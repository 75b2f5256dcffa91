//! Tests top-ups of several keys at the same time: those that find no free connection share a transaction.

use futures_util::future::join_all;

use super::*;

async fn create_keys(kw: &Keyward, count: i64) -> Vec<IssuedKey> {
    let api = kw.create_api().await;
    let mut keys = Vec::new();
    for _ in 0..count {
        keys.push(kw.create_key_in(&api, json!({ "credits": { "remaining": 1_000 } })).await);
    }
    keys
}

/// Redis alone does not show whether what it holds was debited.
#[tokio::test]
async fn top_ups_that_share_a_transaction_are_debited() {
    const KEYS: i64 = 40;
    let kw = start().await;
    let keys = create_keys(&kw, KEYS).await;

    let replies = join_all(keys.iter().map(|key| kw.verify(&key.key))).await;

    for reply in &replies {
        assert_eq!(reply.assert_code("VALID")["credits"], 999);
    }
    let mut connection = postgres(&kw).await;
    let sql = "SELECT COUNT(*), CAST(SUM(granted) AS BIGINT), COUNT(DISTINCT CAST(xmin AS TEXT))
        FROM purses";
    let (leases, granted, transactions): (i64, i64, i64) =
        sqlx::query_as(sql).fetch_one(&mut connection).await.unwrap();
    assert_eq!((leases, granted), (KEYS, KEYS * 100));
    assert!(transactions < KEYS, "no two top-ups shared a transaction");
    let sql = "SELECT CAST(SUM(credits) AS BIGINT) FROM keys";
    let balances: i64 = sqlx::query_scalar(sql).fetch_one(&mut connection).await.unwrap();
    assert_eq!(balances, KEYS * 900);
}

/// Two of the keys use the connections for debits, so the third one waits for a shared transaction.
#[tokio::test]
async fn verify_returns_503_when_the_account_of_a_shared_transaction_is_locked() {
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

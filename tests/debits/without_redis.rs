//! Direct debits of a replica whose Redis is unreachable.

use foundation::clock::DAY_MS;
use foundation::model::OutagePolicy;
use serde_json::json;

use super::{limited, without_redis};

#[tokio::test]
async fn refill_is_applied_once_when_redis_is_unreachable() {
    let kw = without_redis(|_| ()).await;
    let refill = json!({ "interval": "daily", "amount": 10 });
    let key = kw.create_key(json!({ "credits": { "remaining": 1, "refill": refill } })).await;
    kw.verify(&key.key).await.assert_code("VALID");
    kw.verify(&key.key).await.assert_code("USAGE_EXCEEDED");

    kw.clock.advance_ms(DAY_MS);

    for left in [9, 8] {
        assert_eq!(kw.verify(&key.key).await.assert_code("VALID")["credits"], left);
    }
}

#[tokio::test]
async fn outage_policy_decides_limits_and_not_credits() {
    for (policy, has_limit, codes) in [
        (OutagePolicy::Closed, false, ["VALID", "USAGE_EXCEEDED"]),
        (OutagePolicy::Closed, true, ["RATE_LIMITED", "RATE_LIMITED"]),
        (OutagePolicy::Open, false, ["VALID", "USAGE_EXCEEDED"]),
        (OutagePolicy::Open, true, ["VALID", "USAGE_EXCEEDED"]),
    ] {
        let kw = without_redis(|settings| settings.keys_outage_policy = policy).await;
        let key = match has_limit {
            true => kw.create_key(limited(1, 10)).await,
            false => kw.create_key(json!({ "credits": { "remaining": 1 } })).await,
        };
        for code in codes {
            kw.verify(&key.key).await.assert_code(code);
        }
    }
}

/// Only Redis knows what is left in a lease.
#[tokio::test]
async fn keys_are_listed_without_leased_credits_when_redis_is_unreachable() {
    let kw = without_redis(|_| ()).await;
    let api = kw.create_api().await;
    let key = kw.create_key_in(&api, json!({ "credits": { "remaining": 90 } })).await;
    let sql = format!(
        "INSERT INTO purses (key_id, epoch, life, granted, spent, opened_at, asked_at, asked_by)
        VALUES ('{}', 1, 7, 10, 0, 1, 1, 'rep_other')",
        key.id
    );
    kw.execute_sql(sql).await;

    let listed = kw.v2("apis.listKeys", json!({ "apiId": api })).await;

    assert_eq!(listed.data()[0]["credits"]["remaining"], 90);
}

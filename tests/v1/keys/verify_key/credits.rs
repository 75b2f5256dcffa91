//! Uses: how they are spent, and how they come back.

use serde_json::{Value, json};

use super::{MINUTE, issued, update, valid_at_once};
use crate::on_both_stacks;
use crate::support::{Keyward, Stack};

const HOUR: i64 = 3_600_000;
const DAY: i64 = 24 * HOUR;

fn cost(cost: i64) -> Value {
    json!({ "remaining": { "cost": cost } })
}

/// What is left of a key's uses.
async fn left(kw: &Keyward, id: &str) -> i64 {
    let told = kw.v1_get("keys.getKey", &format!("keyId={id}")).await;
    told.v1_body()["remaining"].as_i64().expect("uses")
}

on_both_stacks! {
    async fn each_verification_spends_one_and_tells_the_rest(kw) {
        let key = issued(&kw, json!({ "remaining": 3 })).await;

        let mut told = Vec::new();
        for _ in 0..5 {
            let reply = kw.verify_v1(&key.key, json!({})).await;
            told.push(json!([reply.v1_body()["code"], reply.body["remaining"]]));
        }

        assert_eq!(told, [
            json!(["VALID", 2]),
            json!(["VALID", 1]),
            json!(["VALID", 0]),
            json!(["USAGE_EXCEEDED", 0]),
            json!(["USAGE_EXCEEDED", 0]),
        ]);
        assert_eq!(left(&kw, &key.id).await, 0);
    }

    async fn a_cost_that_just_fits_is_spent_and_one_more_spends_nothing(kw) {
        for balance in [5, 999, 1_000, 5_000] {
            let key = issued(&kw, json!({ "remaining": balance })).await;

            let over = kw.verify_v1(&key.key, cost(balance + 1)).await;
            let at = kw.verify_v1(&key.key, cost(balance)).await;

            assert_eq!(over.assert_v1_code("USAGE_EXCEEDED")["remaining"], balance);
            assert_eq!(at.assert_v1_code("VALID")["remaining"], 0);
        }
    }

    async fn cost_0_only_looks_and_passes_without_uses(kw) {
        let key = issued(&kw, json!({ "remaining": 1 })).await;

        let before = kw.verify_v1(&key.key, cost(0)).await;
        kw.verify_v1(&key.key, json!({})).await.assert_v1_code("VALID");
        let after = kw.verify_v1(&key.key, cost(0)).await;

        assert_eq!(before.assert_v1_code("VALID")["remaining"], 1);
        assert_eq!(after.assert_v1_code("VALID")["remaining"], 0);
    }

    async fn a_cost_that_is_not_said_is_one(kw) {
        let key = issued(&kw, json!({ "remaining": 9 })).await;

        let reply = kw.verify_v1(&key.key, json!({ "remaining": {} })).await;

        assert_eq!(reply.assert_v1_code("VALID")["remaining"], 8);
    }

    async fn a_key_without_uses_to_count_has_no_end_and_ignores_the_cost(kw) {
        let key = issued(&kw, json!({})).await;

        let reply = kw.verify_v1(&key.key, cost(i64::MAX)).await;

        assert_eq!(reply.assert_v1_code("VALID").get("remaining"), None);
    }

    async fn a_refusal_by_limits_spends_no_uses_and_the_other_way_round(kw) {
        let key = issued(&kw, json!({
            "remaining": 2, "ratelimit": { "limit": 10, "duration": MINUTE },
        })).await;
        let dear = json!({ "ratelimits": [{ "name": "default", "cost": 11 }] });

        let limited = kw.verify_v1(&key.key, dear).await;
        let exceeded = kw.verify_v1(&key.key, cost(3)).await;
        let admitted = kw.verify_v1(&key.key, json!({})).await;

        assert_eq!(limited.assert_v1_code("RATE_LIMITED").get("remaining"), None);
        exceeded.assert_v1_code("USAGE_EXCEEDED");
        assert_eq!(exceeded.body["ratelimit"]["remaining"], 10);
        assert_eq!(exceeded.headers.get("unkey-ratelimit-triggered"), None);
        admitted.assert_v1_code("VALID");
        assert_eq!(admitted.body["remaining"], 1);
        assert_eq!(admitted.body["ratelimit"]["remaining"], 9);
    }

    async fn uses_that_are_given_back_count_at_once(kw) {
        let key = issued(&kw, json!({ "remaining": 1 })).await;
        kw.verify_v1(&key.key, json!({})).await.assert_v1_code("VALID");
        kw.verify_v1(&key.key, json!({})).await.assert_v1_code("USAGE_EXCEEDED");

        let more = json!({ "keyId": key.id, "op": "increment", "value": 2 });
        kw.v1("keys.updateRemaining", more).await.v1_body();
        let given = kw.verify_v1(&key.key, json!({})).await;
        update(&kw, &key, json!({ "remaining": 0 })).await;
        kw.verify_v1(&key.key, json!({})).await.assert_v1_code("USAGE_EXCEEDED");
        update(&kw, &key, json!({ "remaining": null })).await;
        let unlimited = kw.verify_v1(&key.key, json!({})).await;

        assert_eq!(given.assert_v1_code("VALID")["remaining"], 1);
        assert_eq!(unlimited.assert_v1_code("VALID").get("remaining"), None);
    }

    async fn a_daily_refill_falls_due_at_midnight_utc(kw) {
        let refill = json!({ "interval": "daily", "amount": 10 });
        let key = issued(&kw, json!({ "remaining": 1, "refill": refill })).await;
        kw.verify_v1(&key.key, json!({})).await.assert_v1_code("VALID");

        kw.clock.advance_ms(12 * HOUR - 1);
        let before = kw.verify_v1(&key.key, json!({})).await;
        kw.clock.advance_ms(1);
        let after = kw.verify_v1(&key.key, json!({})).await;

        before.assert_v1_code("USAGE_EXCEEDED");
        assert_eq!(after.assert_v1_code("VALID")["remaining"], 9);
    }

    async fn a_monthly_refill_falls_due_on_its_day_and_on_the_first_where_none_is_said(kw) {
        // It is the 10th of March.
        let refill = |day: Value| {
            let mut refill = json!({ "interval": "monthly", "amount": 10 });
            if !day.is_null() {
                refill["refillDay"] = day;
            }
            json!({ "remaining": 1, "refill": refill })
        };
        let (twelfth, first) = (issued(&kw, refill(json!(12))).await, issued(&kw, refill(Value::Null)).await);

        kw.clock.advance_ms(12 * HOUR + DAY);
        let on_the_12th = [left(&kw, &twelfth.id).await, left(&kw, &first.id).await];
        kw.clock.advance_ms(20 * DAY);
        let on_the_1st = [left(&kw, &twelfth.id).await, left(&kw, &first.id).await];

        assert_eq!((on_the_12th, on_the_1st), ([10, 1], [10, 10]));
        assert_eq!(kw.verify_v1(&first.key, json!({})).await.assert_v1_code("VALID")["remaining"], 9);
    }

    async fn twenty_at_once_spend_ten_uses_on_ten(kw) {
        let key = issued(&kw, json!({ "remaining": 10 })).await;

        let valid = valid_at_once(&[&kw], &key.key, 20, json!({})).await;

        assert_eq!((valid, left(&kw, &key.id).await), (10, 0));
    }
}

#[tokio::test]
async fn twenty_at_once_on_two_replicas_spend_ten_uses_on_ten() {
    let kw = Keyward::start(Stack::Replica).await;
    let other = kw.replica().await;
    let key = issued(&kw, json!({ "remaining": 10 })).await;

    let valid = valid_at_once(&[&kw, &other], &key.key, 20, json!({})).await;

    assert_eq!((valid, left(&other, &key.id).await), (10, 0));
}

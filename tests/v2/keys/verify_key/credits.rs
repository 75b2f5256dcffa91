//! Uses: how they are spent, and how they come back.

use foundation::id::KeyId;
use serde_json::{Value, json};
use store::freshness::CacheTag;

use super::valid_at_once;
use crate::on_both_stacks;
use crate::support::{Keyward, Stack};

const HOUR: i64 = 3_600_000;
const DAY: i64 = 24 * HOUR;
/// From [`crate::support::NOON`], the 10th of March 2026, to the next midnight.
const TO_MIDNIGHT: i64 = 12 * HOUR;

fn cost(cost: i64) -> Value {
    json!({ "credits": { "cost": cost } })
}

fn monthly(day: u8) -> Value {
    json!({
        "credits": {
            "remaining": 1,
            "refill": { "interval": "monthly", "amount": 100, "refillDay": day },
        },
    })
}

/// What is left of a key's credits.
async fn left(kw: &Keyward, key_id: &str) -> i64 {
    kw.get_key(key_id).await["credits"]["remaining"].as_i64().expect("credits")
}

on_both_stacks! {
    async fn a_key_with_no_uses_left_is_refused_and_spends_nothing(kw) {
        let key = kw.create_key(json!({ "credits": { "remaining": 1 } })).await;
        kw.verify(&key.key).await.assert_code("VALID");

        let reply = kw.verify(&key.key).await;

        reply.assert_code("USAGE_EXCEEDED");
        assert_eq!(reply.data()["credits"], 0);
    }

    async fn a_refusal_by_credits_spends_no_limit(kw) {
        let key = kw
            .create_key(json!({
                "credits": { "remaining": 2 },
                "ratelimits": [
                    { "name": "requests", "limit": 10, "duration": 60_000, "autoApply": true },
                ],
            }))
            .await;

        let refused = kw.verify_with(&key.key, cost(3)).await;
        let admitted = kw.verify(&key.key).await;

        refused.assert_code("USAGE_EXCEEDED");
        assert_eq!(refused.data()["ratelimits"][0]["remaining"], 10);
        assert_eq!(refused.data()["ratelimits"][0]["exceeded"], false);
        assert_eq!(refused.data()["credits"], 2);
        admitted.assert_code("VALID");
        assert_eq!(admitted.data()["ratelimits"][0]["remaining"], 9);
        assert_eq!(admitted.data()["credits"], 1);
    }

    async fn each_verification_spends_one_and_tells_the_rest(kw) {
        let key = kw.create_key(json!({ "credits": { "remaining": 3 } })).await;

        let mut told = Vec::new();
        for _ in 0..5 {
            let reply = kw.verify(&key.key).await;
            told.push((reply.data()["valid"] == true, reply.data()["credits"].as_i64().unwrap()));
        }

        assert_eq!(told, [(true, 2), (true, 1), (true, 0), (false, 0), (false, 0)]);
        assert_eq!(left(&kw, &key.id).await, 0);
    }

    async fn a_cost_that_just_fits_is_spent_and_one_more_spends_nothing(kw) {
        for balance in [5, 999, 1_000, 5_000] {
            let key = kw.create_key(json!({ "credits": { "remaining": balance } })).await;

            let over = kw.verify_with(&key.key, cost(balance + 1)).await;
            let at = kw.verify_with(&key.key, cost(balance)).await;

            over.assert_code("USAGE_EXCEEDED");
            assert_eq!(over.data()["credits"], balance);
            at.assert_code("VALID");
            assert_eq!(at.data()["credits"], 0);
        }
    }

    async fn cost_0_only_looks_and_passes_without_uses(kw) {
        let key = kw.create_key(json!({ "credits": { "remaining": 1 } })).await;

        let before = kw.verify_with(&key.key, cost(0)).await;
        kw.verify(&key.key).await.assert_code("VALID");
        let after = kw.verify_with(&key.key, cost(0)).await;

        before.assert_code("VALID");
        assert_eq!(before.data()["credits"], 1);
        after.assert_code("VALID");
        assert_eq!(after.data()["credits"], 0);
    }

    async fn a_key_without_credits_has_no_end_and_ignores_the_cost(kw) {
        let key = kw.create_key(json!({})).await;

        let reply = kw.verify_with(&key.key, cost(1_000_000_000_000)).await;

        reply.assert_code("VALID");
        assert_eq!(reply.data().get("credits"), None);
    }

    async fn the_largest_cost_is_spent_to_the_unit(kw) {
        let key = kw.create_key(json!({ "credits": { "remaining": 1_000_000_000_002_i64 } })).await;

        kw.verify(&key.key).await.assert_code("VALID");
        let reply = kw.verify_with(&key.key, cost(1_000_000_000_000)).await;

        reply.assert_code("VALID");
        assert_eq!(reply.data()["credits"], 1);
        assert_eq!(left(&kw, &key.id).await, 1);
    }

    async fn the_largest_balance_is_spent_to_the_unit(kw) {
        let key = kw.create_key(json!({ "credits": { "remaining": i64::MAX } })).await;

        let reply = kw.verify(&key.key).await;

        reply.assert_code("VALID");
        assert_eq!(reply.data()["credits"], i64::MAX - 1);
    }

    async fn no_other_refusal_spends_anything(kw) {
        let key = kw
            .create_key(json!({
                "credits": { "remaining": 5 },
                "ratelimits": [{ "name": "requests", "limit": 1, "duration": 60_000 }],
            }))
            .await;
        let limited = json!({ "ratelimits": [{ "name": "requests", "cost": 2 }] });

        let replies = [
            kw.verify_with(&key.key, json!({ "permissions": "a" })).await,
            kw.verify_with(&key.key, limited).await,
        ];
        kw.update_key(&key.id, json!({ "enabled": false })).await.data();
        let disabled = kw.verify(&key.key).await;

        for reply in replies.iter().chain([&disabled]) {
            assert_eq!(reply.data()["valid"], false);
            assert_eq!(reply.data()["credits"], 5, "{}", reply.text);
        }
        assert_eq!(left(&kw, &key.id).await, 5);
    }

    async fn a_daily_refill_falls_due_at_midnight_utc(kw) {
        let refill = json!({ "interval": "daily", "amount": 10 });
        let key = kw.create_key(json!({ "credits": { "remaining": 1, "refill": refill } })).await;
        kw.verify(&key.key).await.assert_code("VALID");

        kw.clock.advance_ms(TO_MIDNIGHT - 1);
        let before = kw.verify(&key.key).await;
        kw.clock.advance_ms(1);
        let after = kw.verify(&key.key).await;

        before.assert_code("USAGE_EXCEEDED");
        after.assert_code("VALID");
        assert_eq!(after.data()["credits"], 9);
    }

    async fn a_refill_sets_the_balance_and_adds_nothing(kw) {
        let refill = json!({ "interval": "daily", "amount": 10 });
        for balance in [0, 7, 10, 5_000] {
            let key =
                kw.create_key(json!({ "credits": { "remaining": balance, "refill": refill } })).await;
            kw.verify(&key.key).await;

            kw.clock.advance_ms(DAY);

            assert_eq!(kw.verify(&key.key).await.data()["credits"], 9);
        }
    }

    async fn a_refill_happens_once_in_its_period(kw) {
        for amount in [2, 2_000] {
            let refill = json!({ "interval": "daily", "amount": amount });
            let key = kw.create_key(json!({ "credits": { "remaining": 0, "refill": refill } })).await;
            kw.clock.advance_ms(DAY);
            kw.verify_with(&key.key, cost(amount)).await.assert_code("VALID");

            kw.clock.advance_ms(HOUR);
            kw.verify(&key.key).await.assert_code("USAGE_EXCEEDED");

            kw.clock.advance_ms(DAY - HOUR);
            kw.verify_with(&key.key, cost(amount)).await.assert_code("VALID");
        }
    }

    async fn refills_that_were_missed_count_once(kw) {
        let refill = json!({ "interval": "daily", "amount": 10 });
        let key = kw.create_key(json!({ "credits": { "remaining": 0, "refill": refill } })).await;

        kw.clock.advance_ms(30 * DAY);

        assert_eq!(kw.verify(&key.key).await.data()["credits"], 9);
    }

    async fn a_refill_is_due_whoever_asks(kw) {
        let refill = json!({ "interval": "daily", "amount": 10 });
        let key = kw
            .create_key(json!({
                "enabled": false, "credits": { "remaining": 0, "refill": refill },
            }))
            .await;

        kw.clock.advance_ms(DAY);
        let reply = kw.verify(&key.key).await;

        reply.assert_code("DISABLED");
        assert_eq!(reply.data()["credits"], 10);
    }

    async fn a_monthly_refill_falls_due_on_its_day(kw) {
        let key = kw.create_key(monthly(12)).await;

        kw.clock.advance_ms(TO_MIDNIGHT + DAY - 1);
        let before = left(&kw, &key.id).await;
        kw.clock.advance_ms(1);
        let after = left(&kw, &key.id).await;

        assert_eq!((before, after), (1, 100));
    }

    async fn a_monthly_refill_comes_again_a_month_later_and_not_before(kw) {
        // The 10th is today, and its midnight has passed.
        let key = kw.create_key(monthly(10)).await;

        kw.clock.advance_ms(TO_MIDNIGHT + 30 * DAY - 1);
        let before = left(&kw, &key.id).await;
        kw.clock.advance_ms(1);
        let after = left(&kw, &key.id).await;

        assert_eq!((before, after), (1, 100));
    }

    async fn a_month_without_the_day_refills_on_its_last(kw) {
        let key = kw.create_key(monthly(31)).await;
        // The 31st of March.
        kw.clock.advance_ms(TO_MIDNIGHT + 20 * DAY);
        kw.verify_with(&key.key, cost(100)).await.assert_code("VALID");

        // April has 30 days.
        kw.clock.advance_ms(30 * DAY - 1);
        let before = left(&kw, &key.id).await;
        kw.clock.advance_ms(1);
        let after = left(&kw, &key.id).await;

        assert_eq!((before, after), (0, 100));
    }

    async fn twenty_at_once_spend_ten_credits_on_ten(kw) {
        let key = kw.create_key(json!({ "credits": { "remaining": 10 } })).await;

        let valid = valid_at_once(&[&kw], &key.key, 20, json!({})).await;

        assert_eq!((valid, left(&kw, &key.id).await), (10, 0));
    }

    async fn forty_at_once_spend_a_large_balance_to_the_unit(kw) {
        let key = kw.create_key(json!({ "credits": { "remaining": 3_050 } })).await;

        let valid = valid_at_once(&[&kw], &key.key, 40, cost(100)).await;

        assert_eq!((valid, left(&kw, &key.id).await), (30, 50));
    }

    async fn credits_and_limits_are_spent_together_however_many_ask_at_once(kw) {
        let key = kw
            .create_key(json!({
                "credits": { "remaining": 30 },
                "ratelimits": [
                    { "name": "requests", "limit": 12, "duration": 60_000, "autoApply": true },
                ],
            }))
            .await;

        let valid = valid_at_once(&[&kw], &key.key, 20, cost(2)).await;

        assert_eq!((valid, left(&kw, &key.id).await), (12, 6));
    }

    async fn a_key_whose_metering_ended_unheard_is_not_exhausted(kw) {
        let key = kw.create_key(json!({ "credits": { "remaining": 5 } })).await;
        kw.verify(&key.key).await.assert_code("VALID");

        // As another replica does it, in the moment before this one hears of it.
        let mut tx = kw.store().begin().await.unwrap();
        let id = KeyId::from(key.id.as_str());
        tx.set_credits(&id, None).await.unwrap();
        tx.commit().await.unwrap();

        kw.verify(&key.key).await.assert_code("VALID");
    }
}

#[tokio::test]
async fn twenty_at_once_on_two_replicas_spend_ten_credits_on_ten() {
    let kw = Keyward::start(Stack::Replica).await;
    let other = kw.replica().await;
    let key = kw.create_key(json!({ "credits": { "remaining": 10 } })).await;

    let valid = valid_at_once(&[&kw, &other], &key.key, 20, json!({})).await;

    assert_eq!(valid, 10);
    assert_eq!((left(&kw, &key.id).await, left(&other, &key.id).await), (0, 0));
}

#[tokio::test]
async fn forty_at_once_on_two_replicas_spend_a_large_balance_to_the_unit() {
    let kw = Keyward::start(Stack::Replica).await;
    let other = kw.replica().await;
    let key = kw.create_key(json!({ "credits": { "remaining": 3_050 } })).await;

    let valid = valid_at_once(&[&kw, &other], &key.key, 40, cost(100)).await;

    assert_eq!(valid, 30);
    assert_eq!((left(&kw, &key.id).await, left(&other, &key.id).await), (50, 50));
}

#[tokio::test]
async fn two_replicas_that_find_a_refill_due_at_once_refill_once() {
    let kw = Keyward::start(Stack::Replica).await;
    let other = kw.replica().await;
    let refill = json!({ "interval": "daily", "amount": 10 });
    let key = kw.create_key(json!({ "credits": { "remaining": 0, "refill": refill } })).await;
    other.verify(&key.key).await.assert_code("USAGE_EXCEEDED");
    kw.clock.advance_ms(DAY);

    let valid = valid_at_once(&[&kw, &other], &key.key, 20, json!({})).await;

    assert_eq!((valid, left(&kw, &key.id).await), (10, 0));
}

#[tokio::test]
async fn a_number_that_no_purse_has_sends_a_take_to_the_bank_and_not_all() {
    let kw = Keyward::start(Stack::Replica).await;
    let key = kw.create_key(json!({ "credits": { "remaining": 1_000 } })).await;
    kw.verify(&key.key).await.assert_code("VALID");
    let id = KeyId::from(key.id.as_str());
    let mut tx = kw.store().begin().await.unwrap();
    let mut account = tx.lock_account(&id).await.unwrap().unwrap();
    account.credits.last_lease_number += 1;
    tx.update_balance(&id, &account.credits).await.unwrap();
    tx.record_change(CacheTag::Key(id));
    kw.app.context.commit(tx).await.unwrap();
    let before = kw.app.context.metrics.lease_top_ups.get();

    for _ in 0..20 {
        kw.verify(&key.key).await.assert_code("VALID");
    }

    // The change comes by three ways, and each may have the key read again.
    let withdrawn = kw.app.context.metrics.lease_top_ups.get() - before;
    assert!(withdrawn <= 3, "{withdrawn}");
}

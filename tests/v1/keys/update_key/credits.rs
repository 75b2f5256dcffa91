//! What becomes of the uses left and of when they come back.

use serde_json::{Value, json};

use super::update;
use crate::on_both_stacks;

const DAY: i64 = 24 * 3_600_000;

fn daily(amount: i64) -> Value {
    json!({ "interval": "daily", "amount": amount })
}

on_both_stacks! {
    async fn uses_are_set_at_once_and_never_below_0(kw) {
        for (remaining, code, left) in
            [(2, "VALID", 1), (0, "USAGE_EXCEEDED", 0), (-5, "USAGE_EXCEEDED", 0)]
        {
            let key = kw.create_key(json!({ "credits": { "remaining": 5_000 } })).await;
            kw.verify_v1(&key.key, json!({})).await.assert_v1_code("VALID");

            update(&kw, &key, json!({ "remaining": remaining })).await.v1_body();

            assert_eq!(kw.get_key_v1(&key.id).await["remaining"], remaining.max(0));
            assert_eq!(kw.verify_v1(&key.key, json!({})).await.assert_v1_code(code)["remaining"], left);
        }
    }

    async fn null_makes_it_unlimited(kw) {
        let key = kw.create_key(json!({ "credits": { "remaining": 0 } })).await;
        kw.verify_v1(&key.key, json!({})).await.assert_v1_code("USAGE_EXCEEDED");

        update(&kw, &key, json!({ "remaining": null })).await.v1_body();

        assert_eq!(kw.verify_v1(&key.key, json!({})).await.assert_v1_code("VALID").get("remaining"), None);
        assert_eq!(kw.get_key(&key.id).await.get("credits"), None);
    }

    async fn the_refill_of_an_unlimited_key_waits_until_it_is_metered_again(kw) {
        let key = kw.create_key(json!({ "credits": { "remaining": 0, "refill": daily(9) } })).await;

        update(&kw, &key, json!({ "remaining": null })).await.v1_body();

        kw.clock.advance_ms(DAY);
        kw.verify_v1(&key.key, json!({})).await.assert_v1_code("VALID");
        let told = kw.get_key_v1(&key.id).await;
        let refill = json!({ "interval": "daily", "amount": 9, "refillDay": null });
        assert_eq!((told.get("remaining"), &told["refill"]), (None, &refill));
        assert_eq!(kw.get_key(&key.id).await.get("credits"), None);
        update(&kw, &key, json!({ "remaining": 3 })).await.v1_body();
        assert_eq!(kw.get_key_v1(&key.id).await["remaining"], 3);
        kw.clock.advance_ms(DAY);
        assert_eq!(kw.get_key_v1(&key.id).await["remaining"], 9);
    }

    async fn a_refill_is_set_and_ended_whether_there_is_something_to_refill_or_not(kw) {
        let key = kw.create_key(json!({})).await;

        update(&kw, &key, json!({ "refill": daily(9) })).await.v1_body();
        let set = kw.get_key_v1(&key.id).await;
        update(&kw, &key, json!({ "refill": null })).await.v1_body();
        let ended = kw.get_key_v1(&key.id).await;

        assert_eq!((set.get("remaining"), &set["refill"]["amount"]), (None, &json!(9)));
        assert_eq!((ended.get("remaining"), ended.get("refill")), (None, None));
        kw.verify_v1(&key.key, json!({})).await.assert_v1_code("VALID");
    }

    async fn version_2_lets_no_refill_wait_and_hands_on_one_that_does(kw) {
        let refill = json!({ "credits": { "remaining": 5, "refill": daily(9) } });
        let (dropped, waiting) = (kw.create_key(refill.clone()).await, kw.create_key(refill).await);
        for key in [&dropped, &waiting] {
            update(&kw, key, json!({ "remaining": null })).await.v1_body();
        }

        kw.update_key(&dropped.id, json!({ "credits": null })).await.data();
        let request = json!({ "keyId": waiting.id, "expiration": 0 });
        let rerolled = kw.v2("keys.rerollKey", request).await.text_of("keyId");

        assert_eq!(kw.get_key_v1(&dropped.id).await.get("refill"), None);
        assert_eq!(kw.get_key_v1(&rerolled).await["refill"]["amount"], 9);
        assert_eq!(kw.get_key(&rerolled).await.get("credits"), None);
    }

    async fn a_daily_refill_has_no_day_and_comes_each_day(kw) {
        let key = kw.create_key(json!({ "credits": { "remaining": 5 } })).await;

        update(&kw, &key, json!({ "refill": daily(9) })).await.v1_body();

        let told = kw.get_key_v1(&key.id).await;
        assert_eq!(told["remaining"], 5);
        assert_eq!(told["refill"], json!({ "interval": "daily", "amount": 9, "refillDay": null }));
        assert_eq!(kw.get_key(&key.id).await["credits"]["refill"], daily(9));
        for _ in 0..2 {
            kw.verify_v1(&key.key, json!({})).await.assert_v1_code("VALID");
            kw.clock.advance_ms(DAY);
            assert_eq!(kw.get_key_v1(&key.id).await["remaining"], 9);
        }
    }

    async fn a_monthly_refill_is_on_the_first_where_no_day_is_said(kw) {
        let key = kw.create_key(json!({ "credits": { "remaining": 5 } })).await;
        for (day, told) in [(json!({}), 1), (json!({ "refillDay": 31.0 }), 31)] {
            let mut refill = day;
            refill["interval"] = json!("monthly");
            refill["amount"] = json!(9);

            update(&kw, &key, json!({ "refill": refill })).await.v1_body();

            let refill = json!({ "interval": "monthly", "amount": 9, "refillDay": told });
            assert_eq!(kw.get_key_v1(&key.id).await["refill"], refill);
        }
    }

    async fn null_ends_the_refill_and_what_is_left_stays(kw) {
        let key = kw.create_key(json!({ "credits": { "remaining": 5, "refill": daily(9) } })).await;

        update(&kw, &key, json!({ "refill": null })).await.v1_body();
        kw.clock.advance_ms(DAY);

        let told = kw.get_key_v1(&key.id).await;
        assert_eq!((told["remaining"].clone(), told.get("refill")), (json!(5), None));
    }

    async fn uses_are_set_and_the_refill_stays(kw) {
        let key = kw.create_key(json!({ "credits": { "remaining": 5, "refill": daily(9) } })).await;

        update(&kw, &key, json!({ "remaining": 3 })).await.v1_body();

        assert_eq!(kw.get_key_v1(&key.id).await["remaining"], 3);
        kw.clock.advance_ms(DAY);
        assert_eq!(kw.get_key_v1(&key.id).await["remaining"], 9);
    }

    async fn what_makes_no_sense_is_refused_and_nothing_changes(kw) {
        let key = kw.create_key(json!({ "credits": { "remaining": 5 } })).await;
        for (change, told) in [
            (
                json!({ "remaining": null, "refill": daily(9) }),
                "refill: requires remaining; null means unlimited",
            ),
            (
                json!({ "refill": { "interval": "daily", "amount": 9, "refillDay": 1 } }),
                "refill: refillDay is allowed only with the interval monthly",
            ),
            (json!({ "remaining": 1.5 }), "remaining: Expected integer, received float"),
        ] {
            let mut change = change;
            change["name"] = json!("renamed");

            let message = update(&kw, &key, change).await.assert_v1_error(400, "BAD_REQUEST");

            assert_eq!(message, told);
        }
        let told = kw.get_key_v1(&key.id).await;
        assert_eq!((told["remaining"].clone(), told.get("name")), (json!(5), None));
    }
}

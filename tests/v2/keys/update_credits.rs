use futures_util::future::{join, join_all};
use serde_json::{Value, json};

use crate::on_both_stacks;
use crate::support::{Keyward, Reply, Stack};

async fn update(kw: &Keyward, key_id: &str, operation: &str, value: Value) -> Reply {
    let mut request = json!({ "keyId": key_id, "operation": operation });
    if value != json!("absent") {
        request["value"] = value;
    }
    kw.v2("keys.updateCredits", request).await
}

async fn metered(kw: &Keyward, remaining: i64) -> crate::support::seed::IssuedKey {
    kw.create_key(json!({ "credits": { "remaining": remaining } })).await
}

on_both_stacks! {
    async fn a_balance_is_set_raised_and_lowered(kw) {
        for before in [5, 5_000] {
            let key = metered(&kw, before).await;
            kw.verify(&key.key).await.assert_code("VALID");

            let set = update(&kw, &key.id, "set", json!(10)).await;
            let raised = update(&kw, &key.id, "increment", json!(5_000)).await;
            kw.verify(&key.key).await.assert_code("VALID");
            let lowered = update(&kw, &key.id, "decrement", json!(9)).await;

            assert_eq!(*set.data(), json!({ "remaining": 10 }));
            assert_eq!(*raised.data(), json!({ "remaining": 5_010 }));
            assert_eq!(*lowered.data(), json!({ "remaining": 5_000 }));
            assert_eq!(kw.verify(&key.key).await.data()["credits"], 4_999);
        }
    }

    async fn what_is_lowered_below_0_is_0(kw) {
        let key = metered(&kw, 5).await;

        let lowered = update(&kw, &key.id, "decrement", json!(i64::MAX)).await;

        assert_eq!(*lowered.data(), json!({ "remaining": 0 }));
        kw.verify(&key.key).await.assert_code("USAGE_EXCEEDED");
    }

    async fn an_exhausted_key_verifies_at_once_when_uses_are_added(kw) {
        let key = metered(&kw, 0).await;
        kw.verify(&key.key).await.assert_code("USAGE_EXCEEDED");

        update(&kw, &key.id, "increment", json!(1)).await.data();

        kw.verify(&key.key).await.assert_code("VALID");
        kw.verify(&key.key).await.assert_code("USAGE_EXCEEDED");
    }

    async fn null_makes_it_unlimited_and_ends_the_refill(kw) {
        for value in [json!(null), json!("absent")] {
            let refill = json!({ "interval": "daily", "amount": 9 });
            let key = kw.create_key(json!({ "credits": { "remaining": 5, "refill": refill } })).await;

            let unlimited = update(&kw, &key.id, "set", value).await;
            let told = kw.get_key(&key.id).await;
            let metered = update(&kw, &key.id, "set", json!(3)).await;

            assert_eq!(*unlimited.data(), json!({ "remaining": null }));
            assert_eq!(told.get("credits"), None);
            assert_eq!(*metered.data(), json!({ "remaining": 3 }));
        }
    }

    async fn the_refill_stays_and_is_told(kw) {
        let refill = json!({ "interval": "monthly", "amount": 9, "refillDay": 12 });
        let key = kw.create_key(json!({ "credits": { "remaining": 5, "refill": refill } })).await;

        let set = update(&kw, &key.id, "set", json!(7)).await;

        assert_eq!(*set.data(), json!({ "remaining": 7, "refill": refill }));
    }

    async fn nothing_is_added_to_a_key_without_end(kw) {
        let key = kw.create_key(json!({})).await;

        for operation in ["increment", "decrement"] {
            let message =
                update(&kw, &key.id, operation, json!(1)).await.assert_field_error("/properties/operation");
            assert!(message.contains("unlimited"), "{message}");
        }
        assert_eq!(kw.get_key(&key.id).await.get("credits"), None);
    }

    async fn a_step_needs_a_number(kw) {
        let key = metered(&kw, 5).await;

        for operation in ["increment", "decrement"] {
            for value in [json!(null), json!("absent")] {
                let message =
                    update(&kw, &key.id, operation, value).await.assert_field_error("/properties/value");
                assert!(message.contains(operation), "{message}");
            }
        }
        assert_eq!(kw.get_key(&key.id).await["credits"]["remaining"], 5);
    }

    async fn what_cannot_be_counted_is_refused_and_changes_nothing(kw) {
        let key = metered(&kw, 5).await;

        let over = update(&kw, &key.id, "increment", json!(i64::MAX - 4)).await;
        let message = over.assert_field_error("/properties/value");
        assert!(message.contains(&(i64::MAX - 5).to_string()), "{message}");
        let at = update(&kw, &key.id, "increment", json!(i64::MAX - 5)).await;
        assert_eq!(*at.data(), json!({ "remaining": i64::MAX }));
    }

    async fn a_key_that_is_not_there_is_not_found(kw) {
        update(&kw, "key_nowhere", "set", json!(1)).await.assert_error(404, "key_not_found");
    }

    async fn a_change_is_audited(kw) {
        let key = metered(&kw, 5).await;

        update(&kw, &key.id, "set", json!(7)).await.data();

        assert_eq!(kw.list_audit_events(&key.id).await, ["key.create", "key.update"]);
    }

    async fn steps_among_verifications_lose_nothing_and_give_nothing(kw) {
        let key = metered(&kw, 3_000).await;

        let (verified, changed) = join(
            join_all((0..40).map(|_| kw.verify(&key.key))),
            join_all((1..=6).map(|n| {
                let operation = if n % 2 == 0 { "increment" } else { "decrement" };
                update(&kw, &key.id, operation, json!(n * 10))
            })),
        )
        .await;

        for reply in verified {
            reply.assert_code("VALID");
        }
        for reply in changed {
            reply.data();
        }
        // 20 + 40 + 60 - 10 - 30 - 50.
        assert_eq!(kw.get_key(&key.id).await["credits"]["remaining"], 3_000 - 40 + 30);
    }
}

#[tokio::test]
async fn what_one_replica_sets_binds_the_other_at_once() {
    let kw = Keyward::start(Stack::Replica).await;
    let other = kw.replica().await;
    for (before, set) in [(5, 2), (5_000, 2), (2, 5_000)] {
        let key = metered(&kw, before).await;
        other.verify(&key.key).await.assert_code("VALID");

        update(&kw, &key.id, "set", json!(set)).await.data();

        let cost = |cost: i64| json!({ "credits": { "cost": cost } });
        other.verify_with(&key.key, cost(set + 1)).await.assert_code("USAGE_EXCEEDED");
        other.verify_with(&key.key, cost(set)).await.assert_code("VALID");
        kw.verify(&key.key).await.assert_code("USAGE_EXCEEDED");
    }
}

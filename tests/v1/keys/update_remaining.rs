use serde_json::{Value, json};

use crate::on_both_stacks;
use crate::support::seed::IssuedKey;
use crate::support::{Keyward, NOON, Reply, Stack};

const DAY: i64 = 24 * 3_600_000;

async fn update(kw: &Keyward, key: &IssuedKey, op: &str, value: impl Into<Value>) -> Reply {
    let request = json!({ "keyId": key.id, "op": op, "value": value.into() });
    kw.v1("keys.updateRemaining", request).await
}

async fn metered(kw: &Keyward, remaining: i64) -> IssuedKey {
    kw.create_key(json!({ "credits": { "remaining": remaining } })).await
}

on_both_stacks! {
    async fn uses_are_set_raised_and_lowered(kw) {
        for before in [5, 5_000] {
            let key = metered(&kw, before).await;
            kw.verify_v1(&key.key, json!({})).await.assert_v1_code("VALID");

            let set = update(&kw, &key, "set", 10).await;
            let raised = update(&kw, &key, "increment", 5_000).await;
            kw.verify_v1(&key.key, json!({})).await.assert_v1_code("VALID");
            let lowered = update(&kw, &key, "decrement", 9).await;

            assert_eq!(*set.v1_body(), json!({ "remaining": 10 }));
            assert_eq!(*raised.v1_body(), json!({ "remaining": 5_010 }));
            assert_eq!(*lowered.v1_body(), json!({ "remaining": 5_000 }));
            let reply = kw.verify_v1(&key.key, json!({})).await;
            assert_eq!(reply.assert_v1_code("VALID")["remaining"], 4_999);
            assert_eq!(kw.verify(&key.key).await.data()["credits"], 4_998);
        }
    }

    async fn a_negative_step_goes_the_other_way(kw) {
        let key = metered(&kw, 5).await;

        let lowered = update(&kw, &key, "increment", -2).await;
        let raised = update(&kw, &key, "decrement", -7).await;

        assert_eq!(*lowered.v1_body(), json!({ "remaining": 3 }));
        assert_eq!(*raised.v1_body(), json!({ "remaining": 10 }));
    }

    async fn there_is_nothing_below_0(kw) {
        for (op, value) in [
            ("decrement", json!(6)), ("decrement", json!(i64::MAX)), ("increment", json!(-6)),
            ("increment", json!(i64::MIN)), ("set", json!(0)), ("set", json!(-3)),
        ] {
            let key = metered(&kw, 5).await;

            let reply = update(&kw, &key, op, value).await;

            assert_eq!(*reply.v1_body(), json!({ "remaining": 0 }), "{op}");
            kw.verify_v1(&key.key, json!({})).await.assert_v1_code("USAGE_EXCEEDED");
            update(&kw, &key, "increment", 1).await.v1_body();
            kw.verify_v1(&key.key, json!({})).await.assert_v1_code("VALID");
        }
    }

    async fn null_makes_it_unlimited_and_a_number_metered_again(kw) {
        let key = metered(&kw, 0).await;
        kw.verify_v1(&key.key, json!({})).await.assert_v1_code("USAGE_EXCEEDED");

        let unlimited = update(&kw, &key, "set", Value::Null).await;
        let verified = kw.verify_v1(&key.key, json!({})).await;
        let metered = update(&kw, &key, "set", 3.0).await;

        assert_eq!(*unlimited.v1_body(), json!({ "remaining": null }));
        assert_eq!(verified.assert_v1_code("VALID").get("remaining"), None);
        assert_eq!(*metered.v1_body(), json!({ "remaining": 3 }));
        assert_eq!(kw.get_key(&key.id).await["credits"]["remaining"], 3);
    }

    async fn the_refill_waits_until_the_key_is_metered_again(kw) {
        let refill = json!({ "interval": "daily", "amount": 9 });
        let key = kw.create_key(json!({ "credits": { "remaining": 5, "refill": refill } })).await;

        update(&kw, &key, "set", Value::Null).await.v1_body();

        let told = kw.get_key_v1(&key.id).await;
        assert_eq!((told.get("remaining"), &told["refill"]["amount"]), (None, &json!(9)));
        assert_eq!(kw.get_key(&key.id).await.get("credits"), None);
        kw.clock.advance_ms(DAY);
        update(&kw, &key, "set", 3).await.v1_body();
        assert_eq!(kw.get_key_v1(&key.id).await["remaining"], 3);
        kw.clock.advance_ms(DAY);
        assert_eq!(kw.get_key_v1(&key.id).await["remaining"], 9);
    }

    async fn a_change_is_told_as_one_of_the_key(kw) {
        for (op, value) in [("set", json!(7)), ("set", json!(null)), ("increment", json!(1))] {
            let key = metered(&kw, 5).await;
            assert_eq!(kw.get_key_v1(&key.id).await.get("updatedAt"), None);

            update(&kw, &key, op, value).await.v1_body();

            assert_eq!(kw.get_key_v1(&key.id).await["updatedAt"], NOON.0);
        }
    }

    async fn the_refill_stays_where_a_number_is_set(kw) {
        let refill = json!({ "interval": "daily", "amount": 9 });
        let key = kw.create_key(json!({ "credits": { "remaining": 5, "refill": refill } })).await;

        update(&kw, &key, "set", 3).await.v1_body();

        assert_eq!(kw.get_key_v1(&key.id).await["remaining"], 3);
        kw.clock.advance_ms(DAY);
        assert_eq!(kw.get_key_v1(&key.id).await["remaining"], 9);
    }

    async fn what_makes_no_sense_is_refused_and_changes_nothing(kw) {
        let key = metered(&kw, 5).await;
        for (request, told) in [
            (json!({ "op": "set" }), "value: Required"),
            (json!({ "value": 1 }), "op: Required"),
            (
                json!({ "op": "multiply", "value": 1 }),
                "op: Invalid enum value. Expected 'increment' | 'decrement' | 'set', \
                received 'multiply'",
            ),
            (
                json!({ "op": "increment", "value": null }),
                "value: increment and decrement require a number",
            ),
            (
                json!({ "op": "decrement", "value": null }),
                "value: increment and decrement require a number",
            ),
        ] {
            let mut request = request;
            request["keyId"] = json!(key.id);

            let message = kw.v1("keys.updateRemaining", request).await.assert_v1_error(400, "BAD_REQUEST");

            assert_eq!(message, told);
        }
        assert_eq!(kw.get_key_v1(&key.id).await["remaining"], 5);
    }

    async fn an_unlimited_key_has_nothing_to_step_from(kw) {
        let key = kw.create_key(json!({})).await;

        for op in ["increment", "decrement"] {
            let message = update(&kw, &key, op, 1).await.assert_v1_error(400, "BAD_REQUEST");
            assert!(message.contains("unlimited"), "{message}");
        }
        assert_eq!(kw.get_key_v1(&key.id).await.get("remaining"), None);
    }

    async fn more_than_can_be_counted_is_refused(kw) {
        let key = metered(&kw, 5).await;

        update(&kw, &key, "increment", i64::MAX - 4).await.assert_v1_error(400, "BAD_REQUEST");
        let most = update(&kw, &key, "increment", i64::MAX - 5).await;

        assert_eq!(*most.v1_body(), json!({ "remaining": i64::MAX }));
    }

    async fn a_change_is_audited(kw) {
        let key = metered(&kw, 5).await;

        update(&kw, &key, "set", 7).await.v1_body();

        assert_eq!(kw.list_audit_events(&key.id).await, ["key.create", "key.update"]);
    }

    async fn a_key_that_is_not_there_is_named(kw) {
        let deleted = metered(&kw, 5).await;
        kw.v1("keys.deleteKey", json!({ "keyId": deleted.id })).await.v1_body();

        let message = update(&kw, &deleted, "set", 1).await.assert_v1_error(404, "NOT_FOUND");

        assert!(message.contains(&deleted.id), "{message}");
    }
}

#[tokio::test]
async fn what_one_replica_sets_binds_the_other_at_once() {
    let kw = Keyward::start(Stack::Replica).await;
    let other = kw.replica().await;
    for (before, set) in [(5, 2), (5_000, 2), (2, 5_000)] {
        let key = metered(&kw, before).await;
        other.verify_v1(&key.key, json!({})).await.assert_v1_code("VALID");

        update(&kw, &key, "set", set).await.v1_body();

        let cost = |cost: i64| json!({ "remaining": { "cost": cost } });
        other.verify_v1(&key.key, cost(set + 1)).await.assert_v1_code("USAGE_EXCEEDED");
        other.verify_v1(&key.key, cost(set)).await.assert_v1_code("VALID");
    }
}

use futures_util::future::{join, join_all};
use serde_json::{Value, json};

use crate::on_both_stacks;
use crate::support::scenario::{Scenario, Step, call, fail, field, plain, read};
use crate::support::version::Version::V2;

const OPERATION: &str = "keys.updateCredits";

fn request(operation: &str, value: &Value) -> Value {
    match value.as_str() {
        Some("absent") => json!({ "operation": operation }),
        _ => json!({ "operation": operation, "value": value }),
    }
}

fn step(operation: &str, value: impl Into<Value>, fields: Value) -> Step {
    call(OPERATION, request(operation, &value.into()), fields)
}

fn metered(remaining: i64) -> Value {
    json!({ "credits": { "remaining": remaining } })
}

on_both_stacks! {
    async fn a_balance_is_set_raised_and_lowered(kw) {
        let left = |remaining: i64| json!({ "remaining": remaining });
        let refill = |refill: &Value| json!({ "credits": { "remaining": 5, "refill": refill } });
        let (daily, monthly) = (json!({ "interval": "daily", "amount": 9 }), json!({ "interval": "monthly", "amount": 9, "refillDay": 12 }));
        let over = field("/properties/value", &["9223372036854775802"]);
        let mut scenarios: Vec<Scenario> = vec![
            ("what is lowered below 0 is 0", metered(5), vec![step("decrement", i64::MAX, left(0)), plain("USAGE_EXCEEDED", json!({}))]),
            ("an exhausted key verifies at once when credits are added", metered(0), vec![
                plain("USAGE_EXCEEDED", json!({})), step("increment", 1, json!({})), plain("VALID", json!({})), plain("USAGE_EXCEEDED", json!({})),
            ]),
            ("the refill stays and is told", refill(&monthly), vec![step("set", 7, json!({ "remaining": 7, "refill": monthly }))]),
            ("what cannot be counted is refused and changes nothing", metered(5), vec![
                fail(OPERATION, request("increment", &json!(i64::MAX - 4)), over), step("increment", i64::MAX - 5, left(i64::MAX)),
            ]),
        ];
        scenarios.extend([5, 5_000].map(|before| {
            ("a balance is set, raised and lowered", metered(before), vec![
                plain("VALID", json!({})), step("set", 10, left(10)), step("increment", 5_000, left(5_010)), plain("VALID", json!({})),
                step("decrement", 9, left(5_000)), plain("VALID", json!({ "credits": 4_999 })),
            ])
        }));
        scenarios.extend([json!(null), json!("absent")].map(|value| {
            ("null makes it unlimited and ends the refill", refill(&daily), vec![
                step("set", value, json!({ "refill": null })), read(json!({ "credits": null })), step("set", 3, json!({ "remaining": 3, "refill": null })),
            ])
        }));
        for operation in ["increment", "decrement"] {
            let refused = |value: Value| fail(OPERATION, request(operation, &value), field("/properties/value", &[operation]));
            let unlimited = fail(OPERATION, request(operation, &json!(1)), field("/properties/operation", &["unlimited"]));
            scenarios.extend([
                ("a step needs a number", metered(5), vec![refused(json!(null)), refused(json!("absent")), read(metered(5))]),
                ("nothing is added to a key without end", json!({}), vec![unlimited, read(json!({ "credits": null }))]),
            ]);
        }
        kw.run(V2, scenarios).await;
    }

    async fn the_reply_is_the_balance_and_a_change_is_audited(kw) {
        let key = kw.create_key(metered(5)).await;
        for (value, told) in [(json!(7), json!({ "remaining": 7 })), (Value::Null, json!({ "remaining": null }))] {
            assert_eq!(*kw.v2(OPERATION, json!({ "keyId": key.id, "operation": "set", "value": value })).await.data(), told);
        }
        assert_eq!(kw.list_audit_events(&key.id).await, ["key.create", "key.update", "key.update"]);
    }

    async fn steps_among_verifications_lose_nothing_and_give_nothing(kw) {
        let key = kw.create_key(metered(3_000)).await;

        let (verified, changed) = join(
            join_all((0..40).map(|_| kw.verify(&key.key))),
            join_all((1..=6).map(|n| {
                let operation = if n % 2 == 0 { "increment" } else { "decrement" };
                kw.v2(OPERATION, json!({ "keyId": key.id, "operation": operation, "value": n * 10 }))
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

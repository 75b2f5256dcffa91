use serde_json::{Value, json};

use crate::on_both_stacks;
use crate::support::scenario::{
    Scenario, Step, call, error, fail, field, other, pass, plain, read,
};
use crate::support::version::Version::V1;
use crate::support::{Keyward, NOON, Stack};

const OPERATION: &str = "keys.updateRemaining";
const DAY: i64 = 24 * 3_600_000;

fn step(op: &str, value: impl Into<Value>, fields: Value) -> Step {
    call(OPERATION, json!({ "op": op, "value": value.into() }), fields)
}

fn uses(remaining: i64) -> Value {
    json!({ "remaining": remaining })
}

fn refilled(remaining: i64) -> Value {
    json!({ "remaining": remaining, "refill": { "interval": "daily", "amount": 9 } })
}

on_both_stacks! {
    async fn uses_are_set_raised_and_lowered(kw) {
        let mut scenarios: Vec<Scenario> = vec![
            ("a negative step goes the other way", uses(5), vec![step("increment", -2, uses(3)), step("decrement", -7, uses(10))]),
            ("null makes it unlimited and a number metered again", uses(5), vec![
                step("set", 0, uses(0)), plain("USAGE_EXCEEDED", json!({})), step("set", Value::Null, json!({})),
                plain("VALID", json!({ "remaining": null })), step("set", 3.0, uses(3)), other(read(json!({ "credits.remaining": 3 }))),
            ]),
            ("the refill waits until the key is metered again", refilled(5), vec![
                step("set", Value::Null, json!({})), read(json!({ "remaining": null, "refill.amount": 9 })), other(read(json!({ "credits": null }))),
                pass(DAY), step("set", 3, json!({})), read(uses(3)), pass(DAY), read(uses(9)),
            ]),
            ("the refill stays where a number is set", refilled(5), vec![step("set", 3, json!({})), read(uses(3)), pass(DAY), read(uses(9))]),
            ("more than can be counted is refused", uses(5), vec![
                fail(OPERATION, json!({ "op": "increment", "value": i64::MAX - 4 }), error(400, "BAD_REQUEST", &[])),
                step("increment", i64::MAX - 5, uses(i64::MAX)),
            ]),
        ];
        scenarios.extend([5, 5_000].map(|before| {
            ("uses are set, raised and lowered", uses(before), vec![
                plain("VALID", json!({})), step("set", 10, uses(10)), step("increment", 5_000, uses(5_010)), plain("VALID", json!({})),
                step("decrement", 9, uses(5_000)), plain("VALID", uses(4_999)), other(plain("VALID", json!({ "credits": 4_998 }))),
            ])
        }));
        scenarios.extend([
            ("decrement", json!(6)), ("decrement", json!(i64::MAX)), ("increment", json!(-6)), ("increment", json!(i64::MIN)),
            ("set", json!(0)), ("set", json!(-3)),
        ].map(|(op, value)| {
            ("there is nothing below 0", uses(5), vec![
                step(op, value, uses(0)), plain("USAGE_EXCEEDED", json!({})), step("increment", 1, json!({})), plain("VALID", json!({})),
            ])
        }));
        scenarios.extend([("set", json!(7)), ("set", json!(null)), ("increment", json!(1))].map(|(op, value)| {
            ("a change is told as one of the key", uses(5), vec![
                read(json!({ "updatedAt": null })), step(op, value, json!({})), read(json!({ "updatedAt": NOON.0 })),
            ])
        }));
        kw.run(V1, scenarios).await;
    }

    async fn what_makes_no_sense_is_refused_and_changes_nothing(kw) {
        let refused = |request: Value, message: &'static str| fail(OPERATION, request, field(message, &[]));
        let unlimited = |op: &str| fail(OPERATION, json!({ "op": op, "value": 1 }), error(400, "BAD_REQUEST", &["unlimited"]));
        kw.run(V1, vec![
            ("of a metered key", uses(5), vec![
                refused(json!({ "op": "set" }), "value: Required"),
                refused(json!({ "value": 1 }), "op: Required"),
                refused(
                    json!({ "op": "multiply", "value": 1 }),
                    "op: Invalid enum value. Expected 'increment' | 'decrement' | 'set', received 'multiply'",
                ),
                refused(json!({ "op": "increment", "value": null }), "value: increment and decrement require a number"),
                refused(json!({ "op": "decrement", "value": null }), "value: increment and decrement require a number"),
                // A number just below the 64-bit range is parsed as this one.
                fail(OPERATION, json!({ "op": "set", "value": -9_223_372_036_854_775_808.0 }), error(400, "BAD_REQUEST", &["value: "])),
                read(uses(5)),
            ]),
            ("of an unlimited key", json!({}), vec![unlimited("increment"), unlimited("decrement"), read(json!({ "remaining": null }))]),
        ]).await;
    }

    async fn the_reply_is_the_balance_and_a_change_is_audited(kw) {
        let key = kw.create_key(json!({ "credits": { "remaining": 5 } })).await;
        for (value, told) in [(json!(7), uses(7)), (Value::Null, json!({ "remaining": null }))] {
            assert_eq!(*kw.v1(OPERATION, json!({ "keyId": key.id, "op": "set", "value": value })).await.v1_body(), told);
        }
        assert_eq!(kw.list_audit_events(&key.id).await, ["key.create", "key.update", "key.update"]);
    }
}

#[tokio::test]
async fn what_one_replica_sets_binds_the_other_at_once() {
    let kw = Keyward::start(Stack::Replica).await;
    let other = kw.replica().await;
    for (before, set) in [(5, 2), (5_000, 2), (2, 5_000)] {
        let key = kw.create_key(json!({ "credits": { "remaining": before } })).await;
        other.verify_v1(&key.key, json!({})).await.assert_v1_code("VALID");

        kw.v1(OPERATION, json!({ "keyId": key.id, "op": "set", "value": set })).await.v1_body();

        let cost = |cost: i64| json!({ "remaining": { "cost": cost } });
        other.verify_v1(&key.key, cost(set + 1)).await.assert_v1_code("USAGE_EXCEEDED");
        other.verify_v1(&key.key, cost(set)).await.assert_v1_code("VALID");
    }
}

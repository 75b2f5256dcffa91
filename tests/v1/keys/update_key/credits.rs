//! What becomes of the uses left and of when they come back.

use serde_json::{Value, json};

use super::update;
use crate::on_both_stacks;
use crate::support::scenario::update as change;
use crate::support::scenario::{Scenario, Step, fail, field, other, pass, plain, read};
use crate::support::version::Version::V1;

const DAY: i64 = 24 * 3_600_000;

fn daily(amount: i64) -> Value {
    json!({ "interval": "daily", "amount": amount })
}

fn uses(remaining: i64) -> Value {
    json!({ "remaining": remaining })
}

fn refilled(remaining: i64) -> Value {
    json!({ "remaining": remaining, "refill": daily(9) })
}

/// The refill of the key in both versions, apart from when it has been.
fn refill(interval: &str, day: &Value) -> Step {
    read(json!({ "refill": { "interval": interval, "amount": 9, "refillDay": day } }))
}

on_both_stacks! {
    async fn uses_and_the_refill_are_set_and_cleared(kw) {
        let mut scenarios: Vec<Scenario> = vec![
            ("null makes it unlimited", uses(1), vec![
                plain("VALID", json!({})), plain("USAGE_EXCEEDED", json!({})), change(json!({ "remaining": null })),
                plain("VALID", json!({ "remaining": null })), other(read(json!({ "credits": null }))),
            ]),
            ("a refill is set and ended whether there is something to refill or not", json!({}), vec![
                change(json!({ "refill": daily(9) })), read(json!({ "remaining": null, "refill.amount": 9 })),
                change(json!({ "refill": null })), read(json!({ "remaining": null, "refill": null })), plain("VALID", json!({})),
            ]),
            ("a daily refill has no day and comes each day", uses(5), vec![
                change(json!({ "refill": daily(9) })), read(uses(5)), refill("daily", &Value::Null), other(read(json!({ "credits.refill": daily(9) }))),
                plain("VALID", json!({})), pass(DAY), read(uses(9)), plain("VALID", json!({})), pass(DAY), read(uses(9)),
            ]),
            ("a monthly refill is on the first where no day is said", uses(5), vec![
                change(json!({ "refill": { "interval": "monthly", "amount": 9 } })), refill("monthly", &json!(1)),
                change(json!({ "refill": { "interval": "monthly", "amount": 9, "refillDay": 31.0 } })), refill("monthly", &json!(31)),
            ]),
            ("null ends the refill and what is left stays", refilled(5), vec![
                change(json!({ "refill": null })), pass(DAY), read(json!({ "remaining": 5, "refill": null })),
            ]),
            ("uses are set and the refill stays", refilled(5), vec![change(uses(3)), read(uses(3)), pass(DAY), read(uses(9))]),
        ];
        scenarios.extend([(2, "VALID", 1), (0, "USAGE_EXCEEDED", 0), (-5, "USAGE_EXCEEDED", 0)].map(|(remaining, code, left)| {
            ("uses are set at once and never below 0", uses(5_000), vec![
                plain("VALID", json!({})), change(uses(remaining)), read(uses(remaining.max(0))), plain(code, uses(left)),
            ])
        }));
        kw.run(V1, scenarios).await;
    }

    async fn what_makes_no_sense_is_refused_and_nothing_changes(kw) {
        let refused = |mut change: Value, message: &'static str| {
            change["name"] = json!("renamed");
            fail("keys.updateKey", change, field(message, &[]))
        };
        kw.run(V1, vec![("a change that makes no sense", uses(5), vec![
            refused(json!({ "remaining": null, "refill": daily(9) }), "refill: requires remaining; null means unlimited"),
            refused(
                json!({ "refill": { "interval": "daily", "amount": 9, "refillDay": 1 } }),
                "refill: refillDay is allowed only with the interval monthly",
            ),
            refused(json!({ "remaining": 1.5 }), "remaining: Expected integer, received float"),
            read(json!({ "remaining": 5, "name": null })),
        ])]).await;
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

    async fn version_2_rejects_a_waiting_refill_only_when_the_request_sets_it(kw) {
        let key = kw.create_key(json!({ "credits": { "remaining": 5, "refill": daily(9) } })).await;
        update(&kw, &key, json!({ "remaining": null })).await.v1_body();
        let change = async |credits: Value| kw.update_key(&key.id, json!({ "credits": credits })).await;

        change(json!({})).await.data();
        change(json!({ "refill": daily(1) })).await.assert_field_error("/properties/credits/properties/refill");

        assert_eq!(kw.get_key_v1(&key.id).await["refill"]["amount"], 9);
        change(json!({ "refill": null })).await.data();
        assert_eq!(kw.get_key_v1(&key.id).await.get("refill"), None);
    }

    async fn version_2_lets_no_refill_wait_and_hands_on_one_that_does(kw) {
        let refill = json!({ "credits": { "remaining": 5, "refill": daily(9) } });
        let (dropped, waiting) = (kw.create_key(refill.clone()).await, kw.create_key(refill).await);
        for key in [&dropped, &waiting] {
            update(&kw, key, json!({ "remaining": null })).await.v1_body();
        }

        kw.update_key(&dropped.id, json!({ "credits": null })).await.data();
        let rerolled = kw.v2("keys.rerollKey", json!({ "keyId": waiting.id, "expiration": 0 })).await.text_of("keyId");

        assert_eq!(kw.get_key_v1(&dropped.id).await.get("refill"), None);
        assert_eq!(kw.get_key_v1(&rerolled).await["refill"]["amount"], 9);
        assert_eq!(kw.get_key(&rerolled).await.get("credits"), None);
    }
}

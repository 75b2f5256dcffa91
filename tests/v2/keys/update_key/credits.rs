//! What becomes of a balance and its refill.

use futures_util::future::{join, join_all};
use serde_json::{Value, json};

use crate::on_both_stacks;
use crate::support::scenario::{Scenario, error, fail, field, pass, plain, read, update, verify};
use crate::support::version::Version::V2;
use crate::support::{Keyward, Stack};

const HOUR: i64 = 3_600_000;

fn daily(amount: i64) -> Value {
    json!({ "interval": "daily", "amount": amount })
}

/// The field `credits` of a key or a change.
fn credits(credits: &Value) -> Value {
    json!({ "credits": credits })
}

fn metered(remaining: i64) -> Value {
    credits(&json!({ "remaining": remaining }))
}

fn refilled(remaining: i64) -> Value {
    credits(&json!({ "remaining": remaining, "refill": daily(9) }))
}

on_both_stacks! {
    async fn balance_and_refill_are_set_and_cleared(kw) {
        let left = |remaining: i64| read(json!({ "credits.remaining": remaining }));
        let monthly = json!({ "interval": "monthly", "amount": 50, "refillDay": 15 });
        let unlimited = || read(json!({ "credits": null }));
        let mut scenarios: Vec<Scenario> = vec![
            ("a key becomes metered and unlimited again", json!({}), vec![
                update(metered(2)), plain("VALID", json!({ "credits": 1 })), update(credits(&Value::Null)),
                plain("VALID", json!({ "credits": null })), unlimited(),
            ]),
            ("a balance is set and the refill stays", refilled(5), vec![update(metered(3)), read(refilled(3))]),
            ("a refill is set and the balance stays", metered(5), vec![
                update(credits(&json!({ "refill": daily(9) }))), read(refilled(5)),
                update(credits(&json!({ "refill": monthly }))), read(credits(&json!({ "remaining": 5, "refill": monthly }))),
            ]),
            ("a refill is cleared and the balance stays", refilled(5), vec![
                update(credits(&json!({ "refill": null }))), pass(24 * HOUR), read(metered(5)),
            ]),
            ("balance and refill are set together", json!({}), vec![update(refilled(3)), read(refilled(3))]),
            ("credits without a field change nothing of a metered key", refilled(5), vec![update(credits(&json!({}))), read(refilled(5))]),
            ("credits without a field change nothing of an unlimited key", json!({}), vec![update(credits(&json!({}))), unlimited()]),
            ("an exhausted key whose credits are restored verifies again", metered(0), vec![
                plain("USAGE_EXCEEDED", json!({})), update(metered(1)), plain("VALID", json!({})), plain("USAGE_EXCEEDED", json!({})),
            ]),
            ("a balance that is set when a refill is due is not refilled over", refilled(5), vec![
                pass(12 * HOUR), update(metered(3)), plain("VALID", json!({ "credits": 2 })),
                pass(24 * HOUR), plain("VALID", json!({ "credits": 8 })),
            ]),
            ("a new refill falls due in the next period", metered(5), vec![
                update(credits(&json!({ "refill": daily(9) }))), pass(12 * HOUR - 1), left(5), pass(1), left(9),
            ]),
        ];
        scenarios.extend([json!(null), json!({ "remaining": null })].map(|cleared| {
            ("null clears the refill with the balance", refilled(5), vec![update(credits(&cleared)), unlimited(), update(metered(3)), read(metered(3))])
        }));
        scenarios.extend([(5, 2), (5_000, 2), (2, 5_000), (5_000, 3_000)].map(|(before, set)| {
            ("a balance that is set is exactly what can be spent", metered(before), vec![
                plain("VALID", json!({})), update(metered(set)),
                verify(json!({ "credits": { "cost": set + 1 } }), "USAGE_EXCEEDED", json!({ "credits": set })),
                verify(json!({ "credits": { "cost": set } }), "VALID", json!({ "credits": 0 })),
            ])
        }));
        for balance in [5, 5_000] {
            scenarios.extend([
                ("a change of the refill keeps what is left", metered(balance), vec![
                    plain("VALID", json!({})), update(credits(&json!({ "refill": daily(9) }))), left(balance - 1),
                ]),
                ("a change without credits keeps what is left", metered(balance), vec![
                    plain("VALID", json!({})), update(json!({ "name": "for billing" })), left(balance - 1), plain("VALID", json!({ "credits": balance - 2 })),
                ]),
                ("a refused change keeps what is left", metered(balance), vec![
                    plain("VALID", json!({})),
                    fail("keys.updateKey", json!({ "credits": { "remaining": 1 }, "roles": ["nobody"] }), error(404, "role_not_found", &[])),
                    read(metered(balance - 1)),
                ]),
            ]);
        }
        kw.run(V2, scenarios).await;
    }

    async fn a_refill_that_makes_no_sense_is_refused_and_nothing_changes(kw) {
        let refill = "/properties/credits/properties/refill";
        let day = "/properties/credits/properties/refill/properties/refillDay";
        let refused = |change: Value, location: &'static str| {
            fail("keys.updateKey", json!({ "name": "for billing", "credits": change }), field(location, &[]))
        };
        kw.run(V2, vec![
            ("of a metered key", metered(5), vec![
                refused(json!({ "refill": { "interval": "monthly", "amount": 1 } }), day),
                refused(json!({ "refill": { "interval": "daily", "amount": 1, "refillDay": 1 } }), day),
                refused(json!({ "remaining": null, "refill": daily(1) }), refill),
                read(json!({ "credits": { "remaining": 5 }, "name": null })),
            ]),
            ("of an unlimited key", json!({}), vec![refused(json!({ "refill": daily(1) }), refill), read(json!({ "name": null }))]),
        ]).await;
    }

    async fn a_change_that_is_not_permitted_keeps_what_is_left(kw) {
        let may_not_create = kw.create_root_key(["api.*.update_key"]).await;
        for balance in [5, 5_000] {
            let key = kw.create_key(metered(balance)).await;
            kw.verify(&key.key).await.assert_code("VALID");
            let change = json!({ "keyId": key.id, "credits": { "refill": daily(9) }, "permissions": ["nothing"] });
            kw.v2_as(&may_not_create, "keys.updateKey", change).await.assert_error(403, "insufficient_permissions");
            assert_eq!(kw.get_key(&key.id).await["credits"], json!({ "remaining": balance - 1 }));
        }
    }

    async fn a_change_of_the_refill_among_verifications_loses_no_credit(kw) {
        let key = kw.create_key(metered(5_000)).await;

        let change = |amount: i64| credits(&json!({ "refill": daily(amount) }));
        let (verified, changed) = join(
            join_all((0..20).map(|_| kw.verify(&key.key))),
            join_all((1..=4).map(|amount| kw.update_key(&key.id, change(amount)))),
        )
        .await;

        for reply in verified {
            reply.assert_code("VALID");
        }
        for reply in changed {
            reply.data();
        }
        assert_eq!(kw.get_key(&key.id).await["credits"]["remaining"], 4_980);
    }
}

#[tokio::test]
async fn a_balance_that_one_replica_sets_binds_the_other_at_once() {
    let kw = Keyward::start(Stack::Replica).await;
    let other = kw.replica().await;
    for operation in ["keys.updateKey", "keys.updateCredits"] {
        for (before, set) in [(5, 2), (5_000, 2), (2, 5_000)] {
            let key = kw.create_key(metered(before)).await;
            other.verify(&key.key).await.assert_code("VALID");

            let request = match operation {
                "keys.updateKey" => json!({ "keyId": key.id, "credits": { "remaining": set } }),
                _ => json!({ "keyId": key.id, "operation": "set", "value": set }),
            };
            kw.v2(operation, request).await.data();

            let cost = |cost: i64| json!({ "credits": { "cost": cost } });
            other.verify_with(&key.key, cost(set + 1)).await.assert_code("USAGE_EXCEEDED");
            other.verify_with(&key.key, cost(set)).await.assert_code("VALID");
            kw.verify(&key.key).await.assert_code("USAGE_EXCEEDED");
        }
    }
}

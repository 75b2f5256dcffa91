//! Uses: how they are spent, and how they come back.

use serde_json::{Value, json};

use super::{MINUTE, issued, valid_at_once};
use crate::on_both_stacks;
use crate::support::scenario::{call, other, pass, plain, read, update, verify};
use crate::support::version::Version::V1;
use crate::support::{Keyward, Stack};

const HOUR: i64 = 3_600_000;
const DAY: i64 = 24 * HOUR;

fn cost(cost: i64) -> Value {
    json!({ "remaining": { "cost": cost } })
}

fn refill(refill: &Value) -> Value {
    json!({ "remaining": 1, "refill": refill })
}

on_both_stacks! {
    async fn uses_are_spent_and_refilled(kw) {
        let uses = |remaining: i64| json!({ "remaining": remaining });
        let left = |remaining: i64| read(json!({ "remaining": remaining }));
        let mut scenarios = vec![
            ("each verification spends one and tells the rest", uses(3), vec![
                plain("VALID", uses(2)), plain("VALID", uses(1)), plain("VALID", uses(0)), plain("USAGE_EXCEEDED", uses(0)),
                plain("USAGE_EXCEEDED", uses(0)), left(0),
            ]),
            ("cost 0 only looks and passes without uses", uses(1), vec![
                verify(cost(0), "VALID", uses(1)), plain("VALID", json!({})), verify(cost(0), "VALID", uses(0)),
            ]),
            ("a cost that is not said is one", uses(9), vec![verify(json!({ "remaining": {} }), "VALID", uses(8))]),
            ("a key without uses to count has no end and ignores the cost", json!({}), vec![verify(
                cost(i64::MAX), "VALID", json!({ "remaining": null }),
            )]),
            (
                "a refusal by limits spends no uses and the other way round",
                json!({ "remaining": 2, "ratelimit": { "limit": 10, "duration": MINUTE } }),
                vec![
                    verify(json!({ "ratelimits": [{ "name": "default", "cost": 11 }] }), "RATE_LIMITED", json!({
                        "remaining": null,
                    })),
                    verify(cost(3), "USAGE_EXCEEDED", json!({ "ratelimit.remaining": 10 })),
                    plain("VALID", json!({ "remaining": 1, "ratelimit.remaining": 9 })),
                ],
            ),
            ("uses that are given back count at once", uses(1), vec![
                plain("VALID", json!({})), plain("USAGE_EXCEEDED", json!({})),
                call("keys.updateRemaining", json!({ "op": "increment", "value": 2 }), json!({})), plain("VALID", uses(1)),
                update(uses(0)), plain("USAGE_EXCEEDED", json!({})), update(json!({ "remaining": null })),
                plain("VALID", json!({ "remaining": null })),
            ]),
            (
                "a daily refill falls due at midnight UTC, for both versions",
                refill(&json!({ "interval": "daily", "amount": 10 })),
                vec![
                    plain("VALID", uses(0)), plain("USAGE_EXCEEDED", uses(0)), pass(12 * HOUR - 1),
                    plain("USAGE_EXCEEDED", json!({})), pass(1), plain("VALID", uses(9)),
                    other(plain("VALID", json!({ "credits": 8 }))),
                ],
            ),
            (
                "a look finds a refill that is due", json!({ "remaining": 5, "refill": { "interval": "daily", "amount": 10 } }),
                vec![plain("VALID", uses(4)), pass(DAY), verify(cost(0), "VALID", uses(10)), plain("VALID", uses(9))],
            ),
            // It is the 10th of March.
            (
                "a monthly refill falls due on its day", refill(&json!({ "interval": "monthly", "amount": 10, "refillDay": 12 })),
                vec![pass(12 * HOUR + DAY), left(10), pass(20 * DAY), left(10)],
            ),
            ("and on the first where none is said", refill(&json!({ "interval": "monthly", "amount": 10 })), vec![
                pass(12 * HOUR + DAY), left(1), pass(20 * DAY), left(10), plain("VALID", uses(9)),
            ]),
        ];
        scenarios.extend([5, 999, 1_000, 5_000].map(|balance| {(
            "a cost that just fits is spent and one more spends nothing", uses(balance),
            vec![verify(cost(balance + 1), "USAGE_EXCEEDED", uses(balance)), verify(cost(balance), "VALID", uses(0))],
        )}));
        kw.run(V1, scenarios).await;
    }

    async fn a_refusal_by_credits_triggers_no_limit(kw) {
        let key = issued(&kw, json!({ "remaining": 2, "ratelimit": { "limit": 10, "duration": MINUTE } })).await;
        assert_eq!(kw.verify_v1(&key.key, cost(3)).await.headers.get("unkey-ratelimit-triggered"), None);
    }

    async fn twenty_at_once_spend_ten_uses_on_ten(kw) {
        let key = issued(&kw, json!({ "remaining": 10 })).await;
        assert_eq!(valid_at_once(&[&kw], &key.key, 20, json!({})).await, 10);
        assert_eq!(kw.get_key_v1(&key.id).await["remaining"], 0);
    }
}

#[tokio::test]
async fn twenty_at_once_on_two_replicas_spend_ten_uses_on_ten() {
    let kw = Keyward::start(Stack::Replica).await;
    let other = kw.replica().await;
    let key = issued(&kw, json!({ "remaining": 10 })).await;
    assert_eq!(valid_at_once(&[&kw, &other], &key.key, 20, json!({})).await, 10);
    assert_eq!(other.get_key_v1(&key.id).await["remaining"], 0);
}

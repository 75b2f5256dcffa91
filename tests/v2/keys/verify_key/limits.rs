//! Rate limits: which are checked, and how they count.

use futures_util::future::join;
use serde_json::{Value, json};

use super::valid_at_once;
use crate::on_both_stacks;
use crate::support::json::Fields as _;
use crate::support::scenario::{error, field, pass, plain, read, refuse, update, verify};
use crate::support::seed::IssuedKey;
use crate::support::version::Version::V2;
use crate::support::{Keyward, NOON, Stack};

pub const MINUTE: i64 = 60_000;

/// Fields of a key with one limit, a minute long.
fn limited(limit: i64, auto_apply: bool) -> Value {
    lasting(limit, MINUTE, auto_apply)
}

fn lasting(limit: i64, duration: i64, auto_apply: bool) -> Value {
    let limit = json!({ "name": "requests", "limit": limit, "duration": duration, "autoApply": auto_apply });
    json!({ "ratelimits": [limit] })
}

/// A request for one limit.
pub fn limit(name: &str, cost: i64) -> Value {
    limits(json!([{ "name": name, "cost": cost }]))
}

pub fn limits(items: Value) -> Value {
    [("ratelimits".to_owned(), items)].into_iter().collect::<serde_json::Map<_, _>>().into()
}

/// A request for a limit that is made for this call.
pub fn ad_hoc(limit: i64, duration: i64, cost: i64) -> Value {
    limits(json!([{ "name": "requests", "limit": limit, "duration": duration, "cost": cost }]))
}

/// Two keys of an identity that has these limits.
pub async fn keys_of_identity(kw: &Keyward, limits: &[(&str, i64, i64, bool)]) -> [IssuedKey; 2] {
    let first = kw.create_key(json!({ "externalId": "user_1" })).await;
    let second = kw.create_key(json!({ "externalId": "user_1" })).await;
    let identity = kw.get_key(&first.id).await["identity"]["id"].clone();
    kw.set_identity_limits(identity.as_str().unwrap(), limits).await;
    [first, second]
}

on_both_stacks! {
    async fn limits_of_a_key_count(kw) {
        let none = || json!({});
        let left = |remaining: i64| json!({ "ratelimits.0.remaining": remaining, "ratelimits.1": null });
        let standing = |remaining: i64, exceeded: bool| json!({
            "ratelimits.0.remaining": remaining, "ratelimits.0.exceeded": exceeded,
        });
        let both = json!({"ratelimits": [
            { "name": "wide", "limit": 10, "duration": MINUTE, "autoApply": true },
            { "name": "narrow", "limit": 1, "duration": MINUTE, "autoApply": true },
        ]});
        kw.run(V2, vec![
            ("a limit admits as many as it says and no more", limited(3, true), vec![
                plain("VALID", standing(2, false)), plain("VALID", standing(1, false)), plain("VALID", standing(0, false)),
                plain("RATE_LIMITED", standing(0, true)), plain("RATE_LIMITED", standing(0, true)),
            ]),
            ("a limit that does not apply by itself is checked on request, at a cost of one", limited(1, false), vec![
                plain("VALID", json!({ "ratelimits": null })), plain("VALID", json!({ "ratelimits": null })),
                plain("VALID", none()), verify(limit("requests", 1), "VALID", json!({ "ratelimits.0.autoApply": false })),
                verify(limit("requests", 1), "RATE_LIMITED", none()), plain("VALID", none()),
            ]),
            ("a limit costs one unless said", limited(10, false), vec![verify(
                limits(json!([{ "name": "requests" }])), "VALID", left(9),
            )]),
            ("a cost that just fits is taken and one more takes nothing", limited(10, false), vec![
                verify(limit("requests", 11), "RATE_LIMITED", left(0)), verify(limit("requests", 10), "VALID", left(0)),
            ]),
            ("a request changes the cost of a limit that applies by itself", limited(10, true), vec![
                verify(limit("requests", 4), "VALID", json!({
                    "ratelimits.0.remaining": 6, "ratelimits.0.autoApply": true, "ratelimits.1": null,
                })),
                plain("VALID", left(5)),
            ]),
            ("cost 0 only looks and passes at the limit", limited(2, true), vec![
                plain("VALID", none()), verify(limit("requests", 0), "VALID", left(1)), plain("VALID", none()),
                verify(limit("requests", 0), "VALID", left(0)), plain("RATE_LIMITED", none()),
            ]),
            ("several limits are taken together or not at all", both, vec![
                plain("VALID", none()),
                plain("RATE_LIMITED", json!({
                    "ratelimits.0.name": "narrow", "ratelimits.0.remaining": 0, "ratelimits.0.exceeded": true,
                    "ratelimits.1.name": "wide", "ratelimits.1.remaining": 9, "ratelimits.1.exceeded": false,
                })),
                verify(limits(json!([{ "name": "wide", "cost": 0 }, { "name": "narrow", "cost": 0 }])), "VALID", json!({
                    "ratelimits.1.remaining": 9,
                })),
            ]),
        ]).await;
    }

    async fn limits_made_for_one_call_count(kw) {
        let none = || json!({});
        let item = |limit: i64, duration: i64| json!({
            "ratelimits.0.limit": limit, "ratelimits.0.duration": duration, "ratelimits.1": null,
        });
        let metered = |credits: i64| json!({ "credits": { "remaining": credits }, "ratelimits": limited(1, true)["ratelimits"] });
        let unknown = |item: Value| { refuse(limits(json!([item])), error(412, "precondition_failed", &["Requests"])) };
        kw.run(V2, vec![
            ("a limit can be made for one call", none(), vec![
                verify(ad_hoc(5, MINUTE, 5), "VALID", json!({"ratelimits": [{
                    "id": "", "name": "requests", "limit": 5, "duration": MINUTE, "reset": NOON.0 + MINUTE, "remaining": 0,
                    "exceeded": false, "autoApply": false,
                }]})),
                verify(ad_hoc(5, MINUTE, 1), "RATE_LIMITED", json!({ "ratelimits.0.exceeded": true })),
                plain("VALID", json!({ "ratelimits": null })),
            ]),
            ("a limit made for one call stands in for the one of its name", limited(1, true), vec![
                verify(ad_hoc(20, 2 * MINUTE, 5), "VALID", json!({
                    "ratelimits.0.id": "", "ratelimits.0.limit": 20, "ratelimits.0.remaining": 15,
                    "ratelimits.0.autoApply": false, "ratelimits.1": null,
                })),
                plain("VALID", none()),
            ]),
            ("limit or duration alone say nothing", limited(10, false), vec![
                verify(limits(json!([{ "name": "requests", "limit": 1, "cost": 2 }])), "VALID", item(10, MINUTE)),
                verify(limits(json!([{ "name": "requests", "duration": 1, "cost": 2 }])), "VALID", item(10, MINUTE)),
                verify(limits(json!([{ "name": "requests", "limit": 0, "cost": 2 }])), "VALID", item(10, MINUTE)),
            ]),
            ("a limit that nobody knows is named and spends nothing", metered(1), vec![
                unknown(json!({ "name": "Requests" })), unknown(json!({ "name": "Requests", "limit": 5 })),
                unknown(json!({ "name": "Requests", "duration": MINUTE })), plain("VALID", none()),
            ]),
        ]).await;
    }

    async fn limits_are_bounded_and_change(kw) {
        let none = || json!({});
        let left = |remaining: i64| json!({ "ratelimits.0.remaining": remaining, "ratelimits.1": null });
        let metered = |credits: i64| json!({ "credits": { "remaining": credits }, "ratelimits": limited(1, true)["ratelimits"] });
        let (inline, stored) = (
            json!({ "name": "requests", "limit": 20, "duration": 2 * MINUTE, "cost": 2 }),
            |cost: i64| json!({ "name": "requests", "cost": cost }),
        );
        let duration = "/properties/ratelimits/items/properties/duration";
        let mut scenarios = vec![
            ("of two items with one name the last counts", limited(10, true), vec![
                verify(limits(json!([stored(1), inline])), "VALID", left(18)),
                verify(limits(json!([inline, stored(3)])), "VALID", left(7)),
            ]),
            ("a limit of 0 admits nothing", limited(10, true), [0, 1].map(|cost| {
                let told = json!({ "ratelimits.0.limit": 0, "ratelimits.0.remaining": 0, "ratelimits.0.exceeded": true });
                verify(ad_hoc(0, MINUTE, cost), "RATE_LIMITED", told)
            }).to_vec()),
            ("a window made for one call is a second long at least", none(), vec![
                refuse(ad_hoc(5, 999, 1), field(duration, &["duration", "1000"])), verify(ad_hoc(5, 1000, 1), "VALID", none()),
            ]),
            ("a refusal by limits spends no credits", metered(5), vec![
                plain("VALID", none()), plain("RATE_LIMITED", json!({ "credits": 4 })), read(json!({ "credits.remaining": 4 })),
            ]),
            ("limits that change apply at once", limited(1, true), vec![
                plain("VALID", none()), plain("RATE_LIMITED", none()), update(json!({ "ratelimits": [] })),
                plain("VALID", none()),
            ]),
            ("a changed limit keeps the count and a changed duration does not", limited(10, true), vec![
                verify(limit("requests", 5), "VALID", none()), update(limited(5, true)), plain("RATE_LIMITED", none()),
                update(limited(7, true)), plain("VALID", left(1)), update(lasting(5, 2 * MINUTE, true)), plain("VALID", left(4)),
            ]),
        ];
        scenarios.extend([1, (1 << 45) - 1, 1 << 45, i64::MAX - 1].map(|limit| {(
            "a cost above the limit is refused however large both are", none(),
            vec![verify(ad_hoc(limit, MINUTE, limit + 1), "RATE_LIMITED", none())],
        )}));
        kw.run(V2, scenarios).await;
    }

    /// When windows end, slide and begin anew.
    async fn windows_end_and_slide(kw) {
        let none = || json!({});
        let full = || verify(limit("requests", 10), "VALID", none());
        let ends = |minutes: i64| plain("VALID", json!({ "ratelimits.0.reset": NOON.0 + minutes * MINUTE }));
        let mut each = Vec::new();
        for (name, duration) in [("requests", MINUTE), ("Requests", MINUTE), ("requests", 2 * MINUTE), ("requests:60000", MINUTE)] {
            let one = limits(json!([{ "name": name, "limit": 1, "duration": duration }]));
            each.extend([verify(one.clone(), "VALID", none()), verify(one, "RATE_LIMITED", none())]);
        }
        kw.run(V2, vec![
            ("the end of the current window is told", limited(10, true), vec![
                ends(1), pass(1), ends(1), pass(MINUTE - 2), ends(1), pass(1), ends(2), pass(MINUTE), ends(3),
            ]),
            // What was taken in the window before counts by the share that is still covered.
            ("the window slides", limited(10, true), vec![
                full(), pass(MINUTE - 1), plain("RATE_LIMITED", none()), pass(1), plain("RATE_LIMITED", none()), pass(1),
                plain("VALID", none()), pass(5_999), plain("RATE_LIMITED", none()), pass(1), plain("VALID", none()),
                pass(MINUTE - 6_001 - 1), verify(limit("requests", 0), "VALID", json!({ "ratelimits.0.remaining": 8 })),
            ]),
            ("after two windows nothing counts any more", limited(10, true), vec![full(), pass(2 * MINUTE), full()]),
            ("each name and each duration counts for itself", none(), each),
        ]).await;
    }

    async fn limits_are_told_by_name_in_order(kw) {
        let own = |name: &str| json!({ "name": name, "limit": 10, "duration": MINUTE, "autoApply": true });
        let hidden = json!({ "name": "hidden", "limit": 10, "duration": MINUTE });
        let fields = json!({ "externalId": "user_1", "ratelimits": [own("writes"), own("Zürich"), hidden] });
        let key = kw.create_key(fields).await;
        let identity = kw.get_key(&key.id).await["identity"]["id"].clone();
        kw.set_identity_limits(identity.as_str().unwrap(), &[("reads", 10, MINUTE, true)]).await;

        let asked = limits(json!([{ "name": "spontaneous", "limit": 1, "duration": MINUTE }]));
        kw.verify_with(&key.key, asked).await.data().assert_has(json!({
            "ratelimits.0.name": "Zürich", "ratelimits.1.name": "reads", "ratelimits.2.name": "spontaneous",
            "ratelimits.3.name": "writes", "ratelimits.4": null,
        }));
    }

    async fn twenty_at_once_find_a_limit_of_ten_open_ten_times(kw) {
        let key = kw.create_key(limited(10, true)).await;
        assert_eq!(valid_at_once(&[&kw], &key.key, 20, json!({})).await, 10);
    }

    async fn a_limit_of_an_identity_holds_for_keys_at_once(kw) {
        let [first, second] = keys_of_identity(&kw, &[("requests", 10, MINUTE, true)]).await;
        let ask = |key: &IssuedKey| { let key = key.key.clone(); let kw = &kw; async move { valid_at_once(&[kw], &key, 10, json!({})).await } };
        let (one, two) = join(ask(&first), ask(&second)).await;
        assert_eq!(one + two, 10);
    }
}

#[tokio::test]
async fn replicas_share_the_limits_of_a_key_and_of_an_identity() {
    let kw = Keyward::start(Stack::Replica).await;
    let other = kw.replica().await;
    let key = kw.create_key(limited(10, true)).await;
    assert_eq!(valid_at_once(&[&kw, &other], &key.key, 20, json!({})).await, 10);

    let [first, second] = keys_of_identity(&kw, &[("requests", 1, MINUTE, true)]).await;
    kw.verify(&first.key).await.assert_code("VALID");
    other.verify(&second.key).await.assert_code("RATE_LIMITED");
}

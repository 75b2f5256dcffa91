//! Rate limits of a key: which are checked, how they count, and which is told.

use serde_json::{Value, json};

use super::{MINUTE, issued, valid_at_once};
use crate::on_both_stacks;
use crate::support::scenario::{Step, error, field, pass, plain, refuse, update, verify};
use crate::support::seed::IssuedKey;
use crate::support::version::Version::V1;
use crate::support::{Keyward, NOON, Reply, Stack};

/// Fields of a key with a limit named `default`, a minute long.
fn limited(limit: i64) -> Value {
    json!({ "ratelimit": { "limit": limit, "duration": MINUTE } })
}

fn limits(items: Value) -> Value {
    Value::Object([("ratelimits".to_owned(), items)].into_iter().collect())
}

/// A request for one limit.
fn limit(name: &str, cost: i64) -> Value {
    limits(json!([{ "name": name, "cost": cost }]))
}

/// A request for a limit that is made for this call.
fn inline(limit: i64, duration: i64, cost: i64) -> Value {
    limits(json!([{ "name": "default", "limit": limit, "duration": duration, "cost": cost }]))
}

fn triggered(reply: &Reply) -> Option<&str> {
    Some(reply.headers.get("unkey-ratelimit-triggered")?.to_str().unwrap())
}

fn left(remaining: i64) -> Value {
    json!({ "ratelimit.remaining": remaining })
}

fn standing(limit: i64, remaining: i64, minutes: i64) -> Value {
    json!({ "ratelimit": { "limit": limit, "remaining": remaining, "reset": NOON.0 + minutes * MINUTE } })
}

fn numbers() -> Vec<Step> {
    let mut steps = Vec::new();
    for (name, under, at, code, message) in [
        (
            "limit",
            -1,
            0,
            "RATE_LIMITED",
            "ratelimits.0.limit: Number must be greater than or equal to 0",
        ),
        (
            "duration",
            0,
            1,
            "VALID",
            "ratelimits.0: duration must be from 1 to 2592000000 with a limit",
        ),
        ("cost", -1, 0, "VALID", "ratelimits.0.cost: Number must be greater than or equal to 0"),
    ] {
        let request = |value: i64| {
            let mut item = json!({ "name": "default", "limit": 5, "duration": MINUTE, "cost": 1 });
            item[name] = value.into();
            limits(json!([item]))
        };
        steps.extend([
            refuse(request(under), field(message, &[])),
            verify(request(at), code, json!({})),
        ]);
    }
    steps.extend([
        refuse(
            json!({ "ratelimit": { "cost": -1 } }),
            field("ratelimit.cost: Number must be greater than or equal to 0", &[]),
        ),
        refuse(
            limits(json!([{ "name": "" }])),
            field("ratelimits.0.name: String must contain at least 1 character(s)", &[]),
        ),
    ]);
    steps
}

on_both_stacks! {
    async fn limits_of_a_key_count(kw) {
        let none = || json!({});
        let no_limit = || json!({ "ratelimit": null });
        let older = |cost: Value| json!({ "ratelimit": cost });
        let both = json!({ "ratelimit": { "cost": 9 }, "ratelimits": [{ "name": "default", "cost": 2 }] });
        kw.run(V1, vec![
            ("a limit admits as many as it says and no more", limited(2), vec![
                plain("VALID", standing(2, 1, 1)), plain("VALID", standing(2, 0, 1)), plain("RATE_LIMITED", standing(2, 0, 1)),
                plain("RATE_LIMITED", standing(2, 0, 1)),
            ]),
            ("a limit that is asked for costs one unless said", limited(10), vec![
                verify(limits(json!([{ "name": "default" }])), "VALID", left(9)), verify(limit("default", 4), "VALID", left(5)),
                plain("VALID", left(4)),
            ]),
            ("a cost that just fits is taken and one more takes nothing", limited(10), vec![
                verify(limit("default", 11), "RATE_LIMITED", none()), verify(limit("default", 10), "VALID", left(0)),
            ]),
            ("cost 0 only looks and passes at the limit", limited(2), vec![
                plain("VALID", none()), verify(limit("default", 0), "VALID", left(1)), plain("VALID", none()),
                verify(limit("default", 0), "VALID", left(0)), plain("RATE_LIMITED", none()),
            ]),
            ("the older field sets the cost of the limit named default", limited(10), vec![
                verify(older(json!({ "cost": 4 })), "VALID", left(6)), verify(older(json!({ "cost": 0 })), "VALID", left(6)),
                verify(older(json!({})), "VALID", left(5)), verify(both, "VALID", left(3)),
                verify(older(json!({ "cost": 4 })), "RATE_LIMITED", none()),
            ]),
            ("the older field means nothing to a key without a limit", none(), vec![verify(
                older(json!({ "cost": 4 })), "VALID", no_limit(),
            )]),
            ("a limit can be made for one call", none(), vec![
                verify(inline(5, MINUTE, 5), "VALID", standing(5, 0, 1)),
                verify(inline(5, MINUTE, 1), "RATE_LIMITED", standing(5, 0, 1)), plain("VALID", no_limit()),
            ]),
            ("a limit made for one call stands in for the one of its name, which is not touched", limited(1), vec![
                verify(inline(20, 2 * MINUTE, 5), "VALID", standing(20, 15, 2)), plain("VALID", json!({ "ratelimit.limit": 1 })),
            ]),
        ]).await;
    }

    async fn limits_that_are_asked_for_count(kw) {
        let none = || json!({});
        let (stored, made) = (json!({ "name": "default", "cost": 3 }), json!({
            "name": "default", "limit": 20, "duration": 2 * MINUTE, "cost": 2,
        }));
        let of_10 = |remaining: i64| json!({ "ratelimit.limit": 10, "ratelimit.remaining": remaining });
        let unknown = |item: Value, name: &str| refuse(limits(json!([item])), error(400, "BAD_REQUEST", &[name]));
        kw.run(V1, vec![
            ("limit or duration alone say nothing", limited(10), vec![
                verify(limits(json!([{ "name": "default", "limit": 1, "cost": 2 }])), "VALID", of_10(8)),
                verify(limits(json!([{ "name": "default", "duration": 1, "cost": 2 }])), "VALID", of_10(6)),
                verify(limits(json!([{ "name": "default", "limit": 0 }])), "VALID", of_10(5)),
            ]),
            (
                "a limit that nobody knows is named and spends nothing",
                json!({ "remaining": 1, "ratelimit": { "limit": 1, "duration": MINUTE } }),
                vec![
                    unknown(json!({ "name": "uploads" }), "uploads"),
                    unknown(json!({ "name": "uploads", "limit": 5 }), "uploads"),
                    unknown(json!({ "name": "uploads", "duration": MINUTE }), "uploads"),
                    unknown(json!({ "name": "Default" }), "Default"), plain("VALID", none()),
                ],
            ),
            ("of two items with one name the last counts", limited(10), vec![
                verify(limits(json!([stored, made])), "VALID", left(18)), verify(limits(json!([made, stored])), "VALID", left(7)),
            ]),
            ("a limit of 0 admits nothing", limited(10), vec![
                verify(inline(0, MINUTE, 0), "RATE_LIMITED", standing(0, 0, 1)),
                verify(inline(0, MINUTE, 1), "RATE_LIMITED", standing(0, 0, 1)), plain("VALID", left(9)),
            ]),
        ]).await;
    }

    async fn limits_are_bounded_and_slide(kw) {
        let none = || json!({});
        let no_limit = || json!({ "ratelimit": null });
        let narrow = |cost: i64| json!({ "name": "narrow", "limit": 1, "duration": MINUTE, "cost": cost });
        let item = |name: &str, limit: i64| json!({ "name": name, "limit": limit, "duration": MINUTE });
        let of_10 = |remaining: i64| json!({ "ratelimit.limit": 10, "ratelimit.remaining": remaining });
        kw.run(V1, vec![
            ("a smaller limit on a larger count leaves nothing and never less", none(), vec![
                verify(inline(10, MINUTE, 8), "VALID", none()), verify(inline(5, MINUTE, 0), "RATE_LIMITED", left(0)),
                verify(inline(5, MINUTE, 1), "RATE_LIMITED", left(0)),
            ]),
            ("numbers below what makes a limit are refused by their field", limited(10), numbers()),
            ("several limits are taken together or not at all", limited(10), vec![
                verify(limits(json!([narrow(1)])), "VALID", none()),
                verify(limits(json!([narrow(1)])), "RATE_LIMITED", json!({ "ratelimit.limit": 1 })),
                verify(limits(json!([narrow(0), { "name": "default", "cost": 0 }])), "VALID", of_10(9)),
            ]),
            ("where none is named default the first is told", none(), vec![
                verify(limits(json!([item("b", 2), item("a", 1)])), "VALID", json!({ "ratelimit.limit": 2 })),
                verify(limits(json!([item("c", 3), item("d", 4)])), "VALID", json!({ "ratelimit.limit": 3 })),
                verify(limits(json!([item("e", 5), item("default", 6)])), "VALID", json!({ "ratelimit.limit": 6 })),
            ]),
            // What was taken in the window before counts by the share that is still covered.
            ("the window slides and its end is told", limited(10), vec![
                verify(limit("default", 10), "VALID", none()), pass(MINUTE - 1), plain("RATE_LIMITED", standing(10, 0, 1)),
                pass(1), plain("RATE_LIMITED", json!({ "ratelimit.reset": NOON.0 + 2 * MINUTE })), pass(1),
                plain("VALID", json!({ "ratelimit.reset": NOON.0 + 2 * MINUTE })), pass(3 * MINUTE),
                verify(limit("default", 10), "VALID", none()),
            ]),
            ("a limit that changes counts at once", limited(1), vec![
                plain("VALID", none()), plain("RATE_LIMITED", none()), update(limited(3)), plain("VALID", left(1)),
                update(json!({ "ratelimit": null })), plain("VALID", no_limit()),
            ]),
        ]).await;
    }

    async fn the_limit_that_refuses_is_named_the_first_of_several_and_the_applied_ones_come_first(kw) {
        let key = issued(&kw, limited(1)).await;
        let none = |name: &str| json!({ "name": name, "limit": 0, "duration": MINUTE });
        let look = json!({ "name": "default", "cost": 0 });
        for (request, code, name, limit) in [
            (json!({}), "VALID", None, 1),
            (json!({}), "RATE_LIMITED", Some("default"), 1),
            (limits(json!([none("b"), none("a")])), "RATE_LIMITED", Some("default"), 1),
            (limits(json!([none("b"), none("a"), look])), "RATE_LIMITED", Some("b"), 0),
            (inline(0, MINUTE, 0), "RATE_LIMITED", Some("default"), 0),
        ] {
            let reply = kw.verify_v1(&key.key, request).await;
            assert_eq!(reply.assert_v1_code(code)["ratelimit"]["limit"], limit, "{reply}");
            assert_eq!(triggered(&reply), name, "{reply}");
        }
        let narrow = json!({ "name": "narrow", "limit": 0, "duration": MINUTE });
        let key = issued(&kw, limited(10)).await;
        assert_eq!(triggered(&kw.verify_v1(&key.key, limits(json!([narrow]))).await), Some("narrow"));
    }

    async fn of_whom_a_limit_is_not_known_is_told(kw) {
        let nobodys = issued(&kw, json!({})).await;
        let users = issued(&kw, json!({ "externalId": "user_1" })).await;
        let identity = kw.get_key_v1(&users.id).await["identity"]["id"].clone();
        let ask = async |key: &IssuedKey| kw.verify_v1(&key.key, limits(json!([{ "name": "uploads" }]))).await;

        ask(&users).await.assert_v1_error_about(400, "BAD_REQUEST", &["uploads", &users.id, identity.as_str().unwrap()]);
        let told = ask(&nobodys).await;
        told.assert_v1_error_about(400, "BAD_REQUEST", &["uploads", &nobodys.id]);
        assert!(!told.text.contains("identity"), "{told}");
    }

    async fn twenty_at_once_find_a_limit_of_ten_open_ten_times(kw) {
        let key = issued(&kw, limited(10)).await;
        assert_eq!(valid_at_once(&[&kw], &key.key, 20, json!({})).await, 10);
    }
}

#[tokio::test]
async fn twenty_at_once_on_two_replicas_find_a_limit_of_ten_open_ten_times() {
    let kw = Keyward::start(Stack::Replica).await;
    let other = kw.replica().await;
    let key = issued(&kw, limited(10)).await;
    assert_eq!(valid_at_once(&[&kw, &other], &key.key, 20, json!({})).await, 10);
}

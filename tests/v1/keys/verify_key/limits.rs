//! Rate limits of a key: which are checked, how they count, and which is told.

use serde_json::{Value, json};

use super::{MINUTE, issued, update, valid_at_once};
use crate::on_both_stacks;
use crate::support::seed::IssuedKey;
use crate::support::{Keyward, NOON, Reply, Stack};

/// A key with a limit named `default`, a minute long.
async fn limited_key(kw: &Keyward, limit: i64) -> IssuedKey {
    issued(kw, json!({ "ratelimit": { "limit": limit, "duration": MINUTE } })).await
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

on_both_stacks! {
    async fn a_limit_admits_as_many_as_it_says_and_no_more(kw) {
        let key = limited_key(&kw, 2).await;

        let mut told = Vec::new();
        for _ in 0..4 {
            let reply = kw.verify_v1(&key.key, json!({})).await;
            let code = reply.v1_body()["code"].clone();
            told.push(json!([code, reply.body["ratelimit"], triggered(&reply)]));
        }

        let standing = |remaining: i64| {
            json!({ "limit": 2, "remaining": remaining, "reset": NOON.0 + MINUTE })
        };
        assert_eq!(told, [
            json!(["VALID", standing(1), null]),
            json!(["VALID", standing(0), null]),
            json!(["RATE_LIMITED", standing(0), "default"]),
            json!(["RATE_LIMITED", standing(0), "default"]),
        ]);
    }

    async fn a_limit_that_is_asked_for_costs_one_unless_said(kw) {
        let key = limited_key(&kw, 10).await;

        let unsaid = kw.verify_v1(&key.key, limits(json!([{ "name": "default" }]))).await;
        let said = kw.verify_v1(&key.key, limit("default", 4)).await;
        let unasked = kw.verify_v1(&key.key, json!({})).await;

        assert_eq!(unsaid.assert_v1_code("VALID")["ratelimit"]["remaining"], 9);
        assert_eq!(said.assert_v1_code("VALID")["ratelimit"]["remaining"], 5);
        assert_eq!(unasked.assert_v1_code("VALID")["ratelimit"]["remaining"], 4);
    }

    async fn a_cost_that_just_fits_is_taken_and_one_more_takes_nothing(kw) {
        let key = limited_key(&kw, 10).await;

        let over = kw.verify_v1(&key.key, limit("default", 11)).await;
        let at = kw.verify_v1(&key.key, limit("default", 10)).await;

        over.assert_v1_code("RATE_LIMITED");
        assert_eq!(at.assert_v1_code("VALID")["ratelimit"]["remaining"], 0);
    }

    async fn cost_0_only_looks_and_passes_at_the_limit(kw) {
        let key = limited_key(&kw, 2).await;
        kw.verify_v1(&key.key, json!({})).await.assert_v1_code("VALID");

        let before = kw.verify_v1(&key.key, limit("default", 0)).await;
        kw.verify_v1(&key.key, json!({})).await.assert_v1_code("VALID");
        let after = kw.verify_v1(&key.key, limit("default", 0)).await;

        assert_eq!(before.assert_v1_code("VALID")["ratelimit"]["remaining"], 1);
        assert_eq!(after.assert_v1_code("VALID")["ratelimit"]["remaining"], 0);
        kw.verify_v1(&key.key, json!({})).await.assert_v1_code("RATE_LIMITED");
    }

    async fn the_older_field_sets_the_cost_of_the_limit_named_default(kw) {
        let key = limited_key(&kw, 10).await;
        let plain = issued(&kw, json!({})).await;
        let cost = |cost: i64| json!({ "ratelimit": { "cost": cost } });

        let four = kw.verify_v1(&key.key, cost(4)).await;
        let none = kw.verify_v1(&key.key, cost(0)).await;
        let unsaid = kw.verify_v1(&key.key, json!({ "ratelimit": {} })).await;
        let mut both = limit("default", 2);
        both["ratelimit"] = json!({ "cost": 9 });
        let newer = kw.verify_v1(&key.key, both).await;
        let dear = kw.verify_v1(&key.key, cost(4)).await;
        let absent = kw.verify_v1(&plain.key, cost(4)).await;

        for (reply, left) in [(four, 6), (none, 6), (unsaid, 5), (newer, 3)] {
            assert_eq!(reply.assert_v1_code("VALID")["ratelimit"]["remaining"], left);
        }
        dear.assert_v1_code("RATE_LIMITED");
        assert_eq!(absent.assert_v1_code("VALID").get("ratelimit"), None);
    }

    async fn a_limit_can_be_made_for_one_call(kw) {
        let key = issued(&kw, json!({})).await;

        let admitted = kw.verify_v1(&key.key, inline(5, MINUTE, 5)).await;
        let refused = kw.verify_v1(&key.key, inline(5, MINUTE, 1)).await;
        let unasked = kw.verify_v1(&key.key, json!({})).await;

        let standing = json!({ "limit": 5, "remaining": 0, "reset": NOON.0 + MINUTE });
        assert_eq!(admitted.assert_v1_code("VALID")["ratelimit"], standing);
        assert_eq!(refused.assert_v1_code("RATE_LIMITED")["ratelimit"], standing);
        assert_eq!(unasked.assert_v1_code("VALID").get("ratelimit"), None);
    }

    async fn a_limit_made_for_one_call_stands_in_for_the_one_of_its_name(kw) {
        let key = limited_key(&kw, 1).await;

        let reply = kw.verify_v1(&key.key, inline(20, 2 * MINUTE, 5)).await;

        assert_eq!(
            reply.assert_v1_code("VALID")["ratelimit"],
            json!({ "limit": 20, "remaining": 15, "reset": NOON.0 + 2 * MINUTE })
        );
        // The other has not been touched.
        assert_eq!(kw.verify_v1(&key.key, json!({})).await.assert_v1_code("VALID")["ratelimit"]["limit"], 1);
    }

    async fn limit_or_duration_alone_say_nothing(kw) {
        let key = limited_key(&kw, 10).await;

        for (item, left) in [
            (json!({ "name": "default", "limit": 1, "cost": 2 }), 8),
            (json!({ "name": "default", "duration": 1, "cost": 2 }), 6),
            (json!({ "name": "default", "limit": 0 }), 5),
        ] {
            let reply = kw.verify_v1(&key.key, limits(json!([item]))).await;

            let told = &reply.assert_v1_code("VALID")["ratelimit"];
            assert_eq!((&told["limit"], &told["remaining"]), (&json!(10), &json!(left)));
        }
    }

    async fn a_limit_that_nobody_knows_is_named_and_spends_nothing(kw) {
        let key = issued(&kw, json!({
            "remaining": 1, "ratelimit": { "limit": 1, "duration": MINUTE },
        })).await;

        for item in [
            json!({ "name": "uploads" }),
            json!({ "name": "uploads", "limit": 5 }),
            json!({ "name": "uploads", "duration": MINUTE }),
            json!({ "name": "Default" }),
        ] {
            let reply = kw.verify_v1(&key.key, limits(json!([item]))).await;

            let message = reply.assert_v1_error(400, "BAD_REQUEST");
            assert!(message.contains(item["name"].as_str().unwrap()), "{message}");
        }
        kw.verify_v1(&key.key, json!({})).await.assert_v1_code("VALID");
    }

    async fn of_whom_a_limit_is_not_known_is_told(kw) {
        let nobodys = issued(&kw, json!({})).await;
        let users = issued(&kw, json!({ "externalId": "user_1" })).await;
        let identity = kw.get_key_v1(&users.id).await["identity"]["id"].clone();
        let ask = async |key: &IssuedKey| {
            let reply = kw.verify_v1(&key.key, limits(json!([{ "name": "uploads" }]))).await;
            reply.assert_v1_error(400, "BAD_REQUEST")
        };

        let (nobodys_told, users_told) = (ask(&nobodys).await, ask(&users).await);

        for named in ["uploads", &users.id, identity.as_str().unwrap()] {
            assert!(users_told.contains(named), "{users_told}");
        }
        assert!(nobodys_told.contains("uploads") && nobodys_told.contains(&nobodys.id));
        assert!(!nobodys_told.contains("identity"), "{nobodys_told}");
    }

    async fn of_two_items_with_one_name_the_last_counts(kw) {
        let key = limited_key(&kw, 10).await;
        let inline = json!({ "name": "default", "limit": 20, "duration": 2 * MINUTE, "cost": 2 });
        let stored = json!({ "name": "default", "cost": 3 });

        for (items, left) in [([&stored, &inline], 18), ([&inline, &stored], 7)] {
            let reply = kw.verify_v1(&key.key, limits(json!(items))).await;

            assert_eq!(reply.assert_v1_code("VALID")["ratelimit"]["remaining"], left);
        }
    }

    async fn a_limit_of_0_admits_nothing(kw) {
        let key = limited_key(&kw, 10).await;

        for cost in [0, 1] {
            let reply = kw.verify_v1(&key.key, inline(0, MINUTE, cost)).await;

            let told = &reply.assert_v1_code("RATE_LIMITED")["ratelimit"];
            assert_eq!((&told["limit"], &told["remaining"]), (&json!(0), &json!(0)));
            assert_eq!(triggered(&reply), Some("default"));
        }
        assert_eq!(kw.verify_v1(&key.key, json!({})).await.assert_v1_code("VALID")["ratelimit"]["remaining"], 9);
    }

    async fn a_smaller_limit_on_a_larger_count_leaves_nothing_and_never_less(kw) {
        let key = issued(&kw, json!({})).await;
        kw.verify_v1(&key.key, inline(10, MINUTE, 8)).await.assert_v1_code("VALID");

        for cost in [0, 1] {
            let reply = kw.verify_v1(&key.key, inline(5, MINUTE, cost)).await;
            assert_eq!(reply.v1_body()["ratelimit"]["remaining"], 0, "{}", reply.text);
        }
    }

    async fn numbers_below_what_makes_a_limit_are_refused_by_their_field(kw) {
        let key = limited_key(&kw, 10).await;
        let item = |field: &str, value: i64| {
            let mut item = json!({ "name": "default", "limit": 5, "duration": MINUTE, "cost": 1 });
            item[field] = value.into();
            limits(json!([item]))
        };

        for (field, under, at) in [("limit", -1, 0), ("duration", 0, 1), ("cost", -1, 0)] {
            let refused = kw.verify_v1(&key.key, item(field, under)).await;
            let message = refused.assert_v1_error(400, "BAD_REQUEST");
            let least = format!("ratelimits.0.{field}: Number must be greater than or equal to {at}");
            assert_eq!(message, least);
            kw.verify_v1(&key.key, item(field, at)).await.v1_body();
        }
        let older = json!({ "ratelimit": { "cost": -1 } });
        let message = kw.verify_v1(&key.key, older).await.assert_v1_error(400, "BAD_REQUEST");
        assert!(message.starts_with("ratelimit.cost: "), "{message}");
        let nameless = limits(json!([{ "name": "" }]));
        let message = kw.verify_v1(&key.key, nameless).await.assert_v1_error(400, "BAD_REQUEST");
        assert!(message.starts_with("ratelimits.0.name: "), "{message}");
    }

    async fn several_limits_are_taken_together_or_not_at_all(kw) {
        let key = limited_key(&kw, 10).await;
        let narrow = |cost: i64| {
            json!({ "name": "narrow", "limit": 1, "duration": MINUTE, "cost": cost })
        };
        kw.verify_v1(&key.key, limits(json!([narrow(1)]))).await.assert_v1_code("VALID");

        let refused = kw.verify_v1(&key.key, limits(json!([narrow(1)]))).await;
        let look = limits(json!([narrow(0), { "name": "default", "cost": 0 }]));
        let after = kw.verify_v1(&key.key, look).await;

        refused.assert_v1_code("RATE_LIMITED");
        assert_eq!(triggered(&refused), Some("narrow"));
        assert_eq!(refused.body["ratelimit"]["limit"], 1);
        assert_eq!(after.assert_v1_code("VALID")["ratelimit"]["limit"], 10);
        assert_eq!(after.body["ratelimit"]["remaining"], 9);
    }

    async fn of_those_that_refuse_the_first_is_told_and_the_applied_ones_come_first(kw) {
        let key = limited_key(&kw, 1).await;
        kw.verify_v1(&key.key, json!({})).await.assert_v1_code("VALID");
        let none = |name: &str| json!({ "name": name, "limit": 0, "duration": MINUTE });

        let all = kw.verify_v1(&key.key, limits(json!([none("b"), none("a")]))).await;
        let look = json!({ "name": "default", "cost": 0 });
        let asked = kw.verify_v1(&key.key, limits(json!([none("b"), none("a"), look]))).await;

        all.assert_v1_code("RATE_LIMITED");
        assert_eq!(triggered(&all), Some("default"));
        assert_eq!(all.body["ratelimit"]["limit"], 1);
        asked.assert_v1_code("RATE_LIMITED");
        assert_eq!(triggered(&asked), Some("b"));
        assert_eq!(asked.body["ratelimit"]["limit"], 0);
    }

    async fn where_none_is_named_default_the_first_is_told(kw) {
        let key = issued(&kw, json!({})).await;
        let item = |name: &str, limit: i64| json!({ "name": name, "limit": limit, "duration": MINUTE });

        for (items, told) in [
            (json!([item("b", 2), item("a", 1)]), 2),
            (json!([item("c", 3), item("d", 4)]), 3),
            (json!([item("e", 5), item("default", 6)]), 6),
        ] {
            let reply = kw.verify_v1(&key.key, limits(items)).await;
            assert_eq!(reply.assert_v1_code("VALID")["ratelimit"]["limit"], told, "{}", reply.text);
        }
    }

    async fn the_window_slides_and_its_end_is_told(kw) {
        let key = limited_key(&kw, 10).await;
        kw.verify_v1(&key.key, limit("default", 10)).await.assert_v1_code("VALID");

        // What was taken in the window before counts by the share that is still covered.
        let mut told = Vec::new();
        for ms in [MINUTE - 1, 1, 1] {
            kw.clock.advance_ms(ms);
            let reply = kw.verify_v1(&key.key, json!({})).await;
            let reset = reply.v1_body()["ratelimit"]["reset"].as_i64().unwrap() - NOON.0;
            told.push((reply.body["valid"] == true, reset / MINUTE));
        }
        kw.clock.advance_ms(3 * MINUTE);
        let later = kw.verify_v1(&key.key, limit("default", 10)).await;

        assert_eq!(told, [(false, 1), (false, 2), (true, 2)]);
        later.assert_v1_code("VALID");
    }

    async fn a_limit_that_changes_counts_at_once(kw) {
        let key = limited_key(&kw, 1).await;
        kw.verify_v1(&key.key, json!({})).await.assert_v1_code("VALID");
        kw.verify_v1(&key.key, json!({})).await.assert_v1_code("RATE_LIMITED");

        update(&kw, &key, json!({ "ratelimit": { "limit": 3, "duration": MINUTE } })).await;
        let raised = kw.verify_v1(&key.key, json!({})).await;
        update(&kw, &key, json!({ "ratelimit": null })).await;
        let free = kw.verify_v1(&key.key, json!({})).await;

        assert_eq!(raised.assert_v1_code("VALID")["ratelimit"]["remaining"], 1);
        assert_eq!(free.assert_v1_code("VALID").get("ratelimit"), None);
    }

    async fn twenty_at_once_find_a_limit_of_ten_open_ten_times(kw) {
        let key = limited_key(&kw, 10).await;

        let valid = valid_at_once(&[&kw], &key.key, 20, json!({})).await;

        assert_eq!(valid, 10);
    }
}

#[tokio::test]
async fn twenty_at_once_on_two_replicas_find_a_limit_of_ten_open_ten_times() {
    let kw = Keyward::start(Stack::Replica).await;
    let other = kw.replica().await;
    let key = limited_key(&kw, 10).await;

    let valid = valid_at_once(&[&kw, &other], &key.key, 20, json!({})).await;

    assert_eq!(valid, 10);
}

//! Rate limits: which are checked, and how they count.

use serde_json::{Value, json};

use super::valid_at_once;
use crate::on_both_stacks;
use crate::support::seed::IssuedKey;
use crate::support::{Keyward, NOON, Stack};

pub const MINUTE: i64 = 60_000;

/// A key with one limit, a minute long.
pub async fn limited_key(kw: &Keyward, limit: i64, auto_apply: bool) -> IssuedKey {
    kw.create_key(json!({ "ratelimits": [
        { "name": "requests", "limit": limit, "duration": MINUTE, "autoApply": auto_apply },
    ] }))
    .await
}

/// A request for one limit.
pub fn limit(name: &str, cost: i64) -> Value {
    json!({ "ratelimits": [{ "name": name, "cost": cost }] })
}

/// A request for a limit that is made for this call.
pub fn ad_hoc(limit: i64, duration: i64, cost: i64) -> Value {
    json!({ "ratelimits": [
        { "name": "requests", "limit": limit, "duration": duration, "cost": cost },
    ] })
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
    async fn a_limit_admits_as_many_as_it_says_and_no_more(kw) {
        let key = limited_key(&kw, 3, true).await;

        let mut told = Vec::new();
        for _ in 0..5 {
            let reply = kw.verify(&key.key).await;
            let limit = &reply.data()["ratelimits"][0];
            told.push(json!([reply.data()["code"], limit["remaining"], limit["exceeded"]]));
        }

        assert_eq!(
            told,
            [
                json!(["VALID", 2, false]),
                json!(["VALID", 1, false]),
                json!(["VALID", 0, false]),
                json!(["RATE_LIMITED", 0, true]),
                json!(["RATE_LIMITED", 0, true]),
            ]
        );
    }

    async fn a_limit_that_does_not_apply_by_itself_is_checked_when_it_is_asked_for(kw) {
        let key = limited_key(&kw, 1, false).await;

        for _ in 0..3 {
            let unasked = kw.verify(&key.key).await;
            unasked.assert_code("VALID");
            assert_eq!(unasked.data().get("ratelimits"), None);
        }
        let asked = kw.verify_with(&key.key, limit("requests", 1)).await;

        asked.assert_code("VALID");
        assert_eq!(asked.data()["ratelimits"][0]["autoApply"], false);
        kw.verify_with(&key.key, limit("requests", 1)).await.assert_code("RATE_LIMITED");
        kw.verify(&key.key).await.assert_code("VALID");
    }

    async fn a_limit_that_is_asked_for_costs_one_unless_said(kw) {
        let key = limited_key(&kw, 10, false).await;

        let reply =
            kw.verify_with(&key.key, json!({ "ratelimits": [{ "name": "requests" }] })).await;

        assert_eq!(reply.data()["ratelimits"][0]["remaining"], 9);
    }

    async fn a_cost_that_just_fits_is_taken_and_one_more_takes_nothing(kw) {
        let key = limited_key(&kw, 10, false).await;

        let over = kw.verify_with(&key.key, limit("requests", 11)).await;
        let at = kw.verify_with(&key.key, limit("requests", 10)).await;

        over.assert_code("RATE_LIMITED");
        assert_eq!(over.data()["ratelimits"][0]["remaining"], 0);
        at.assert_code("VALID");
        assert_eq!(at.data()["ratelimits"][0]["remaining"], 0);
    }

    async fn a_cost_above_the_limit_is_refused_however_large_both_are(kw) {
        let key = kw.create_key(json!({})).await;
        for limit in [1, (1 << 45) - 1, 1 << 45, i64::MAX - 1] {
            kw.verify_with(&key.key, ad_hoc(limit, MINUTE, limit + 1)).await.assert_code("RATE_LIMITED");
        }
    }

    async fn a_request_changes_the_cost_of_a_limit_that_applies_by_itself(kw) {
        let key = limited_key(&kw, 10, true).await;

        let reply = kw.verify_with(&key.key, limit("requests", 4)).await;

        let limits = reply.data()["ratelimits"].as_array().unwrap();
        assert_eq!(limits.len(), 1);
        assert_eq!((&limits[0]["remaining"], &limits[0]["autoApply"]), (&json!(6), &json!(true)));
        assert_eq!(kw.verify(&key.key).await.data()["ratelimits"][0]["remaining"], 5);
    }

    async fn cost_0_only_looks_and_passes_at_the_limit(kw) {
        let key = limited_key(&kw, 2, true).await;
        kw.verify(&key.key).await.assert_code("VALID");

        let before = kw.verify_with(&key.key, limit("requests", 0)).await;
        kw.verify(&key.key).await.assert_code("VALID");
        let after = kw.verify_with(&key.key, limit("requests", 0)).await;

        before.assert_code("VALID");
        assert_eq!(before.data()["ratelimits"][0]["remaining"], 1);
        after.assert_code("VALID");
        assert_eq!(after.data()["ratelimits"][0]["remaining"], 0);
        kw.verify(&key.key).await.assert_code("RATE_LIMITED");
    }

    async fn several_limits_are_taken_together_or_not_at_all(kw) {
        let key = kw
            .create_key(json!({ "ratelimits": [
            { "name": "wide", "limit": 10, "duration": MINUTE, "autoApply": true },
            { "name": "narrow", "limit": 1, "duration": MINUTE, "autoApply": true },
        ] }))
            .await;
        kw.verify(&key.key).await.assert_code("VALID");

        let refused = kw.verify(&key.key).await;

        let tell = |at: usize| {
            let limit = &refused.data()["ratelimits"][at];
            json!([limit["name"], limit["remaining"], limit["exceeded"]])
        };
        refused.assert_code("RATE_LIMITED");
        assert_eq!(tell(0), json!(["narrow", 0, true]));
        assert_eq!(tell(1), json!(["wide", 9, false]));
        let look = json!({ "ratelimits": [
            { "name": "wide", "cost": 0 }, { "name": "narrow", "cost": 0 },
        ] });
        assert_eq!(kw.verify_with(&key.key, look).await.data()["ratelimits"][1]["remaining"], 9);
    }

    async fn limits_are_told_by_name_in_order(kw) {
        let key = kw
            .create_key(json!({ "externalId": "user_1", "ratelimits": [
            { "name": "writes", "limit": 10, "duration": MINUTE, "autoApply": true },
            { "name": "Zürich", "limit": 10, "duration": MINUTE, "autoApply": true },
            { "name": "hidden", "limit": 10, "duration": MINUTE },
        ] }))
            .await;
        let identity = kw.get_key(&key.id).await["identity"]["id"].clone();
        kw.set_identity_limits(identity.as_str().unwrap(), &[("reads", 10, MINUTE, true)]).await;

        let reply = kw
            .verify_with(
                &key.key,
                json!({ "ratelimits": [
            { "name": "spontaneous", "limit": 1, "duration": MINUTE },
        ] }),
            )
            .await;

        let limits = reply.data()["ratelimits"].as_array().unwrap();
        let names: Vec<_> = limits.iter().map(|limit| limit["name"].as_str().unwrap()).collect();
        assert_eq!(names, ["Zürich", "reads", "spontaneous", "writes"]);
    }

    async fn a_limit_can_be_made_for_one_call(kw) {
        let key = kw.create_key(json!({})).await;

        let admitted = kw.verify_with(&key.key, ad_hoc(5, MINUTE, 5)).await;
        let refused = kw.verify_with(&key.key, ad_hoc(5, MINUTE, 1)).await;

        admitted.assert_code("VALID");
        assert_eq!(
            admitted.data()["ratelimits"],
            json!([{
                "id": "", "name": "requests", "limit": 5, "duration": MINUTE,
                "reset": NOON.0 + MINUTE, "remaining": 0, "exceeded": false, "autoApply": false,
            }])
        );
        refused.assert_code("RATE_LIMITED");
        assert_eq!(refused.data()["ratelimits"][0]["exceeded"], true);
        assert_eq!(kw.verify(&key.key).await.data().get("ratelimits"), None);
    }

    async fn a_limit_made_for_one_call_stands_in_for_the_one_of_its_name(kw) {
        let key = limited_key(&kw, 1, true).await;

        let reply = kw.verify_with(&key.key, ad_hoc(20, 2 * MINUTE, 5)).await;

        let limits = reply.data()["ratelimits"].as_array().unwrap();
        assert_eq!(limits.len(), 1);
        assert_eq!((&limits[0]["id"], &limits[0]["limit"]), (&json!(""), &json!(20)));
        assert_eq!((&limits[0]["remaining"], &limits[0]["autoApply"]), (&json!(15), &json!(false)));
        kw.verify(&key.key).await.assert_code("VALID");
    }

    async fn limit_or_duration_alone_say_nothing(kw) {
        let key = limited_key(&kw, 10, false).await;

        for item in [
            json!({ "name": "requests", "limit": 1, "cost": 2 }),
            json!({ "name": "requests", "duration": 1, "cost": 2 }),
            json!({ "name": "requests", "limit": 0, "cost": 2 }),
        ] {
            let reply = kw.verify_with(&key.key, json!({ "ratelimits": [item] })).await;

            reply.assert_code("VALID");
            let limit = &reply.data()["ratelimits"][0];
            assert_eq!((&limit["limit"], &limit["duration"]), (&json!(10), &json!(MINUTE)));
        }
    }

    async fn a_limit_that_nobody_knows_is_named_and_spends_nothing(kw) {
        let key = kw
            .create_key(json!({
                "credits": { "remaining": 1 },
                "ratelimits": [
                    { "name": "requests", "limit": 1, "duration": MINUTE, "autoApply": true },
                ],
            }))
            .await;

        for item in [
            json!({ "name": "Requests" }),
            json!({ "name": "Requests", "limit": 5 }),
            json!({ "name": "Requests", "duration": MINUTE }),
        ] {
            let reply = kw.verify_with(&key.key, json!({ "ratelimits": [item] })).await;

            let error = reply.assert_error(412, "precondition_failed");
            assert_eq!(error["title"], "Precondition Failed");
            assert!(error["detail"].as_str().unwrap().contains("Requests"), "{error}");
        }
        kw.verify(&key.key).await.assert_code("VALID");
    }

    async fn of_two_items_with_one_name_the_last_counts(kw) {
        let key = limited_key(&kw, 10, true).await;
        let ad_hoc_last = json!({ "ratelimits": [
            { "name": "requests", "cost": 1 },
            { "name": "requests", "limit": 20, "duration": 2 * MINUTE, "cost": 2 },
        ] });
        let stored_last = json!({ "ratelimits": [
            { "name": "requests", "limit": 20, "duration": 2 * MINUTE, "cost": 2 },
            { "name": "requests", "cost": 3 },
        ] });

        for (request, left) in [(ad_hoc_last, 18), (stored_last, 7)] {
            let reply = kw.verify_with(&key.key, request).await;

            let limits = reply.data()["ratelimits"].as_array().unwrap();
            assert_eq!(limits.len(), 1);
            assert_eq!(limits[0]["remaining"], left);
        }
    }

    async fn a_limit_of_0_admits_nothing(kw) {
        let key = limited_key(&kw, 10, true).await;

        for cost in [0, 1] {
            let reply = kw.verify_with(&key.key, ad_hoc(0, MINUTE, cost)).await;

            reply.assert_code("RATE_LIMITED");
            let limit = &reply.data()["ratelimits"][0];
            assert_eq!((&limit["limit"], &limit["remaining"]), (&json!(0), &json!(0)));
            assert_eq!(limit["exceeded"], true);
        }
    }

    async fn a_window_made_for_one_call_is_a_second_long_at_least(kw) {
        let key = kw.create_key(json!({})).await;

        let under = kw.verify_with(&key.key, ad_hoc(5, 999, 1)).await;
        let at = kw.verify_with(&key.key, ad_hoc(5, 1000, 1)).await;

        let message = under.assert_field_error("/properties/ratelimits/items/properties/duration");
        assert!(message.contains("duration") && message.contains("1000"), "{message}");
        at.assert_code("VALID");
    }

    async fn a_refusal_by_limits_spends_no_credits(kw) {
        let key = kw
            .create_key(json!({
                "credits": { "remaining": 5 },
                "ratelimits": [
                    { "name": "requests", "limit": 1, "duration": MINUTE, "autoApply": true },
                ],
            }))
            .await;
        kw.verify(&key.key).await.assert_code("VALID");

        let refused = kw.verify(&key.key).await;

        refused.assert_code("RATE_LIMITED");
        assert_eq!(refused.data()["credits"], 4);
        assert_eq!(kw.get_key(&key.id).await["credits"]["remaining"], 4);
    }

    async fn limits_that_change_apply_at_once(kw) {
        let key = limited_key(&kw, 1, true).await;
        kw.verify(&key.key).await.assert_code("VALID");
        kw.verify(&key.key).await.assert_code("RATE_LIMITED");

        kw.update_key(&key.id, json!({ "ratelimits": [] })).await.data();

        kw.verify(&key.key).await.assert_code("VALID");
    }

    async fn twenty_at_once_find_a_limit_of_ten_open_ten_times(kw) {
        let key = limited_key(&kw, 10, true).await;

        let valid = valid_at_once(&[&kw], &key.key, 20, json!({})).await;

        assert_eq!(valid, 10);
    }

    async fn a_limit_of_an_identity_holds_for_keys_at_once(kw) {
        let [first, second] = keys_of_identity(&kw, &[("requests", 10, MINUTE, true)]).await;

        let (one, two) = futures_util::future::join(
            valid_at_once(&[&kw], &first.key, 10, json!({})),
            valid_at_once(&[&kw], &second.key, 10, json!({})),
        )
        .await;

        assert_eq!(one + two, 10);
    }
}

#[tokio::test]
async fn twenty_at_once_on_two_replicas_find_a_limit_of_ten_open_ten_times() {
    let kw = Keyward::start(Stack::Replica).await;
    let other = kw.replica().await;
    let key = limited_key(&kw, 10, true).await;

    let valid = valid_at_once(&[&kw, &other], &key.key, 20, json!({})).await;

    assert_eq!(valid, 10);
}

#[tokio::test]
async fn replicas_share_the_limits_of_an_identity() {
    let kw = Keyward::start(Stack::Replica).await;
    let other = kw.replica().await;
    let [first, second] = keys_of_identity(&kw, &[("requests", 1, MINUTE, true)]).await;

    kw.verify(&first.key).await.assert_code("VALID");

    other.verify(&second.key).await.assert_code("RATE_LIMITED");
}

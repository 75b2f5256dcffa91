use serde_json::{Value, json};

use crate::on_both_stacks;
use crate::support::seed::limit_request;
use crate::support::{Keyward, NOON, Reply};

const MINUTE: i64 = 60_000;

/// Checks a limit of 10 in a minute, with these fields instead or besides.
async fn limit(kw: &Keyward, fields: Value) -> Reply {
    kw.v1("ratelimits.limit", limit_request("email.send", "user_1", fields)).await
}

/// Success and what is left.
fn told(reply: &Reply) -> (bool, i64) {
    let told = reply.v1_body();
    (told["success"].as_bool().unwrap(), told["remaining"].as_i64().unwrap())
}

on_both_stacks! {
    async fn the_reply_tells_the_limit_what_is_left_and_the_end_of_the_window(kw) {
        assert_eq!(
            *limit(&kw, json!({})).await.v1_body(),
            json!({ "success": true, "limit": 10, "remaining": 9, "reset": NOON.0 + MINUTE }),
        );
    }

    async fn cost_is_taken_as_a_whole_or_not_at_all_and_a_refusal_is_no_error(kw) {
        assert_eq!(told(&limit(&kw, json!({ "cost": 11 })).await), (false, 0));
        assert_eq!(told(&limit(&kw, json!({ "cost": 4.0 })).await), (true, 6));
        assert_eq!(told(&limit(&kw, json!({ "cost": 6 })).await), (true, 0));
        assert_eq!(told(&limit(&kw, json!({})).await), (false, 0));
        assert_eq!(told(&limit(&kw, json!({ "cost": 0 })).await), (true, 0));
    }

    async fn the_window_slides(kw) {
        limit(&kw, json!({ "cost": 10 })).await.v1_body();
        kw.clock.advance_ms(MINUTE + MINUTE / 2);
        assert_eq!(told(&limit(&kw, json!({ "cost": 5 })).await), (true, 0));
        assert_eq!(told(&limit(&kw, json!({})).await), (false, 0));
    }

    async fn without_a_namespace_it_is_the_one_named_default(kw) {
        kw.v1("ratelimits.limit", json!({ "identifier": "user_1", "limit": 10, "duration": MINUTE })).await.v1_body();
        let named = limit(&kw, json!({ "namespace": "default" })).await;
        let empty = limit(&kw, json!({ "namespace": "" })).await;
        assert_eq!((told(&named), told(&empty), told(&limit(&kw, json!({})).await)), ((true, 8), (true, 7), (true, 9)));
        assert_eq!(kw.list_audit_events("default").await, ["ratelimitNamespace.create"]);
    }

    async fn both_versions_count_in_the_same_windows(kw) {
        limit(&kw, json!({ "cost": 3 })).await.v1_body();
        kw.check_limit("email.send", "user_1", json!({ "cost": 2 })).await.data();
        assert_eq!(told(&limit(&kw, json!({})).await), (true, 4));
    }

    async fn what_is_accepted_and_of_no_effect_changes_no_counter(kw) {
        let resource = json!({ "type": "project", "id": "p_1", "name": "One", "meta": { "a": 1 } });
        let meta = json!({ "text": "a", "flag": true, "number": 1.5, "nothing": null });
        for (fields, left) in [
            (json!({}), 9),
            (json!({ "async": true }), 8),
            (json!({ "async": false }), 7),
            (json!({ "meta": meta }), 6),
            (json!({ "resources": [resource, { "type": "project", "id": "p_2" }] }), 5),
        ] {
            assert_eq!(told(&limit(&kw, fields).await), (true, left));
        }
        limit(&kw, json!({ "resources": [{ "type": "project" }] })).await.assert_v1_error(400, "BAD_REQUEST");
    }

    async fn each_identifier_counts_for_itself_the_empty_one_too(kw) {
        for identifier in ["", "user_1", "User_1", "user_1:60000"] {
            assert_eq!(told(&limit(&kw, json!({ "identifier": identifier, "cost": 10 })).await), (true, 0), "{identifier}");
        }
    }

    async fn an_override_of_the_very_identifier_precedes_a_pattern(kw) {
        limit(&kw, json!({ "identifier": "nobody" })).await.v1_body();
        for (identifier, limit) in [("user_*", 3), ("user_1", 2), ("user_10*", 4)] {
            kw.set_override("email.send", identifier, json!({ "limit": limit })).await;
        }

        for (identifier, applied) in [("user_1", 2), ("user_2", 3), ("user_100", 4), ("USER_1", 10), ("a user_1", 10)] {
            let reply = limit(&kw, json!({ "identifier": identifier })).await;

            assert_eq!(reply.v1_body()["limit"], applied, "{identifier}");
            assert_eq!(told(&reply), (true, applied - 1), "{identifier}");
        }
    }

    async fn an_override_of_nothing_blocks(kw) {
        limit(&kw, json!({})).await.v1_body();
        let request = json!({ "namespaceName": "email.send", "identifier": "user_1", "limit": 0, "duration": 1000 });
        kw.v1("ratelimits.setOverride", request).await.v1_body();
        let reply = limit(&kw, json!({})).await;
        assert_eq!((reply.v1_body()["limit"].clone(), told(&reply)), (json!(0), (false, 0)));
    }

    async fn a_namespace_is_made_by_who_may_make_it_and_may_limit_in_it(kw) {
        for (grant, lacking) in [
            ("ratelimit.*.limit", "ratelimit.*.create_namespace"),
            ("ratelimit.*.create_namespace", "ratelimit.*.limit"),
        ] {
            let root_key = kw.create_root_key([grant]).await;
            let request = limit_request("email.send", "user_1", json!({}));

            let reply = kw.v1_as(&root_key, "ratelimits.limit", request).await;

            reply.assert_v1_error_about(403, "INSUFFICIENT_PERMISSIONS", &[lacking]);
        }
        assert_eq!(kw.count_rows("namespaces").await, 0);
    }

    async fn a_permission_for_one_namespace_limits_in_no_other(kw) {
        limit(&kw, json!({})).await.v1_body();
        limit(&kw, json!({ "namespace": "sms.send" })).await.v1_body();
        let own = format!("ratelimit.{}.limit", kw.find_namespace_id("email.send").await);
        let root_key = kw.create_root_key_with(vec![own]).await;
        let ask = async |namespace: &str| {
            let request = limit_request(namespace, "user_1", json!({}));
            kw.v1_as(&root_key, "ratelimits.limit", request).await
        };

        assert_eq!(told(&ask("email.send").await), (true, 8));
        ask("sms.send").await.assert_v1_error(403, "INSUFFICIENT_PERMISSIONS");
        assert_eq!(told(&limit(&kw, json!({ "namespace": "sms.send" })).await), (true, 8));
    }

    async fn a_namespace_that_was_deleted_is_not_there(kw) {
        limit(&kw, json!({})).await.v1_body();
        kw.delete_namespace("email.send").await;
        limit(&kw, json!({})).await.assert_v1_error_about(404, "NOT_FOUND", &["email.send"]);
    }
}

use serde_json::{Value, json};

use crate::on_both_stacks;
use crate::support::seed::merge_fields;
use crate::support::{Keyward, Reply};

/// Uses the namespace `email.send`. Returns its id.
async fn used(kw: &Keyward) -> String {
    kw.check_limit("email.send", "nobody", json!({})).await.data();
    kw.find_namespace_id("email.send").await
}

async fn set(kw: &Keyward, fields: Value) -> Reply {
    let five = json!({ "identifier": "user_1", "limit": 5, "duration": 60_000 });
    kw.v1("ratelimits.setOverride", merge_fields(five, fields)).await
}

async fn get(kw: &Keyward) -> Value {
    let query = "namespaceName=email.send&identifier=user_1";
    kw.v1_get("ratelimits.getOverride", query).await.v1_body().clone()
}

async fn applied(kw: &Keyward, identifier: &str) -> Value {
    kw.check_limit("email.send", identifier, json!({ "cost": 0 })).await.data()["limit"].clone()
}

on_both_stacks! {
    async fn the_reply_is_the_id_and_the_override_applies_at_once(kw) {
        used(&kw).await;
        assert_eq!(applied(&kw, "user_1").await, 10);

        let reply = set(&kw, json!({ "namespaceName": "email.send" })).await;

        let id = reply.v1_body()["overrideId"].as_str().unwrap();
        assert_eq!(*reply.v1_body(), json!({ "overrideId": id }));
        assert!(id.starts_with("rlor_") && id.len() >= 21, "{id}");
        assert_eq!(applied(&kw, "user_1").await, 5);
        assert_eq!(applied(&kw, "user_10").await, 10);
    }

    async fn what_is_set_again_keeps_its_id_and_is_replaced_as_a_whole(kw) {
        used(&kw).await;
        let first = set(&kw, json!({ "namespaceName": "email.send", "async": true })).await;
        let id = first.v1_body()["overrideId"].clone();
        assert_eq!(get(&kw).await["async"], true);

        let second = set(&kw, json!({ "namespaceName": "email.send", "limit": 0, "duration": 1000 })).await;

        assert_eq!(second.v1_body()["overrideId"], id);
        assert_eq!(get(&kw).await, json!({ "id": id, "identifier": "user_1", "limit": 0, "duration": 1000, "async": false }));
        let event = "ratelimit.set_override";
        assert_eq!(kw.list_audit_events(id.as_str().unwrap()).await, [event, event]);
    }

    async fn the_namespace_goes_by_its_id_before_its_name(kw) {
        let id = used(&kw).await;
        kw.check_limit("sms.send", "nobody", json!({})).await.data();

        set(&kw, json!({ "namespaceId": id, "namespaceName": "sms.send" })).await.v1_body();

        assert_eq!(applied(&kw, "user_1").await, 5);
        let query = "namespaceName=sms.send&identifier=user_1";
        kw.v1_get("ratelimits.getOverride", query).await.assert_v1_error(404, "NOT_FOUND");
    }

    async fn without_a_namespace_it_is_refused_and_an_empty_one_is_none(kw) {
        used(&kw).await;

        for fields in [json!({}), json!({ "namespaceId": "", "namespaceName": "" })] {
            assert_eq!(
                set(&kw, fields).await.assert_v1_error(400, "BAD_REQUEST"),
                "You must provide a namespaceId or a namespaceName",
            );
        }
        set(&kw, json!({ "namespaceId": "", "namespaceName": "email.send" })).await.v1_body();
    }

    async fn a_namespace_is_never_made(kw) {
        set(&kw, json!({ "namespaceName": "email.send" })).await.assert_v1_error_about(404, "NOT_FOUND", &["email.send"]);
        assert_eq!(kw.count_rows("namespaces").await, 0);
    }

    async fn one_that_was_deleted_can_be_set_anew(kw) {
        used(&kw).await;
        let named = json!({ "namespaceName": "email.send" });
        set(&kw, named.clone()).await.v1_body();
        kw.v1("ratelimits.deleteOverride", json!({ "namespaceName": "email.send", "identifier": "user_1" })).await.v1_body();

        set(&kw, named).await.v1_body();

        assert_eq!(applied(&kw, "user_1").await, 5);
        assert_eq!(kw.count_rows("overrides").await, 1);
    }

    async fn a_pattern_may_have_eight_stars_and_no_more(kw) {
        used(&kw).await;
        let pattern = async |stars: usize| {
            let identifier = "a*".repeat(stars);
            set(&kw, json!({ "namespaceName": "email.send", "identifier": identifier })).await
        };

        pattern(9).await.assert_v1_fault("identifier", &["8"]);
        pattern(8).await.v1_body();
        assert_eq!(applied(&kw, "aaaaaaaa").await, 5);
    }
}

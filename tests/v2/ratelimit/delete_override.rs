use serde_json::json;

use crate::on_both_stacks;
use crate::support::{Keyward, NOON, Reply};

async fn delete(kw: &Keyward, identifier: &str) -> Reply {
    let request = json!({ "namespace": "email.send", "identifier": identifier });
    kw.v2("ratelimit.deleteOverride", request).await
}

on_both_stacks! {
    async fn it_stops_at_once_and_the_next_one_that_matches_applies(kw) {
        kw.check_limit("email.send", "user_1", json!({})).await.data();
        kw.set_override("email.send", "*", json!({ "limit": 5 })).await;
        let id = kw.set_override("email.send", "user_1", json!({ "limit": 6 })).await;
        let limit = async || kw.check_limit("email.send", "user_1", json!({})).await.data()["limit"].clone();
        assert_eq!(limit().await, 6);

        assert_eq!(*delete(&kw, "user_1").await.data(), json!({}));
        assert_eq!(limit().await, 5);
        delete(&kw, "*").await.data();
        assert_eq!(limit().await, 10);

        let events = ["ratelimit.delete_override", "ratelimit.set_override"];
        assert_eq!(kw.list_audit_events(&id).await, events);
    }

    async fn only_what_was_set_exactly_so_is_deleted(kw) {
        kw.check_limit("email.send", "user_1", json!({})).await.data();
        kw.set_override("email.send", "user_*", json!({})).await;

        for identifier in ["user_1", "USER_*", "user_", "*"] {
            delete(&kw, identifier).await.assert_error(404, "ratelimit_override_not_found");
        }
        delete(&kw, "user_*").await.data();
        delete(&kw, "user_*").await.assert_error(404, "ratelimit_override_not_found");
    }

    async fn one_that_has_expired_can_be_deleted(kw) {
        kw.check_limit("email.send", "user_1", json!({})).await.data();
        kw.set_override("email.send", "user_1", json!({ "expires": NOON.0 - 1 })).await;
        delete(&kw, "user_1").await.data();
        assert_eq!(kw.count_rows("overrides").await, 0);
    }

    async fn a_namespace_that_is_missing_precedes_the_permission(kw) {
        let nobody = kw.create_root_key(["ratelimit.*.set_override"]).await;
        let request = json!({ "namespace": "email.send", "identifier": "user_1" });

        let missing = kw.v2_as(&nobody, "ratelimit.deleteOverride", request.clone()).await;
        kw.check_limit("email.send", "user_1", json!({})).await.data();
        kw.set_override("email.send", "user_1", json!({})).await;
        kw.v2_as(&nobody, "ratelimit.deleteOverride", request).await.assert_error(403, "insufficient_permissions");
        kw.delete_namespace("email.send").await;

        missing.assert_error(404, "ratelimit_namespace_not_found");
        delete(&kw, "user_1").await.assert_error(404, "ratelimit_namespace_not_found");
        assert_eq!(kw.count_rows("overrides").await, 1);
    }
}

use serde_json::{Value, json};

use crate::on_both_stacks;
use crate::support::{Keyward, Reply};

async fn delete(kw: &Keyward, fields: Value) -> Reply {
    kw.v1("ratelimits.deleteOverride", fields).await
}

async fn applied(kw: &Keyward) -> Value {
    let reply = kw.check_limit("email.send", "user_1", json!({ "cost": 0 })).await;
    reply.data()["limit"].clone()
}

on_both_stacks! {
    async fn it_applies_no_more_at_once(kw) {
        applied(&kw).await;
        let id = kw.set_override("email.send", "user_1", json!({ "limit": 3 })).await;
        assert_eq!(applied(&kw).await, 3);
        let request = json!({ "namespaceName": "email.send", "identifier": "user_1" });

        assert_eq!(*delete(&kw, request.clone()).await.v1_body(), json!({}));

        assert_eq!(applied(&kw).await, 10);
        delete(&kw, request).await.assert_v1_error_about(404, "NOT_FOUND", &["user_1"]);
        let events = ["ratelimit.delete_override", "ratelimit.set_override"];
        assert_eq!(kw.list_audit_events(&id).await, events);
    }

    async fn a_pattern_goes_by_its_own_text_only(kw) {
        applied(&kw).await;
        kw.set_override("email.send", "user_*", json!({ "limit": 3 })).await;
        let ask = async |identifier: &str| {
            delete(&kw, json!({ "namespaceName": "email.send", "identifier": identifier })).await
        };

        for other in ["user_1", "*", "user_**"] {
            ask(other).await.assert_v1_error(404, "NOT_FOUND");
        }
        assert_eq!(applied(&kw).await, 3);
        ask("user_*").await.v1_body();

        assert_eq!(applied(&kw).await, 10);
    }

    async fn a_namespace_is_needed_and_must_be_there(kw) {
        let neither = delete(&kw, json!({ "identifier": "user_1", "namespaceName": "" })).await;
        let missing = delete(&kw, json!({ "identifier": "user_1", "namespaceName": "nowhere" })).await;
        assert_eq!(neither.assert_v1_error(400, "BAD_REQUEST"), "You must provide a namespaceId or a namespaceName");
        missing.assert_v1_error_about(404, "NOT_FOUND", &["nowhere"]);
    }
}

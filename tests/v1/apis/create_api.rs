use serde_json::json;

use crate::both;

both! {
    async fn the_reply_is_the_id_and_the_name(kw) {
        let reply = kw.v1("apis.createApi", json!({ "name": "payments" })).await;

        let id = reply.bare()["apiId"].as_str().unwrap();
        assert_eq!(*reply.bare(), json!({ "apiId": id, "name": "payments" }));
        assert!(id.starts_with("api_") && id.len() >= 20, "{id}");
    }

    async fn keys_can_be_made_in_it_at_once(kw) {
        let reply = kw.v1("apis.createApi", json!({ "name": "payments" })).await;

        let made = kw.v1("keys.createKey", json!({ "apiId": reply.bare()["apiId"] })).await;

        kw.verify_v1(made.bare()["key"].as_str().unwrap(), json!({})).await.is_v1("VALID");
    }

    async fn several_apis_may_have_one_name(kw) {
        let first = kw.v1("apis.createApi", json!({ "name": "payments" })).await;
        let second = kw.v1("apis.createApi", json!({ "name": "payments" })).await;

        assert_ne!(first.bare()["apiId"], second.bare()["apiId"]);
        assert_eq!(kw.rows("apis").await, 2);
    }

    async fn a_permission_for_one_api_makes_no_other(kw) {
        let root_key = kw.root_key(["api.api_1.create_api"]).await;

        let reply = kw.v1_as(&root_key, "apis.createApi", json!({ "name": "payments" })).await;

        let message = reply.error_v1(403, "INSUFFICIENT_PERMISSIONS");
        assert!(message.contains("api.*.create_api"), "{message}");
        assert_eq!(kw.rows("apis").await, 0);
    }

    async fn the_creation_is_in_the_audit_log(kw) {
        let reply = kw.v1("apis.createApi", json!({ "name": "payments" })).await;

        let id = reply.bare()["apiId"].as_str().unwrap();
        assert_eq!(kw.events_of(id).await, ["api.create"]);
    }
}

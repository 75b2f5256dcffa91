use serde_json::json;

use crate::on_both_stacks;

on_both_stacks! {
    async fn the_reply_is_the_id_and_the_name(kw) {
        let reply = kw.v1("apis.createApi", json!({ "name": "payments" })).await;

        let id = reply.v1_body()["apiId"].as_str().unwrap();
        assert_eq!(*reply.v1_body(), json!({ "apiId": id, "name": "payments" }));
        assert!(id.starts_with("api_") && id.len() >= 20, "{id}");
    }

    async fn keys_can_be_made_in_it_at_once(kw) {
        let reply = kw.v1("apis.createApi", json!({ "name": "payments" })).await;

        let made = kw.v1("keys.createKey", json!({ "apiId": reply.v1_body()["apiId"] })).await;

        kw.verify_v1(made.v1_body()["key"].as_str().unwrap(), json!({})).await.assert_v1_code("VALID");
    }

    async fn several_apis_may_have_one_name(kw) {
        let first = kw.v1("apis.createApi", json!({ "name": "payments" })).await;
        let second = kw.v1("apis.createApi", json!({ "name": "payments" })).await;

        assert_ne!(first.v1_body()["apiId"], second.v1_body()["apiId"]);
        assert_eq!(kw.count_rows("apis").await, 2);
    }

    async fn a_permission_for_one_api_makes_no_other(kw) {
        let root_key = kw.create_root_key(["api.api_1.create_api"]).await;

        let reply = kw.v1_as(&root_key, "apis.createApi", json!({ "name": "payments" })).await;

        let message = reply.assert_v1_error(403, "INSUFFICIENT_PERMISSIONS");
        assert!(message.contains("api.*.create_api"), "{message}");
        assert_eq!(kw.count_rows("apis").await, 0);
    }

    async fn the_creation_is_in_the_audit_log(kw) {
        let reply = kw.v1("apis.createApi", json!({ "name": "payments" })).await;

        let id = reply.v1_body()["apiId"].as_str().unwrap();
        assert_eq!(kw.list_audit_events(id).await, ["api.create"]);
    }
}

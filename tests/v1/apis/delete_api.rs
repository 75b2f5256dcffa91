use serde_json::{Value, json};

use crate::on_both_stacks;
use crate::support::{Keyward, Reply};

async fn delete(kw: &Keyward, api: &str) -> Reply {
    kw.v1("apis.deleteApi", json!({ "apiId": api })).await
}

on_both_stacks! {
    async fn keys_of_a_deleted_api_stop_verifying_at_once(kw) {
        let api = kw.create_api().await;
        let (key, other) = (kw.create_key_in(&api, json!({})).await, kw.create_key(json!({})).await);
        kw.verify_v1(&key.key, json!({})).await.assert_v1_code("VALID");

        let reply = delete(&kw, &api).await;

        assert_eq!(*reply.v1_body(), json!({}));
        let verified = kw.verify_v1(&key.key, json!({})).await;
        let fields: Vec<_> = verified.assert_v1_code("NOT_FOUND").as_object().unwrap().keys().collect();
        assert_eq!(fields, ["code", "requestId", "valid"]);
        kw.verify_v1(&other.key, json!({})).await.assert_v1_code("VALID");
    }

    async fn neither_the_api_nor_its_keys_can_be_addressed_any_more(kw) {
        let api = kw.create_api().await;
        let key = kw.create_key_in(&api, json!({})).await;
        delete(&kw, &api).await.v1_body();

        let by_key = format!("keyId={}", key.id);
        let by_api = format!("apiId={api}");
        kw.v1_get("keys.getKey", &by_key).await.assert_v1_error(404, "NOT_FOUND");
        kw.v1_get("apis.getApi", &by_api).await.assert_v1_error(404, "NOT_FOUND");
        kw.v1_get("apis.listKeys", &by_api).await.assert_v1_error(404, "NOT_FOUND");
        for (operation, request) in [
            ("keys.createKey", json!({ "apiId": api })),
            ("keys.updateKey", json!({ "keyId": key.id, "name": "still there" })),
            ("keys.deleteKey", json!({ "keyId": key.id })),
            ("keys.whoami", json!({ "key": key.key })),
            ("apis.deleteKeys", json!({ "apiId": api })),
            ("apis.deleteApi", json!({ "apiId": api })),
        ] {
            kw.v1(operation, request).await.assert_v1_error(404, "NOT_FOUND");
        }
    }

    async fn a_protected_api_stays_with_its_keys(kw) {
        let api = kw.create_api().await;
        let key = kw.create_key_in(&api, json!({})).await;
        kw.update_api(&api, |settings| settings.is_delete_protected = true).await;

        let refused = delete(&kw, &api).await;

        let message = refused.assert_v1_error(412, "DELETE_PROTECTED");
        assert!(message.contains(&api), "{message}");
        kw.verify_v1(&key.key, json!({})).await.assert_v1_code("VALID");
        assert_eq!(kw.list_audit_events(&api).await, ["api.create", "api.update"]);

        kw.update_api(&api, |settings| settings.is_delete_protected = false).await;
        delete(&kw, &api).await.v1_body();
    }

    async fn a_permission_for_one_api_deletes_no_other(kw) {
        let (own, other) = (kw.create_api().await, kw.create_api().await);
        let root_key = kw.create_root_key([&*format!("api.{own}.delete_api")]).await;
        let ask = async |api: Value| {
            kw.v1_as(&root_key, "apis.deleteApi", json!({ "apiId": api })).await
        };

        ask(json!(other)).await.assert_v1_error(403, "INSUFFICIENT_PERMISSIONS");
        ask(json!("api_nowhere")).await.assert_v1_error(403, "INSUFFICIENT_PERMISSIONS");
        ask(json!(own)).await.v1_body();

        kw.v1_get("apis.getApi", &format!("apiId={other}")).await.v1_body();
    }

    async fn the_deletion_is_in_the_audit_log_once(kw) {
        let api = kw.create_api().await;

        delete(&kw, &api).await.v1_body();
        delete(&kw, &api).await.assert_v1_error(404, "NOT_FOUND");

        assert_eq!(kw.list_audit_events(&api).await, ["api.create", "api.delete"]);
    }
}

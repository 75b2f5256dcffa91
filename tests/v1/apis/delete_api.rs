use serde_json::{Value, json};

use crate::both;
use crate::support::{Keyward, Reply};

async fn delete(kw: &Keyward, api: &str) -> Reply {
    kw.v1("apis.deleteApi", json!({ "apiId": api })).await
}

both! {
    async fn keys_of_a_deleted_api_stop_verifying_at_once(kw) {
        let api = kw.api().await;
        let (key, other) = (kw.key_in(&api, json!({})).await, kw.key(json!({})).await);
        kw.verify_v1(&key.key, json!({})).await.is_v1("VALID");

        let reply = delete(&kw, &api).await;

        assert_eq!(*reply.bare(), json!({}));
        let verified = kw.verify_v1(&key.key, json!({})).await;
        let fields: Vec<_> = verified.is_v1("NOT_FOUND").as_object().unwrap().keys().collect();
        assert_eq!(fields, ["code", "requestId", "valid"]);
        kw.verify_v1(&other.key, json!({})).await.is_v1("VALID");
    }

    async fn neither_the_api_nor_its_keys_can_be_addressed_any_more(kw) {
        let api = kw.api().await;
        let key = kw.key_in(&api, json!({})).await;
        delete(&kw, &api).await.bare();

        let by_key = format!("keyId={}", key.id);
        let by_api = format!("apiId={api}");
        kw.v1_get("keys.getKey", &by_key).await.error_v1(404, "NOT_FOUND");
        kw.v1_get("apis.getApi", &by_api).await.error_v1(404, "NOT_FOUND");
        kw.v1_get("apis.listKeys", &by_api).await.error_v1(404, "NOT_FOUND");
        for (operation, request) in [
            ("keys.createKey", json!({ "apiId": api })),
            ("keys.updateKey", json!({ "keyId": key.id, "name": "still there" })),
            ("keys.deleteKey", json!({ "keyId": key.id })),
            ("keys.whoami", json!({ "key": key.key })),
            ("apis.deleteKeys", json!({ "apiId": api })),
            ("apis.deleteApi", json!({ "apiId": api })),
        ] {
            kw.v1(operation, request).await.error_v1(404, "NOT_FOUND");
        }
    }

    async fn a_protected_api_stays_with_its_keys(kw) {
        let api = kw.api().await;
        let key = kw.key_in(&api, json!({})).await;
        kw.set_api(&api, |settings| settings.delete_protection = true).await;

        let refused = delete(&kw, &api).await;

        let message = refused.error_v1(412, "DELETE_PROTECTED");
        assert!(message.contains(&api), "{message}");
        kw.verify_v1(&key.key, json!({})).await.is_v1("VALID");
        assert_eq!(kw.events_of(&api).await, ["api.create", "api.update"]);

        kw.set_api(&api, |settings| settings.delete_protection = false).await;
        delete(&kw, &api).await.bare();
    }

    async fn a_permission_for_one_api_deletes_no_other(kw) {
        let (own, other) = (kw.api().await, kw.api().await);
        let root_key = kw.root_key([&*format!("api.{own}.delete_api")]).await;
        let ask = async |api: Value| {
            kw.v1_as(&root_key, "apis.deleteApi", json!({ "apiId": api })).await
        };

        ask(json!(other)).await.error_v1(403, "INSUFFICIENT_PERMISSIONS");
        ask(json!("api_nowhere")).await.error_v1(403, "INSUFFICIENT_PERMISSIONS");
        ask(json!(own)).await.bare();

        kw.v1_get("apis.getApi", &format!("apiId={other}")).await.bare();
    }

    async fn the_deletion_is_in_the_audit_log_once(kw) {
        let api = kw.api().await;

        delete(&kw, &api).await.bare();
        delete(&kw, &api).await.error_v1(404, "NOT_FOUND");

        assert_eq!(kw.events_of(&api).await, ["api.create", "api.delete"]);
    }
}

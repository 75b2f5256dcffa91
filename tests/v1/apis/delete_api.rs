use serde_json::json;

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

        assert_eq!(*delete(&kw, &api).await.v1_body(), json!({}));

        let verified = kw.verify_v1(&key.key, json!({})).await;
        let fields: Vec<_> = verified.assert_v1_code("NOT_FOUND").as_object().unwrap().keys().collect();
        assert_eq!(fields, ["code", "requestId", "valid"]);
        kw.verify_v1(&other.key, json!({})).await.assert_v1_code("VALID");
    }

    async fn a_protected_api_stays_with_its_keys(kw) {
        let api = kw.create_api().await;
        let key = kw.create_key_in(&api, json!({})).await;
        kw.update_api(&api, |settings| settings.is_delete_protected = true).await;

        delete(&kw, &api).await.assert_v1_error_about(412, "DELETE_PROTECTED", &[&api]);

        kw.verify_v1(&key.key, json!({})).await.assert_v1_code("VALID");
        assert_eq!(kw.list_audit_events(&api).await, ["api.create", "api.update"]);

        kw.update_api(&api, |settings| settings.is_delete_protected = false).await;
        delete(&kw, &api).await.v1_body();
    }
}

use serde_json::json;

use crate::on_both_stacks;
use crate::support::Keyward;
use crate::support::seed::IssuedKey;

async fn delete(kw: &Keyward, key: &IssuedKey, permanent: bool) {
    let request = json!({ "keyId": key.id, "permanent": permanent });
    assert_eq!(*kw.v1("keys.deleteKey", request).await.v1_body(), json!({}));
}

on_both_stacks! {
    async fn a_deleted_key_verifies_no_more_in_either_version(kw) {
        for permanent in [false, true] {
            let key = kw.create_key(json!({})).await;
            kw.verify_v1(&key.key, json!({})).await.assert_v1_code("VALID");
            kw.verify(&key.key).await.assert_code("VALID");

            delete(&kw, &key, permanent).await;

            let reply = kw.verify_v1(&key.key, json!({})).await;
            let fields: Vec<_> = reply.assert_v1_code("NOT_FOUND").as_object().unwrap().keys().collect();
            assert_eq!(fields, ["code", "requestId", "valid"]);
            kw.verify(&key.key).await.assert_code("NOT_FOUND");
        }
    }

    async fn a_deleted_key_cannot_be_addressed(kw) {
        for permanent in [false, true] {
            let key = kw.create_key(json!({})).await;
            delete(&kw, &key, permanent).await;

            for (operation, request) in [
                ("keys.updateKey", json!({ "keyId": key.id, "name": "still there" })),
                ("keys.updateRemaining", json!({ "keyId": key.id, "op": "set", "value": 1 })),
                ("keys.deleteKey", json!({ "keyId": key.id })),
                ("keys.deleteKey", json!({ "keyId": key.id, "permanent": true })),
                ("keys.whoami", json!({ "key": key.key })),
            ] {
                kw.v1(operation, request).await.assert_v1_error(404, "NOT_FOUND");
            }
            let request = json!({ "keyId": key.id });
            kw.v2("keys.getKey", request).await.assert_error(404, "key_not_found");
        }
    }

    async fn unless_it_is_permanent_the_hash_stays_taken(kw) {
        let api = kw.create_api().await;
        let again = |key: &IssuedKey| json!([
            { "apiId": api, "hash": { "variant": "sha256_base64", "value": hash(&key.key) } },
        ]);
        let (soft, gone) = (kw.create_key_in(&api, json!({})).await, kw.create_key_in(&api, json!({})).await);
        kw.v1("keys.deleteKey", json!({ "keyId": soft.id })).await.v1_body();
        delete(&kw, &gone, true).await;

        let taken = kw.v1("migrations.createKeys", again(&soft)).await;
        let free = kw.v1("migrations.createKeys", again(&gone)).await;

        taken.assert_v1_error(409, "CONFLICT");
        free.v1_body();
        kw.verify_v1(&soft.key, json!({})).await.assert_v1_code("NOT_FOUND");
        kw.verify_v1(&gone.key, json!({})).await.assert_v1_code("VALID");
    }

    async fn a_permanent_deletion_leaves_no_trace_of_the_key(kw) {
        kw.create_role("editor", ["docs.read"]).await;
        let api = kw.create_api().await;
        kw.update_api(&api, |settings| settings.allows_recoverable_keys = true).await;
        let key = kw
            .create_key_v1(&api, json!({
                "externalId": "user_1", "roles": ["editor"], "permissions": ["docs.read"],
                "ratelimit": { "limit": 1, "duration": 1000 }, "recoverable": true,
            }))
            .await;

        delete(&kw, &key, true).await;

        for table in ["keys", "ratelimits", "key_roles", "key_permissions", "sealed_keys"] {
            assert_eq!(kw.count_rows(table).await, 0, "{table}");
        }
        for table in ["identities", "roles", "permissions", "apis"] {
            assert_eq!(kw.count_rows(table).await, 1, "{table}");
        }
    }

    async fn other_keys_of_the_api_stay(kw) {
        let api = kw.create_api().await;
        let (key, other) = (kw.create_key_in(&api, json!({})).await, kw.create_key_in(&api, json!({})).await);

        delete(&kw, &key, true).await;

        kw.verify_v1(&other.key, json!({})).await.assert_v1_code("VALID");
    }

    async fn a_root_key_for_one_api_deletes_no_key_of_another(kw) {
        let api = kw.create_api().await;
        let (own, other) = (kw.create_key_in(&api, json!({})).await, kw.create_key(json!({})).await);
        let root_key = kw.create_root_key([&*format!("api.{api}.delete_key")]).await;
        let request = |key: &IssuedKey| json!({ "keyId": key.id });

        let refused = kw.v1_as(&root_key, "keys.deleteKey", request(&other)).await;
        let deleted = kw.v1_as(&root_key, "keys.deleteKey", request(&own)).await;

        let message = refused.assert_v1_error(403, "INSUFFICIENT_PERMISSIONS");
        assert!(message.contains("api.*.delete_key"), "{message}");
        deleted.v1_body();
        kw.verify_v1(&other.key, json!({})).await.assert_v1_code("VALID");
    }

    async fn the_deletion_is_in_the_audit_log(kw) {
        for permanent in [false, true] {
            let key = kw.create_key(json!({})).await;

            delete(&kw, &key, permanent).await;

            assert_eq!(kw.list_audit_events(&key.id).await, ["key.create", "key.delete"]);
        }
    }
}

fn hash(key: &str) -> String {
    foundation::secret::KeyHash::compute(key).to_base64()
}

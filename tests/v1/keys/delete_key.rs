use serde_json::json;

use crate::on_both_stacks;
use crate::support::Keyward;
use crate::support::seed::IssuedKey;

async fn delete(kw: &Keyward, key: &IssuedKey, permanent: bool) {
    assert_eq!(
        *kw.v1("keys.deleteKey", json!({ "keyId": key.id, "permanent": permanent }))
            .await
            .v1_body(),
        json!({})
    );
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

    async fn unless_it_is_permanent_the_hash_stays_taken(kw) {
        let api = kw.create_api().await;
        let again = |key: &IssuedKey| json!([
            { "apiId": api, "hash": { "variant": "sha256_base64", "value": hash(&key.key) } },
        ]);
        let (soft, gone) = (kw.create_key_in(&api, json!({})).await, kw.create_key_in(&api, json!({})).await);
        kw.v1("keys.deleteKey", json!({ "keyId": soft.id })).await.v1_body();
        delete(&kw, &gone, true).await;

        kw.v1("migrations.createKeys", again(&soft)).await.assert_v1_error(409, "CONFLICT");
        kw.v1("migrations.createKeys", again(&gone)).await.v1_body();

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
}

fn hash(key: &str) -> String {
    foundation::secret::KeyHash::compute(key).to_base64()
}

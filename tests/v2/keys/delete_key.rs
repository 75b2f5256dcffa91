use futures_util::future::join_all;
use serde_json::{Value, json};

use crate::on_both_stacks;
use crate::support::Keyward;
use crate::support::seed::IssuedKey;

/// A key with something of everything that can hang on one.
async fn laden_key(kw: &Keyward) -> IssuedKey {
    kw.create_role("editor", []).await;
    kw.create_permission("documents.read").await;
    kw.create_key(json!({
        "externalId": "user_1", "roles": ["editor"], "permissions": ["documents.read"],
        "ratelimits": [{ "name": "requests", "limit": 1, "duration": 1000 }],
    }))
    .await
}

/// The rows of a key and of what hangs on it.
async fn rows(kw: &Keyward) -> [i64; 4] {
    [
        kw.count_rows("keys").await,
        kw.count_rows("ratelimits").await,
        kw.count_rows("key_roles").await,
        kw.count_rows("key_permissions").await,
    ]
}

on_both_stacks! {
    async fn the_reply_tells_nothing(kw) {
        for permanent in [false, true] {
            let key = kw.create_key(json!({})).await;
            let request = json!({ "keyId": key.id, "permanent": permanent });

            let reply = kw.v2("keys.deleteKey", request).await;

            assert_eq!(*reply.data(), json!({}));
        }
    }

    async fn a_deleted_key_stops_verifying_at_once(kw) {
        for fields in [json!({}), json!({ "permanent": true })] {
            let key = kw.create_key(json!({})).await;
            kw.verify(&key.key).await.assert_code("VALID");
            let mut request = fields;
            request["keyId"] = json!(key.id);

            kw.v2("keys.deleteKey", request).await.data();

            let reply = kw.verify(&key.key).await;
            assert_eq!(*reply.data(), json!({ "valid": false, "code": "NOT_FOUND" }));
        }
    }

    async fn a_deleted_key_cannot_be_addressed(kw) {
        for permanent in [false, true] {
            let key = kw.create_key(json!({})).await;
            let request = json!({ "keyId": key.id, "permanent": permanent });
            kw.v2("keys.deleteKey", request).await.data();

            for (operation, request) in [
                ("keys.getKey", json!({ "keyId": key.id })),
                ("keys.updateKey", json!({ "keyId": key.id, "name": "still there" })),
                ("keys.deleteKey", json!({ "keyId": key.id })),
                ("keys.deleteKey", json!({ "keyId": key.id, "permanent": true })),
                ("keys.whoami", json!({ "key": key.key })),
            ] {
                kw.v2(operation, request).await.assert_error(404, "key_not_found");
            }
        }
    }

    async fn unless_it_is_permanent_the_rows_stay(kw) {
        let key = laden_key(&kw).await;
        let before = rows(&kw).await;

        kw.v2("keys.deleteKey", json!({ "keyId": key.id })).await.data();

        assert_eq!((before, rows(&kw).await), ([1, 1, 1, 1], [1, 1, 1, 1]));
    }

    async fn a_permanent_deletion_leaves_no_trace_of_the_key(kw) {
        let key = laden_key(&kw).await;

        kw.v2("keys.deleteKey", json!({ "keyId": key.id, "permanent": true })).await.data();

        assert_eq!(rows(&kw).await, [0, 0, 0, 0]);
        for table in ["identities", "roles", "permissions", "apis"] {
            assert_eq!(kw.count_rows(table).await, 1, "{table}");
        }
    }

    async fn other_keys_of_the_api_stay(kw) {
        let api = kw.create_api().await;
        let (key, other) = (kw.create_key_in(&api, json!({})).await, kw.create_key_in(&api, json!({})).await);

        kw.v2("keys.deleteKey", json!({ "keyId": key.id, "permanent": true })).await.data();

        kw.verify(&other.key).await.assert_code("VALID");
    }

    async fn a_key_that_never_was_is_not_found(kw) {
        let reply = kw.v2("keys.deleteKey", json!({ "keyId": "key_nowhere" })).await;

        reply.assert_error(404, "key_not_found");
    }

    async fn who_may_not_delete_learns_that_the_key_exists(kw) {
        let api = kw.create_api().await;
        let key = kw.create_key_in(&api, json!({})).await;
        let root_key = kw.create_root_key(["api.*.update_key"]).await;

        let real = kw.v2_as(&root_key, "keys.deleteKey", json!({ "keyId": key.id })).await;
        let none = kw.v2_as(&root_key, "keys.deleteKey", json!({ "keyId": "key_nowhere" })).await;

        let detail = real.assert_error(403, "insufficient_permissions")["detail"].clone();
        let detail = detail.as_str().unwrap();
        assert!(detail.contains("api.*.delete_key"), "{detail}");
        assert!(detail.contains(&format!("api.{api}.delete_key")), "{detail}");
        none.assert_error(404, "key_not_found");
        kw.verify(&key.key).await.assert_code("VALID");
    }

    async fn a_permission_for_one_api_deletes_no_key_of_another(kw) {
        let api = kw.create_api().await;
        let (own, other) = (kw.create_key_in(&api, json!({})).await, kw.create_key(json!({})).await);
        let root_key = kw.create_root_key([&*format!("api.{api}.delete_key")]).await;

        let refused = kw.v2_as(&root_key, "keys.deleteKey", json!({ "keyId": other.id })).await;
        let deleted = kw.v2_as(&root_key, "keys.deleteKey", json!({ "keyId": own.id })).await;

        refused.assert_error(403, "insufficient_permissions");
        deleted.data();
        kw.verify(&other.key).await.assert_code("VALID");
    }

    async fn of_many_who_delete_it_at_once_one_does(kw) {
        for permanent in [false, true] {
            let key = kw.create_key(json!({})).await;
            let request: Value = json!({ "keyId": key.id, "permanent": permanent });

            let replies = join_all((0..8).map(|_| kw.v2("keys.deleteKey", request.clone()))).await;

            let (deleted, rest): (Vec<_>, Vec<_>) =
                replies.iter().partition(|reply| reply.status == 200);
            assert_eq!(deleted.len(), 1, "permanent: {permanent}");
            for reply in rest {
                reply.assert_error(404, "key_not_found");
            }
            assert_eq!(kw.list_audit_events(&key.id).await, ["key.create", "key.delete"]);
        }
    }

    async fn the_deletion_is_in_the_audit_log(kw) {
        for permanent in [false, true] {
            let key = kw.create_key(json!({ "name": "for billing" })).await;
            let request = json!({ "keyId": key.id, "permanent": permanent });

            kw.v2("keys.deleteKey", request).await.data();

            assert_eq!(kw.list_audit_events(&key.id).await, ["key.create", "key.delete"]);
        }
        assert_eq!(kw.list_audit_events("for billing").await.len(), 4);
    }
}

//! Roles and permissions of a key that is changed.

use futures_util::future::join_all;
use serde_json::json;

use crate::on_both_stacks;

on_both_stacks! {
    async fn roles_are_replaced_and_removed(kw) {
        kw.create_role("editor", ["documents.write"]).await;
        kw.create_role("reader", ["documents.read"]).await;
        let key = kw.create_key(json!({ "roles": ["editor"] })).await;

        kw.update_key(&key.id, json!({ "roles": ["reader", "reader"] })).await.data();
        let replaced = kw.get_key(&key.id).await;
        kw.update_key(&key.id, json!({ "roles": [] })).await.data();
        let removed = kw.get_key(&key.id).await;

        assert_eq!(replaced["roles"], json!(["reader"]));
        assert_eq!(replaced["permissions"], json!(["documents.read"]));
        assert_eq!((removed.get("roles"), removed.get("permissions")), (None, None));
    }

    async fn a_role_that_does_not_exist_is_named_and_nothing_changes(kw) {
        kw.create_role("editor", []).await;
        let key = kw.create_key(json!({ "roles": ["editor"] })).await;
        let before = kw.get_key(&key.id).await;

        let reply = kw.update_key(&key.id, json!({
            "name": "for billing", "externalId": "user_1", "roles": ["writer", "editor", "Editor"],
            "permissions": ["documents.read"], "credits": { "remaining": 5 },
            "ratelimits": [{ "name": "requests", "limit": 1, "duration": 1000 }],
        })).await;

        let detail = reply.assert_error(404, "role_not_found")["detail"].clone();
        let detail = detail.as_str().unwrap();
        assert!(detail.contains("writer") && detail.contains("Editor"), "{detail}");
        assert_eq!(kw.get_key(&key.id).await, before);
        assert_eq!((kw.count_rows("identities").await, kw.count_rows("permissions").await), (0, 0));
        assert_eq!(
            kw.list_audit_events(&key.id).await,
            ["authorization.connect_role_and_key", "key.create"]
        );
    }

    async fn permissions_of_the_key_itself_are_replaced_and_removed(kw) {
        kw.create_role("editor", ["documents.write"]).await;
        kw.create_permission("documents.read").await;
        kw.create_permission("documents.list").await;
        let key = kw.create_key(json!({ "roles": ["editor"], "permissions": ["documents.read"] })).await;

        kw.update_key(&key.id, json!({ "permissions": ["documents.list", "documents.list"] }))
            .await
            .data();
        let replaced = kw.get_key(&key.id).await["permissions"].clone();
        kw.update_key(&key.id, json!({ "permissions": [] })).await.data();
        let removed = kw.get_key(&key.id).await["permissions"].clone();

        assert_eq!(replaced, json!(["documents.list", "documents.write"]));
        assert_eq!(removed, json!(["documents.write"]));
    }

    async fn a_permission_that_is_taken_away_is_gone_at_once(kw) {
        kw.create_permission("documents.read").await;
        let key = kw.create_key(json!({ "permissions": ["documents.read"] })).await;
        let query = json!({ "permissions": "documents.read" });
        kw.verify_with(&key.key, query.clone()).await.assert_code("VALID");

        kw.update_key(&key.id, json!({ "permissions": [] })).await.data();

        kw.verify_with(&key.key, query).await.assert_code("INSUFFICIENT_PERMISSIONS");
    }

    async fn a_missing_permission_is_made_when_the_root_key_may(kw) {
        let key = kw.create_key(json!({})).await;
        let root_key = kw.create_root_key(["api.*.update_key", "rbac.*.create_permission"]).await;
        let request = json!({ "keyId": key.id, "permissions": ["documents.read"] });

        kw.v2_as(&root_key, "keys.updateKey", request).await.data();

        assert_eq!(kw.get_key(&key.id).await["permissions"], json!(["documents.read"]));
        assert_eq!(
            kw.list_audit_events("documents.read").await,
            ["authorization.connect_permission_and_key", "permission.create"]
        );
    }

    async fn a_missing_permission_is_refused_when_the_root_key_may_not_and_nothing_changes(kw) {
        kw.create_permission("documents.list").await;
        let key = kw.create_key(json!({ "permissions": ["documents.list"] })).await;
        let before = kw.get_key(&key.id).await;
        let root_key = kw.create_root_key(["api.*.update_key"]).await;
        let request = json!({
            "keyId": key.id, "name": "for billing", "externalId": "user_1", "enabled": false,
            "permissions": ["documents.read"],
        });

        let reply = kw.v2_as(&root_key, "keys.updateKey", request).await;

        let error = reply.assert_error(403, "insufficient_permissions");
        assert!(error["detail"].as_str().unwrap().contains("rbac.*.create_permission"), "{error}");
        assert_eq!(kw.get_key(&key.id).await, before);
        assert_eq!((kw.count_rows("identities").await, kw.count_rows("permissions").await), (0, 1));
    }

    async fn giving_what_exists_needs_no_further_permission(kw) {
        kw.create_role("editor", ["documents.read"]).await;
        let key = kw.create_key(json!({})).await;
        let root_key = kw.create_root_key(["api.*.update_key"]).await;
        let request =
            json!({ "keyId": key.id, "roles": ["editor"], "permissions": ["documents.read"] });

        kw.v2_as(&root_key, "keys.updateKey", request).await.data();

        assert_eq!(kw.get_key(&key.id).await["roles"], json!(["editor"]));
    }

    async fn keys_that_are_given_the_same_new_permission_at_once_all_get_it(kw) {
        let api = kw.create_api().await;
        let keys = join_all((0..8).map(|_| kw.create_key_in(&api, json!({})))).await;

        let change = json!({ "permissions": ["documents.read"] });
        let replies = join_all(keys.iter().map(|key| kw.update_key(&key.id, change.clone()))).await;

        for reply in replies {
            reply.data();
        }
        assert_eq!(kw.count_rows("permissions").await, 1);
        assert_eq!(kw.count_rows("key_permissions").await, 8);
    }
}

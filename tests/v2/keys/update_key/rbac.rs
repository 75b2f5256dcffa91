//! Roles and permissions of a key that is changed.

use futures_util::future::join_all;
use serde_json::json;

use crate::on_both_stacks;
use crate::support::scenario::{plain, read, update, verify};
use crate::support::version::Version::V2;

on_both_stacks! {
    async fn roles_and_permissions_of_the_key_itself_are_replaced_and_removed_at_once(kw) {
        kw.create_role("editor", ["documents.write"]).await;
        kw.create_role("reader", ["documents.read"]).await;
        kw.create_permission("documents.list").await;
        let needs = |slug: &str, code: &'static str| verify(json!({ "permissions": slug }), code, json!({}));
        kw.run(V2, vec![
            ("roles", json!({ "roles": ["editor"] }), vec![
                plain("VALID", json!({})), update(json!({ "roles": ["reader", "reader"] })), read(json!({ "roles": ["reader"], "permissions": ["documents.read"] })),
                update(json!({ "roles": [] })), read(json!({ "roles": null, "permissions": null })),
            ]),
            ("permissions", json!({ "roles": ["editor"], "permissions": ["documents.read"] }), vec![
                needs("documents.read", "VALID"),
                update(json!({ "permissions": ["documents.list", "documents.list"] })), read(json!({ "permissions": ["documents.list", "documents.write"] })),
                needs("documents.read", "INSUFFICIENT_PERMISSIONS"),
                update(json!({ "permissions": [] })), read(json!({ "permissions": ["documents.write"] })), needs("documents.list", "INSUFFICIENT_PERMISSIONS"),
            ]),
        ]).await;
    }

    async fn a_missing_role_or_permission_is_named_and_nothing_changes(kw) {
        kw.create_role("editor", []).await;
        kw.create_permission("documents.list").await;
        let key = kw.create_key(json!({ "roles": ["editor"], "permissions": ["documents.list"] })).await;
        let (before, events) = (kw.get_key(&key.id).await, kw.list_audit_events(&key.id).await);
        let updater = kw.create_root_key(["api.*.update_key"]).await;
        for (root_key, request, status, error, named) in [
            (
                &kw.root_key,
                json!({
                    "keyId": key.id, "name": "for billing", "externalId": "user_1", "roles": ["writer", "editor", "Editor"],
                    "permissions": ["documents.read"], "credits": { "remaining": 5 },
                    "ratelimits": [{ "name": "requests", "limit": 1, "duration": 1000 }],
                }),
                404, "role_not_found", &["writer", "Editor"][..],
            ),
            (
                &updater,
                json!({
                    "keyId": key.id, "name": "for billing", "externalId": "user_1", "enabled": false, "permissions": ["documents.read"],
                }),
                403, "insufficient_permissions", &["rbac.*.create_permission"],
            ),
        ] {
            kw.v2_as(root_key, "keys.updateKey", request).await.assert_error_about(status, error, named);
            assert_eq!(kw.get_key(&key.id).await, before, "{error}");
            assert_eq!((kw.count_rows("identities").await, kw.count_rows("permissions").await), (0, 1), "{error}");
            assert_eq!(kw.list_audit_events(&key.id).await, events, "{error}");
        }
    }

    async fn a_missing_permission_is_made_when_the_root_key_may_and_giving_what_exists_needs_no_further_permission(kw) {
        kw.create_role("editor", ["documents.write"]).await;
        for (grants, change, list) in [
            (&["api.*.update_key", "rbac.*.create_permission"][..], json!({ "permissions": ["documents.read"] }), "permissions"),
            (&["api.*.update_key"], json!({ "roles": ["editor"], "permissions": ["documents.write"] }), "roles"),
        ] {
            let key = kw.create_key(json!({})).await;
            let root_key = kw.create_root_key_with(grants.iter().map(|grant| (*grant).to_owned()).collect()).await;
            let mut request = change.clone();
            request["keyId"] = json!(key.id);
            kw.v2_as(&root_key, "keys.updateKey", request).await.data();
            assert_eq!(kw.get_key(&key.id).await[list], change[list]);
        }
        let events = ["authorization.connect_permission_and_key", "permission.create"];
        assert_eq!(kw.list_audit_events("documents.read").await, events);
    }

    async fn keys_that_are_given_the_same_new_permission_at_once_all_get_it(kw) {
        let api = kw.create_api().await;
        let keys = join_all((0..8).map(|_| kw.create_key_in(&api, json!({})))).await;

        let change = json!({ "permissions": ["documents.read"] });
        for reply in join_all(keys.iter().map(|key| kw.update_key(&key.id, change.clone()))).await {
            reply.data();
        }

        assert_eq!((kw.count_rows("permissions").await, kw.count_rows("key_permissions").await), (1, 8));
    }
}

use serde_json::{Value, json};

use crate::on_both_stacks;
use crate::support::seed::IssuedKey;
use crate::support::{Keyward, Reply};

async fn remove(kw: &Keyward, key: &IssuedKey, permissions: Value) -> Reply {
    kw.v1("keys.removePermissions", json!({ "keyId": key.id, "permissions": permissions })).await
}

/// A verification that asks for a permission.
fn needs(slug: &str) -> Value {
    json!({ "authorization": { "permissions": slug } })
}

/// A key with the permissions `docs.a` to `docs.d`, and the ids of these.
async fn planted(kw: &Keyward) -> (IssuedKey, Vec<String>) {
    let slugs = ["docs.a", "docs.b", "docs.c", "docs.d"];
    let mut ids = Vec::new();
    for slug in slugs {
        ids.push(kw.create_permission(slug).await);
    }
    (kw.create_key(json!({ "permissions": slugs })).await, ids)
}

on_both_stacks! {
    async fn every_one_that_is_named_is_taken_at_once(kw) {
        let (key, ids) = planted(&kw).await;
        for slug in ["docs.a", "docs.b", "docs.c"] {
            kw.verify_v1(&key.key, needs(slug)).await.assert_v1_code("VALID");
        }

        let items = json!([{ "id": ids[0] }, { "name": "docs.b" }, { "slug": "docs.c" }]);
        let reply = remove(&kw, &key, items).await;

        assert_eq!(reply.text, "{}");
        for slug in ["docs.a", "docs.b", "docs.c"] {
            kw.verify_v1(&key.key, needs(slug)).await.assert_v1_code("INSUFFICIENT_PERMISSIONS");
        }
        kw.verify_with(&key.key, json!({ "permissions": "docs.b" }))
            .await
            .assert_code("INSUFFICIENT_PERMISSIONS");
        assert_eq!(kw.get_key_v1(&key.id).await["permissions"], json!(["docs.d"]));
        assert_eq!(kw.count_rows("permissions").await, 4);
    }

    async fn of_an_id_and_a_name_the_id_counts(kw) {
        let (key, ids) = planted(&kw).await;

        remove(&kw, &key, json!([{ "id": ids[0], "name": "docs.b" }])).await.v1_body();

        let has = json!(["docs.b", "docs.c", "docs.d"]);
        assert_eq!(kw.get_key_v1(&key.id).await["permissions"], has);
    }

    async fn what_is_not_there_is_passed_over_and_never_made(kw) {
        let (key, _) = planted(&kw).await;
        kw.create_permission("docs.other").await;
        let items = json!([
            { "name": "docs.ghost" }, { "id": "perm_ghost" }, { "name": "docs.other" },
            { "name": "docs.new", "create": true }, { "name": "docs.a" },
        ]);

        let reply = remove(&kw, &key, items).await;

        assert_eq!(*reply.v1_body(), json!({}));
        let has = json!(["docs.b", "docs.c", "docs.d"]);
        assert_eq!(kw.get_key_v1(&key.id).await["permissions"], has);
        assert_eq!(kw.count_rows("permissions").await, 5);
    }

    async fn what_it_has_through_a_role_stays(kw) {
        kw.create_role("editor", ["docs.read"]).await;
        let key = kw.create_key(json!({ "roles": ["editor"], "permissions": ["docs.read"] })).await;

        remove(&kw, &key, json!([{ "name": "docs.read" }])).await.v1_body();

        kw.verify_v1(&key.key, needs("docs.read")).await.assert_v1_code("VALID");
    }

    async fn only_what_is_taken_is_recorded(kw) {
        let (key, _) = planted(&kw).await;
        let before = kw.list_audit_events(&key.id).await.len();

        remove(&kw, &key, json!([{ "name": "docs.a" }])).await.v1_body();
        remove(&kw, &key, json!([{ "name": "docs.a" }])).await.v1_body();

        assert_eq!(kw.list_audit_events(&key.id).await.len(), before + 1);
        let disconnect = "authorization.disconnect_permission_and_key".to_owned();
        assert!(kw.list_audit_events("docs.a").await.contains(&disconnect));
    }

    async fn the_right_to_take_is_all_it_needs(kw) {
        let (key, _) = planted(&kw).await;
        let root_key = kw.create_root_key(["rbac.*.remove_permission_from_key"]).await;
        let request = json!({ "keyId": key.id, "permissions": [{ "name": "docs.a" }] });

        kw.v1_as(&root_key, "keys.removePermissions", request).await.v1_body();

        kw.verify_v1(&key.key, needs("docs.a")).await.assert_v1_code("INSUFFICIENT_PERMISSIONS");
    }

    async fn an_item_that_names_nothing_is_refused_and_takes_nothing(kw) {
        let (key, _) = planted(&kw).await;

        let reply = remove(&kw, &key, json!([{ "name": "docs.a" }, {}])).await;

        let message = reply.assert_v1_error(400, "BAD_REQUEST");
        assert!(message.starts_with("permissions.1: "), "{message}");
        kw.verify_v1(&key.key, needs("docs.a")).await.assert_v1_code("VALID");
    }

    async fn a_key_that_is_not_there_is_named(kw) {
        let (key, _) = planted(&kw).await;
        kw.v1("keys.deleteKey", json!({ "keyId": key.id })).await.v1_body();

        for operation in ["keys.addPermissions", "keys.setPermissions", "keys.removePermissions"] {
            let request = json!({ "keyId": key.id, "permissions": [{ "name": "docs.a" }] });
            let message = kw.v1(operation, request).await.assert_v1_error(404, "NOT_FOUND");
            assert!(message.contains(&key.id), "{operation}: {message}");
        }
    }
}

use serde_json::{Value, json};

use crate::on_both_stacks;
use crate::support::seed::IssuedKey;
use crate::support::{Keyward, Reply};

async fn set(kw: &Keyward, key: &IssuedKey, permissions: Value) -> Reply {
    kw.v1("keys.setPermissions", json!({ "keyId": key.id, "permissions": permissions })).await
}

/// A verification that asks for a permission.
fn needs(slug: &str) -> Value {
    json!({ "authorization": { "permissions": slug } })
}

on_both_stacks! {
    async fn they_replace_those_of_the_key_itself_and_all_are_told(kw) {
        kw.create_role("editor", ["docs.edit"]).await;
        let [list, write] = [kw.create_permission("docs.list").await, kw.create_permission("docs.write").await];
        kw.create_permission("docs.read").await;
        let fields = json!({ "roles": ["editor"], "permissions": ["docs.read", "docs.list"] });
        let key = kw.create_key(fields).await;
        kw.verify_v1(&key.key, needs("docs.read")).await.assert_v1_code("VALID");

        let reply = set(&kw, &key, json!([{ "slug": "docs.write" }, { "id": list }])).await;

        let told =
            json!([{ "id": list, "name": "docs.list" }, { "id": write, "name": "docs.write" }]);
        assert_eq!(*reply.v1_body(), told);
        let has = json!(["docs.edit", "docs.list", "docs.write"]);
        assert_eq!(kw.get_key_v1(&key.id).await["permissions"], has);
        kw.verify_v1(&key.key, needs("docs.read")).await.assert_v1_code("INSUFFICIENT_PERMISSIONS");
        kw.verify_with(&key.key, json!({ "permissions": "docs.write" })).await.assert_code("VALID");
    }

    async fn only_what_changes_is_recorded(kw) {
        for slug in ["docs.read", "docs.list", "docs.write"] {
            kw.create_permission(slug).await;
        }
        let key = kw.create_key(json!({ "permissions": ["docs.read", "docs.list"] })).await;
        let created = kw.list_audit_events(&key.id).await.len();
        let items = json!([{ "name": "docs.list" }, { "name": "docs.write" }]);

        set(&kw, &key, items.clone()).await.v1_body();
        set(&kw, &key, items).await.v1_body();

        assert_eq!(kw.list_audit_events(&key.id).await.len(), created + 2);
        let disconnect = "authorization.disconnect_permission_and_key".to_owned();
        assert!(kw.list_audit_events("docs.read").await.contains(&disconnect));
        assert!(!kw.list_audit_events("docs.list").await.contains(&disconnect));
    }

    async fn those_that_do_not_exist_are_named_and_none_is_taken(kw) {
        kw.create_permission("docs.read").await;
        let key = kw.create_key(json!({ "permissions": ["docs.read"] })).await;
        for (item, named) in [
            (json!({ "name": "docs.ghost" }), "docs.ghost"),
            (json!({ "id": "perm_ghost" }), "perm_ghost"),
        ] {
            let message = set(&kw, &key, json!([item])).await.assert_v1_error(404, "NOT_FOUND");
            assert!(message.contains(named), "{message}");
        }

        kw.verify_v1(&key.key, needs("docs.read")).await.assert_v1_code("VALID");
    }

    async fn a_missing_one_is_made_where_it_is_said(kw) {
        let key = kw.create_key(json!({})).await;

        let items = json!([{ "slug": "docs.new", "create": true }]);
        let reply = set(&kw, &key, items).await;

        assert_eq!(reply.v1_body()[0]["name"], "docs.new");
        assert_eq!(kw.get_key(&key.id).await["permissions"], json!(["docs.new"]));
        let connect = "authorization.connect_permission_and_key";
        assert_eq!(kw.list_audit_events("docs.new").await, [connect, "permission.create"]);
    }

    async fn each_change_needs_the_right_to_it(kw) {
        kw.create_permission("docs.read").await;
        kw.create_permission("docs.write").await;
        let key = kw.create_key(json!({ "permissions": ["docs.read"] })).await;
        let (read, write) = (json!({ "name": "docs.read" }), json!({ "name": "docs.write" }));
        let new = json!({ "name": "docs.new", "create": true });
        let [add, take, make] =
            ["add_permission_to_key", "remove_permission_from_key", "create_permission"];
        for (held, items, missing) in [
            (vec![take, make], json!([read, write]), add),
            (vec![add, make], json!([write]), take),
            (vec![add, take], json!([read, new]), make),
        ] {
            let held = held.iter().map(|action| format!("rbac.*.{action}")).collect();
            let root_key = kw.create_root_key_with(held).await;
            let request = json!({ "keyId": key.id, "permissions": items });

            let reply = kw.v1_as(&root_key, "keys.setPermissions", request).await;

            let message = reply.assert_v1_error(403, "INSUFFICIENT_PERMISSIONS");
            assert!(message.contains(missing), "{message}");
        }
        assert_eq!(kw.get_key_v1(&key.id).await["permissions"], json!(["docs.read"]));
        assert_eq!(kw.count_rows("permissions").await, 2);
    }

    async fn a_right_that_is_not_used_is_not_needed(kw) {
        kw.create_permission("docs.read").await;
        kw.create_permission("docs.write").await;
        let key = kw.create_key(json!({ "permissions": ["docs.read"] })).await;
        let (read, write) = (json!({ "name": "docs.read" }), json!({ "name": "docs.write" }));
        for (held, items, has) in [
            ("add_permission_to_key", json!([read, write]), json!(["docs.read", "docs.write"])),
            ("remove_permission_from_key", json!([write]), json!(["docs.write"])),
        ] {
            let root_key = kw.create_root_key([&*format!("rbac.*.{held}")]).await;
            let request = json!({ "keyId": key.id, "permissions": items });

            kw.v1_as(&root_key, "keys.setPermissions", request).await.v1_body();

            assert_eq!(kw.get_key_v1(&key.id).await["permissions"], has);
        }
    }

    async fn an_item_that_names_nothing_is_refused_and_changes_nothing(kw) {
        kw.create_permission("docs.read").await;
        kw.create_permission("docs.other").await;
        let key = kw.create_key(json!({ "permissions": ["docs.read"] })).await;

        let reply = set(&kw, &key, json!([{ "create": true }])).await;

        let message = reply.assert_v1_error(400, "BAD_REQUEST");
        assert!(message.starts_with("permissions.0: "), "{message}");
        assert_eq!(kw.get_key_v1(&key.id).await["permissions"], json!(["docs.read"]));
    }
}

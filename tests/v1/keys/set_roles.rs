use serde_json::{Value, json};

use crate::on_both_stacks;
use crate::support::seed::IssuedKey;
use crate::support::{Keyward, Reply};

async fn set(kw: &Keyward, key: &IssuedKey, roles: Value) -> Reply {
    kw.v1("keys.setRoles", json!({ "keyId": key.id, "roles": roles })).await
}

/// A verification that asks for a permission.
fn needs(slug: &str) -> Value {
    json!({ "authorization": { "permissions": slug } })
}

on_both_stacks! {
    async fn they_replace_those_that_it_has_and_all_are_told(kw) {
        kw.create_role("reader", ["docs.read"]).await;
        let editor = kw.create_role("editor", []).await;
        let writer = kw.create_role("writer", ["docs.write"]).await;
        let key = kw.create_key(json!({ "roles": ["reader", "editor"] })).await;
        kw.verify_v1(&key.key, needs("docs.read")).await.assert_v1_code("VALID");

        let reply = set(&kw, &key, json!([{ "name": "writer" }, { "id": editor }])).await;

        let told = json!([{ "id": editor, "name": "editor" }, { "id": writer, "name": "writer" }]);
        assert_eq!(*reply.v1_body(), told);
        assert_eq!(kw.get_key_v1(&key.id).await["roles"], json!(["editor", "writer"]));
        kw.verify_v1(&key.key, needs("docs.read")).await.assert_v1_code("INSUFFICIENT_PERMISSIONS");
        kw.verify_with(&key.key, json!({ "permissions": "docs.write" })).await.assert_code("VALID");
    }

    async fn the_permissions_of_the_key_itself_stay(kw) {
        kw.create_permission("docs.read").await;
        kw.create_role("reader", []).await;
        let key = kw.create_key(json!({ "permissions": ["docs.read"] })).await;

        set(&kw, &key, json!([{ "name": "reader" }])).await.v1_body();

        kw.verify_v1(&key.key, needs("docs.read")).await.assert_v1_code("VALID");
    }

    async fn only_what_changes_is_recorded(kw) {
        for name in ["reader", "editor", "writer"] {
            kw.create_role(name, []).await;
        }
        let key = kw.create_key(json!({ "roles": ["reader", "editor"] })).await;
        let created = kw.list_audit_events(&key.id).await.len();
        let items = json!([{ "name": "editor" }, { "name": "writer" }]);

        set(&kw, &key, items.clone()).await.v1_body();
        set(&kw, &key, items).await.v1_body();

        assert_eq!(kw.list_audit_events(&key.id).await.len(), created + 2);
        let disconnect = "authorization.disconnect_role_and_key".to_owned();
        assert!(kw.list_audit_events("reader").await.contains(&disconnect));
        assert!(!kw.list_audit_events("editor").await.contains(&disconnect));
    }

    async fn those_that_do_not_exist_are_named_and_none_is_taken(kw) {
        kw.create_role("reader", ["docs.read"]).await;
        let key = kw.create_key(json!({ "roles": ["reader"] })).await;
        for (item, named) in
            [(json!({ "name": "ghost" }), "ghost"), (json!({ "id": "role_ghost" }), "role_ghost")]
        {
            let message = set(&kw, &key, json!([item])).await.assert_v1_error(404, "NOT_FOUND");
            assert!(message.contains(named), "{message}");
        }

        kw.verify_v1(&key.key, needs("docs.read")).await.assert_v1_code("VALID");
    }

    async fn a_missing_one_is_made_where_it_is_said(kw) {
        let key = kw.create_key(json!({})).await;

        let reply = set(&kw, &key, json!([{ "name": "new role", "create": true }])).await;

        assert_eq!(reply.v1_body()[0]["name"], "new role");
        assert_eq!(kw.get_key(&key.id).await["roles"], json!(["new role"]));
    }

    async fn each_change_needs_the_right_to_it(kw) {
        kw.create_role("reader", []).await;
        kw.create_role("writer", []).await;
        let key = kw.create_key(json!({ "roles": ["reader"] })).await;
        let (reader, writer) = (json!({ "name": "reader" }), json!({ "name": "writer" }));
        let new = json!({ "name": "new role", "create": true });
        let [add, take, make] = ["add_role_to_key", "remove_role_from_key", "create_role"];
        for (held, items, missing) in [
            (vec![take, make], json!([reader, writer]), add),
            (vec![add, make], json!([writer]), take),
            (vec![add, take], json!([reader, new]), make),
        ] {
            let held = held.iter().map(|action| format!("rbac.*.{action}")).collect();
            let root_key = kw.create_root_key_with(held).await;
            let request = json!({ "keyId": key.id, "roles": items });

            let reply = kw.v1_as(&root_key, "keys.setRoles", request).await;

            let message = reply.assert_v1_error(403, "INSUFFICIENT_PERMISSIONS");
            assert!(message.contains(missing), "{message}");
        }
        assert_eq!(kw.get_key_v1(&key.id).await["roles"], json!(["reader"]));
        assert_eq!(kw.count_rows("roles").await, 2);
    }

    async fn a_right_that_is_not_used_is_not_needed(kw) {
        kw.create_role("reader", []).await;
        kw.create_role("writer", []).await;
        let key = kw.create_key(json!({ "roles": ["reader"] })).await;
        let (reader, writer) = (json!({ "name": "reader" }), json!({ "name": "writer" }));
        for (held, items, has) in [
            ("add_role_to_key", json!([reader, writer]), json!(["reader", "writer"])),
            ("remove_role_from_key", json!([writer]), json!(["writer"])),
        ] {
            let root_key = kw.create_root_key([&*format!("rbac.*.{held}")]).await;
            let request = json!({ "keyId": key.id, "roles": items });

            kw.v1_as(&root_key, "keys.setRoles", request).await.v1_body();

            assert_eq!(kw.get_key_v1(&key.id).await["roles"], has);
        }
    }

    async fn an_item_that_names_nothing_is_refused_and_changes_nothing(kw) {
        kw.create_role("reader", []).await;
        kw.create_role("other", []).await;
        let key = kw.create_key(json!({ "roles": ["reader"] })).await;

        let reply = set(&kw, &key, json!([{ "create": true }])).await;

        let message = reply.assert_v1_error(400, "BAD_REQUEST");
        assert!(message.starts_with("roles.0: "), "{message}");
        assert_eq!(kw.get_key_v1(&key.id).await["roles"], json!(["reader"]));
    }
}

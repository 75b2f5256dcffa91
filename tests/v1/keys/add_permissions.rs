use serde_json::{Value, json};

use crate::on_both_stacks;
use crate::support::seed::IssuedKey;
use crate::support::{Keyward, Reply};

async fn add(kw: &Keyward, key: &IssuedKey, permissions: Value) -> Reply {
    kw.v1("keys.addPermissions", json!({ "keyId": key.id, "permissions": permissions })).await
}

/// A verification that asks for a permission.
fn needs(slug: &str) -> Value {
    json!({ "authorization": { "permissions": slug } })
}

on_both_stacks! {
    async fn the_key_has_them_at_once_and_the_reply_tells_those_asked_for(kw) {
        let ids = [kw.create_permission("docs.a").await, kw.create_permission("docs.b").await];
        for slug in ["docs.c", "docs.d", "docs.other"] {
            kw.create_permission(slug).await;
        }
        let key = kw.create_key(json!({ "permissions": ["docs.d"] })).await;
        kw.verify_v1(&key.key, needs("docs.b")).await.assert_v1_code("INSUFFICIENT_PERMISSIONS");

        let items = json!([{ "id": ids[0] }, { "name": "docs.b" }, { "slug": "docs.c" }]);
        let reply = add(&kw, &key, items).await;

        let told = reply.v1_body().as_array().unwrap();
        assert_eq!(told.len(), 3);
        assert!(told.contains(&json!({ "id": ids[0], "name": "docs.a" })), "{}", reply.text);
        assert!(told.contains(&json!({ "id": ids[1], "name": "docs.b" })), "{}", reply.text);
        let has = json!(["docs.a", "docs.b", "docs.c", "docs.d"]);
        assert_eq!(kw.get_key_v1(&key.id).await["permissions"], has);
        kw.verify_v1(&key.key, needs("docs.b")).await.assert_v1_code("VALID");
        kw.verify_with(&key.key, json!({ "permissions": "docs.c" })).await.assert_code("VALID");
        let connect = "authorization.connect_permission_and_key";
        assert_eq!(kw.list_audit_events("docs.b").await, [connect, "permission.create"]);
    }

    async fn the_name_of_one_is_its_slug(kw) {
        let request = json!({ "name": "Read documents", "slug": "docs.read" });
        kw.v2("permissions.createPermission", request).await.data();
        let key = kw.create_key(json!({})).await;

        add(&kw, &key, json!([{ "name": "Read documents" }])).await.assert_v1_error(404, "NOT_FOUND");
        let reply = add(&kw, &key, json!([{ "name": "docs.read" }])).await;

        assert_eq!(reply.v1_body()[0]["name"], "docs.read");
    }

    async fn one_that_it_has_already_is_told_and_nothing_is_recorded(kw) {
        let id = kw.create_permission("docs.read").await;
        let key = kw.create_key(json!({ "permissions": ["docs.read"] })).await;
        let before = kw.list_audit_events(&key.id).await;

        let items = json!([{ "name": "docs.read" }, { "id": id }, { "name": "docs.read" }]);
        let reply = add(&kw, &key, items).await;

        assert_eq!(*reply.v1_body(), json!([{ "id": id, "name": "docs.read" }]));
        assert_eq!(kw.list_audit_events(&key.id).await, before);
    }

    async fn those_that_do_not_exist_are_named_and_nothing_changes(kw) {
        kw.create_permission("docs.read").await;
        let key = kw.create_key(json!({})).await;
        let items = json!([
            { "name": "docs.read" }, { "name": "docs.x" }, { "slug": "docs.y", "create": false },
            { "id": "perm_ghost" },
        ]);

        let message = add(&kw, &key, items).await.assert_v1_error(404, "NOT_FOUND");

        for named in ["docs.x", "docs.y", "perm_ghost"] {
            assert!(message.contains(named), "{message}");
        }
        assert_eq!(kw.get_key_v1(&key.id).await["permissions"], json!([]));
    }

    async fn a_missing_one_is_made_where_it_is_said(kw) {
        let key = kw.create_key(json!({})).await;

        let items = json!([{ "name": "docs.new", "create": true }]);
        let reply = add(&kw, &key, items).await;

        let id = reply.v1_body()[0]["id"].as_str().unwrap();
        assert!(id.starts_with("perm_"), "{id}");
        let made = kw.v2("permissions.getPermission", json!({ "permission": id })).await;
        assert_eq!(made.text_of("name"), "docs.new");
        assert_eq!(made.text_of("slug"), "docs.new");
        kw.verify_v1(&key.key, needs("docs.new")).await.assert_v1_code("VALID");
        let connect = "authorization.connect_permission_and_key";
        assert_eq!(kw.list_audit_events("docs.new").await, [connect, "permission.create"]);
    }

    async fn an_id_cannot_be_made(kw) {
        let key = kw.create_key(json!({})).await;

        let reply = add(&kw, &key, json!([{ "id": "perm_ghost", "create": true }])).await;

        reply.assert_v1_error(404, "NOT_FOUND");
        assert_eq!(kw.count_rows("permissions").await, 0);
    }

    async fn to_make_one_needs_the_right_to_else_nothing_changes(kw) {
        kw.create_permission("docs.read").await;
        let key = kw.create_key(json!({})).await;
        let root_key = kw.create_root_key(["rbac.*.add_permission_to_key"]).await;
        let items = json!([{ "name": "docs.read" }, { "name": "docs.new", "create": true }]);
        let request = json!({ "keyId": key.id, "permissions": items });

        let refused = kw.v1_as(&root_key, "keys.addPermissions", request).await;

        let message = refused.assert_v1_error(403, "INSUFFICIENT_PERMISSIONS");
        assert!(message.contains("rbac.*.create_permission"), "{message}");
        assert_eq!(kw.get_key_v1(&key.id).await["permissions"], json!([]));
        assert_eq!(kw.count_rows("permissions").await, 1);
    }

    async fn to_add_what_exists_needs_no_right_to_make_nor_to_change_the_key(kw) {
        kw.create_permission("docs.read").await;
        let key = kw.create_key(json!({})).await;
        let root_key = kw.create_root_key(["rbac.*.add_permission_to_key"]).await;
        let items = json!([{ "name": "docs.read", "create": true }]);
        let request = json!({ "keyId": key.id, "permissions": items });

        kw.v1_as(&root_key, "keys.addPermissions", request).await.v1_body();

        assert_eq!(kw.get_key_v1(&key.id).await["permissions"], json!(["docs.read"]));
    }

    async fn an_item_that_names_nothing_is_refused_and_gives_nothing(kw) {
        kw.create_permission("docs.read").await;
        let key = kw.create_key(json!({})).await;
        for (items, at) in [
            (json!([{}]), "permissions.0: "),
            (json!([{ "name": "docs.read" }, { "create": true }]), "permissions.1: "),
        ] {
            let message = add(&kw, &key, items).await.assert_v1_error(400, "BAD_REQUEST");
            assert!(message.starts_with(at), "{message}");
        }
        assert_eq!(kw.get_key_v1(&key.id).await["permissions"], json!([]));
    }

    async fn one_of_another_workspace_is_not_there(kw) {
        let stranger = kw.create_other_workspace().await;
        let request = json!({ "name": "docs.theirs", "slug": "docs.theirs" });
        let made = kw.v2_as(&stranger, "permissions.createPermission", request).await;
        let id = made.text_of("permissionId");
        let key = kw.create_key(json!({})).await;

        for item in [json!({ "id": id, "create": true }), json!({ "name": "docs.theirs" })] {
            add(&kw, &key, json!([item])).await.assert_v1_error(404, "NOT_FOUND");
        }

        assert_eq!(kw.get_key_v1(&key.id).await["permissions"], json!([]));
    }
}

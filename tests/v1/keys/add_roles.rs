use serde_json::{Value, json};

use crate::on_both_stacks;
use crate::support::seed::IssuedKey;
use crate::support::{Keyward, Reply};

async fn add(kw: &Keyward, key: &IssuedKey, roles: Value) -> Reply {
    kw.v1("keys.addRoles", json!({ "keyId": key.id, "roles": roles })).await
}

/// A verification that asks for a permission.
fn needs(slug: &str) -> Value {
    json!({ "authorization": { "permissions": slug } })
}

on_both_stacks! {
    async fn the_key_has_their_permissions_at_once_and_the_reply_tells_those_asked_for(kw) {
        let reader = kw.create_role("reader", ["docs.read"]).await;
        let writer = kw.create_role("writer of docs", ["docs.write"]).await;
        kw.create_role("admin", []).await;
        let key = kw.create_key(json!({ "roles": ["admin"] })).await;
        kw.verify_v1(&key.key, needs("docs.read")).await.assert_v1_code("INSUFFICIENT_PERMISSIONS");

        let reply = add(&kw, &key, json!([{ "name": "writer of docs" }, { "id": reader }])).await;

        let told = reply.v1_body().as_array().unwrap();
        assert_eq!(told.len(), 2);
        for (id, name) in [(reader, "reader"), (writer, "writer of docs")] {
            assert!(told.contains(&json!({ "id": id, "name": name })), "{}", reply.text);
        }
        let roles = json!(["admin", "reader", "writer of docs"]);
        assert_eq!(kw.get_key_v1(&key.id).await["roles"], roles);
        assert_eq!(kw.get_key(&key.id).await["roles"], roles);
        let verified = kw.verify_v1(&key.key, needs("docs.read")).await;
        assert_eq!(verified.assert_v1_code("VALID")["roles"], roles);
        let connect = "authorization.connect_role_and_key".to_owned();
        assert!(kw.list_audit_events("reader").await.contains(&connect));
    }

    async fn one_that_it_has_already_is_told_and_nothing_is_recorded(kw) {
        let id = kw.create_role("reader", []).await;
        let key = kw.create_key(json!({ "roles": ["reader"] })).await;
        let before = kw.list_audit_events(&key.id).await;

        let items = json!([{ "name": "reader" }, { "id": id }, { "name": "reader" }]);
        let reply = add(&kw, &key, items).await;

        assert_eq!(*reply.v1_body(), json!([{ "id": id, "name": "reader" }]));
        assert_eq!(kw.list_audit_events(&key.id).await, before);
    }

    async fn those_that_do_not_exist_are_named_and_nothing_changes(kw) {
        kw.create_role("reader", []).await;
        let key = kw.create_key(json!({})).await;
        let items = json!([
            { "name": "reader" }, { "name": "Reader" }, { "name": "ghost", "create": false },
            { "id": "role_ghost", "create": true },
        ]);

        let message = add(&kw, &key, items).await.assert_v1_error(404, "NOT_FOUND");

        for named in ["Reader", "ghost", "role_ghost"] {
            assert!(message.contains(named), "{message}");
        }
        assert_eq!(kw.get_key_v1(&key.id).await["roles"], json!([]));
        assert_eq!(kw.count_rows("roles").await, 1);
    }

    async fn a_missing_one_is_made_where_it_is_said(kw) {
        let key = kw.create_key(json!({})).await;
        let root_key = kw.create_root_key(["rbac.*.add_role_to_key", "rbac.*.create_role"]).await;
        let request = json!({ "keyId": key.id, "roles": [{ "name": "new role", "create": true }] });

        let reply = kw.v1_as(&root_key, "keys.addRoles", request).await;

        let id = reply.v1_body()[0]["id"].as_str().unwrap();
        assert!(id.starts_with("role_"), "{id}");
        let made = kw.v2("permissions.getRole", json!({ "role": id })).await;
        assert_eq!(made.text_of("name"), "new role");
        assert_eq!(kw.get_key_v1(&key.id).await["roles"], json!(["new role"]));
        let connect = "authorization.connect_role_and_key";
        assert_eq!(kw.list_audit_events("new role").await, [connect, "role.create"]);
    }

    async fn to_make_one_needs_the_right_to_else_nothing_changes(kw) {
        kw.create_role("reader", []).await;
        let key = kw.create_key(json!({})).await;
        let root_key = kw.create_root_key(["rbac.*.add_role_to_key"]).await;
        let items = json!([{ "name": "reader" }, { "name": "new role", "create": true }]);
        let request = json!({ "keyId": key.id, "roles": items });

        let refused = kw.v1_as(&root_key, "keys.addRoles", request).await;

        let message = refused.assert_v1_error(403, "INSUFFICIENT_PERMISSIONS");
        assert!(message.contains("rbac.*.create_role"), "{message}");
        assert_eq!(kw.get_key_v1(&key.id).await["roles"], json!([]));
        assert_eq!(kw.count_rows("roles").await, 1);
    }

    async fn an_item_that_names_nothing_is_refused_and_gives_nothing(kw) {
        kw.create_role("reader", []).await;
        let key = kw.create_key(json!({})).await;
        for (items, at) in [
            (json!([{}]), "roles.0: "),
            (json!([{ "name": "reader" }, { "create": true }]), "roles.1: "),
        ] {
            let message = add(&kw, &key, items).await.assert_v1_error(400, "BAD_REQUEST");
            assert!(message.starts_with(at), "{message}");
        }
        assert_eq!(kw.get_key_v1(&key.id).await["roles"], json!([]));
    }

    async fn one_of_another_workspace_is_not_there(kw) {
        let stranger = kw.create_other_workspace().await;
        let request = json!({ "name": "theirs" });
        let made = kw.v2_as(&stranger, "permissions.createRole", request).await;
        let id = made.text_of("roleId");
        let key = kw.create_key(json!({})).await;

        for item in [json!({ "id": id, "create": true }), json!({ "name": "theirs" })] {
            add(&kw, &key, json!([item])).await.assert_v1_error(404, "NOT_FOUND");
        }

        assert_eq!(kw.get_key_v1(&key.id).await["roles"], json!([]));
    }
}

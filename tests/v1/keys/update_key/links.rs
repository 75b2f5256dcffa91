//! Roles and permissions, changed with the key.

use serde_json::{Value, json};

use super::{full_key, told, update};
use crate::on_both_stacks;
use crate::support::seed::IssuedKey;

fn with_id(key: &IssuedKey, mut change: Value) -> Value {
    change["keyId"] = json!(key.id);
    change
}

on_both_stacks! {
    async fn they_replace_those_that_it_has(kw) {
        let key = full_key(&kw).await;
        let role = kw.create_role("reader", []).await;
        let write = kw.create_permission("docs.write").await;
        kw.create_permission("docs.list").await;
        let change = json!({
            "roles": [{ "id": role }], "permissions": [{ "id": write }, { "name": "docs.list" }],
        });

        update(&kw, &key, change).await.v1_body();

        let after = told(&kw, &key).await;
        assert_eq!(after["roles"], json!(["reader"]));
        assert_eq!(after["permissions"], json!(["docs.list", "docs.write"]));
        assert_eq!(after["name"], "for billing");
    }

    async fn an_empty_list_takes_all_and_gives_none(kw) {
        let key = full_key(&kw).await;
        kw.create_role("unrelated", ["docs.write"]).await;

        update(&kw, &key, json!({ "roles": [] })).await.v1_body();
        let roles_taken = told(&kw, &key).await;
        update(&kw, &key, json!({ "permissions": [] })).await.v1_body();
        let both_taken = told(&kw, &key).await;

        assert_eq!(roles_taken["roles"], json!([]));
        assert_eq!(roles_taken["permissions"], json!(["docs.read"]));
        assert_eq!(both_taken["permissions"], json!([]));
        let query = json!({ "authorization": { "permissions": "docs.read" } });
        kw.verify_v1(&key.key, query).await.assert_v1_code("INSUFFICIENT_PERMISSIONS");
    }

    async fn missing_ones_are_made_where_it_is_said(kw) {
        let key = full_key(&kw).await;
        let change = json!({
            "roles": [{ "name": "new role", "create": true }],
            "permissions": [{ "name": "docs.new", "create": true }],
        });

        update(&kw, &key, change).await.v1_body();

        let second = kw.get_key(&key.id).await;
        assert_eq!(second["roles"], json!(["new role"]));
        assert_eq!(second["permissions"], json!(["docs.new"]));
        assert!(kw.list_audit_events("new role").await.contains(&"role.create".to_owned()));
        assert!(kw.list_audit_events("docs.new").await.contains(&"permission.create".to_owned()));
    }

    async fn one_that_does_not_exist_leaves_the_key_as_it_was(kw) {
        let key = full_key(&kw).await;
        let before = told(&kw, &key).await;
        for (change, named) in [
            (json!({ "roles": [{ "name": "ghost" }] }), "ghost"),
            (json!({ "roles": [{ "id": "role_ghost" }] }), "role_ghost"),
            (json!({ "permissions": [{ "name": "docs.ghost" }] }), "docs.ghost"),
            (json!({ "permissions": [{ "id": "perm_ghost", "create": true }] }), "perm_ghost"),
        ] {
            let mut change = change;
            change["name"] = json!("renamed");
            change["remaining"] = json!(1);

            let message = update(&kw, &key, change).await.assert_v1_error(404, "NOT_FOUND");

            assert!(message.contains(named), "{message}");
        }
        assert_eq!(told(&kw, &key).await, before);
    }

    async fn an_item_that_names_nothing_is_refused(kw) {
        let key = full_key(&kw).await;
        kw.create_role("unrelated", ["docs.write"]).await;
        let before = told(&kw, &key).await;

        let permissions = json!({ "permissions": [{ "name": "docs.read" }, {}] });
        let of_permissions = update(&kw, &key, permissions).await.assert_v1_error(400, "BAD_REQUEST");
        let roles = json!({ "roles": [{ "create": true }] });
        let of_roles = update(&kw, &key, roles).await.assert_v1_error(400, "BAD_REQUEST");

        assert!(of_permissions.starts_with("permissions.1: "), "{of_permissions}");
        assert!(of_roles.starts_with("roles.0: "), "{of_roles}");
        assert_eq!(told(&kw, &key).await, before);
    }

    async fn to_give_to_take_and_to_make_each_need_their_right(kw) {
        let key = full_key(&kw).await;
        kw.create_permission("docs.write").await;
        kw.create_role("reader", []).await;
        let before = told(&kw, &key).await;
        let permissions = |list: Value| json!({ "name": "renamed", "permissions": list });
        let roles = |list: Value| json!({ "name": "renamed", "roles": list });
        let (read, write) = (json!({ "name": "docs.read" }), json!({ "name": "docs.write" }));
        let (editor, reader) = (json!({ "name": "editor" }), json!({ "name": "reader" }));
        let new = json!({ "name": "new", "create": true });
        for (held, change, missing) in [
            (vec![], permissions(json!([read, write])), "rbac.*.add_permission_to_key"),
            (vec![], permissions(json!([])), "rbac.*.remove_permission_from_key"),
            (
                vec!["rbac.*.add_permission_to_key"], permissions(json!([write])),
                "rbac.*.remove_permission_from_key",
            ),
            (
                vec!["rbac.*.add_permission_to_key", "rbac.*.create_role"],
                permissions(json!([read, new])), "rbac.*.create_permission",
            ),
            (vec![], roles(json!([editor, reader])), "rbac.*.add_role_to_key"),
            (vec![], roles(json!([])), "rbac.*.remove_role_from_key"),
            (
                vec!["rbac.*.add_role_to_key"], roles(json!([reader])),
                "rbac.*.remove_role_from_key",
            ),
            (vec!["rbac.*.add_role_to_key"], roles(json!([editor, new])), "rbac.*.create_role"),
        ] {
            let held = held.into_iter().chain(["api.*.update_key"]).map(str::to_owned).collect();
            let root_key = kw.create_root_key_with(held).await;

            let reply = kw.v1_as(&root_key, "keys.updateKey", with_id(&key, change)).await;

            let message = reply.assert_v1_error(403, "INSUFFICIENT_PERMISSIONS");
            assert!(message.contains(missing), "{missing}: {message}");
        }
        assert_eq!(told(&kw, &key).await, before);
    }

    async fn what_it_has_already_needs_no_further_right(kw) {
        let key = full_key(&kw).await;
        let before = told(&kw, &key).await;
        let root_key = kw.create_root_key(["api.*.update_key"]).await;
        let change = json!({
            "roles": [{ "name": "editor" }], "permissions": [{ "name": "docs.read" }],
        });

        kw.v1_as(&root_key, "keys.updateKey", with_id(&key, change)).await.v1_body();

        assert_eq!(told(&kw, &key).await, before);
    }
}

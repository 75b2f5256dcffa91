//! `keys.addRoles`, `keys.setRoles`, `keys.removeRoles` and the same of permissions.

use serde_json::{Value, json};

use crate::on_both_stacks;
use crate::support::{Keyward, Reply};

async fn call(kw: &Keyward, operation: &str, key: &str, names: impl Into<Value>) -> Reply {
    let list = if operation.ends_with("Roles") { "roles" } else { "permissions" };
    kw.v2(operation, json!({ "keyId": key, list: names.into() })).await
}

/// The slugs of permissions, or the names of roles.
fn names(reply: &Reply) -> Vec<&str> {
    let items = reply.data().as_array().unwrap().iter();
    items.map(|item| item.get("slug").unwrap_or(&item["name"]).as_str().unwrap()).collect()
}

async fn may(kw: &Keyward, key: &str, slug: &str) -> bool {
    kw.verify_with(key, json!({ "permissions": slug })).await.data()["valid"] == true
}

on_both_stacks! {
    async fn permissions_are_added_set_and_removed_at_once(kw) {
        kw.create_role("editor", ["docs.edit"]).await;
        for slug in ["docs.read", "docs.move"] {
            kw.create_permission(slug).await;
        }
        let key = kw.create_key(json!({ "roles": ["editor"], "permissions": ["docs.read", "docs.move"] })).await;
        assert!(!may(&kw, &key.key, "docs.write").await);

        let added = call(&kw, "keys.addPermissions", &key.id, ["docs.write", "docs.list"]).await;
        assert_eq!(names(&added), ["docs.move", "docs.read", "docs.list", "docs.write"]);
        assert!(added.data()[0]["id"].as_str().unwrap().starts_with("perm_"));
        assert!(may(&kw, &key.key, "docs.write AND docs.read").await);

        let set = call(&kw, "keys.setPermissions", &key.id, ["docs.write", "docs.list", "docs.new"]).await;
        assert_eq!(names(&set), ["docs.list", "docs.new", "docs.write"]);
        assert!(!may(&kw, &key.key, "docs.read").await);
        assert_eq!(kw.get_key(&key.id).await["permissions"], json!(["docs.edit", "docs.list", "docs.new", "docs.write"]));

        assert_eq!(names(&call(&kw, "keys.removePermissions", &key.id, ["docs.write", "docs.list"]).await), ["docs.new"]);
        assert!(!may(&kw, &key.key, "docs.write").await);
        // What the key has through a role stays.
        call(&kw, "keys.addPermissions", &key.id, ["docs.edit"]).await.data();
        call(&kw, "keys.removePermissions", &key.id, ["docs.edit"]).await.data();
        assert!(may(&kw, &key.key, "docs.edit").await);

        assert_eq!(*call(&kw, "keys.setPermissions", &key.id, json!([])).await.data(), json!([]));
        assert_eq!(kw.get_key(&key.id).await["permissions"], json!(["docs.edit"]));
        assert_eq!(
            kw.list_audit_events("docs.list").await,
            ["authorization.connect_permission_and_key", "authorization.disconnect_permission_and_key", "permission.create"]
        );
    }

    async fn roles_are_added_set_and_removed_at_once(kw) {
        for (name, slug) in [("reader", "docs.read"), ("editor", "docs.edit"), ("admin", "all")] {
            kw.create_role(name, [slug]).await;
        }
        let key = kw.create_key(json!({ "roles": ["reader"] })).await;
        assert!(!may(&kw, &key.key, "docs.edit").await);

        let added = call(&kw, "keys.addRoles", &key.id, ["editor", "admin"]).await;
        assert_eq!(names(&added), ["reader", "admin", "editor"]);
        assert_eq!(added.data()[2]["permissions"][0]["slug"], "docs.edit");
        assert!(may(&kw, &key.key, "docs.edit").await);

        assert_eq!(names(&call(&kw, "keys.setRoles", &key.id, ["editor", "admin"]).await), ["admin", "editor"]);
        assert!(may(&kw, &key.key, "docs.edit").await && !may(&kw, &key.key, "docs.read").await);

        let removed = call(&kw, "keys.removeRoles", &key.id, ["admin"]).await;
        assert_eq!((names(&removed), &removed.data()[0]["permissions"][0]["slug"]), (vec!["editor"], &json!("docs.edit")));
        assert!(!may(&kw, &key.key, "all").await);

        assert_eq!(*call(&kw, "keys.setRoles", &key.id, json!([])).await.data(), json!([]));
        assert_eq!(kw.get_key(&key.id).await.get("roles"), None);
        assert_eq!(
            kw.list_audit_events("editor").await,
            [
                "authorization.connect_role_and_key", "authorization.connect_role_and_permission",
                "authorization.disconnect_role_and_key", "role.create",
            ]
        );
    }

    async fn only_what_changes_is_recorded(kw) {
        for (list, name, other) in [("permissions", "docs.read", "docs.list"), ("roles", "reader", "editor")] {
            let kw = Keyward::start(kw.stack).await;
            for name in [name, other] {
                if list == "roles" { kw.create_role(name, []).await } else { kw.create_permission(name).await };
            }
            let (has, bare) = (kw.create_key(json!({ list: [name] })).await, kw.create_key(json!({})).await);
            let kind = if list == "roles" { "role" } else { "permission" };
            let (connect, disconnect) = (format!("authorization.connect_{kind}_and_key"), format!("authorization.disconnect_{kind}_and_key"));
            let operation = |verb: &str| format!("keys.{verb}{}{}", list[..1].to_uppercase(), &list[1..]);

            let added = call(&kw, &operation("add"), &has.id, [name, name]).await;
            let removed = call(&kw, &operation("remove"), &bare.id, [name]).await;
            assert_eq!((names(&added), names(&removed)), (vec![name], vec![]), "{list}");
            assert_eq!(kw.list_audit_events(&bare.id).await, ["key.create"], "{list}");
            assert_eq!(kw.list_audit_events(&has.id).await, [&connect, "key.create"], "{list}");
            for _ in 0..2 {
                call(&kw, &operation("set"), &has.id, [other]).await.data();
                assert_eq!(kw.list_audit_events(&has.id).await, [&connect, &connect, &disconnect, "key.create"], "{list}");
            }
        }
    }

    async fn those_that_do_not_exist_are_named_and_nothing_changes(kw) {
        kw.create_role("reader", []).await;
        kw.create_permission("docs.read").await;
        let key = kw.create_key(json!({ "roles": ["reader"], "permissions": ["docs.read"] })).await;
        for (operation, items, error, named) in [
            ("keys.addRoles", &["reader", "ghost", "Reader"][..], "role_not_found", &["ghost", "Reader"][..]),
            ("keys.setRoles", &["ghost"], "role_not_found", &["ghost"]),
            ("keys.removeRoles", &["reader", "ghost"], "role_not_found", &["ghost"]),
            ("keys.removePermissions", &["docs.read", "docs.x", "docs.y"], "permission_not_found", &["docs.x", "docs.y"]),
        ] {
            call(&kw, operation, &key.id, json!(items)).await.assert_error_about(404, error, named);
        }
        let told = kw.get_key(&key.id).await;
        assert_eq!((&told["roles"], &told["permissions"]), (&json!(["reader"]), &json!(["docs.read"])));
    }

    async fn a_missing_permission_is_created_if_the_root_key_may_else_nothing_changes(kw) {
        kw.create_permission("docs.read").await;
        kw.create_permission("docs.list").await;
        for operation in ["keys.addPermissions", "keys.setPermissions"] {
            let key = kw.create_key(json!({ "permissions": ["docs.list"] })).await;
            let new = format!("{operation}.new");
            let grants = ["api.*.update_key", "rbac.*.add_permission_to_key", "rbac.*.remove_permission_from_key"];
            let root_key = kw.create_root_key(grants).await;
            let request = json!({ "keyId": key.id, "permissions": ["docs.read", new] });

            let refused = kw.v2_as(&root_key, operation, request.clone()).await;
            refused.assert_error_about(403, "insufficient_permissions", &["rbac.*.create_permission"]);
            assert_eq!(kw.get_key(&key.id).await["permissions"], json!(["docs.list"]));

            assert!(names(&kw.v2(operation, request).await).contains(&&*new));
            let events = ["authorization.connect_permission_and_key", "permission.create"];
            assert_eq!(kw.list_audit_events(&new).await, events, "{operation}");
        }
    }

    async fn the_id_of_a_permission_means_that_permission(kw) {
        let id = kw.create_permission("docs.read").await;
        kw.create_permission("docs.write").await;
        let key = kw.create_key(json!({ "permissions": ["docs.write"] })).await;

        for (operation, items, told) in [
            ("keys.addPermissions", json!([id]), &["docs.write", "docs.read"][..]),
            ("keys.removePermissions", json!([id]), &["docs.write"]),
            ("keys.setPermissions", json!([id, "docs.read"]), &["docs.read"]),
        ] {
            assert_eq!(names(&call(&kw, operation, &key.id, items).await), told, "{operation}");
        }
        kw.update_key(&key.id, json!({ "permissions": [id] })).await.data();
        assert_eq!(kw.get_key(&key.id).await["permissions"], json!(["docs.read"]));
        assert_eq!(kw.count_rows("permissions").await, 2);
    }

    async fn the_id_wins_over_a_permission_that_was_called_so(kw) {
        let id = kw.create_permission("docs.read").await;
        let other = kw.create_permission("docs.write").await;
        // As one was made before ids were looked for.
        kw.execute_sql(format!("UPDATE permissions SET slug = '{id}' WHERE id = '{other}'")).await;
        let key = kw.create_key(json!({})).await;
        assert_eq!(names(&call(&kw, "keys.addPermissions", &key.id, [id.as_str()]).await), ["docs.read"]);
    }

    async fn no_permission_is_called_as_the_id_of_another_one(kw) {
        let id = kw.create_permission("docs.read").await;
        let key = kw.create_key(json!({})).await;
        let stranger = kw.create_other_workspace().await;
        let create = json!({ "name": "a name", "slug": id });
        let item = json!([{ "name": id, "create": true }]);

        kw.v2("permissions.createPermission", create.clone()).await.assert_error(409, "permission_already_exists");
        kw.v1("permissions.createPermission", json!({ "name": id })).await.assert_v1_error(409, "CONFLICT");
        kw.v1("keys.addPermissions", json!({ "keyId": key.id, "permissions": item })).await.assert_v1_error(409, "CONFLICT");
        kw.v2_as(&stranger, "permissions.createPermission", create).await.data();

        assert_eq!(kw.count_rows("permissions").await, 2);
        assert_eq!(kw.v2("permissions.getPermission", json!({ "permission": id })).await.data()["slug"], "docs.read");
    }

    async fn a_key_has_a_thousand_permissions_of_itself_and_a_hundred_roles_and_no_more(kw) {
        let key = kw.create_key(json!({})).await;
        let slugs: Vec<_> = (0..1000).map(|n| format!("docs.{n}")).collect();
        let roles: Vec<_> = (0..101).map(|n| format!("role {n}")).collect();
        for role in &roles {
            kw.create_role(role, []).await;
        }
        call(&kw, "keys.addPermissions", &key.id, slugs).await.data();
        call(&kw, "keys.addRoles", &key.id, &roles[..100]).await.data();

        for (operation, name, bound) in [("keys.addPermissions", "docs.over", "1000"), ("keys.addRoles", "role 100", "100")] {
            call(&kw, operation, &key.id, [name]).await.assert_error_about(412, "precondition_failed", &[bound]);
        }
        assert_eq!(names(&call(&kw, "keys.addPermissions", &key.id, ["docs.7"]).await).len(), 1000);
        assert_eq!(kw.get_key(&key.id).await["roles"].as_array().unwrap().len(), 100);
    }
}

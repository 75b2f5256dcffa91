use futures_util::future::join_all;
use serde_json::{Value, json};

use crate::on_both_stacks;
use crate::support::Keyward;
use crate::support::json::Fields as _;

/// Returns the description of a role and the slugs of its permissions.
async fn role(kw: &Keyward, name: &str) -> (Value, Vec<Value>) {
    let told = kw.v2("permissions.getRole", json!({ "role": name })).await.data().clone();
    let permissions = told["permissions"].as_array().cloned().unwrap_or_default();
    (
        told["description"].clone(),
        permissions.iter().map(|permission| permission["slug"].clone()).collect(),
    )
}

on_both_stacks! {
    async fn the_keys_of_a_role_have_its_permissions_and_one_without_gives_none(kw) {
        kw.create_permission("documents.read").await;
        kw.create_role("editor", ["documents.read"]).await;
        kw.v2("permissions.createRole", json!({ "name": "bare" })).await.data();
        let key = kw.create_key(json!({ "roles": ["editor"] })).await;
        kw.verify_with(&key.key, json!({ "permissions": "documents.read" })).await.assert_code("VALID");
        let bare = kw.create_key(json!({ "roles": ["bare"] })).await;
        kw.get_key(&bare.id).await.assert_has(json!({ "roles": ["bare"], "permissions": null }));
    }

    async fn what_is_given_is_kept_to_the_letter(kw) {
        kw.create_permission("a").await;
        let text = "darf \"alles\"\n\\ $1";
        for (name, fields, description, permissions) in [
            ("Chefredakteur:in 'Süd' 🖋", json!({ "description": text }), json!(text), &[][..]),
            ("empty", json!({ "description": "" }), Value::Null, &[]),
            ("twice", json!({ "permissions": ["b", "a", "b", "a"] }), Value::Null, &["a", "b"]),
            ("letters", json!({ "permissions": ["documents.read", "Documents.Read"] }), Value::Null, &["Documents.Read", "documents.read"]),
        ] {
            let mut request = fields;
            request["name"] = json!(name);
            kw.v2("permissions.createRole", request).await.data();
            assert_eq!(role(&kw, name).await, (description, permissions.iter().map(|slug| json!(slug)).collect()), "{name}");
        }
        assert_eq!(kw.count_rows("permissions").await, 4);
    }

    async fn a_missing_permission_is_made_under_its_slug_unless_the_role_is_refused(kw) {
        let role = kw.v2("permissions.createRole", json!({ "name": "editor", "permissions": ["documents.write", "a"] })).await;

        let made = kw.v2("permissions.getPermission", json!({ "permission": "documents.write" })).await;
        assert_eq!(made.data()["name"], "documents.write");
        let connect = "authorization.connect_role_and_permission";
        assert_eq!(kw.list_audit_events("documents.write").await, [connect, "permission.create"]);
        assert_eq!(kw.list_audit_events(&role.text_of("roleId")).await, [connect, connect, "role.create"]);

        let again = json!({ "name": "editor", "permissions": ["documents.read"] });
        kw.v2("permissions.createRole", again).await.assert_error(409, "role_already_exists");
        assert_eq!(kw.count_rows("permissions").await, 2);
        assert!(kw.list_audit_events("documents.read").await.is_empty());
    }

    async fn roles_that_are_given_the_same_new_permission_at_once_are_all_made(kw) {
        let requests = (0..8).map(|n| {
            let request = json!({ "name": format!("role {n}"), "permissions": ["documents.read"] });
            kw.v2("permissions.createRole", request)
        });
        for reply in join_all(requests).await {
            reply.data();
        }
        assert_eq!((kw.count_rows("permissions").await, kw.count_rows("role_permissions").await), (1, 8));
    }

    async fn giving_and_making_permissions_each_need_a_permission_of_their_own(kw) {
        kw.create_permission("documents.read").await;
        let (create, make, give) = ("rbac.*.create_role", "rbac.*.create_permission", "rbac.*.add_permission_to_role");
        for (grants, name, permissions, lacking) in [
            ([create, make], "editor", json!(["documents.read"]), Some(give)),
            ([create, make], "reader", json!([]), None),
            ([create, give], "editor", json!(["documents.read", "documents.write"]), Some(make)),
            ([create, give], "writer", json!(["documents.read"]), None),
        ] {
            let root_key = kw.create_root_key(grants).await;
            let before = kw.count_rows("roles").await;
            let request = json!({ "name": name, "permissions": permissions });
            let reply = kw.v2_as(&root_key, "permissions.createRole", request).await;
            match lacking {
                Some(lacking) => reply.assert_error_about(403, "insufficient_permissions", &[lacking]),
                None => drop(reply.data()),
            }
            assert_eq!(kw.count_rows("roles").await, before + i64::from(lacking.is_none()), "{reply}");
        }
        assert_eq!(kw.count_rows("permissions").await, 1);
    }
}

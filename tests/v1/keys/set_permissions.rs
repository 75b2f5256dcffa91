use serde_json::{Value, json};

use crate::both;
use crate::support::seed::Issued;
use crate::support::{Keyward, Reply};

async fn set(kw: &Keyward, key: &Issued, permissions: Value) -> Reply {
    kw.v1("keys.setPermissions", json!({ "keyId": key.id, "permissions": permissions })).await
}

/// A verification that asks for a permission.
fn needs(slug: &str) -> Value {
    json!({ "authorization": { "permissions": slug } })
}

both! {
    async fn they_replace_those_of_the_key_itself_and_all_are_told(kw) {
        kw.role("editor", ["docs.edit"]).await;
        let [list, write] = [kw.permission("docs.list").await, kw.permission("docs.write").await];
        kw.permission("docs.read").await;
        let fields = json!({ "roles": ["editor"], "permissions": ["docs.read", "docs.list"] });
        let key = kw.key(fields).await;
        kw.verify_v1(&key.key, needs("docs.read")).await.is_v1("VALID");

        let reply = set(&kw, &key, json!([{ "slug": "docs.write" }, { "id": list }])).await;

        let told =
            json!([{ "id": list, "name": "docs.list" }, { "id": write, "name": "docs.write" }]);
        assert_eq!(*reply.bare(), told);
        let has = json!(["docs.edit", "docs.list", "docs.write"]);
        assert_eq!(kw.get_key_v1(&key.id).await["permissions"], has);
        kw.verify_v1(&key.key, needs("docs.read")).await.is_v1("INSUFFICIENT_PERMISSIONS");
        kw.verify_with(&key.key, json!({ "permissions": "docs.write" })).await.is("VALID");
    }

    async fn only_what_changes_is_recorded(kw) {
        for slug in ["docs.read", "docs.list", "docs.write"] {
            kw.permission(slug).await;
        }
        let key = kw.key(json!({ "permissions": ["docs.read", "docs.list"] })).await;
        let created = kw.events_of(&key.id).await.len();
        let items = json!([{ "name": "docs.list" }, { "name": "docs.write" }]);

        set(&kw, &key, items.clone()).await.bare();
        set(&kw, &key, items).await.bare();

        assert_eq!(kw.events_of(&key.id).await.len(), created + 2);
        let disconnect = "authorization.disconnect_permission_and_key".to_owned();
        assert!(kw.events_of("docs.read").await.contains(&disconnect));
        assert!(!kw.events_of("docs.list").await.contains(&disconnect));
    }

    async fn those_that_do_not_exist_are_named_and_none_is_taken(kw) {
        kw.permission("docs.read").await;
        let key = kw.key(json!({ "permissions": ["docs.read"] })).await;
        for (item, named) in [
            (json!({ "name": "docs.ghost" }), "docs.ghost"),
            (json!({ "id": "perm_ghost" }), "perm_ghost"),
        ] {
            let message = set(&kw, &key, json!([item])).await.error_v1(404, "NOT_FOUND");
            assert!(message.contains(named), "{message}");
        }

        kw.verify_v1(&key.key, needs("docs.read")).await.is_v1("VALID");
    }

    async fn a_missing_one_is_made_where_it_is_said(kw) {
        let key = kw.key(json!({})).await;

        let items = json!([{ "slug": "docs.new", "create": true }]);
        let reply = set(&kw, &key, items).await;

        assert_eq!(reply.bare()[0]["name"], "docs.new");
        assert_eq!(kw.get_key(&key.id).await["permissions"], json!(["docs.new"]));
        let connect = "authorization.connect_permission_and_key";
        assert_eq!(kw.events_of("docs.new").await, [connect, "permission.create"]);
    }

    async fn each_change_needs_the_right_to_it(kw) {
        kw.permission("docs.read").await;
        kw.permission("docs.write").await;
        let key = kw.key(json!({ "permissions": ["docs.read"] })).await;
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
            let root_key = kw.root_key_with(held).await;
            let request = json!({ "keyId": key.id, "permissions": items });

            let reply = kw.v1_as(&root_key, "keys.setPermissions", request).await;

            let message = reply.error_v1(403, "INSUFFICIENT_PERMISSIONS");
            assert!(message.contains(missing), "{message}");
        }
        assert_eq!(kw.get_key_v1(&key.id).await["permissions"], json!(["docs.read"]));
        assert_eq!(kw.rows("permissions").await, 2);
    }

    async fn a_right_that_is_not_used_is_not_needed(kw) {
        kw.permission("docs.read").await;
        kw.permission("docs.write").await;
        let key = kw.key(json!({ "permissions": ["docs.read"] })).await;
        let (read, write) = (json!({ "name": "docs.read" }), json!({ "name": "docs.write" }));
        for (held, items, has) in [
            ("add_permission_to_key", json!([read, write]), json!(["docs.read", "docs.write"])),
            ("remove_permission_from_key", json!([write]), json!(["docs.write"])),
        ] {
            let root_key = kw.root_key([&*format!("rbac.*.{held}")]).await;
            let request = json!({ "keyId": key.id, "permissions": items });

            kw.v1_as(&root_key, "keys.setPermissions", request).await.bare();

            assert_eq!(kw.get_key_v1(&key.id).await["permissions"], has);
        }
    }

    async fn an_item_that_names_nothing_is_refused_and_changes_nothing(kw) {
        kw.permission("docs.read").await;
        kw.permission("docs.other").await;
        let key = kw.key(json!({ "permissions": ["docs.read"] })).await;

        let reply = set(&kw, &key, json!([{ "create": true }])).await;

        let message = reply.error_v1(400, "BAD_REQUEST");
        assert!(message.starts_with("permissions.0: "), "{message}");
        assert_eq!(kw.get_key_v1(&key.id).await["permissions"], json!(["docs.read"]));
    }
}

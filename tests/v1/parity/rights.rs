//! Permissions and roles, and which of them a key has.

use serde_json::{Value, json};

use crate::on_both_stacks;
use crate::support::Keyward;

/// What both versions tell that a key has; fails where they do not agree.
async fn has(kw: &Keyward, id: &str) -> (Value, Value) {
    let (by_v1, by_v2) = (kw.get_key_v1(id).await, kw.get_key(id).await);
    for field in ["roles", "permissions"] {
        let told = by_v2.get(field).cloned().unwrap_or(json!([]));
        assert_eq!(by_v1[field], told, "{field}");
    }
    (by_v1["roles"].clone(), by_v1["permissions"].clone())
}

on_both_stacks! {
    async fn a_permission_is_told_alike(kw) {
        let first = json!({ "name": "documents.read", "description": "to read" });
        let first = kw.v1("permissions.createPermission", first).await.v1_body()["permissionId"].clone();
        let second = json!({ "name": "Write them", "slug": "documents.write" });
        let second = kw.v2("permissions.createPermission", second).await.text_of("permissionId");

        for told in [
            json!({ "id": first, "name": "documents.read", "slug": "documents.read", "description": "to read" }),
            json!({ "id": second, "name": "Write them", "slug": "documents.write" }),
        ] {
            let id = told["id"].as_str().unwrap();
            let by_v1 = kw.v1_get("permissions.getPermission", &format!("permissionId={id}")).await;
            let by_v2 = kw.v2("permissions.getPermission", json!({ "permission": id })).await;
            assert_eq!((by_v1.v1_body(), by_v2.data()), (&told, &told));
        }
        let by_v1 = kw.v1_get("permissions.listPermissions", "").await;
        assert_eq!(by_v1.v1_body(), kw.v2("permissions.listPermissions", json!({})).await.data());
        assert_eq!(by_v1.v1_body().as_array().unwrap().len(), 2);
    }

    async fn a_role_is_told_alike_but_for_its_permissions(kw) {
        let first = json!({ "name": "reader", "description": "who reads" });
        let first = kw.v1("permissions.createRole", first).await.v1_body()["roleId"].clone();
        let second = kw.create_role("editor", ["documents.write"]).await;

        for (mut told, permissions) in [
            (json!({ "id": first, "name": "reader", "description": "who reads" }), 0),
            (json!({ "id": second, "name": "editor" }), 1),
        ] {
            let id = told["id"].as_str().unwrap();
            assert_eq!(*kw.v1_get("permissions.getRole", &format!("roleId={id}")).await.v1_body(), told);
            let by_v2 = kw.v2("permissions.getRole", json!({ "role": id })).await;
            if permissions == 1 {
                assert_eq!(by_v2.data()["permissions"][0]["slug"], "documents.write");
                told["permissions"] = by_v2.data()["permissions"].clone();
            }
            assert_eq!(*by_v2.data(), told);
        }
        let by_v1 = kw.v1_get("permissions.listRoles", "").await;
        let by_v2 = kw.v2("permissions.listRoles", json!({})).await;
        let ids = |list: &Value| -> Vec<Value> { list.as_array().unwrap().iter().map(|role| role["id"].clone()).collect() };
        assert_eq!(ids(by_v1.v1_body()), ids(by_v2.data()));
        assert_eq!(ids(by_v1.v1_body()).len(), 2);
    }

    async fn what_a_key_is_given_by_one_version_can_be_taken_by_the_other(kw) {
        let api = kw.create_api().await;
        kw.create_role("editor", ["b"]).await;
        kw.create_role("reader", ["c"]).await;
        kw.create_permission("a").await;
        let key = kw.create_key_v1(&api, json!({})).await;
        let v1 = async |operation: &str, list: &str, items: Value| {
            kw.v1(operation, json!({ "keyId": key.id, list: items })).await.v1_body();
            has(&kw, &key.id).await
        };
        let v2 = async |operation: &str, list: &str, items: Value| {
            kw.v2(operation, json!({ "keyId": key.id, list: items })).await.data();
            has(&kw, &key.id).await
        };

        let added = v1("keys.addRoles", "roles", json!([{ "name": "editor" }])).await;
        assert_eq!(added, (json!(["editor"]), json!(["b"])));
        let added = v2("keys.addRoles", "roles", json!(["reader"])).await;
        assert_eq!(added, (json!(["editor", "reader"]), json!(["b", "c"])));
        let taken = v2("keys.removeRoles", "roles", json!(["editor"])).await;
        assert_eq!(taken, (json!(["reader"]), json!(["c"])));
        let taken = v1("keys.removeRoles", "roles", json!([{ "name": "reader" }])).await;
        assert_eq!(taken, (json!([]), json!([])));

        assert_eq!(v1("keys.addPermissions", "permissions", json!([{ "name": "a" }])).await, (json!([]), json!(["a"])));
        assert_eq!(v2("keys.addPermissions", "permissions", json!(["b"])).await, (json!([]), json!(["a", "b"])));
        assert_eq!(v2("keys.removePermissions", "permissions", json!(["a"])).await, (json!([]), json!(["b"])));
        assert_eq!(v1("keys.removePermissions", "permissions", json!([{ "slug": "b" }])).await, (json!([]), json!([])));

        let set = v1("keys.setRoles", "roles", json!([{ "name": "editor" }])).await;
        assert_eq!(set, (json!(["editor"]), json!(["b"])));
        let set = v2("keys.setRoles", "roles", json!(["reader"])).await;
        assert_eq!(set, (json!(["reader"]), json!(["c"])));
        let set = v2("keys.setPermissions", "permissions", json!(["b"])).await;
        assert_eq!(set, (json!(["reader"]), json!(["b", "c"])));
        let set = v1("keys.setPermissions", "permissions", json!([{ "name": "d", "create": true }])).await;
        assert_eq!(set, (json!(["reader"]), json!(["c", "d"])));
    }

    async fn what_one_version_deletes_is_taken_from_the_keys_of_the_other(kw) {
        let api = kw.create_api().await;
        let (editor, reader) = (kw.create_role("editor", ["b"]).await, kw.create_role("reader", ["c"]).await);
        let (a, b) = (kw.create_permission("a").await, kw.create_permission("b2").await);
        let key = kw.create_key_v1(&api, json!({ "roles": ["editor", "reader"], "permissions": ["a", "b2"] })).await;

        kw.v1("permissions.deleteRole", json!({ "roleId": editor })).await.v1_body();
        kw.v2("permissions.deleteRole", json!({ "role": reader })).await.data();
        kw.v1("permissions.deletePermission", json!({ "permissionId": a })).await.v1_body();
        assert_eq!(has(&kw, &key.id).await, (json!([]), json!(["b2"])));
        kw.v2("permissions.deletePermission", json!({ "permission": b })).await.data();

        assert_eq!(has(&kw, &key.id).await, (json!([]), json!([])));
    }
}

use serde_json::json;

use crate::on_both_stacks;
use crate::support::{Keyward, Reply};

async fn set<const N: usize>(kw: &Keyward, key: &str, names: [&str; N]) -> Reply {
    let request = json!({ "keyId": key, "roles": names.as_slice() });
    kw.v2("keys.setRoles", request).await
}

on_both_stacks! {
    async fn they_replace_all_roles_at_once(kw) {
        for (name, slug) in [("reader", "docs.read"), ("editor", "docs.edit"), ("admin", "all")] {
            kw.create_role(name, [slug]).await;
        }
        let key = kw.create_key(json!({ "roles": ["reader", "admin"] })).await;
        kw.verify_with(&key.key, json!({ "permissions": "docs.read" })).await.assert_code("VALID");

        let reply = set(&kw, &key.id, ["editor", "admin"]).await;

        let items = reply.data().as_array().unwrap();
        let names: Vec<_> = items.iter().map(|item| item["name"].as_str().unwrap()).collect();
        assert_eq!(names, ["admin", "editor"]);
        kw.verify_with(&key.key, json!({ "permissions": "docs.edit" })).await.assert_code("VALID");
        kw.verify_with(&key.key, json!({ "permissions": "docs.read" }))
            .await
            .assert_code("INSUFFICIENT_PERMISSIONS");
    }

    async fn none_at_all_takes_every_one(kw) {
        kw.create_role("reader", ["docs.read"]).await;
        let key = kw.create_key(json!({ "roles": ["reader"] })).await;

        let reply = set(&kw, &key.id, []).await;

        assert_eq!(*reply.data(), json!([]));
        assert_eq!(kw.get_key(&key.id).await.get("roles"), None);
    }

    async fn only_what_changes_is_recorded(kw) {
        kw.create_role("reader", []).await;
        kw.create_role("editor", []).await;
        let key = kw.create_key(json!({ "roles": ["reader"] })).await;

        set(&kw, &key.id, ["editor"]).await.data();
        set(&kw, &key.id, ["editor"]).await.data();

        let connect = "authorization.connect_role_and_key";
        let disconnect = "authorization.disconnect_role_and_key";
        assert_eq!(kw.list_audit_events(&key.id).await, [connect, connect, disconnect, "key.create"]);
    }

    async fn one_that_does_not_exist_is_named_and_nothing_changes(kw) {
        kw.create_role("reader", []).await;
        let key = kw.create_key(json!({ "roles": ["reader"] })).await;

        let reply = set(&kw, &key.id, ["ghost"]).await;

        let detail = reply.assert_error(404, "role_not_found")["detail"].clone();
        assert!(detail.as_str().unwrap().contains("ghost"), "{detail}");
        assert_eq!(kw.get_key(&key.id).await["roles"], json!(["reader"]));
    }
}

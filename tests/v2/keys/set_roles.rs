use serde_json::json;

use crate::both;
use crate::support::{Keyward, Reply};

async fn set<const N: usize>(kw: &Keyward, key: &str, names: [&str; N]) -> Reply {
    let request = json!({ "keyId": key, "roles": names.as_slice() });
    kw.v2("keys.setRoles", request).await
}

both! {
    async fn they_replace_all_roles_at_once(kw) {
        for (name, slug) in [("reader", "docs.read"), ("editor", "docs.edit"), ("admin", "all")] {
            kw.role(name, [slug]).await;
        }
        let key = kw.key(json!({ "roles": ["reader", "admin"] })).await;
        kw.verify_with(&key.key, json!({ "permissions": "docs.read" })).await.is("VALID");

        let reply = set(&kw, &key.id, ["editor", "admin"]).await;

        let items = reply.data().as_array().unwrap();
        let names: Vec<_> = items.iter().map(|item| item["name"].as_str().unwrap()).collect();
        assert_eq!(names, ["admin", "editor"]);
        kw.verify_with(&key.key, json!({ "permissions": "docs.edit" })).await.is("VALID");
        kw.verify_with(&key.key, json!({ "permissions": "docs.read" }))
            .await
            .is("INSUFFICIENT_PERMISSIONS");
    }

    async fn none_at_all_takes_every_one(kw) {
        kw.role("reader", ["docs.read"]).await;
        let key = kw.key(json!({ "roles": ["reader"] })).await;

        let reply = set(&kw, &key.id, []).await;

        assert_eq!(*reply.data(), json!([]));
        assert_eq!(kw.get_key(&key.id).await.get("roles"), None);
    }

    async fn only_what_changes_is_recorded(kw) {
        kw.role("reader", []).await;
        kw.role("editor", []).await;
        let key = kw.key(json!({ "roles": ["reader"] })).await;

        set(&kw, &key.id, ["editor"]).await.data();
        set(&kw, &key.id, ["editor"]).await.data();

        let connect = "authorization.connect_role_and_key";
        let disconnect = "authorization.disconnect_role_and_key";
        assert_eq!(kw.events_of(&key.id).await, [connect, connect, disconnect, "key.create"]);
    }

    async fn one_that_does_not_exist_is_named_and_nothing_changes(kw) {
        kw.role("reader", []).await;
        let key = kw.key(json!({ "roles": ["reader"] })).await;

        let reply = set(&kw, &key.id, ["ghost"]).await;

        let detail = reply.error(404, "role_not_found")["detail"].clone();
        assert!(detail.as_str().unwrap().contains("ghost"), "{detail}");
        assert_eq!(kw.get_key(&key.id).await["roles"], json!(["reader"]));
    }
}

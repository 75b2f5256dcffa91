use serde_json::json;

use crate::on_both_stacks;
use crate::support::{Keyward, Reply};

async fn set<const N: usize>(kw: &Keyward, key: &str, slugs: [&str; N]) -> Reply {
    let request = json!({ "keyId": key, "permissions": slugs.as_slice() });
    kw.v2("keys.setPermissions", request).await
}

on_both_stacks! {
    async fn they_replace_those_of_the_key_itself(kw) {
        kw.create_role("editor", ["docs.edit"]).await;
        let key = kw.create_key(json!({ "roles": ["editor"] })).await;
        set(&kw, &key.id, ["docs.read", "docs.list"]).await.data();
        kw.verify_with(&key.key, json!({ "permissions": "docs.read" })).await.assert_code("VALID");

        let reply = set(&kw, &key.id, ["docs.write", "docs.list"]).await;

        let items = reply.data().as_array().unwrap();
        let slugs: Vec<_> = items.iter().map(|item| item["slug"].as_str().unwrap()).collect();
        assert_eq!(slugs, ["docs.list", "docs.write"]);
        let told = kw.get_key(&key.id).await;
        assert_eq!(told["permissions"], json!(["docs.edit", "docs.list", "docs.write"]));
        kw.verify_with(&key.key, json!({ "permissions": "docs.read" }))
            .await
            .assert_code("INSUFFICIENT_PERMISSIONS");
    }

    async fn none_at_all_takes_every_one(kw) {
        let key = kw.create_key(json!({})).await;
        set(&kw, &key.id, ["docs.read"]).await.data();

        let reply = set(&kw, &key.id, []).await;

        assert_eq!(*reply.data(), json!([]));
        assert_eq!(kw.get_key(&key.id).await.get("permissions"), None);
    }

    async fn only_what_changes_is_recorded(kw) {
        let key = kw.create_key(json!({})).await;
        set(&kw, &key.id, ["docs.read", "docs.list"]).await.data();
        set(&kw, &key.id, ["docs.list", "docs.write"]).await.data();

        set(&kw, &key.id, ["docs.list", "docs.write"]).await.data();

        let connect = "authorization.connect_permission_and_key";
        let disconnect = "authorization.disconnect_permission_and_key";
        let events = kw.list_audit_events(&key.id).await;
        assert_eq!(events, [connect, connect, connect, disconnect, "key.create"]);
    }

    async fn a_missing_one_needs_the_right_to_make_it_else_nothing_changes(kw) {
        let key = kw.create_key(json!({})).await;
        set(&kw, &key.id, ["docs.read"]).await.data();
        let grants = [
            "api.*.update_key", "rbac.*.add_permission_to_key", "rbac.*.remove_permission_from_key",
        ];
        let root_key = kw.create_root_key(grants).await;
        let request = json!({ "keyId": key.id, "permissions": ["docs.new"] });

        let refused = kw.v2_as(&root_key, "keys.setPermissions", request).await;

        refused.assert_error(403, "insufficient_permissions");
        assert_eq!(kw.get_key(&key.id).await["permissions"], json!(["docs.read"]));
    }
}

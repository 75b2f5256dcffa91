use serde_json::json;

use crate::on_both_stacks;
use crate::support::{Keyward, Reply};

async fn remove<const N: usize>(kw: &Keyward, key: &str, names: [&str; N]) -> Reply {
    let request = json!({ "keyId": key, "roles": names.as_slice() });
    kw.v2("keys.removeRoles", request).await
}

on_both_stacks! {
    async fn the_key_loses_them_at_once_and_the_reply_tells_the_rest(kw) {
        kw.create_role("reader", ["docs.read"]).await;
        kw.create_role("editor", ["docs.edit"]).await;
        let key = kw.create_key(json!({ "roles": ["reader", "editor"] })).await;
        kw.verify_with(&key.key, json!({ "permissions": "docs.edit" })).await.assert_code("VALID");

        let reply = remove(&kw, &key.id, ["editor"]).await;

        assert_eq!(reply.data().as_array().unwrap().len(), 1);
        assert_eq!(reply.data()[0]["name"], "reader");
        assert_eq!(reply.data()[0]["permissions"][0]["slug"], "docs.read");
        kw.verify_with(&key.key, json!({ "permissions": "docs.edit" }))
            .await
            .assert_code("INSUFFICIENT_PERMISSIONS");
        let events = kw.list_audit_events("editor").await;
        assert!(events.contains(&"authorization.disconnect_role_and_key".to_owned()));
    }

    async fn one_that_it_does_not_have_is_passed_over(kw) {
        kw.create_role("reader", []).await;
        let key = kw.create_key(json!({})).await;

        let reply = remove(&kw, &key.id, ["reader"]).await;

        assert_eq!(*reply.data(), json!([]));
        assert_eq!(kw.list_audit_events(&key.id).await, ["key.create"]);
    }

    async fn one_that_does_not_exist_is_named_and_nothing_changes(kw) {
        kw.create_role("reader", []).await;
        let key = kw.create_key(json!({ "roles": ["reader"] })).await;

        let reply = remove(&kw, &key.id, ["reader", "ghost"]).await;

        let detail = reply.assert_error(404, "role_not_found")["detail"].clone();
        assert!(detail.as_str().unwrap().contains("ghost"), "{detail}");
        assert_eq!(kw.get_key(&key.id).await["roles"], json!(["reader"]));
    }
}

use serde_json::json;

use crate::on_both_stacks;
use crate::support::{Keyward, Reply};

async fn remove<const N: usize>(kw: &Keyward, key: &str, slugs: [&str; N]) -> Reply {
    let request = json!({ "keyId": key, "permissions": slugs.as_slice() });
    kw.v2("keys.removePermissions", request).await
}

on_both_stacks! {
    async fn the_key_loses_them_at_once_and_the_reply_tells_the_rest(kw) {
        let key = kw.create_key(json!({})).await;
        let request =
            json!({ "keyId": key.id, "permissions": ["docs.read", "docs.list", "docs.write"] });
        kw.v2("keys.addPermissions", request).await.data();
        let query = json!({ "permissions": "docs.read" });
        kw.verify_with(&key.key, query.clone()).await.assert_code("VALID");

        let reply = remove(&kw, &key.id, ["docs.read", "docs.list"]).await;

        assert_eq!(reply.data().as_array().unwrap().len(), 1);
        assert_eq!(reply.data()[0]["slug"], "docs.write");
        kw.verify_with(&key.key, query).await.assert_code("INSUFFICIENT_PERMISSIONS");
        let events = kw.list_audit_events("docs.read").await;
        assert!(events.contains(&"authorization.disconnect_permission_and_key".to_owned()));
    }

    async fn what_it_has_through_a_role_stays(kw) {
        kw.create_role("editor", ["docs.read"]).await;
        let key = kw.create_key(json!({ "roles": ["editor"], "permissions": ["docs.read"] })).await;

        let reply = remove(&kw, &key.id, ["docs.read"]).await;

        assert_eq!(*reply.data(), json!([]));
        kw.verify_with(&key.key, json!({ "permissions": "docs.read" })).await.assert_code("VALID");
    }

    async fn one_that_it_does_not_have_is_passed_over(kw) {
        kw.create_permission("docs.read").await;
        let key = kw.create_key(json!({})).await;
        let before = kw.list_audit_events(&key.id).await;

        let reply = remove(&kw, &key.id, ["docs.read"]).await;

        assert_eq!(*reply.data(), json!([]));
        assert_eq!(kw.list_audit_events(&key.id).await, before);
    }

    async fn those_that_do_not_exist_are_named_and_nothing_changes(kw) {
        kw.create_permission("docs.read").await;
        let key = kw.create_key(json!({ "permissions": ["docs.read"] })).await;

        let reply = remove(&kw, &key.id, ["docs.read", "docs.x", "docs.y"]).await;

        let detail = reply.assert_error(404, "permission_not_found")["detail"].as_str().unwrap().to_owned();
        assert!(detail.contains("docs.x") && detail.contains("docs.y"), "{detail}");
        assert_eq!(kw.get_key(&key.id).await["permissions"], json!(["docs.read"]));
    }
}

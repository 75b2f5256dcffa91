use serde_json::json;

use crate::both;
use crate::support::{Keyward, Reply};

async fn remove<const N: usize>(kw: &Keyward, key: &str, slugs: [&str; N]) -> Reply {
    let request = json!({ "keyId": key, "permissions": slugs.as_slice() });
    kw.v2("keys.removePermissions", request).await
}

both! {
    async fn the_key_loses_them_at_once_and_the_reply_tells_the_rest(kw) {
        let key = kw.key(json!({})).await;
        let request =
            json!({ "keyId": key.id, "permissions": ["docs.read", "docs.list", "docs.write"] });
        kw.v2("keys.addPermissions", request).await.data();
        let query = json!({ "permissions": "docs.read" });
        kw.verify_with(&key.key, query.clone()).await.is("VALID");

        let reply = remove(&kw, &key.id, ["docs.read", "docs.list"]).await;

        assert_eq!(reply.data().as_array().unwrap().len(), 1);
        assert_eq!(reply.data()[0]["slug"], "docs.write");
        kw.verify_with(&key.key, query).await.is("INSUFFICIENT_PERMISSIONS");
        let events = kw.events_of("docs.read").await;
        assert!(events.contains(&"authorization.disconnect_permission_and_key".to_owned()));
    }

    async fn what_it_has_through_a_role_stays(kw) {
        kw.role("editor", ["docs.read"]).await;
        let key = kw.key(json!({ "roles": ["editor"], "permissions": ["docs.read"] })).await;

        let reply = remove(&kw, &key.id, ["docs.read"]).await;

        assert_eq!(*reply.data(), json!([]));
        kw.verify_with(&key.key, json!({ "permissions": "docs.read" })).await.is("VALID");
    }

    async fn one_that_it_does_not_have_is_passed_over(kw) {
        kw.permission("docs.read").await;
        let key = kw.key(json!({})).await;
        let before = kw.events_of(&key.id).await;

        let reply = remove(&kw, &key.id, ["docs.read"]).await;

        assert_eq!(*reply.data(), json!([]));
        assert_eq!(kw.events_of(&key.id).await, before);
    }

    async fn those_that_do_not_exist_are_named_and_nothing_changes(kw) {
        kw.permission("docs.read").await;
        let key = kw.key(json!({ "permissions": ["docs.read"] })).await;

        let reply = remove(&kw, &key.id, ["docs.read", "docs.x", "docs.y"]).await;

        let detail = reply.error(404, "permission_not_found")["detail"].as_str().unwrap().to_owned();
        assert!(detail.contains("docs.x") && detail.contains("docs.y"), "{detail}");
        assert_eq!(kw.get_key(&key.id).await["permissions"], json!(["docs.read"]));
    }
}

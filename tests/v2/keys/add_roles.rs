use serde_json::{Value, json};

use crate::on_both_stacks;
use crate::support::{Keyward, Reply};

async fn add<const N: usize>(kw: &Keyward, key: &str, names: [&str; N]) -> Reply {
    let request = json!({ "keyId": key, "roles": names.as_slice() });
    kw.v2("keys.addRoles", request).await
}

fn names(reply: &Reply) -> Vec<&Value> {
    reply.data().as_array().unwrap().iter().map(|item| &item["name"]).collect()
}

on_both_stacks! {
    async fn the_key_has_their_permissions_at_once_and_the_reply_tells_all_roles(kw) {
        for (name, slug) in [("reader", "docs.read"), ("editor", "docs.edit"), ("admin", "all")] {
            kw.create_role(name, [slug]).await;
        }
        let key = kw.create_key(json!({ "roles": ["reader"] })).await;
        kw.verify(&key.key).await.assert_code("VALID");

        let reply = add(&kw, &key.id, ["editor", "admin"]).await;

        assert_eq!(names(&reply), ["reader", "admin", "editor"]);
        assert_eq!(reply.data()[2]["permissions"][0]["slug"], "docs.edit");
        kw.verify_with(&key.key, json!({ "permissions": "docs.edit" })).await.assert_code("VALID");
        assert_eq!(
            kw.list_audit_events("editor").await,
            [
                "authorization.connect_role_and_key",
                "authorization.connect_role_and_permission",
                "role.create",
            ]
        );
    }

    async fn one_that_it_has_already_is_passed_over(kw) {
        kw.create_role("reader", []).await;
        let key = kw.create_key(json!({ "roles": ["reader"] })).await;
        let before = kw.list_audit_events(&key.id).await;

        let reply = add(&kw, &key.id, ["reader", "reader"]).await;

        assert_eq!(names(&reply), ["reader"]);
        assert_eq!(kw.list_audit_events(&key.id).await, before);
    }

    async fn those_that_do_not_exist_are_named_and_nothing_changes(kw) {
        kw.create_role("reader", []).await;
        let key = kw.create_key(json!({})).await;

        let reply = add(&kw, &key.id, ["reader", "ghost", "Reader"]).await;

        let detail = reply.assert_error(404, "role_not_found")["detail"].as_str().unwrap().to_owned();
        assert!(detail.contains("ghost") && detail.contains("Reader"), "{detail}");
        assert_eq!(kw.get_key(&key.id).await.get("roles"), None);
    }

    async fn a_key_has_a_hundred_and_no_more(kw) {
        let key = kw.create_key(json!({})).await;
        let all: Vec<_> = (0..101).map(|n| format!("role {n}")).collect();
        for name in &all {
            kw.create_role(name, []).await;
        }
        let request = json!({ "keyId": key.id, "roles": all[..100] });
        kw.v2("keys.addRoles", request).await.data();

        let over = add(&kw, &key.id, ["role 100"]).await;

        let detail = over.assert_error(412, "precondition_failed")["detail"].clone();
        assert!(detail.as_str().unwrap().contains("100"), "{detail}");
        assert_eq!(kw.get_key(&key.id).await["roles"].as_array().unwrap().len(), 100);
    }
}

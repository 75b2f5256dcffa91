use serde_json::{Value, json};

use crate::on_both_stacks;
use crate::support::seed::IssuedKey;
use crate::support::{Keyward, Reply};

async fn remove(kw: &Keyward, key: &IssuedKey, roles: Value) -> Reply {
    kw.v1("keys.removeRoles", json!({ "keyId": key.id, "roles": roles })).await
}

/// A verification that asks for a permission.
fn needs(slug: &str) -> Value {
    json!({ "authorization": { "permissions": slug } })
}

/// A key with the roles `a` to `d`, each with a permission of its own, and their ids.
async fn planted(kw: &Keyward) -> (IssuedKey, Vec<String>) {
    let mut ids = Vec::new();
    for (name, slug) in [("a", "docs.a"), ("b", "docs.b"), ("c", "docs.c"), ("d", "docs.d")] {
        ids.push(kw.create_role(name, [slug]).await);
    }
    (kw.create_key(json!({ "roles": ["a", "b", "c", "d"] })).await, ids)
}

on_both_stacks! {
    async fn every_one_that_is_named_is_taken_at_once(kw) {
        let (key, ids) = planted(&kw).await;
        for slug in ["docs.a", "docs.b"] {
            kw.verify_v1(&key.key, needs(slug)).await.assert_v1_code("VALID");
        }

        let reply = remove(&kw, &key, json!([{ "id": ids[0] }, { "name": "b" }])).await;

        assert_eq!(reply.text, "{}");
        for slug in ["docs.a", "docs.b"] {
            kw.verify_v1(&key.key, needs(slug)).await.assert_v1_code("INSUFFICIENT_PERMISSIONS");
        }
        let verified = kw.verify(&key.key).await;
        assert_eq!(verified.data()["roles"], json!(["c", "d"]));
        assert_eq!(kw.get_key_v1(&key.id).await["roles"], json!(["c", "d"]));
        assert_eq!(kw.count_rows("roles").await, 4);
    }

    async fn of_an_id_and_a_name_the_id_counts(kw) {
        let (key, ids) = planted(&kw).await;

        remove(&kw, &key, json!([{ "id": ids[0], "name": "b" }])).await.v1_body();

        assert_eq!(kw.get_key_v1(&key.id).await["roles"], json!(["b", "c", "d"]));
    }

    async fn what_is_not_there_is_passed_over_and_never_made(kw) {
        let (key, _) = planted(&kw).await;
        kw.create_role("other", []).await;
        let items = json!([
            { "name": "ghost" }, { "id": "role_ghost" }, { "name": "other" },
            { "name": "new role", "create": true }, { "name": "a" },
        ]);

        let reply = remove(&kw, &key, items).await;

        assert_eq!(*reply.v1_body(), json!({}));
        assert_eq!(kw.get_key_v1(&key.id).await["roles"], json!(["b", "c", "d"]));
        assert_eq!(kw.count_rows("roles").await, 5);
    }

    async fn only_what_is_taken_is_recorded(kw) {
        let (key, _) = planted(&kw).await;
        let before = kw.list_audit_events(&key.id).await.len();

        remove(&kw, &key, json!([{ "name": "a" }])).await.v1_body();
        remove(&kw, &key, json!([{ "name": "a" }])).await.v1_body();

        assert_eq!(kw.list_audit_events(&key.id).await.len(), before + 1);
        let disconnect = "authorization.disconnect_role_and_key".to_owned();
        assert!(kw.list_audit_events("a").await.contains(&disconnect));
    }

    async fn the_right_to_take_is_all_it_needs(kw) {
        let (key, _) = planted(&kw).await;
        let root_key = kw.create_root_key(["rbac.*.remove_role_from_key"]).await;
        let request = json!({ "keyId": key.id, "roles": [{ "name": "a" }] });

        kw.v1_as(&root_key, "keys.removeRoles", request).await.v1_body();

        kw.verify_v1(&key.key, needs("docs.a")).await.assert_v1_code("INSUFFICIENT_PERMISSIONS");
    }

    async fn an_item_that_names_nothing_is_refused_and_takes_nothing(kw) {
        let (key, _) = planted(&kw).await;

        let reply = remove(&kw, &key, json!([{ "name": "a" }, {}])).await;

        let message = reply.assert_v1_error(400, "BAD_REQUEST");
        assert!(message.starts_with("roles.1: "), "{message}");
        kw.verify_v1(&key.key, needs("docs.a")).await.assert_v1_code("VALID");
    }

    async fn a_key_that_is_not_there_is_named(kw) {
        let (key, _) = planted(&kw).await;
        kw.v1("keys.deleteKey", json!({ "keyId": key.id })).await.v1_body();

        for operation in ["keys.addRoles", "keys.setRoles", "keys.removeRoles"] {
            let request = json!({ "keyId": key.id, "roles": [{ "name": "a" }] });
            let message = kw.v1(operation, request).await.assert_v1_error(404, "NOT_FOUND");
            assert!(message.contains(&key.id), "{operation}: {message}");
        }
    }
}

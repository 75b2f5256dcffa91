use serde_json::{Value, json};

use crate::both;
use crate::support::seed::Issued;
use crate::support::{Keyward, Reply};

async fn remove(kw: &Keyward, key: &Issued, permissions: Value) -> Reply {
    kw.v1("keys.removePermissions", json!({ "keyId": key.id, "permissions": permissions })).await
}

/// A verification that asks for a permission.
fn needs(slug: &str) -> Value {
    json!({ "authorization": { "permissions": slug } })
}

/// A key with the permissions `docs.a` to `docs.d`, and the ids of these.
async fn planted(kw: &Keyward) -> (Issued, Vec<String>) {
    let slugs = ["docs.a", "docs.b", "docs.c", "docs.d"];
    let mut ids = Vec::new();
    for slug in slugs {
        ids.push(kw.permission(slug).await);
    }
    (kw.key(json!({ "permissions": slugs })).await, ids)
}

both! {
    async fn every_one_that_is_named_is_taken_at_once(kw) {
        let (key, ids) = planted(&kw).await;
        for slug in ["docs.a", "docs.b", "docs.c"] {
            kw.verify_v1(&key.key, needs(slug)).await.is_v1("VALID");
        }

        let items = json!([{ "id": ids[0] }, { "name": "docs.b" }, { "slug": "docs.c" }]);
        let reply = remove(&kw, &key, items).await;

        assert_eq!(reply.text, "{}");
        for slug in ["docs.a", "docs.b", "docs.c"] {
            kw.verify_v1(&key.key, needs(slug)).await.is_v1("INSUFFICIENT_PERMISSIONS");
        }
        kw.verify_with(&key.key, json!({ "permissions": "docs.b" }))
            .await
            .is("INSUFFICIENT_PERMISSIONS");
        assert_eq!(kw.get_key_v1(&key.id).await["permissions"], json!(["docs.d"]));
        assert_eq!(kw.rows("permissions").await, 4);
    }

    async fn of_an_id_and_a_name_the_id_counts(kw) {
        let (key, ids) = planted(&kw).await;

        remove(&kw, &key, json!([{ "id": ids[0], "name": "docs.b" }])).await.bare();

        let has = json!(["docs.b", "docs.c", "docs.d"]);
        assert_eq!(kw.get_key_v1(&key.id).await["permissions"], has);
    }

    async fn what_is_not_there_is_passed_over_and_never_made(kw) {
        let (key, _) = planted(&kw).await;
        kw.permission("docs.other").await;
        let items = json!([
            { "name": "docs.ghost" }, { "id": "perm_ghost" }, { "name": "docs.other" },
            { "name": "docs.new", "create": true }, { "name": "docs.a" },
        ]);

        let reply = remove(&kw, &key, items).await;

        assert_eq!(*reply.bare(), json!({}));
        let has = json!(["docs.b", "docs.c", "docs.d"]);
        assert_eq!(kw.get_key_v1(&key.id).await["permissions"], has);
        assert_eq!(kw.rows("permissions").await, 5);
    }

    async fn what_it_has_through_a_role_stays(kw) {
        kw.role("editor", ["docs.read"]).await;
        let key = kw.key(json!({ "roles": ["editor"], "permissions": ["docs.read"] })).await;

        remove(&kw, &key, json!([{ "name": "docs.read" }])).await.bare();

        kw.verify_v1(&key.key, needs("docs.read")).await.is_v1("VALID");
    }

    async fn only_what_is_taken_is_recorded(kw) {
        let (key, _) = planted(&kw).await;
        let before = kw.events_of(&key.id).await.len();

        remove(&kw, &key, json!([{ "name": "docs.a" }])).await.bare();
        remove(&kw, &key, json!([{ "name": "docs.a" }])).await.bare();

        assert_eq!(kw.events_of(&key.id).await.len(), before + 1);
        let disconnect = "authorization.disconnect_permission_and_key".to_owned();
        assert!(kw.events_of("docs.a").await.contains(&disconnect));
    }

    async fn the_right_to_take_is_all_it_needs(kw) {
        let (key, _) = planted(&kw).await;
        let root_key = kw.root_key(["rbac.*.remove_permission_from_key"]).await;
        let request = json!({ "keyId": key.id, "permissions": [{ "name": "docs.a" }] });

        kw.v1_as(&root_key, "keys.removePermissions", request).await.bare();

        kw.verify_v1(&key.key, needs("docs.a")).await.is_v1("INSUFFICIENT_PERMISSIONS");
    }

    async fn an_item_that_names_nothing_is_refused_and_takes_nothing(kw) {
        let (key, _) = planted(&kw).await;

        let reply = remove(&kw, &key, json!([{ "name": "docs.a" }, {}])).await;

        let message = reply.error_v1(400, "BAD_REQUEST");
        assert!(message.starts_with("permissions.1: "), "{message}");
        kw.verify_v1(&key.key, needs("docs.a")).await.is_v1("VALID");
    }

    async fn a_key_that_is_not_there_is_named(kw) {
        let (key, _) = planted(&kw).await;
        kw.v1("keys.deleteKey", json!({ "keyId": key.id })).await.bare();

        for operation in ["keys.addPermissions", "keys.setPermissions", "keys.removePermissions"] {
            let request = json!({ "keyId": key.id, "permissions": [{ "name": "docs.a" }] });
            let message = kw.v1(operation, request).await.error_v1(404, "NOT_FOUND");
            assert!(message.contains(&key.id), "{operation}: {message}");
        }
    }
}

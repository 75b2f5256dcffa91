//! With strict grants a root key gives keys only the permissions and roles that its `rbac.*` permissions allow.

use serde_json::{Value, json};

use crate::support::{Keyward, Reply, Stack};

async fn strict(stack: Stack) -> Keyward {
    let kw = Keyward::start_with(stack, |settings| settings.security.strict_grants = true).await;
    kw.role("editor", ["docs.edit"]).await;
    kw.permission("docs.read").await;
    kw
}

#[track_caller]
fn lacks(reply: &Reply, permission: &str) {
    let detail = reply.error(403, "insufficient_permissions")["detail"].clone();
    assert!(detail.as_str().unwrap().contains(permission), "{detail}");
}

async fn each_operation_asks(kw: Keyward) {
    let api = kw.api().await;
    let key = kw.key_in(&api, json!({})).await;
    let bare = kw.root_key(["api.*.create_key", "api.*.update_key"]).await;
    let may = [
        "api.*.create_key",
        "api.*.update_key",
        "rbac.*.add_permission_to_key",
        "rbac.*.remove_permission_from_key",
        "rbac.*.add_role_to_key",
        "rbac.*.remove_role_from_key",
    ];
    let may = kw.root_key(may).await;
    let (permissions, roles) = (json!(["docs.read"]), json!(["editor"]));
    let migrated = |hash: &str, field: &str, names: &Value| json!({ "hash": hash, "enabled": true, field: names });
    let migration = kw.app.store.store().is_ok();
    assert!(migration);
    let requests = [
        (
            "keys.createKey",
            json!({ "apiId": api, "permissions": permissions }),
            "rbac.*.add_permission_to_key",
        ),
        ("keys.createKey", json!({ "apiId": api, "roles": roles }), "rbac.*.add_role_to_key"),
        (
            "keys.updateKey",
            json!({ "keyId": key.id, "permissions": permissions }),
            "rbac.*.add_permission_to_key",
        ),
        ("keys.updateKey", json!({ "keyId": key.id, "roles": roles }), "rbac.*.add_role_to_key"),
        ("keys.setRoles", json!({ "keyId": key.id, "roles": roles }), "rbac.*.add_role_to_key"),
    ];
    let migrations = [
        (migrated("a_hash_1", "permissions", &permissions), "rbac.*.add_permission_to_key"),
        (migrated("a_hash_2", "roles", &roles), "rbac.*.add_role_to_key"),
    ];

    for (operation, request, needed) in &requests {
        lacks(&kw.v2_as(&bare, operation, request.clone()).await, needed);
    }
    for (item, needed) in migrations {
        let request = json!({ "migrationId": "migration_1", "apiId": api, "keys": [item] });
        lacks(&kw.v2_as(&bare, "keys.migrateKeys", request).await, needed);
    }
    assert_eq!(kw.get_key(&key.id).await.get("permissions"), None);
    for (operation, request, _) in requests {
        kw.v2_as(&may, operation, request).await.data();
    }
    let taken = json!({ "keyId": key.id, "roles": ["editor"] });
    lacks(&kw.v2_as(&bare, "keys.removeRoles", taken.clone()).await, "rbac.*.remove_role_from_key");
    kw.v2_as(&may, "keys.removeRoles", taken).await.data();
    // What is already there may stay.
    let same = json!({ "keyId": key.id, "permissions": ["docs.read"], "name": "renamed" });
    kw.v2_as(&bare, "keys.updateKey", same).await.data();
    // A re-rolled key has all that the old one has.
    let again = json!({ "keyId": key.id, "expiration": 60_000 });
    let needed = "rbac.*.add_permission_to_key";
    lacks(&kw.v2_as(&bare, "keys.rerollKey", again.clone()).await, needed);
    kw.v2_as(&may, "keys.rerollKey", again).await.data();
}

#[tokio::test]
async fn each_operation_asks_for_the_rights_embedded() {
    each_operation_asks(strict(Stack::Embedded).await).await;
}

#[tokio::test]
async fn each_operation_asks_for_the_rights_replica() {
    each_operation_asks(strict(Stack::Replica).await).await;
}

//! What was never created, is written in other letters or was deleted is not found, and the error names it.

use serde_json::{Value, json};

use super::World;
use crate::on_both_stacks;
use crate::support::Keyward;
use crate::support::version::Version::{self, V1, V2};

/// The operation, the request, the placeholder of what is absent, and the error.
type Row = (Version, &'static str, Value, &'static str, &'static str);

#[rustfmt::skip]
fn rows() -> Vec<Row> {
    let api = json!({ "apiId": "{api}" });
    let key = json!({ "keyId": "{keyId}" });
    let purge = json!({ "keyId": "{keyId}", "permanent": true });
    let rename = json!({ "keyId": "{keyId}", "name": "still there" });
    let plaintext = json!({ "key": "{key}" });
    let of_key = "key_not_found";
    let mut rows: Vec<Row> = Vec::new();
    for version in [V1, V2] {
        rows.extend([
            (version, "apis.getApi", api.clone(), "{api}", "api_not_found"),
            (version, "apis.listKeys", api.clone(), "{api}", "api_not_found"),
            (version, "apis.deleteApi", api.clone(), "{api}", "api_not_found"),
            (version, "keys.createKey", api.clone(), "{api}", "api_not_found"),
            (version, "keys.getKey", key.clone(), "{keyId}", of_key),
            (version, "keys.getKey", json!({ "keyId": "{key}" }), "{key}", of_key),
            (version, "keys.updateKey", rename.clone(), "{keyId}", of_key),
            (version, "keys.deleteKey", key.clone(), "{keyId}", of_key),
            (version, "keys.deleteKey", purge.clone(), "{keyId}", of_key),
            (version, "keys.whoami", plaintext.clone(), "{key}", of_key),
        ]);
    }
    for operation in ["keys.addPermissions", "keys.setPermissions", "keys.removePermissions"] {
        rows.push((V1, operation, json!({ "keyId": "{keyId}", "permissions": [{ "name": "{slug}" }] }), "{keyId}", of_key));
    }
    for operation in ["keys.addRoles", "keys.setRoles", "keys.removeRoles"] {
        rows.push((V1, operation, json!({ "keyId": "{keyId}", "roles": [{ "name": "{role}" }] }), "{keyId}", of_key));
    }
    rows.extend([
        (V1, "apis.deleteKeys", api, "{api}", "api_not_found"),
        (V1, "keys.updateRemaining", json!({ "keyId": "{keyId}", "op": "set", "value": 1 }), "{keyId}", of_key),
        (V2, "keys.updateCredits", json!({ "keyId": "{keyId}", "operation": "set", "value": 1 }), "{keyId}", of_key),
        (V2, "keys.rerollKey", json!({ "keyId": "{keyId}", "expiration": 0 }), "{keyId}", of_key),
        (V1, "identities.getIdentity", json!({ "externalId": "{externalId}" }), "{externalId}", "identity_not_found"),
        (V1, "identities.getIdentity", json!({ "identityId": "{identityId}" }), "{identityId}", "identity_not_found"),
        (V1, "identities.updateIdentity", json!({ "externalId": "{externalId}", "meta": {} }), "{externalId}", "identity_not_found"),
        (V1, "identities.deleteIdentity", json!({ "identityId": "{identityId}" }), "{identityId}", "identity_not_found"),
        (V2, "identities.getIdentity", json!({ "identity": "{externalId}" }), "{externalId}", "identity_not_found"),
        (V2, "identities.updateIdentity", json!({ "identity": "{externalId}" }), "{externalId}", "identity_not_found"),
        (V2, "identities.deleteIdentity", json!({ "identity": "{externalId}" }), "{externalId}", "identity_not_found"),
        (V1, "permissions.getPermission", json!({ "permissionId": "{permissionId}" }), "{permissionId}", "permission_not_found"),
        (V1, "permissions.deletePermission", json!({ "permissionId": "{permissionId}" }), "{permissionId}", "permission_not_found"),
        (V2, "permissions.getPermission", json!({ "permission": "{slug}" }), "{slug}", "permission_not_found"),
        (V1, "permissions.getRole", json!({ "roleId": "{roleId}" }), "{roleId}", "role_not_found"),
        (V1, "permissions.deleteRole", json!({ "roleId": "{roleId}" }), "{roleId}", "role_not_found"),
        (V2, "permissions.getRole", json!({ "role": "{role}" }), "{role}", "role_not_found"),
        // A role is named by its id alone here.
        (V2, "permissions.setRolePermissions", json!({ "roleId": "{role}", "permissions": [] }), "{role}", "role_not_found"),
    ]);
    rows
}

/// Sends each row about one of these, with what else it needs from `rest`, and expects that it is not found.
async fn assert_absent(kw: &Keyward, world: &World, absent: &[&str]) {
    for (version, operation, request, subject, error) in rows() {
        if !absent.contains(&subject) {
            continue;
        }
        let reply = kw.call(version, &kw.root_key, operation, world.request(&request)).await;
        if subject == "{key}" {
            // A key that is shown is not repeated.
            reply.assert_refused(version, error, &[]);
            assert!(
                operation == "keys.getKey" || !reply.text.contains(world.get("{key}")),
                "{reply}"
            );
        } else {
            let kind = error.trim_end_matches("_not_found");
            reply.assert_refused(
                version,
                error,
                &[world.get(subject), if kind == "api" { "API" } else { kind }],
            );
        }
    }
}

const ALL: [&str; 9] = [
    "{api}",
    "{keyId}",
    "{key}",
    "{identityId}",
    "{externalId}",
    "{permissionId}",
    "{slug}",
    "{roleId}",
    "{role}",
];

on_both_stacks! {
    async fn what_was_never_created_is_not_found(kw) {
        let before = kw.count_audit_entries().await;
        assert_absent(&kw, &World::nowhere(), &ALL).await;
        assert_eq!(kw.count_audit_entries().await, before);
    }

    async fn what_is_written_in_other_letters_is_not_found(kw) {
        let world = World::create(&kw, "a").await;
        for misspelled in world.misspelled() {
            let others: Vec<_> = ALL.into_iter().filter(|name| misspelled.get(name) != world.get(name)).collect();
            assert_absent(&kw, &misspelled, &others).await;
        }
    }

    async fn what_was_deleted_is_not_found(kw) {
        for (at, (operation, request, absent)) in [
            ("apis.deleteApi", json!({ "apiId": "{api}" }), &["{api}", "{keyId}", "{key}"][..]),
            ("keys.deleteKey", json!({ "keyId": "{keyId}" }), &["{keyId}", "{key}"]),
            ("keys.deleteKey", json!({ "keyId": "{keyId}", "permanent": true }), &["{keyId}", "{key}"]),
            ("identities.deleteIdentity", json!({ "identity": "{externalId}" }), &["{identityId}", "{externalId}"]),
            ("permissions.deletePermission", json!({ "permission": "{slug}" }), &["{permissionId}", "{slug}"]),
            ("permissions.deleteRole", json!({ "role": "{role}" }), &["{roleId}", "{role}"]),
        ].into_iter().enumerate() {
            let world = World::create(&kw, &format!("a{at}")).await;
            kw.verify(world.get("{key}")).await.assert_code("VALID");
            assert_eq!(kw.v2(operation, world.request(&request)).await.status, 200);
            let before = kw.count_audit_entries().await;

            assert_absent(&kw, &world, absent).await;

            assert_eq!(kw.count_audit_entries().await, before);
            if absent.contains(&"{key}") {
                assert_eq!(*kw.verify(world.get("{key}")).await.data(), json!({ "valid": false, "code": "NOT_FOUND" }));
            }
        }
    }
}

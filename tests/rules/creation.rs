//! What is created has an id of its own, is in the audit log, and takes a name once.

use domain::root_keys::default_workspace;
use foundation::id::PermissionId;
use foundation::model::Permission;
use futures_util::future::join_all;
use serde_json::{Value, json};

use super::{World, with};
use crate::on_both_stacks;
use crate::support::json::Fields as _;
use crate::support::version::Version::{V1, V2};
use crate::support::{Keyward, NOON, Stack};

on_both_stacks! {
    async fn the_reply_is_the_new_id_and_the_creation_is_in_the_audit_log(kw) {
        let world = World::create(&kw, "a").await;
        let limits = json!([{ "name": "one", "limit": 1, "duration": 1000 }, { "name": "two", "limit": 2, "duration": 2000 }]);
        let limit = json!({ "limit": 1, "duration": 1000, "identifier": "user_9" });
        let identity = |user: &str| json!({ "externalId": user, "ratelimits": limits });
        for (version, operation, request, fields, start, length, name, events) in [
            (V1, "apis.createApi", json!({ "name": "payments" }), "apiId,name", "api_", 20, "payments", "api.create"),
            (V2, "apis.createApi", json!({ "name": "billing" }), "apiId", "api_", 20, "billing", "api.create"),
            (V1, "keys.createKey", json!({ "apiId": "{api}", "name": "key 1" }), "key,keyId", "key_", 20, "key 1", "key.create"),
            (V2, "keys.createKey", json!({ "apiId": "{api}", "name": "key 2" }), "key,keyId", "key_", 20, "key 2", "key.create"),
            (V1, "identities.createIdentity", identity("user_41"), "identityId", "id_", 19, "user_41", "identity.create,ratelimit.create,ratelimit.create"),
            (V2, "identities.createIdentity", identity("user_2"), "identityId", "id_", 19, "user_2", "identity.create,ratelimit.create,ratelimit.create"),
            (V1, "permissions.createPermission", json!({ "name": "docs.1" }), "permissionId", "perm_", 21, "docs.1", "permission.create"),
            (V2, "permissions.createPermission", json!({ "name": "Read", "slug": "docs.2" }), "permissionId", "perm_", 21, "docs.2", "permission.create"),
            (V1, "permissions.createRole", json!({ "name": "reader" }), "roleId", "role_", 21, "reader", "role.create"),
            (V2, "permissions.createRole", json!({ "name": "editor" }), "roleId", "role_", 21, "editor", "role.create"),
            (V1, "ratelimits.setOverride", with(limit.clone(), json!({ "namespaceName": "{namespace}" })), "overrideId", "rlor_", 21, "", "ratelimit.set_override"),
            (V2, "ratelimit.setOverride", with(limit.clone(), json!({ "namespace": "{namespace}", "identifier": "user_8" })), "overrideId", "rlor_", 21, "", "ratelimit.set_override"),
        ] {
            let reply = kw.call(version, &kw.root_key, operation, world.request(&request)).await;

            let told = reply.told(version);
            assert_eq!(told.as_object().unwrap().keys().cloned().collect::<Vec<_>>().join(","), fields, "{reply}");
            let id = fields.split(',').find(|field| field.ends_with("Id")).unwrap();
            let id = told[id].as_str().unwrap();
            assert!(id.starts_with(start) && id.len() >= length, "{id}");
            assert_eq!(kw.list_audit_events(id).await.join(","), events, "{reply}");
            if let Some(key) = told.get("key") {
                kw.verify(key.as_str().unwrap()).await.assert_code("VALID").assert_has(json!({ "keyId": id }));
                kw.verify_v1(key.as_str().unwrap(), json!({})).await.assert_v1_code("VALID").assert_has(json!({ "keyId": id }));
            }
            if let Some(told) = told.get("name") {
                assert_eq!(told, name);
            }
            if !name.is_empty() {
                assert_eq!(kw.list_audit_events(name).await.join(","), events, "{reply}");
            }
        }
    }

    async fn a_name_is_taken_once_in_a_workspace(kw) {
        let stranger = kw.create_other_workspace().await;
        for (version, kind, request, again) in [
            (V1, "identity", json!({ "externalId": "user_1" }), json!({ "externalId": "user_1", "meta": { "plan": "free" } })),
            (V2, "identity", json!({ "externalId": "user_2" }), json!({ "externalId": "user_2" })),
            (V1, "permission", json!({ "name": "reading", "slug": "docs.1" }), json!({ "name": "other", "slug": "docs.1" })),
            (V1, "permission", json!({ "name": "reading", "slug": "docs.2" }), json!({ "name": "docs.2" })),
            (V2, "permission", json!({ "name": "n", "slug": "docs.3" }), json!({ "name": "Another name", "slug": "docs.3" })),
            (V1, "role", json!({ "name": "reader" }), json!({ "name": "reader", "description": "another" })),
            (V2, "role", json!({ "name": "editor" }), json!({ "name": "editor" })),
        ] {
            let (operation, table) = match kind {
                "identity" => ("identities.createIdentity", "identities"),
                "permission" => ("permissions.createPermission", "permissions"),
                _ => ("permissions.createRole", "roles"),
            };
            let before = kw.count_rows(table).await;
            let name = ["externalId", "slug", "name"].iter().find_map(|field| request[field].as_str()).unwrap();
            let id = |told: &Value| ["identityId", "permissionId", "roleId"].iter().find_map(|field| told[field].as_str()).unwrap().to_owned();

            // One of many requests at once.
            let replies = join_all((0..8).map(|_| kw.call(version, &kw.root_key, operation, request.clone()))).await;
            let (made, rest): (Vec<_>, Vec<_>) = replies.iter().partition(|reply| reply.status == 200);
            let late = kw.call(version, &kw.root_key, operation, again).await;
            kw.call(version, &stranger, operation, request.clone()).await.told(version);

            assert_eq!(made.len(), 1, "{operation}");
            for refused in rest.into_iter().chain([&late]) {
                refused.assert_refused(version, &format!("{kind}_already_exists"), &[name]);
            }
            assert_eq!(kw.count_rows(table).await, before + 2, "{operation}");
            assert_eq!(kw.list_audit_events(&id(made[0].told(version))).await, [format!("{kind}.create")]);
        }
    }

    async fn names_that_differ_in_letter_case_or_need_not_differ_are_several(kw) {
        for (operation, requests, table) in [
            ("apis.createApi", ["payments", "payments"].map(|name| json!({ "name": name })), "apis"),
            ("identities.createIdentity", ["user_41", "User_1"].map(|user| json!({ "externalId": user })), "identities"),
            ("permissions.createPermission", ["docs.read", "docs.write"].map(|slug| json!({ "name": "Documents", "slug": slug })), "permissions"),
            ("permissions.createPermission", ["users.ban", "Users.Ban"].map(|slug| json!({ "name": slug, "slug": slug })), "permissions"),
            ("permissions.createRole", ["editor", "Editor"].map(|name| json!({ "name": name })), "roles"),
        ] {
            let before = kw.count_rows(table).await;
            for reply in join_all(requests.map(|request| kw.v2(operation, request))).await {
                reply.data();
            }
            assert_eq!(kw.count_rows(table).await, before + 2, "{operation}");
        }
        for _ in 0..2 {
            kw.v1("apis.createApi", json!({ "name": "payments" })).await.v1_body();
        }
        let key = kw.create_key(json!({ "permissions": ["Users.Ban"], "roles": ["Editor"] })).await;
        let told = kw.get_key(&key.id).await;
        assert_eq!((&told["permissions"], &told["roles"]), (&json!(["Users.Ban"]), &json!(["Editor"])));
    }
}

/// Whoever writes keys locks their identities first, then permissions.
#[tokio::test]
async fn key_is_created_when_another_transaction_creates_its_identity_and_its_permission() {
    let kw = Keyward::start(Stack::Replica).await;
    let request = json!({ "apiId": kw.create_api().await, "externalId": "user_1", "permissions": ["docs.read"] });
    let workspace = default_workspace();
    let mut other = kw.store().begin().await.unwrap();
    other.ensure_identity(&workspace, "user_1", None, NOON).await.unwrap();
    let slug = "docs.read".to_owned();
    let permission =
        Permission { id: PermissionId::random(), name: slug.clone(), slug, description: None };

    let insert = async {
        kw.wait_until_blocked(1).await;
        other.insert_permissions(&workspace, &[permission], NOON).await.unwrap();
        kw.app.context.commit(other).await.unwrap();
    };
    let (created, ()) = tokio::join!(kw.v2("keys.createKey", request), insert);

    created.data();
}

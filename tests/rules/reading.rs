//! What is created is told by its id and by its name, and what it does not have is left out.

use domain::root_keys::default_workspace;
use serde_json::{Value, json};

use super::World;
use crate::on_both_stacks;
use crate::support::version::Version::{V1, V2};

/// Empties the ids of limits, which are new each time.
fn without_limit_ids(mut told: Value) -> Value {
    for limit in told.get_mut("ratelimits").and_then(Value::as_array_mut).into_iter().flatten() {
        if let Some(id) = limit.get_mut("id") {
            assert!(id.as_str().unwrap().starts_with("rl_"), "{id}");
            *id = json!("");
        }
    }
    told
}

on_both_stacks! {
    async fn what_is_created_is_told_by_its_id_and_by_its_name(kw) {
        let world = World::create(&kw, "a").await;
        let get = |version, operation: &'static str, name: &str, value: &str, told: Value| (version, operation, json!({ name: value }), told);
        let reading = json!({ "id": "{id}", "name": "Reading", "slug": "docs.1", "description": "all of it" });
        let bare_permission = json!({ "id": "{id}", "name": "docs.2", "slug": "docs.2" });
        let editor = |permissions: Option<Value>| {
            let mut told = json!({ "id": "{id}", "name": "editor", "description": "all of it" });
            if let Some(permissions) = permissions {
                told["permissions"] = permissions;
            }
            told
        };
        let permission = json!([{ "id": "{permissionId}", "name": "{slug}", "slug": "{slug}" }]);
        let limit = |name: &str, limit: i64, duration: i64| json!({ "name": name, "limit": limit, "duration": duration });
        let limit_v2 = |name: &str, limit: i64, duration: i64| json!({ "id": "", "name": name, "limit": limit, "duration": duration, "autoApply": false });
        let user = |limits: Value| json!({ "id": "{id}", "externalId": "user_11", "meta": { "plan": "pro" }, "ratelimits": limits });
        let (v1_limits, v2_limits) = (json!([limit("one", 1, 60_000), limit("two", 2, 1000)]), json!([limit_v2("one", 1, 60_000), limit_v2("two", 2, 1000)]));
        let (bare_v1, bare_v2) = (json!({ "id": "{id}", "externalId": "user_12", "meta": {}, "ratelimits": [] }), json!({ "id": "{id}", "externalId": "user_12" }));
        for (operation, request, reads) in [
            ("apis.createApi", json!({ "name": "payments" }), vec![
                get(V1, "apis.getApi", "apiId", "{id}", json!({ "id": "{id}", "workspaceId": default_workspace(), "name": "payments" })),
                get(V2, "apis.getApi", "apiId", "{id}", json!({ "id": "{id}", "name": "payments" })),
            ]),
            ("permissions.createPermission", json!({ "name": "Reading", "slug": "docs.1", "description": "all of it" }), vec![
                get(V1, "permissions.getPermission", "permissionId", "{id}", reading.clone()),
                get(V2, "permissions.getPermission", "permission", "{id}", reading.clone()),
                get(V2, "permissions.getPermission", "permission", "docs.1", reading),
            ]),
            ("permissions.createPermission", json!({ "name": "docs.2", "slug": "docs.2" }), vec![
                get(V1, "permissions.getPermission", "permissionId", "{id}", bare_permission.clone()),
                get(V2, "permissions.getPermission", "permission", "docs.2", bare_permission),
            ]),
            ("permissions.createRole", json!({ "name": "editor", "description": "all of it", "permissions": ["{slug}"] }), vec![
                get(V1, "permissions.getRole", "roleId", "{id}", editor(None)),
                get(V2, "permissions.getRole", "role", "{id}", editor(Some(permission.clone()))),
                get(V2, "permissions.getRole", "role", "editor", editor(Some(permission))),
            ]),
            ("permissions.createRole", json!({ "name": "bare" }), vec![
                get(V1, "permissions.getRole", "roleId", "{id}", json!({ "id": "{id}", "name": "bare" })),
                get(V2, "permissions.getRole", "role", "bare", json!({ "id": "{id}", "name": "bare" })),
            ]),
            ("identities.createIdentity", json!({ "externalId": "user_11", "meta": { "plan": "pro" }, "ratelimits": [limit("two", 2, 1000), limit("one", 1, 60_000)] }), vec![
                get(V1, "identities.getIdentity", "identityId", "{id}", user(v1_limits.clone())),
                get(V1, "identities.getIdentity", "externalId", "user_11", user(v1_limits)),
                get(V2, "identities.getIdentity", "identity", "{id}", user(v2_limits.clone())),
                get(V2, "identities.getIdentity", "identity", "user_11", user(v2_limits)),
            ]),
            ("identities.createIdentity", json!({ "externalId": "user_12", "meta": {} }), vec![
                get(V1, "identities.getIdentity", "externalId", "user_12", bare_v1),
                get(V2, "identities.getIdentity", "identity", "user_12", bare_v2),
            ]),
        ] {
            let created = kw.v2(operation, world.request(&request)).await;
            let id = created.data().as_object().unwrap().values().next().unwrap().as_str().unwrap().to_owned();
            let id = World(vec![("{id}", id)]);
            for (version, operation, request, told) in reads {
                let reply = kw.call(version, &kw.root_key, operation, id.request(&request)).await;
                assert_eq!(without_limit_ids(reply.told(version).clone()), id.request(&world.request(&told)), "{reply}");
            }
        }
    }

    async fn keys_lose_at_once_what_is_deleted_and_a_new_one_of_its_name_gives_them_nothing(kw) {
        for (at, (version, operation, request, through)) in [
            (V1, "permissions.deletePermission", json!({ "permissionId": "{permissionId}" }), "{slug}"),
            (V2, "permissions.deletePermission", json!({ "permission": "{slug}" }), "{slug}"),
            (V1, "permissions.deleteRole", json!({ "roleId": "{roleId}" }), "{role}"),
            (V2, "permissions.deleteRole", json!({ "role": "{role}" }), "{role}"),
        ].into_iter().enumerate() {
            let world = World::create(&kw, &format!("a{at}")).await;
            let (slug, role) = (world.get("{slug}"), world.get("{role}"));
            let set = json!({ "roleId": world.get("{roleId}"), "permissions": [slug] });
            kw.v2("permissions.setRolePermissions", set).await.data();
            kw.create_role(&format!("other{at}"), ["docs.other"]).await;
            let with_role = kw.create_key(json!({ "roles": [role], "permissions": ["docs.other"] })).await;
            let own = kw.create_key(json!({ "permissions": [slug] })).await;
            let keys = if through == "{slug}" { vec![&with_role, &own] } else { vec![&with_role] };
            let expect = async |code: &str| {
                for key in &keys {
                    let asked = json!({ "authorization": { "permissions": slug } });
                    kw.verify_v1(&key.key, asked).await.assert_v1_code(code);
                    kw.verify_with(&key.key, json!({ "permissions": slug })).await.assert_code(code);
                }
            };
            expect("VALID").await;

            kw.call(version, &kw.root_key, operation, world.request(&request)).await.told(version);

            expect("INSUFFICIENT_PERMISSIONS").await;
            let told = kw.get_key_v1(&with_role.id).await;
            assert_eq!(told["permissions"], json!(["docs.other"]), "{operation}");
            assert_eq!(told["roles"], if through == "{slug}" { json!([role]) } else { json!([]) }, "{operation}");
            if through == "{slug}" {
                assert_ne!(kw.create_permission(slug).await, world.get("{permissionId}"));
                assert_eq!(kw.get_key(&own.id).await.get("permissions"), None);
                let role = kw.v2("permissions.getRole", json!({ "role": role })).await;
                assert_eq!(role.data().get("permissions"), None);
            } else {
                // Its permissions stay.
                kw.v2("permissions.getPermission", json!({ "permission": slug })).await.data();
                assert_ne!(kw.create_role(role, []).await, world.get("{roleId}"));
            }
            expect("INSUFFICIENT_PERMISSIONS").await;
        }
    }
}

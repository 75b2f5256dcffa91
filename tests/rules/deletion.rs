//! What is deleted is deleted once, whoever else deletes it at the same time.

use futures_util::future::join_all;
use serde_json::json;

use super::World;
use crate::on_both_stacks;
use crate::support::version::Version::{V1, V2};

on_both_stacks! {
    async fn one_of_many_deletes_it_and_the_audit_log_has_it_once(kw) {
        for (at, (version, operation, request, error, target, events)) in [
            (V1, "apis.deleteApi", json!({ "apiId": "{api}" }), "api_not_found", "{api}", "api.create,api.delete"),
            (V2, "apis.deleteApi", json!({ "apiId": "{api}" }), "api_not_found", "{api}", "api.create,api.delete"),
            (V1, "keys.deleteKey", json!({ "keyId": "{keyId}", "permanent": false }), "key_not_found", "{keyId}", "key.create,key.delete"),
            (V1, "keys.deleteKey", json!({ "keyId": "{keyId}", "permanent": true }), "key_not_found", "{keyId}", "key.create,key.delete"),
            (V2, "keys.deleteKey", json!({ "keyId": "{keyId}", "permanent": false }), "key_not_found", "{keyId}", "key.create,key.delete"),
            (V2, "keys.deleteKey", json!({ "keyId": "{keyId}", "permanent": true }), "key_not_found", "{keyId}", "key.create,key.delete"),
            (V1, "identities.deleteIdentity", json!({ "identityId": "{identityId}" }), "identity_not_found", "{identityId}", "identity.create,identity.delete,ratelimit.create,ratelimit.delete"),
            (V2, "identities.deleteIdentity", json!({ "identity": "{identityId}" }), "identity_not_found", "{externalId}", "identity.create,identity.delete,ratelimit.create,ratelimit.delete"),
            (V1, "permissions.deletePermission", json!({ "permissionId": "{permissionId}" }), "permission_not_found", "{permissionId}", "permission.create,permission.delete"),
            (V2, "permissions.deletePermission", json!({ "permission": "{permissionId}" }), "permission_not_found", "{permissionId}", "permission.create,permission.delete"),
            (V2, "permissions.deletePermission", json!({ "permission": "{slug}" }), "permission_not_found", "{permissionId}", "permission.create,permission.delete"),
            (V1, "permissions.deleteRole", json!({ "roleId": "{roleId}" }), "role_not_found", "{roleId}", "role.create,role.delete"),
            (V2, "permissions.deleteRole", json!({ "role": "{roleId}" }), "role_not_found", "{roleId}", "role.create,role.delete"),
            (V2, "permissions.deleteRole", json!({ "role": "{role}" }), "role_not_found", "{roleId}", "role.create,role.delete"),
            (V1, "ratelimits.deleteOverride", json!({ "namespaceName": "{namespace}", "identifier": "user_1" }), "ratelimit_override_not_found", "{override}", "ratelimit.delete_override,ratelimit.set_override"),
            (V2, "ratelimit.deleteOverride", json!({ "namespace": "{namespace}", "identifier": "user_1" }), "ratelimit_override_not_found", "{override}", "ratelimit.delete_override,ratelimit.set_override"),
        ].into_iter().enumerate() {
            let (world, other) = (World::create(&kw, &format!("a{at}")).await, World::create(&kw, &format!("b{at}")).await);
            let limits = json!([{ "name": "one", "limit": 1, "duration": 1000 }]);
            let identity = json!({ "identityId": world.get("{identityId}"), "ratelimits": limits });
            if operation == "identities.deleteIdentity" {
                kw.v1("identities.updateIdentity", identity).await.v1_body();
            }
            let request = world.request(&request);

            let replies = join_all((0..8).map(|_| kw.call(version, &kw.root_key, operation, request.clone()))).await;
            let late = kw.call(version, &kw.root_key, operation, request.clone()).await;

            let (deleted, rest): (Vec<_>, Vec<_>) = replies.iter().partition(|reply| reply.status == 200);
            assert_eq!(deleted.len(), 1, "{late}");
            if (version, operation) == (V2, "identities.deleteIdentity") {
                assert_eq!(deleted[0].body.as_object().unwrap().keys().collect::<Vec<_>>(), ["meta"]);
            } else {
                assert_eq!(*deleted[0].told(version), json!({}), "{late}");
            }
            for refused in rest.into_iter().chain([&late]) {
                refused.assert_refused(version, error, &[]);
            }
            let found = kw.list_audit_events(world.get(target)).await;
            let found: Vec<_> = found.into_iter().filter(|event| event != "identity.update").collect();
            assert_eq!(found.join(","), events, "{late}");
            if target == "{keyId}" {
                assert_eq!(kw.list_audit_events(world.get("{keyName}")).await, found);
            }
            kw.verify(other.get("{key}")).await.assert_code("VALID");
        }
    }
}

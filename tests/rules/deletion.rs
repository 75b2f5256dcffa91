//! What is deleted is deleted once, whoever else deletes it at the same time.

use futures_util::future::join_all;
use serde_json::json;

use super::World;
use crate::on_both_stacks;
use crate::support::version::Version::{V1, V2};

on_both_stacks! {
    async fn one_of_many_deletes_it_and_the_audit_log_has_it_once(kw) {
        for (at, (version, operation, request, kind, target)) in [
            (V1, "apis.deleteApi", json!({ "apiId": "{api}" }), "api", "{api}"),
            (V2, "apis.deleteApi", json!({ "apiId": "{api}" }), "api", "{api}"),
            (V1, "keys.deleteKey", json!({ "keyId": "{keyId}", "permanent": false }), "key", "{keyId}"),
            (V1, "keys.deleteKey", json!({ "keyId": "{keyId}", "permanent": true }), "key", "{keyId}"),
            (V2, "keys.deleteKey", json!({ "keyId": "{keyId}", "permanent": false }), "key", "{keyId}"),
            (V2, "keys.deleteKey", json!({ "keyId": "{keyId}", "permanent": true }), "key", "{keyId}"),
            (V1, "identities.deleteIdentity", json!({ "identityId": "{identityId}" }), "identity", "{identityId}"),
            (V2, "identities.deleteIdentity", json!({ "identity": "{identityId}" }), "identity", "{externalId}"),
            (V1, "permissions.deletePermission", json!({ "permissionId": "{permissionId}" }), "permission", "{permissionId}"),
            (V2, "permissions.deletePermission", json!({ "permission": "{permissionId}" }), "permission", "{permissionId}"),
            (V2, "permissions.deletePermission", json!({ "permission": "{slug}" }), "permission", "{permissionId}"),
            (V1, "permissions.deleteRole", json!({ "roleId": "{roleId}" }), "role", "{roleId}"),
            (V2, "permissions.deleteRole", json!({ "role": "{roleId}" }), "role", "{roleId}"),
            (V2, "permissions.deleteRole", json!({ "role": "{role}" }), "role", "{roleId}"),
            (V1, "ratelimits.deleteOverride", json!({ "namespaceName": "{namespace}", "identifier": "user_1" }), "override", "{override}"),
            (V2, "ratelimit.deleteOverride", json!({ "namespace": "{namespace}", "identifier": "user_1" }), "override", "{override}"),
        ].into_iter().enumerate() {
            let (error, events) = match kind {
                "identity" => ("identity_not_found".into(), "identity.create,identity.delete,ratelimit.create,ratelimit.delete".into()),
                "override" => ("ratelimit_override_not_found".into(), "ratelimit.delete_override,ratelimit.set_override".into()),
                kind => (format!("{kind}_not_found"), format!("{kind}.create,{kind}.delete")),
            };
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
                refused.assert_refused(version, &error, &[]);
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

//! A permission for one object allows nothing with another one, and who lacks it learns no more than the rule says.

use serde_json::{Value, json};

use super::{World, with};
use crate::on_both_stacks;
use crate::support::version::Version::{self, V1, V2};

/// How a root key without the permission is refused.
#[derive(Debug, Clone, Copy)]
enum Refusal {
    /// 403 whether the object exists or not; the message names each permission that would be enough.
    Forbidden,
    /// 403 like `Forbidden`; the message names the permission for all objects alone.
    Unnamed,
    /// 403 like `Forbidden`, and 404 with this name if the object does not exist.
    Exists(&'static str),
    /// 404 with this name, as if the object did not exist.
    Hidden(&'static str),
}
use Refusal::{Exists, Forbidden, Hidden, Unnamed};

/// The operation, the permissions for one object (the first is the one that the error names), permissions of other
/// actions, which do not help, the request, and the refusal.
type Row =
    (Version, &'static str, &'static [&'static str], &'static [&'static str], Value, Refusal);

#[rustfmt::skip]
fn rows() -> Vec<Row> {
    let api = || json!({ "apiId": "{api}" });
    let key = || json!({ "keyId": "{keyId}" });
    let add = || json!({ "keyId": "{keyId}", "permissions": ["{slug}"] });
    let check = || json!({ "namespace": "{namespace}", "identifier": "user_1", "limit": 9, "duration": 60_000 });
    let set_v1 = || json!({ "namespaceName": "{namespace}", "identifier": "user_1", "limit": 9, "duration": 60_000 });
    vec![
        (V1, "apis.getApi", &["api.{api}.read_api"], &["api.*.create_api"], api(), Forbidden),
        (V2, "apis.getApi", &["api.{api}.read_api"], &["api.*.create_api"], api(), Forbidden),
        (V1, "apis.deleteApi", &["api.{api}.delete_api"], &[], api(), Forbidden),
        (V2, "apis.deleteApi", &["api.{api}.delete_api"], &["api.*.read_api"], api(), Forbidden),
        (V1, "apis.deleteKeys", &["api.{api}.delete_key"], &[], api(), Forbidden),
        (V1, "keys.createKey", &["api.{api}.create_key"], &[], api(), Hidden("api_not_found")),
        (V2, "keys.createKey", &["api.{api}.create_key"], &["api.*.read_key", "api.*.read_api"], api(), Hidden("api_not_found")),
        (V1, "keys.getKey", &["api.{api}.read_key"], &[], key(), Exists("key_not_found")),
        (V2, "keys.getKey", &["api.{api}.read_key"], &["api.*.verify_key"], key(), Exists("key_not_found")),
        (V2, "keys.getKey", &["api.{api}.read_key"], &["api.*.decrypt_key"], json!({ "keyId": "{keyId}", "decrypt": false }), Exists("key_not_found")),
        (V1, "keys.updateKey", &["api.{api}.update_key"], &[], json!({ "keyId": "{keyId}", "name": "renamed" }), Exists("key_not_found")),
        (V2, "keys.updateKey", &["api.{api}.update_key"], &["api.*.read_key", "api.*.create_key"], json!({ "keyId": "{keyId}", "enabled": false }), Exists("key_not_found")),
        (V1, "keys.deleteKey", &["api.{api}.delete_key"], &[], key(), Exists("key_not_found")),
        (V2, "keys.deleteKey", &["api.{api}.delete_key"], &["api.*.update_key"], key(), Exists("key_not_found")),
        (V1, "keys.whoami", &["api.{api}.read_key"], &["api.*.verify_key"], json!({ "key": "{key}" }), Hidden("key_not_found")),
        (V2, "keys.whoami", &["api.{api}.read_key"], &["api.*.verify_key"], json!({ "key": "{key}" }), Hidden("key_not_found")),
        (V2, "keys.rerollKey", &["api.{api}.create_key"], &["api.*.update_key"], json!({ "keyId": "{keyId}", "expiration": 0 }), Exists("key_not_found")),
        (V2, "keys.addPermissions", &["api.{api}.update_key"], &["rbac.*.add_permission_to_key"], add(), Exists("key_not_found")),
        (V1, "identities.getIdentity", &["identity.{identityId}.read_identity"], &[], json!({ "externalId": "{externalId}" }), Exists("identity_not_found")),
        (V2, "identities.getIdentity", &["identity.{identityId}.read_identity"], &[], json!({ "identity": "{externalId}" }), Exists("identity_not_found")),
        (V2, "identities.updateIdentity", &["identity.{identityId}.update_identity"], &[], json!({ "identity": "{externalId}" }), Unnamed),
        (V1, "identities.deleteIdentity", &["identity.{identityId}.delete_identity"], &[], json!({ "identityId": "{identityId}" }), Unnamed),
        (V1, "ratelimits.setOverride", &["ratelimit.{namespaceId}.set_override"], &[], set_v1(), Exists("ratelimit_namespace_not_found")),
        (V2, "ratelimit.setOverride", &["ratelimit.{namespaceId}.set_override"], &[], with(check(), json!({ "namespace": "{namespaceId}" })), Exists("ratelimit_namespace_not_found")),
        (V2, "ratelimit.setOverride", &["ratelimit.{namespaceId}.set_override"], &[], check(), Exists("ratelimit_namespace_not_found")),
    ]
}

on_both_stacks! {
    async fn a_permission_for_one_object_allows_nothing_with_another(kw) {
        for (at, (version, operation, grants, useless, request, refusal)) in rows().into_iter().enumerate() {
            let (own, other) = (World::create(&kw, &format!("own{at}")).await, World::create(&kw, &format!("other{at}")).await);
            let held = grants.iter().chain(useless).map(|grant| own.fill(grant)).collect();
            let root_key = kw.create_root_key_with(held).await;
            let ask = async |world: &World| kw.call(version, &root_key, operation, world.request(&request)).await;
            let before = (kw.count_audit_entries().await, kw.count_rows("keys").await);

            let (refused, absent) = (ask(&other).await, ask(&World::nowhere()).await);

            match refusal {
                Forbidden | Unnamed | Exists(_) => {
                    let (object, action) = (grants[0].split('.').next().unwrap(), grants[0].rsplit('.').next().unwrap());
                    let named = [format!("{object}.*.{action}"), other.fill(grants[0])];
                    let named = if matches!(refusal, Unnamed) { &named[..1] } else { &named };
                    let named: Vec<_> = named.iter().map(String::as_str).collect();
                    refused.assert_refused(version, "insufficient_permissions", &named);
                }
                Hidden(name) => assert_eq!(
                    refused.assert_refused(version, name, &[]).replace(other.get("{api}"), "api_nowhere"),
                    absent.assert_refused(version, name, &[]),
                ),
            }
            match refusal {
                Forbidden | Unnamed => absent.assert_refused(version, "insufficient_permissions", &[]),
                Exists(name) | Hidden(name) => absent.assert_refused(version, name, &[]),
            };
            assert_eq!((kw.count_audit_entries().await, kw.count_rows("keys").await), before, "{refused}");
            kw.verify(other.get("{key}")).await.assert_code("VALID");
            ask(&own).await.told(version);
        }
    }

    async fn a_permission_for_one_object_creates_none(kw) {
        for (version, operation, grant, request, needed, table) in [
            (V1, "apis.createApi", "api.api_1.create_api", json!({ "name": "payments" }), "api.*.create_api", "apis"),
            (V2, "apis.createApi", "api.api_1.create_api", json!({ "name": "payments" }), "api.*.create_api", "apis"),
            (V2, "permissions.createPermission", "rbac.perm_1.create_permission", json!({ "name": "n", "slug": "docs.read" }), "rbac.*.create_permission", "permissions"),
            (V2, "permissions.createRole", "rbac.role_1.create_role", json!({ "name": "editor" }), "rbac.*.create_role", "roles"),
        ] {
            let root_key = kw.create_root_key([grant]).await;
            kw.call(version, &root_key, operation, request).await.assert_refused(version, "insufficient_permissions", &[needed]);
            assert_eq!(kw.count_rows(table).await, 0, "{operation}");
        }
    }
}

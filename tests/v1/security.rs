//! Faults that version 1 has been known to have elsewhere, and has not here.

use axum::body::Body;
use axum::http::Request;
use serde_json::{Value, json};

use crate::on_both_stacks;
use crate::support::seed::IssuedKey;
use crate::support::{Keyward, Reply};

async fn read(kw: &Keyward, key: &IssuedKey) -> Value {
    kw.v1_get("keys.getKey", &format!("keyId={}", key.id)).await.v1_body().clone()
}

/// What an error tells, but for the name of the request.
fn told(reply: &Reply) -> (u16, Value) {
    let mut body = reply.body.clone();
    body["error"]["requestId"] = Value::Null;
    (reply.status.as_u16(), body)
}

fn plaintext(api: &str) -> Value {
    json!([{ "apiId": api, "plaintext": "old_1" }])
}

fn hash(api: &str) -> Value {
    let hash = foundation::secret::KeyHash::compute("old_2").to_base64();
    json!([{ "apiId": api, "hash": { "value": hash, "variant": "sha256_base64" } }])
}

on_both_stacks! {
    async fn nobody_gives_a_key_uses_by_a_cost_below_nothing(kw) {
        let key = kw.create_key(json!({ "credits": { "remaining": 5 } })).await;

        for cost in [-1, i64::MIN] {
            let request = json!({ "remaining": { "cost": cost } });
            let message = kw.verify_v1(&key.key, request).await.assert_v1_error(400, "BAD_REQUEST");
            assert_eq!(message, "remaining.cost: Number must be greater than or equal to 0");
        }

        assert_eq!(read(&kw, &key).await["remaining"], 5);
    }

    async fn an_item_that_names_nothing_means_nothing_and_is_refused(kw) {
        kw.create_permission("documents.read").await;
        kw.create_role("editor", ["documents.write"]).await;
        let key = kw.create_key(json!({ "roles": ["editor"] })).await;

        for (operation, list) in [
            ("keys.addPermissions", "permissions"), ("keys.setPermissions", "permissions"),
            ("keys.removePermissions", "permissions"), ("keys.addRoles", "roles"),
            ("keys.setRoles", "roles"), ("keys.removeRoles", "roles"),
            ("keys.updateKey", "permissions"), ("keys.updateKey", "roles"),
        ] {
            let request = json!({ "keyId": key.id, list: [{}] });
            let message = kw.v1(operation, request).await.assert_v1_error(400, "BAD_REQUEST");
            assert!(message.starts_with(&format!("{list}.0")), "{operation}: {message}");
        }

        let read = read(&kw, &key).await;
        assert_eq!((&read["roles"], &read["permissions"]), (&json!(["editor"]), &json!(["documents.write"])));
    }

    async fn an_empty_list_takes_all_and_gives_none(kw) {
        kw.create_permission("documents.read").await;
        kw.create_permission("documents.write").await;
        kw.create_role("editor", []).await;
        kw.create_role("reader", []).await;
        let key = kw.create_key(json!({ "roles": ["editor"], "permissions": ["documents.read"] })).await;

        let request = json!({ "keyId": key.id, "permissions": [], "roles": [] });
        kw.v1("keys.updateKey", request).await.v1_body();

        let read = read(&kw, &key).await;
        assert_eq!((&read["roles"], &read["permissions"]), (&json!([]), &json!([])));
    }

    async fn a_permission_that_is_named_by_its_slug_is_that_one(kw) {
        kw.create_permission("documents.read").await;
        let id = kw.create_permission("documents.write").await;
        let key = kw.create_key(json!({})).await;

        let request = json!({ "keyId": key.id, "permissions": [{ "slug": "documents.write" }] });
        let added = kw.v1("keys.addPermissions", request).await;

        assert_eq!(*added.v1_body(), json!([{ "id": id, "name": "documents.write" }]));
        assert_eq!(read(&kw, &key).await["permissions"], json!(["documents.write"]));
    }

    async fn who_is_not_known_learns_nothing_of_what_exists(kw) {
        let key = kw.create_key(json!({ "credits": { "remaining": 5 } })).await;
        let nobody = "nobody_knows_this_key";

        for (there, not_there) in [
            (
                kw.v1_get_as(nobody, "keys.getKey", &format!("keyId={}", key.id)).await,
                kw.v1_get_as(nobody, "keys.getKey", "keyId=key_nowhere").await,
            ),
            (
                kw.v1_as(nobody, "keys.deleteKey", json!({ "keyId": key.id })).await,
                kw.v1_as(nobody, "keys.deleteKey", json!({ "keyId": "key_nowhere" })).await,
            ),
            (
                kw.v1_as(nobody, "keys.updateRemaining", json!({
                    "keyId": key.id, "op": "set", "value": 1,
                })).await,
                kw.v1_as(nobody, "keys.updateRemaining", json!({
                    "keyId": "key_nowhere", "op": "set", "value": 1,
                })).await,
            ),
            (
                kw.v1_as(nobody, "keys.whoami", json!({ "key": key.key })).await,
                kw.v1_as(nobody, "keys.whoami", json!({ "key": "never_issued" })).await,
            ),
        ] {
            there.assert_v1_error(401, "UNAUTHORIZED");
            assert_eq!(told(&there), told(&not_there));
        }
        assert_eq!(read(&kw, &key).await["remaining"], 5);
    }

    async fn a_recoverable_key_that_may_not_be_sealed_is_not_made(kw) {
        let api = kw.create_api().await;
        kw.update_api(&api, |settings| settings.allows_recoverable_keys = true).await;
        let powerless = kw.create_root_key(["api.*.create_key"]).await;
        let request = json!({ "apiId": api, "recoverable": true });
        let before = kw.count_rows("keys").await;

        let refused = kw.v1_as(&powerless, "keys.createKey", request.clone()).await;
        let after = kw.count_rows("keys").await;

        assert!(matches!(refused.status.as_u16(), 403 | 404), "{}", refused.text);
        assert_eq!(after, before);
        kw.v1("keys.createKey", request).await.v1_body();
        assert_eq!(kw.count_rows("keys").await, before + 1);
    }

    async fn to_take_in_a_key_itself_needs_the_right_to_make_it_and_the_right_to_seal_it(kw) {
        let api = kw.create_api().await;
        let creator = kw.create_root_key(["api.*.create_key"]).await;
        let sealer = kw.create_root_key(["api.*.encrypt_key"]).await;
        let both = kw.create_root_key(["api.*.create_key", "api.*.encrypt_key"]).await;
        let take = async |root_key: &str, keys: Value| {
            kw.v1_as(root_key, "migrations.createKeys", keys).await
        };

        for (root_key, keys, lacking) in [
            (&creator, plaintext(&api), "encrypt_key"),
            (&sealer, plaintext(&api), "create_key"),
            (&sealer, hash(&api), "create_key"),
        ] {
            let message = take(root_key, keys).await.assert_v1_error(403, "INSUFFICIENT_PERMISSIONS");
            assert!(message.contains(lacking), "{message}");
        }
        assert_eq!(kw.count_rows("keys").await, 0);
        take(&creator, hash(&api)).await.v1_body();
        take(&both, plaintext(&api)).await.v1_body();
        assert_eq!(kw.count_rows("keys").await, 2);
    }

    async fn the_older_paths_are_not_offered(kw) {
        let api = kw.create_api().await;
        let key = kw.create_key_in(&api, json!({})).await;

        for (method, path, body) in [
            ("POST", "/v1/keys".to_owned(), json!({ "apiId": api })),
            ("POST", "/v1/keys/verify".to_owned(), json!({ "key": key.key })),
            ("GET", format!("/v1/apis/{api}/keys"), json!({})),
        ] {
            let request = Request::builder()
                .method(method)
                .uri(path)
                .header("content-type", "application/json")
                .header("authorization", format!("Bearer {}", kw.root_key))
                .body(Body::from(body.to_string()))
                .unwrap();
            kw.send(request).await.assert_v1_error(404, "NOT_FOUND");
        }
        assert_eq!(kw.count_rows("keys").await, 1);
    }

    async fn what_is_taken_away_is_gone_with_the_next_verification(kw) {
        let permission = kw.create_permission("a").await;
        let role = kw.create_role("editor", ["b"]).await;
        kw.create_permission("c").await;
        kw.create_role("reader", ["d"]).await;
        let fields = json!({ "roles": ["editor", "reader"], "permissions": ["a", "c"] });
        let key = kw.create_key(fields).await;
        let may = async |slug: &str| {
            let request = json!({ "authorization": { "permissions": slug } });
            kw.verify_v1(&key.key, request).await.v1_body()["valid"] == true
        };

        for (slug, operation, request) in [
            ("c", "keys.removePermissions", json!({ "keyId": key.id, "permissions": [{ "slug": "c" }] })),
            ("d", "keys.removeRoles", json!({ "keyId": key.id, "roles": [{ "name": "reader" }] })),
            ("a", "permissions.deletePermission", json!({ "permissionId": permission })),
            ("b", "permissions.deleteRole", json!({ "roleId": role })),
        ] {
            assert!(may(slug).await, "{slug}");
            kw.v1(operation, request).await.v1_body();
            assert!(!may(slug).await, "{operation}");
        }
    }

    async fn keys_of_an_api_that_are_deleted_are_unknown_at_once(kw) {
        for operation in ["apis.deleteKeys", "apis.deleteApi"] {
            let api = kw.create_api().await;
            let key = kw.create_key_in(&api, json!({})).await;
            kw.verify_v1(&key.key, json!({})).await.assert_v1_code("VALID");

            kw.v1(operation, json!({ "apiId": api })).await.v1_body();

            kw.verify_v1(&key.key, json!({})).await.assert_v1_code("NOT_FOUND");
        }
    }

    async fn users_of_one_name_in_two_workspaces_are_no_matter_to_each_other(kw) {
        let stranger = kw.create_other_workspace().await;
        let mut keys = Vec::new();
        for root_key in [&kw.root_key, &stranger] {
            let api = kw.v1_as(root_key, "apis.createApi", json!({ "name": "payments" })).await;
            let api = api.v1_body()["apiId"].as_str().unwrap().to_owned();
            let key = json!({ "apiId": api, "ownerId": "user_1" });
            let key = kw.v1_as(root_key, "keys.createKey", key).await.v1_body()["keyId"].clone();
            keys.push((root_key, api, key));
        }

        for (root_key, api, key) in keys {
            let query = format!("apiId={api}&ownerId=user_1");
            let list = kw.v1_get_as(root_key, "apis.listKeys", &query).await;
            let ids: Vec<_> =
                list.v1_body()["keys"].as_array().unwrap().iter().map(|key| &key["id"]).collect();
            assert_eq!(ids, [&key]);
        }
    }

    async fn who_may_not_limit_makes_no_namespace(kw) {
        let powerless = kw.create_root_key(["ratelimit.*.create_namespace"]).await;
        let check = json!({
            "namespace": "uploads", "identifier": "user_1", "limit": 10, "duration": 60_000,
        });

        let refused = kw.v1_as(&powerless, "ratelimits.limit", check.clone()).await;
        let made = kw.count_rows("namespaces").await;

        let message = refused.assert_v1_error(403, "INSUFFICIENT_PERMISSIONS");
        assert!(message.contains("ratelimit.*.limit"), "{message}");
        assert_eq!(made, 0);
        kw.v1("ratelimits.limit", check).await.v1_body();
        assert_eq!(kw.count_rows("namespaces").await, 1);
    }

    async fn a_key_of_another_workspace_is_as_good_as_none_to_who_would_delete_it(kw) {
        let stranger = kw.create_other_workspace().await;
        let key = kw.create_key(json!({})).await;

        for permanent in [false, true] {
            let request = json!({ "keyId": key.id, "permanent": permanent });
            let message =
                kw.v1_as(&stranger, "keys.deleteKey", request).await.assert_v1_error(404, "NOT_FOUND");
            assert!(message.contains(&key.id), "{message}");
        }

        kw.verify_v1(&key.key, json!({})).await.assert_v1_code("VALID");
    }
}

//! Faults that version 1 has been known to have elsewhere, and has not here.

use axum::body::Body;
use axum::http::Request;
use serde_json::{Value, json};

use crate::on_both_stacks;
use crate::support::Reply;
use crate::support::version::Version::V1;

/// What an error tells, but for the name of the request.
fn told(reply: &Reply) -> (u16, Value) {
    let mut body = reply.body.clone();
    body["error"]["requestId"] = Value::Null;
    (reply.status.as_u16(), body)
}

on_both_stacks! {
    async fn nobody_gives_a_key_uses_by_a_cost_below_nothing(kw) {
        let key = kw.create_key(json!({ "credits": { "remaining": 5 } })).await;

        for cost in [-1, i64::MIN] {
            assert_eq!(
                kw.verify_v1(&key.key, json!({ "remaining": { "cost": cost } })).await.assert_v1_error(400, "BAD_REQUEST"),
                "remaining.cost: Number must be greater than or equal to 0",
            );
        }

        assert_eq!(kw.get_key_v1(&key.id).await["remaining"], 5);
    }

    async fn who_is_not_known_learns_nothing_of_what_exists(kw) {
        let key = kw.create_key(json!({ "credits": { "remaining": 5 } })).await;
        let nobody = "nobody_knows_this_key";

        for (operation, request, elsewhere) in [
            ("keys.getKey", json!({ "keyId": key.id }), json!({ "keyId": "key_nowhere" })),
            ("keys.deleteKey", json!({ "keyId": key.id }), json!({ "keyId": "key_nowhere" })),
            (
                "keys.updateRemaining", json!({ "keyId": key.id, "op": "set", "value": 1 }),
                json!({ "keyId": "key_nowhere", "op": "set", "value": 1 }),
            ),
            ("keys.whoami", json!({ "key": key.key }), json!({ "key": "never_issued" })),
        ] {
            let there = kw.call(V1, nobody, operation, request).await;
            assert_eq!(told(&there), told(&kw.call(V1, nobody, operation, elsewhere).await));
            there.assert_v1_error(401, "UNAUTHORIZED");
        }
        assert_eq!(kw.get_key_v1(&key.id).await["remaining"], 5);
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
        let key = kw.create_key(json!({ "roles": ["editor", "reader"], "permissions": ["a", "c"] })).await;
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

    async fn users_of_one_name_in_two_workspaces_are_no_matter_to_each_other(kw) {
        let stranger = kw.create_other_workspace().await;
        let mut keys = Vec::new();
        for root_key in [&kw.root_key, &stranger] {
            let api = kw.v1_as(root_key, "apis.createApi", json!({ "name": "payments" })).await;
            let api = api.v1_body()["apiId"].as_str().unwrap().to_owned();
            let key = json!({ "apiId": api, "ownerId": "user_1" });
            keys.push((root_key, api, kw.v1_as(root_key, "keys.createKey", key).await.v1_body()["keyId"].clone()));
        }

        for (root_key, api, key) in keys {
            let query = format!("apiId={api}&ownerId=user_1");
            let list = kw.v1_get_as(root_key, "apis.listKeys", &query).await;
            let ids: Vec<_> = list.v1_body()["keys"].as_array().unwrap().iter().map(|key| &key["id"]).collect();
            assert_eq!(ids, [&key]);
        }
    }

    async fn a_key_of_another_workspace_is_as_good_as_none_to_who_would_delete_it(kw) {
        let stranger = kw.create_other_workspace().await;
        let key = kw.create_key(json!({})).await;

        for permanent in [false, true] {
            let request = json!({ "keyId": key.id, "permanent": permanent });
            kw.v1_as(&stranger, "keys.deleteKey", request).await.assert_v1_error_about(404, "NOT_FOUND", &[&key.id]);
        }

        kw.verify_v1(&key.key, json!({})).await.assert_v1_code("VALID");
    }
}

//! Tests that no proxy or browser stores a reply that contains a key or depends on a request.

use axum::body::Body;
use axum::http::Request;
use serde_json::{Value, json};

use crate::dashboard::{Browser, between, workspace_path};
use crate::on_both_stacks;
use crate::support::{Keyward, Reply};

#[track_caller]
fn assert_not_stored(reply: &Reply, what: &str) {
    let directives: Vec<_> = reply.headers.get_all("cache-control").iter().collect();
    assert_eq!(directives, ["no-store"], "{what}: {}", reply.text);
}

/// Sends a request with the root key that has every permission, and with an `Idempotency-Key` if it has a body.
async fn send(kw: &Keyward, path: &str, body: Option<&Value>) -> Reply {
    let request = match body {
        Some(_) => Request::post(path).header("idempotency-key", path),
        None => Request::get(path),
    };
    let request = request
        .header("authorization", format!("Bearer {}", kw.root_key))
        .header("content-type", "application/json")
        .body(body.map_or_else(Body::empty, |body| Body::from(body.to_string())));
    kw.send(request.unwrap()).await
}

/// Returns the key in a reply, wherever it is.
fn find_key(reply: &Reply) -> String {
    assert_eq!(reply.status, 200, "{}", reply.text);
    let pointers = [
        "/data/key",
        "/data/plaintext",
        "/data/0/plaintext",
        "/key",
        "/plaintext",
        "/keys/0/plaintext",
    ];
    let found = pointers.iter().find_map(|pointer| reply.body.pointer(pointer)?.as_str());
    found.unwrap_or_else(|| panic!("no key: {}", reply.text)).to_owned()
}

on_both_stacks! {
    async fn replies_with_a_key_are_not_stored(kw) {
        let api = kw.create_api().await;
        kw.update_api(&api, |settings| settings.allows_recoverable_keys = true).await;
        let key = kw.create_key_in(&api, json!({ "recoverable": true })).await;
        let create = json!({ "apiId": api, "recoverable": true });
        let get = json!({ "keyId": key.id, "decrypt": true });
        let list = json!({ "apiId": api, "decrypt": true });
        let reroll = json!({ "keyId": key.id, "expiration": 60_000 });

        for (path, body) in [
            ("/v2/keys.getKey".to_owned(), Some(&get)),
            ("/v2/apis.listKeys".to_owned(), Some(&list)),
            ("/v2/keys.createKey".to_owned(), Some(&create)),
            ("/v2/keys.rerollKey".to_owned(), Some(&reroll)),
            ("/v1/keys.createKey".to_owned(), Some(&create)),
            ("/v1/keys.createKey?pretty".to_owned(), Some(&create)),
            (format!("/v1/keys.getKey?keyId={}&decrypt=true", key.id), None),
            (format!("/v1/keys.getKey?keyId={}&decrypt=true&pretty", key.id), None),
            (format!("/v1/apis.listKeys?apiId={api}&decrypt=true"), None),
            (format!("/v1/apis.listKeys?apiId={api}&decrypt=true&pretty"), None),
        ] {
            let first = send(&kw, &path, body).await;
            // The reply of a creation is repeated if the request is repeated.
            let again = send(&kw, &path, body).await;
            for reply in [&first, &again] {
                assert_not_stored(reply, &path);
                kw.verify(&find_key(reply)).await.assert_code("VALID");
            }
            assert_eq!(path.contains("pretty"), first.text.contains("\n  "), "{path}");
            assert_eq!(find_key(&first), find_key(&again), "{path}");
        }
    }

    async fn replies_to_requests_with_a_key_are_not_stored(kw) {
        let key = kw.create_key(json!({})).await;

        for operation in ["keys.verifyKey", "keys.whoami"] {
            for version in ["v1", "v2"] {
                let path = format!("/{version}/{operation}");
                let reply = send(&kw, &path, Some(&json!({ "key": key.key }))).await;
                assert_eq!(reply.status, 200, "{path}: {}", reply.text);
                assert_not_stored(&reply, &path);
            }
        }
    }

    async fn errors_are_not_stored(kw) {
        let powerless = kw.create_root_key(["api.*.verify_key"]).await;
        let api = kw.create_api().await;
        for version in ["v1", "v2"] {
            let sent = async |root_key: &str, operation: &str, body: Value| match version {
                "v1" => kw.v1_as(root_key, operation, body).await,
                _ => kw.v2_as(root_key, operation, body).await,
            };
            let update = json!({ "keyId": "key_nowhere", "enabled": false });
            for (status, reply) in [
                (400, sent(&kw.root_key, "keys.createKey", json!({ "apiId": 5 })).await),
                (401, sent("nobody", "keys.createKey", json!({ "apiId": api })).await),
                (403, sent(&powerless, "apis.createApi", json!({ "name": "an API" })).await),
                (404, sent(&kw.root_key, "keys.updateKey", update).await),
            ] {
                assert_eq!(reply.status, status, "{version}: {}", reply.text);
                assert_not_stored(&reply, version);
            }
        }
        let pretty = send(&kw, "/v1/keys.getKey?keyId=key_nowhere&decrypt=true&pretty", None).await;
        assert_eq!(pretty.status, 404, "{}", pretty.text);
        assert_not_stored(&pretty, "v1 pretty");
    }

    async fn pages_with_a_secret_are_not_stored(kw) {
        let mut owner = Browser::sign_in_owner(&kw).await;
        let api = kw.create_api().await;
        kw.update_api(&api, |settings| settings.allows_recoverable_keys = true).await;
        let key = kw.create_key_in(&api, json!({})).await.id;
        let sealed = kw.create_key_in(&api, json!({ "recoverable": true })).await.id;
        let secret = |page: &Reply| between(&page.text, "<code id=\"secret\">", "<").to_owned();

        let create = [("api", api.as_str()), ("enabled", "on")];
        let created = owner.post(&workspace_path("/keys"), &create).await;
        let rerolled = owner.post(&workspace_path(&format!("/keys/{key}/reroll")), &[("grace", "0")]).await;
        let shown = owner.post(&workspace_path(&format!("/keys/{sealed}/reveal")), &[]).await;
        for page in [&created, &rerolled, &shown] {
            kw.verify(&secret(page)).await.assert_code("VALID");
            assert_not_stored(page, "a key");
        }
        let fields = [("permission", "api.*.create_api")];
        let issued = owner.post(&workspace_path("/root-keys"), &fields).await;
        let id = between(&issued.text, "href=\"/dashboard/ws_default/root-keys/", "\"");
        let rotate = workspace_path(&format!("/root-keys/{id}/rotate"));
        let rotated = owner.post(&rotate, &[("grace", "900000")]).await;
        for page in [&issued, &rotated] {
            let name = json!({ "name": "an API" });
            kw.v2_as(&secret(page), "apis.createApi", name).await.data();
            assert_not_stored(page, "a root key");
        }
        let invited = owner.post(&workspace_path("/members/invite"), &[("role", "viewer")]).await;
        assert!(invited.text.contains("/dashboard/join/"), "{}", invited.text);
        assert_not_stored(&invited, "an invitation");
        for (status, page) in [
            (404, owner.get(&workspace_path("/keys/key_nowhere")).await),
            (404, owner.get(&workspace_path("/nowhere")).await),
            (422, owner.post(&workspace_path("/root-keys"), &[]).await),
        ] {
            assert_eq!(page.status, status, "{}", page.text);
            assert_not_stored(&page, "a failure");
        }
    }
}

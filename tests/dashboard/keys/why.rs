//! Why a request was refused.

use serde_json::json;

use super::*;
use crate::on_every_event_store;
use crate::support::Keyward;

async fn explained(owner: &mut Browser<'_>, request: &str) -> String {
    owner.kw.write_events().await;
    let page = owner
        .get(&workspace_path(&format!("/keys/why?{}", form_encode(&[("request", request)]))))
        .await;
    assert_eq!(page.status, 200, "{}", page.text);
    page.text
}

fn request(reply: &Reply) -> String {
    reply.body["meta"]["requestId"].as_str().expect("an id").to_owned()
}

async fn asked(kw: &Keyward, key: &str, fields: serde_json::Value, code: &str) -> String {
    let reply = kw.verify_with(key, fields).await;
    reply.assert_code(code);
    request(&reply)
}

on_every_event_store! {
    async fn every_outcome_is_explained_with_what_to_do(kw) {
        let mut owner = Browser::sign_in_owner(&kw).await;
        let limit = json!([{ "name": "requests", "limit": 1, "duration": 60_000, "autoApply": true }]);
        let key = kw.create_key(json!({ "name": "<script>mine", "ratelimits": limit })).await;
        let spent = kw.create_key(json!({ "credits": { "remaining": 0 } })).await;
        let none = json!({});

        let tags = json!({ "tags": ["path=/v1/<b>"] });
        let valid = asked(&kw, &key.key, tags, "VALID").await;
        let limited = asked(&kw, &key.key, none.clone(), "RATE_LIMITED").await;
        let lacking = asked(&kw, &key.key, json!({ "permissions": "docs.read" }), "INSUFFICIENT_PERMISSIONS").await;
        let exceeded = asked(&kw, &spent.key, none.clone(), "USAGE_EXCEEDED").await;
        kw.update_key(&key.id, json!({ "enabled": false })).await.data();
        let disabled = asked(&kw, &key.key, none.clone(), "DISABLED").await;
        kw.update_key(&key.id, json!({ "enabled": true, "expires": kw.clock.now().0 - 1 })).await.data();
        let expired = asked(&kw, &key.key, none, "EXPIRED").await;

        for (request, code, told) in [
            (valid, "VALID", "the request was allowed"),
            (limited, "RATE_LIMITED", "Exceeded &#34;requests&#34;: 1 per minute</span>."),
            (lacking, "INSUFFICIENT_PERMISSIONS", "The key lacks required permissions: docs.read"),
            (exceeded, "USAGE_EXCEEDED", "0 credits remaining, 1 required"),
            (disabled, "DISABLED", "Enable the key"),
            (expired, "EXPIRED", "Extend the key&#39;s expiry"),
        ] {
            let page = explained(&mut owner, &request).await;
            assert!(page.contains(&format!("<code>{code}</code>")) && page.contains(told), "{code}: {page}");
            assert!(page.contains("/dashboard/ws_default/keys/key_"), "{code}");
            assert!(!page.contains("<script>mine") && !page.contains("/v1/<b>"), "{code}");
        }
    }

    async fn a_check_of_the_standalone_limiter_is_explained(kw) {
        let mut owner = Browser::sign_in_owner(&kw).await;
        let passed = kw.check_limit("mail", "user_1", json!({ "limit": 1 })).await;
        let refused = kw.check_limit("mail", "user_1", json!({ "limit": 1 })).await;

        let good = explained(&mut owner, &request(&passed)).await;
        let bad = explained(&mut owner, &request(&refused)).await;

        // The time is that of the logs.
        let time = between(&good, "<br><span class=\"muted small-text\">", "</span>");
        assert!(time.starts_with("2026-03-10 ") && time.ends_with(" UTC") && time.len() == 27, "{time}");
        assert!(good.contains(">Allowed</span>") && good.contains("user_1") && good.contains("mail"), "{good}");
        assert!(bad.contains(">Rejected</span>") && bad.contains("create an override"), "{bad}");
    }

    async fn what_is_not_found_may_be_so_for_several_reasons(kw) {
        let mut owner = Browser::sign_in_owner(&kw).await;
        let stranger = kw.create_other_workspace().await;
        let made = kw.v2_as(&stranger, "apis.createApi", json!({ "name": "theirs" })).await;
        let theirs = json!({ "apiId": made.text_of("apiId") });
        let key = kw.v2_as(&stranger, "keys.createKey", theirs).await.text_of("key");
        let verified = kw.v2_as(&stranger, "keys.verifyKey", json!({ "key": key })).await;
        let limited = json!({ "namespace": "n", "identifier": "i", "limit": 1, "duration": 1_000 });
        let limited = kw.v2_as(&stranger, "ratelimit.limit", limited).await;
        let unknown = kw.verify("nobody").await;

        for id in [request(&verified), request(&limited), request(&unknown), "req_none".into(), "<script>x".into()] {
            let page = explained(&mut owner, &id).await;
            assert!(page.contains("Request not found") && page.contains("NOT_FOUND"), "{page}");
            assert!(page.contains("href=\"/dashboard/ws_default/analytics\">Analytics</a> counts"), "{page}");
            assert!(!page.contains("<script>x"));
        }
        let bare = owner.get(&workspace_path("/keys/why")).await.text;
        assert!(!bare.contains("Request not found"));
    }

    async fn a_request_of_a_key_that_is_deleted_is_explained_all_the_same(kw) {
        let mut owner = Browser::sign_in_owner(&kw).await;
        let key = kw.create_key(json!({})).await;
        let request = asked(&kw, &key.key, json!({}), "VALID").await;
        kw.v2("keys.deleteKey", json!({ "keyId": key.id })).await.data();

        let page = explained(&mut owner, &request).await;

        assert!(page.contains("(deleted)"), "{page}");
    }
}

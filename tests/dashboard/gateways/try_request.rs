//! Trying a request, which must say what a gateway would be answered, and count nothing.

use axum::body::Body;
use axum::http::Request;
use serde_json::{Value, json};

use super::super::{Browser, between};
use super::create;
use crate::on_both_stacks;
use crate::support::{Keyward, Reply};

type Fields<'a> = &'a [(&'a str, &'a str)];

/// A policy with rules of every kind.
async fn create_policy(owner: &mut Browser<'_>) -> (String, String, String) {
    let kw = owner.kw;
    let api = kw.create_api().await;
    let (path, secret) = create(owner, "edge", &api).await;
    let change = json!({
        "policyId": "edge",
        "keyFrom": ["authorization:bearer", "header:x-api-key", "query:key", "cookie:key"],
        "identityHeaders": { "meta": ["plan"] },
        "rules": [
            { "methods": ["GET"], "path": "/documents/**", "permissions": "documents.read", "tags": ["docs"] },
            { "path": "/search", "cost": 3, "ratelimits": [{ "name": "search", "limit": 2, "duration": 60_000 }] },
            { "path": "/own", "ratelimits": [{ "name": "unknown" }] },
            { "path": "/free", "cost": 0 },
        ],
    });
    kw.v2("gateways.updatePolicy", change).await.data();
    (path, secret, api)
}

async fn submit(visitor: &mut Browser<'_>, path: &str, fields: Fields<'_>) -> Reply {
    visitor.post(&format!("{path}/try"), fields).await
}

/// Returns the text of the page without characters that are escaped.
fn text(page: &Reply) -> String {
    assert_eq!(page.status, 200, "{}", page.text);
    page.text.replace("&#34;", "\"").replace("&#39;", "'")
}

async fn ask(kw: &Keyward, secret: &str, method: &str, target: &str, key: &str) -> Reply {
    let request = Request::get("/gateway/edge")
        .header("keyward-gateway-secret", secret)
        .header("x-forwarded-method", method)
        .header("x-forwarded-uri", target)
        .header("authorization", format!("Bearer {key}"));
    kw.send(request.body(Body::empty()).expect("a request")).await
}

/// Returns the headers of a table of the page, without those that differ with every request.
fn shown_headers(page: &str, label: &str) -> Vec<(String, String)> {
    let Some((_, table)) = page.split_once(&format!("aria-label=\"{label}\"")) else {
        return Vec::new();
    };
    let rows = between(table, "<tbody>", "</tbody>").split("<tr>").skip(1);
    let header = |row: &str| {
        let value = between(row, "<td class=\"break\">", "</td>");
        let value = if value.contains("Empty") { "" } else { value };
        (between(row, "<code>", "</code>").to_owned(), value.to_owned())
    };
    let headers = rows.map(header).filter(|(name, _)| name != "keyward-request-id");
    let mut headers: Vec<_> = headers.collect();
    headers.sort();
    headers
}

fn sent_headers(reply: &Reply) -> Vec<(String, String)> {
    let is_own = |name: &str| {
        let names = ["www-authenticate", "retry-after"];
        (name.starts_with("keyward-") && name != "keyward-request-id")
            || name.starts_with("ratelimit")
            || names.contains(&name)
    };
    let headers = reply.headers.iter().filter(|(name, _)| is_own(name.as_str()));
    let text = |value: &axum::http::HeaderValue| value.to_str().expect("a text").to_owned();
    let mut headers: Vec<_> =
        headers.map(|(name, value)| (name.to_string(), text(value))).collect();
    headers.sort();
    headers
}

on_both_stacks! {
    async fn preview_is_what_the_gateway_is_answered_next(kw) {
        let mut owner = Browser::sign_in_owner(&kw).await;
        let (path, secret, api) = create_policy(&mut owner).await;
        kw.create_permission("documents.read").await;
        let key = async |fields: Value| kw.create_key_in(&api, fields).await.key;
        let reader = key(json!({
            "permissions": ["documents.read"], "meta": { "plan": "pro" }, "externalId": "user_1",
            "credits": { "remaining": 8 },
        })).await;
        let plain = key(json!({})).await;
        let poor = key(json!({ "credits": { "remaining": 2 } })).await;
        let disabled = key(json!({ "enabled": false })).await;
        let limited = key(json!({
            "ratelimits": [{ "name": "each", "limit": 2, "duration": 60_000, "autoApply": true }],
        })).await;
        let foreign = kw.create_key(json!({})).await.key;
        let unknown = "no-such-key".to_owned();
        for (method, target, key) in [
            ("GET", "/documents/1?a=b", &reader), ("GET", "/documents/1", &plain), ("PUT", "/documents/1", &reader),
            ("GET", "/documents/1", &disabled), ("GET", "/documents/1", &foreign), ("GET", "/documents/1", &unknown),
            ("GET", "/other", &plain), ("GET", "/documents/../search", &reader), ("POST", "/own", &plain),
            ("POST", "/search", &reader), ("POST", "/search", &reader), ("POST", "/search", &reader),
            ("POST", "/search", &poor), ("POST", "/search", &poor), ("GET", "/free", &poor),
            ("POST", "/search", &plain), ("POST", "/search", &plain), ("POST", "/search", &plain),
            ("GET", "/free", &limited), ("GET", "/free", &limited), ("GET", "/free", &limited),
            ("GET", "/free", &reader),
        ] {
            let fields = [("method", method), ("target", target), ("key", key.as_str())];
            submit(&mut owner, &path, &fields).await;
            let page = text(&submit(&mut owner, &path, &fields).await);

            let asked = ask(&kw, &secret, method, target, key).await;

            let case = format!("{method} {target} {key}");
            let gets = between(&page, "<dt>Response</dt><dd>", ":");
            assert_eq!(gets, asked.status.as_u16().to_string(), "{case}: {page}");
            let mut shown = shown_headers(&page, "Headers for the service");
            shown.extend(shown_headers(&page, "Headers for the client"));
            shown.sort();
            assert_eq!(shown, sent_headers(&asked), "{case}");
            if let Some(code) = asked.body["code"].as_str() {
                assert!(page.contains(&format!("<span class=\"badge bad\">{code}</span>")), "{case}: {page}");
            }
            assert!(!page.contains(key.as_str()), "{case}");
        }
    }

    async fn preview_counts_spends_and_records_nothing(kw) {
        let mut owner = Browser::sign_in_owner(&kw).await;
        let (path, secret, api) = create_policy(&mut owner).await;
        let fields = json!({
            "credits": { "remaining": 4 },
            "ratelimits": [{ "name": "each", "limit": 2, "duration": 60_000, "autoApply": true }],
        });
        let key = kw.create_key_in(&api, fields).await;
        let before = kw.count_audit_entries().await;

        for _ in 0..5 {
            let fields = [("method", "POST"), ("target", "/search"), ("key", key.key.as_str())];
            let page = text(&submit(&mut owner, &path, &fields).await);
            for part in ["Allowed", "<dd>1 after this request</dd>", "Rule 2", "2 per minute", "<dt>Response</dt>"] {
                assert!(page.contains(part), "{part}: {page}");
            }
        }

        kw.write_events().await;
        assert_eq!(kw.query_events("SELECT request_id FROM verifications").await, [""; 0]);
        assert_eq!(kw.get_key(&key.id).await["credits"]["remaining"], 4);
        assert!(kw.get_key(&key.id).await["lastUsedAt"].is_null());
        assert_eq!(kw.count_audit_entries().await, before);
        let asked = ask(&kw, &secret, "POST", "/search", &key.key).await;
        assert_eq!(asked.headers["keyward-credits-remaining"], "1");
    }

    async fn outcome_says_why_and_what_to_do(kw) {
        let mut owner = Browser::sign_in_owner(&kw).await;
        let (path, _, api) = create_policy(&mut owner).await;
        let key = kw.create_key_in(&api, json!({ "name": "the reader" })).await;
        let foreign = kw.create_key(json!({})).await.key;
        let of = |target: &'static str, key: &str| [("target", target.to_owned()), ("key", key.to_owned())];

        for (fields, parts) in [
            (of("/free", ""), &["NO_KEY", "no key in any location", "Rule 4", "invalid_token"][..]),
            (of("/free", &foreign), &["NOT_FOUND", "The key belongs to the API", "Add the API to the policy"]),
            (of("/free", "unknown"), &["NOT_FOUND", "The key does not exist in this workspace"]),
            (of("/free", &"k".repeat(600)), &["NOT_FOUND", "The key does not exist in this workspace"]),
            (of("/none", &key.key), &["FORBIDDEN", "No rule of the policy matches", "No matching rule", "the reader"]),
            (of("/a/../b", &key.key), &["FORBIDDEN", "Servers read this path in different ways"]),
            (of("/documents/1", &key.key), &["INSUFFICIENT_PERMISSIONS", "lacks required permissions: documents.read", "Rule 1: GET", "docs"]),
            (of("/own", &key.key), &["precondition_failed", "no rate limit named unknown", "403: Forbidden"]),
            (of("/free", &key.key), &["VALID", "meets the requirements of the rule", "200: the request is forwarded", "req_…"]),
        ] {
            let fields: Vec<_> = fields.iter().map(|(name, value)| (*name, value.as_str())).collect();
            let page = text(&submit(&mut owner, &path, &fields).await);
            for part in parts {
                assert!(page.contains(part), "{part} of {fields:?}: {page}");
            }
        }
    }

    async fn key_is_read_where_it_is_sent(kw) {
        let mut owner = Browser::sign_in_owner(&kw).await;
        let (path, _, api) = create_policy(&mut owner).await;
        let key = kw.create_key_in(&api, json!({})).await.key;
        let header = format!("X-Api-Key: {key}");

        for source in ["authorization:bearer", "header:x-api-key", "query:key", "cookie:key"] {
            let fields = [("target", "/free?a=b"), ("key", key.as_str()), ("source", source)];
            let page = text(&submit(&mut owner, &path, &fields).await);
            assert!(page.contains("Allowed") && page.contains(&format!("<dd><code class=\"break\">{source}<")), "{page}");
        }
        let written = submit(&mut owner, &path, &[("target", "/free"), ("headers", &header)]).await;
        assert!(text(&written).contains("Allowed"));
    }

    async fn network_of_the_client_counts(kw) {
        let mut owner = Browser::sign_in_owner(&kw).await;
        let (path, _, api) = create_policy(&mut owner).await;
        let key = kw.create_key_in(&api, json!({})).await.key;
        kw.update_api(&api, |settings| {
            let networks = foundation::model::Networks::parse("10.0.0.0/8").expect("a network");
            settings.allowed_networks = foundation::model::Networks::new(networks);
        }).await;

        for (address, part) in [("10.1.2.3", "Allowed"), ("192.0.2.1", "may not be used from 192.0.2.1"), ("", "the client address is unknown")] {
            let fields = [("target", "/free"), ("key", key.as_str()), ("address", address)];
            let page = text(&submit(&mut owner, &path, &fields).await);
            assert!(page.contains(part), "{address}: {page}");
        }
    }

    async fn invalid_request_is_told_at_its_field(kw) {
        let mut owner = Browser::sign_in_owner(&kw).await;
        let (path, ..) = create_policy(&mut owner).await;
        let [fits, too_long] = [4096, 4097].map(|length| format!("/{}", "a".repeat(length - 1)));
        let [key_fits, key_too_long] = [2048, 2049].map(|length| "k".repeat(length));
        let [few, many] = [50, 51].map(|count| "A: b\n".repeat(count));
        for (id, field, value) in [
            ("method", "method", "GE T"), ("target", "target", "a"), ("target", "target", "/a b"),
            ("target", "target", "/ä"), ("target", "target", &too_long), ("key", "key", "a b"),
            ("key", "key", "ä"), ("key", "key", &key_too_long), ("headers", "headers", "nothing"),
            ("headers", "headers", "A B: c"), ("headers", "headers", &many), ("address", "address", "here"),
        ] {
            let page = submit(&mut owner, &path, &[(field, value)]).await;
            assert_eq!(page.status, 422, "{field} {value}: {}", page.text);
            let tag = between(&page.text, &format!("id=\"{id}\""), ">");
            assert!(tag.contains("aria-invalid=\"true\""), "{field} {value}: {tag}");
        }
        for fields in [("target", &fits), ("key", &key_fits), ("headers", &few)] {
            let page = submit(&mut owner, &path, &[(fields.0, fields.1.as_str())]).await;
            assert_eq!(page.status, 200, "{}", page.text);
        }
    }
}

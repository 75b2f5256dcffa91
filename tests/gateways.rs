//! `ANY /gateway/{policy}`, as gateways call it.

mod assertions;
mod authentication;
mod ext_authz;
mod hang_up;
mod protected_resource;
mod rate_limit;
mod rate_limit_scenarios;
mod rate_limit_status;
mod rate_limit_windows;
mod retry_after;
mod stray_slash;

use std::net::SocketAddr;

use axum::body::Body;
use axum::http::Request;
use foundation::model::Networks;
use request::PEER;
use serde_json::{Value, json};

use crate::on_both_stacks;
use crate::support::{Keyward, Reply, Stack};

/// A policy of one API, its secret, and a gateway that uses it.
struct Gateway<'a> {
    kw: &'a Keyward,
    api: String,
    secret: String,
    /// The path and the query of the endpoint.
    target: String,
}

impl<'a> Gateway<'a> {
    async fn create(kw: &'a Keyward, fields: Value) -> Self {
        let api = kw.create_api().await;
        let mut request = json!({ "name": "edge", "apiIds": [api] });
        request.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        let secret = kw.v2("gateways.createPolicy", request).await.text_of("secret");
        Self { kw, api, secret, target: "/gateway/edge".to_owned() }
    }

    /// The same gateway, which asks another replica.
    fn on<'b>(&self, kw: &'b Keyward) -> Gateway<'b> {
        let Self { api, secret, target, .. } = self;
        Gateway { kw, api: api.clone(), secret: secret.clone(), target: target.clone() }
    }

    async fn create_key(&self, fields: Value) -> crate::support::seed::IssuedKey {
        self.kw.create_key_in(&self.api, fields).await
    }

    /// Sends headers with the secret.
    async fn ask(&self, headers: &[(&str, &str)]) -> Reply {
        let mut all = vec![("keyward-gateway-secret", self.secret.as_str())];
        all.extend(headers);
        send(self.kw, "GET", &self.target, &all).await
    }

    /// Asks for a request with a key, as Traefik does.
    async fn ask_for(&self, method: &str, uri: &str, key: &str) -> Reply {
        let bearer = format!("Bearer {key}");
        self.ask(&[
            ("authorization", &bearer),
            ("x-forwarded-method", method),
            ("x-forwarded-uri", uri),
        ])
        .await
    }
}

async fn send(kw: &Keyward, method: &str, target: &str, headers: &[(&str, &str)]) -> Reply {
    let mut request = Request::builder().method(method).uri(target);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    kw.send(request.body(Body::empty()).unwrap()).await
}

fn header<'r>(reply: &'r Reply, name: &str) -> Option<&'r str> {
    reply.headers.get(name).map(|value| value.to_str().unwrap())
}

on_both_stacks! {
    async fn valid_key_passes_with_identity_headers(kw) {
        let gateway = Gateway::create(&kw, json!({ "identityHeaders": { "meta": ["plan", "seats", "none"] } })).await;
        kw.create_role("editor", ["documents.read"]).await;
        let key = gateway.create_key(json!({
            "externalId": "user_1", "roles": ["editor"],
            "meta": { "plan": "größe, 1", "seats": 3 }, "credits": { "remaining": 5 },
        })).await;

        let reply = gateway.ask_for("GET", "/", &key.key).await;

        assert_eq!((reply.status.as_u16(), reply.text.as_str()), (200, ""));
        let identity = kw.get_identity("user_1").await;
        for (name, value) in [
            ("keyward-key-id", key.id.as_str()),
            ("keyward-api-id", &gateway.api),
            ("keyward-external-id", "user_1"),
            ("keyward-identity-id", identity["id"].as_str().unwrap()),
            ("keyward-permissions", "documents.read"),
            ("keyward-roles", "editor"),
            ("keyward-environment", ""),
            ("keyward-meta-plan", "gr%C3%B6%C3%9Fe, 1"),
            ("keyward-meta-seats", "3"),
            ("keyward-meta-none", ""),
            ("keyward-omitted", ""),
            ("keyward-credits-remaining", "4"),
            ("cache-control", "no-store"),
        ] {
            assert_eq!(header(&reply, name), Some(value), "{name}");
        }
        assert!(header(&reply, "keyward-request-id").unwrap().starts_with("req_"));
    }

    async fn identity_header_is_empty_when_it_is_not_selected_or_too_long(kw) {
        let gateway = Gateway::create(&kw, json!({
            "identityHeaders": { "headers": ["keyward-api-id"], "meta": ["text", "long"] },
        })).await;
        let meta = json!({ "text": "a".repeat(4096), "long": "a".repeat(4097) });
        let key = gateway.create_key(json!({ "externalId": "user_1", "meta": meta })).await;

        let reply = gateway.ask_for("GET", "/", &key.key).await;

        assert_eq!(header(&reply, "keyward-api-id"), Some(gateway.api.as_str()));
        for name in ["keyward-key-id", "keyward-external-id", "keyward-request-id", "keyward-meta-long"] {
            assert_eq!(header(&reply, name), Some(""), "{name}");
        }
        assert_eq!(header(&reply, "keyward-meta-text").map(str::len), Some(4096));
        assert_eq!(header(&reply, "keyward-omitted"), Some("keyward-meta-long"));
    }

    async fn unusable_key_is_unauthorized(kw) {
        let gateway = Gateway::create(&kw, json!({})).await;
        let foreign = kw.create_key(json!({})).await.key;
        let disabled = gateway.create_key(json!({ "enabled": false })).await.key;
        let expires = kw.clock.now().0 + 1000;
        let expired = gateway.create_key(json!({ "expires": expires })).await.key;
        kw.clock.advance_ms(2000);

        for (key, code) in [
            (foreign.as_str(), "NOT_FOUND"),
            ("no_such_key", "NOT_FOUND"),
            (&"a".repeat(513), "NOT_FOUND"),
            (&disabled, "DISABLED"),
            (&expired, "EXPIRED"),
        ] {
            let reply = gateway.ask_for("GET", "/", key).await;
            assert_eq!(reply.status, 401, "{code}");
            assert_eq!(reply.body["code"], code);
            assert_eq!(
                header(&reply, "www-authenticate"),
                Some("Bearer realm=\"edge\", error=\"invalid_token\"")
            );
            assert_eq!(header(&reply, "keyward-key-id"), None);
        }
        let reply = gateway.ask(&[]).await;
        assert_eq!((reply.status.as_u16(), &reply.body["code"]), (401, &json!("NO_KEY")));
        assert!(header(&reply, "www-authenticate").is_some());
    }

    async fn rules_decide_by_method_and_path(kw) {
        let gateway = Gateway::create(&kw, json!({ "rules": [
            { "methods": ["GET", "HEAD"], "path": "/documents/**", "permissions": "documents.read" },
            { "path": "/documents/*", "permissions": "documents.write" },
            { "path": "/open" },
        ] })).await;
        kw.create_permission("documents.read").await;
        let key = gateway.create_key(json!({ "permissions": ["documents.read"] })).await.key;

        for (method, uri, status, code) in [
            ("GET", "/documents/1/pages?x=/open", 200, ""),
            ("HEAD", "/documents", 200, ""),
            ("POST", "/documents/1", 403, "INSUFFICIENT_PERMISSIONS"),
            ("POST", "/documents/1/pages", 403, "FORBIDDEN"),
            ("DELETE", "/open", 200, ""),
            ("GET", "/open/..", 403, "FORBIDDEN"),
            ("GET", "/open#/../admin", 403, "FORBIDDEN"),
            ("GET", "/open?a#/../admin", 200, ""),
            ("GET", "/documents/%2e%2e/admin", 403, "FORBIDDEN"),
            ("GET", "/documents%2f..%2fadmin", 403, "FORBIDDEN"),
            ("GET", "/", 403, "FORBIDDEN"),
        ] {
            let reply = gateway.ask_for(method, uri, &key).await;
            assert_eq!(reply.status.as_u16(), status, "{method} {uri}");
            if status == 403 {
                assert_eq!(reply.body["code"], code, "{method} {uri}");
                assert_eq!(
                    header(&reply, "www-authenticate"),
                    Some("Bearer realm=\"edge\", error=\"insufficient_scope\"")
                );
            }
        }
        // An unknown key is unknown whatever the path.
        assert_eq!(gateway.ask_for("GET", "/", "unknown").await.status, 401);
        // The request is not known, so no rule matches.
        let bearer = format!("Bearer {key}");
        assert_eq!(gateway.ask(&[("authorization", &bearer)]).await.status, 403);
    }

    async fn request_is_told_in_the_way_of_each_gateway(kw) {
        let mut gateway = Gateway::create(&kw, json!({ "rules": [{ "methods": ["PUT"], "path": "/a/b" }] })).await;
        let bearer = format!("Bearer {}", gateway.create_key(json!({})).await.key);
        let bearer = ("authorization", bearer.as_str());

        let traefik = [bearer, ("x-forwarded-method", "PUT"), ("x-forwarded-uri", "/a/b?c")];
        assert_eq!(gateway.ask(&traefik).await.status, 200);
        let nginx = [bearer, ("x-original-method", "PUT"), ("x-original-uri", "/a/b?c")];
        assert_eq!(gateway.ask(&nginx).await.status, 200);
        let spoofed = [
            bearer, ("x-original-method", "PUT"), ("x-original-uri", "/other"), ("x-forwarded-uri", "/a/b"),
        ];
        assert_eq!(gateway.ask(&spoofed).await.status, 403);
        "/gateway/edge/a/b?mode=nginx".clone_into(&mut gateway.target);
        let secret = ("keyward-gateway-secret", gateway.secret.as_str());
        assert_eq!(send(&kw, "PUT", &gateway.target, &[bearer, secret]).await.status, 200);
        assert_eq!(send(&kw, "POST", &gateway.target, &[bearer, secret]).await.status, 403);
        assert_eq!(send(&kw, "PUT", "/gateway/edge/a", &[bearer, secret]).await.status, 403);
    }

    async fn rule_that_may_match_hides_the_rules_after_it(kw) {
        let rules = json!([
            { "path": "/admin/**", "permissions": "admin" },
            { "methods": ["DELETE"], "permissions": "admin" },
            {},
        ]);
        let gateway = Gateway::create(&kw, json!({ "rules": rules })).await;
        let key = gateway.create_key(json!({})).await.key;

        assert_eq!(gateway.ask_for("GET", "/public", &key).await.status, 200);
        for path in ["/admin", "/x/../admin", "/admin;a/b", "/admin%2fusers", "//public/admin", "/a#/admin"] {
            assert_eq!(gateway.ask_for("GET", path, &key).await.status, 403, "{path}");
        }
        for method in ["DELETE", "delete", "Delete", "get"] {
            assert_eq!(gateway.ask_for(method, "/public", &key).await.status, 403, "{method}");
        }
        let bearer = format!("Bearer {key}");
        let told = [("authorization", bearer.as_str()), ("x-forwarded-method", "GET"), ("x-forwarded-uri", "/public")];
        for contradiction in [("x-original-uri", "/other"), ("x-original-method", "DELETE")] {
            let told = [&told[..], &[contradiction]].concat();
            assert_eq!(gateway.ask(&told).await.status, 403, "{contradiction:?}");
        }
    }

    async fn client_cannot_choose_the_path_by_headers_that_nginx_passes_on(kw) {
        let rules = json!([{ "methods": ["GET"], "path": "/public" }]);
        let mut gateway = Gateway::create(&kw, json!({ "rules": rules })).await;
        "/gateway/edge?mode=nginx".clone_into(&mut gateway.target);
        let bearer = format!("Bearer {}", gateway.create_key(json!({})).await.key);

        // A configuration tells the path by one of the two. The other one is the client's.
        for (own, of_client) in [("x-original-uri", "x-forwarded-uri"), ("x-forwarded-uri", "x-original-uri")] {
            let told = [
                ("authorization", bearer.as_str()), ("x-original-method", "GET"), (own, "/admin"),
                (of_client, "/public"),
            ];
            assert_eq!(gateway.ask(&told).await.status, 403, "{own}");
        }
    }

    async fn key_is_read_from_the_first_source_that_has_one(kw) {
        let sources = json!(["query:api_key", "cookie:key", "header:x-key"]);
        let gateway = Gateway::create(&kw, json!({ "keyFrom": sources })).await;
        let key = gateway.create_key(json!({})).await.key;
        let (query, cookie) = (format!("/a?api_key={key}"), format!("a=b; key={key}"));

        assert_eq!(gateway.ask(&[("x-original-uri", &query)]).await.status, 200);
        assert_eq!(gateway.ask(&[("cookie", &cookie)]).await.status, 200);
        assert_eq!(gateway.ask(&[("x-key", &key)]).await.status, 200);
        assert_eq!(gateway.ask(&[("cookie", "key=other"), ("x-key", &key)]).await.status, 401);
        assert_eq!(gateway.ask(&[("authorization", &format!("Bearer {key}"))]).await.status, 401);
    }

    async fn rate_limit_is_refused_with_the_time_to_wait(kw) {
        let limit = json!({ "name": "each", "limit": 2, "duration": 60_000 });
        let mut gateway = Gateway::create(&kw, json!({ "rules": [{ "ratelimits": [limit] }] })).await;
        let key = gateway.create_key(json!({})).await.key;

        let first = gateway.ask_for("GET", "/", &key).await;
        assert_eq!(header(&first, "ratelimit-policy"), Some("\"each\";q=2;w=60"));
        assert!(header(&first, "ratelimit").unwrap().starts_with("\"each\";r=1;t="));
        assert_eq!(gateway.ask_for("GET", "/", &key).await.status, 200);
        let reply = gateway.ask_for("GET", "/", &key).await;
        assert_eq!((reply.status.as_u16(), &reply.body["code"]), (429, &json!("RATE_LIMITED")));
        let seconds: i64 = header(&reply, "retry-after").unwrap().parse().unwrap();
        assert!((1..=60).contains(&seconds), "{seconds}");
        assert!(header(&reply, "ratelimit").unwrap().starts_with("\"each\";r=0;t="));
        "/gateway/edge?mode=nginx".clone_into(&mut gateway.target);
        let reply = gateway.ask_for("GET", "/", &key).await;
        assert_eq!((reply.status.as_u16(), header(&reply, "keyward-status")), (403, Some("429")));
        assert_eq!(header(&reply, "retry-after").map(str::is_empty), Some(false));
    }

    async fn key_without_credits_is_refused_until_its_refill(kw) {
        let gateway = Gateway::create(&kw, json!({ "rules": [{ "cost": 2 }] })).await;
        let lasting = gateway.create_key(json!({ "credits": { "remaining": 3 } })).await.key;
        let refill = json!({ "interval": "daily", "amount": 3 });
        let credits = json!({ "remaining": 1, "refill": refill });
        let refilled = gateway.create_key(json!({ "credits": credits })).await.key;

        let first = gateway.ask_for("GET", "/", &lasting).await;
        assert_eq!((first.status.as_u16(), header(&first, "keyward-credits-remaining")), (200, Some("1")));
        let reply = gateway.ask_for("GET", "/", &lasting).await;
        assert_eq!((reply.status.as_u16(), &reply.body["code"]), (429, &json!("USAGE_EXCEEDED")));
        assert_eq!(header(&reply, "keyward-credits-remaining"), Some("1"));
        assert_eq!(header(&reply, "retry-after"), None);
        let reply = gateway.ask_for("GET", "/", &refilled).await;
        // From noon to midnight.
        assert_eq!((reply.status.as_u16(), header(&reply, "retry-after")), (429, Some("43200")));
    }

    async fn change_of_a_policy_counts_at_once(kw) {
        let gateway = Gateway::create(&kw, json!({})).await;
        let key = gateway.create_key(json!({})).await.key;
        assert_eq!(gateway.ask_for("GET", "/a", &key).await.status, 200);

        let change = json!({ "policyId": "edge", "rules": [{ "path": "/b" }] });
        kw.v2("gateways.updatePolicy", change).await.data();
        assert_eq!(gateway.ask_for("GET", "/a", &key).await.status, 403);
        assert_eq!(gateway.ask_for("GET", "/b", &key).await.status, 200);
        kw.v2("gateways.deletePolicy", json!({ "policyId": "edge" })).await.data();
        assert_eq!(gateway.ask_for("GET", "/b", &key).await.status, 403);
    }

    async fn refusal_has_the_format_of_the_policy(kw) {
        let mut gateway = Gateway::create(&kw, json!({})).await;
        let reply = gateway.ask(&[]).await;
        assert_eq!(header(&reply, "content-type"), Some("application/problem+json"));
        let request_id = header(&reply, "keyward-request-id").unwrap();
        assert_eq!(reply.body, json!({
            "type": "about:blank", "title": "Unauthorized", "status": 401, "code": "NO_KEY",
            "detail": "the request has no API key", "requestId": request_id,
        }));
        for (format, media_type, body) in [
            ("text", Some("text/plain; charset=utf-8"), "the request has no API key\n"),
            ("empty", None, ""),
        ] {
            let change = json!({ "policyId": "edge", "onFailure": format });
            kw.v2("gateways.updatePolicy", change).await.data();
            let reply = gateway.ask(&[]).await;
            assert_eq!((header(&reply, "content-type"), reply.text.as_str()), (media_type, body));
        }
        "/gateway/edge?mode=other".clone_into(&mut gateway.target);
        assert_eq!(gateway.ask(&[]).await.status, 401);
        kw.v2("gateways.updatePolicy", json!({ "policyId": "edge", "onFailure": "text" })).await.data();
        assert_eq!(gateway.ask(&[]).await.text, "the request has no API key\n");
        // nginx would not read a body, and close the connection.
        "/gateway/edge?mode=nginx".clone_into(&mut gateway.target);
        let reply = gateway.ask(&[]).await;
        assert_eq!((reply.status.as_u16(), reply.text.as_str()), (401, ""));
        assert_eq!(header(&reply, "content-type"), None);
    }

    async fn request_is_an_event_like_any_other_verification(kw) {
        let rules = json!([{ "path": "/a", "tags": ["tier=a"] }]);
        let gateway = Gateway::create(&kw, json!({ "rules": rules })).await;
        let key = gateway.create_key(json!({})).await;
        for path in ["/a", "/b"] {
            gateway.ask_for("GET", path, &key.key).await;
        }
        kw.write_events().await;

        let query = "SELECT outcome, tags FROM key_verifications_v1 ORDER BY outcome";
        let found = kw.v2("analytics.getVerifications", json!({ "query": query })).await;

        let rows = found.data();
        assert_eq!(rows[0]["outcome"], "FORBIDDEN");
        assert_eq!((&rows[1]["outcome"], &rows[1]["tags"]), (&json!("VALID"), &json!(["tier=a"])));
    }
}

#[tokio::test]
async fn client_address_is_that_which_a_trusted_gateway_reports() {
    let kw = Keyward::start_with(Stack::Embedded, |settings| {
        settings.trusted_proxies = Networks::new(Networks::parse("10.0.0.0/8").unwrap());
    })
    .await;
    let gateway = Gateway::create(&kw, json!({})).await;
    kw.update_api(&gateway.api, |settings| {
        settings.allowed_networks = Networks::new(Networks::parse("203.0.113.0/24").unwrap());
    })
    .await;
    let bearer = format!("Bearer {}", gateway.create_key(json!({})).await.key);
    for (peer, client, status) in [
        ("10.0.0.1:1", "203.0.113.9", 200),
        ("10.0.0.1:1", "198.51.100.1", 403),
        ("192.0.2.1:1", "203.0.113.9", 403),
    ] {
        let peer: SocketAddr = peer.parse().unwrap();
        let headers = [("authorization", bearer.as_str()), ("x-forwarded-for", client)];
        let reply = PEER.scope(peer, gateway.ask(&headers)).await;
        assert_eq!(reply.status.as_u16(), status, "{peer} {client}");
    }
}

//! `envoy.service.auth.v3.Authorization/Check`, as Envoy calls it.

use std::collections::{BTreeSet, HashMap};
use std::future::pending;

use envoy_types::ext_authz::v3::pb::{CheckRequest, CheckResponse, HttpResponse};
use envoy_types::pb::envoy::config::core::v3::address::Address;
use envoy_types::pb::envoy::config::core::v3::{self as core, SocketAddress};
use envoy_types::pb::envoy::service::auth::v3::AttributeContext;
use envoy_types::pb::envoy::service::auth::v3::attribute_context::{HttpRequest, Peer, Request};
use envoy_types::pb::envoy::service::auth::v3::authorization_client::AuthorizationClient;
use envoy_types::pb::google::protobuf::value::Kind;
use foundation::clock::Stopwatch;
use foundation::model::Networks;
use keyward::http;
use serde_json::json;
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tonic::Code;
use tonic::transport::Endpoint;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;

use super::{Gateway, header, send};
use crate::on_both_stacks;
use crate::support::assertion::{VerifiedAssertion, verify_assertion};
use crate::support::{Keyward, Stack};

/// A listener for gRPC, which ends with the test.
pub struct Listener {
    pub url: String,
    _task: JoinSet<()>,
}

impl Listener {
    pub async fn start(kw: &Keyward) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let mut task = JoinSet::new();
        task.spawn(http::serve_grpc(kw.app.clone(), listener, None, pending()));
        Self { url, _task: task }
    }

    async fn check(&self, request: CheckRequest) -> CheckResponse {
        let mut client = AuthorizationClient::connect(self.url.clone()).await.unwrap();
        client.check(request).await.unwrap().into_inner()
    }
}

/// A request that Envoy has received from 192.0.2.1, with the policy and its secret.
fn request(
    gateway: &Gateway<'_>,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
) -> CheckRequest {
    request_from("192.0.2.1", gateway, method, path, headers)
}

/// A request that Envoy has received from an address.
fn request_from(
    address: &str,
    gateway: &Gateway<'_>,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
) -> CheckRequest {
    let to_map = |pairs: &[(&str, &str)]| -> HashMap<String, String> {
        pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    };
    let http = HttpRequest {
        method: method.to_owned(),
        path: path.to_owned(),
        headers: to_map(headers),
        ..HttpRequest::default()
    };
    let source = SocketAddress { address: address.to_owned(), ..SocketAddress::default() };
    let source = core::Address { address: Some(Address::SocketAddress(source)) };
    let context_extensions =
        to_map(&[("keyward-policy", "edge"), ("keyward-gateway-secret", &gateway.secret)]);
    CheckRequest {
        attributes: Some(AttributeContext {
            source: Some(Peer { address: Some(source), ..Peer::default() }),
            request: Some(Request { http: Some(http), time: None }),
            context_extensions,
            ..AttributeContext::default()
        }),
    }
}

/// The same request, with its headers as Envoy sends them if it is configured to send repeated ones.
fn with_header_map(mut request: CheckRequest) -> CheckRequest {
    let attributes = request.attributes.as_mut().unwrap();
    let http = attributes.request.as_mut().unwrap().http.as_mut().unwrap();
    let header = |(key, value): (String, String)| core::HeaderValue {
        key,
        value: String::new(),
        raw_value: value.into_bytes(),
    };
    let headers = std::mem::take(&mut http.headers).into_iter().map(header).collect();
    http.header_map = Some(core::HeaderMap { headers });
    request
}

/// The status that the client gets, and the headers of the refusal.
fn denied(response: &CheckResponse) -> (i32, HashMap<String, String>, String) {
    let Some(HttpResponse::DeniedResponse(denied)) = &response.http_response else {
        panic!("{response:?}");
    };
    let headers = denied.headers.iter().filter_map(|option| option.header.clone());
    let headers = headers.map(|header| (header.key, header.value)).collect();
    (denied.status.as_ref().unwrap().code, headers, denied.body.clone())
}

on_both_stacks! {
    async fn valid_key_passes_with_identity_headers_and_metadata(kw) {
        let gateway = Gateway::create(&kw, json!({ "identityHeaders": { "meta": ["plan"] } })).await;
        let key = gateway.create_key(json!({
            "externalId": "user_1", "meta": { "plan": "pro" }, "credits": { "remaining": 5 },
        })).await;
        let listener = Listener::start(&kw).await;
        let bearer = format!("Bearer {}", key.key);
        let headers = [
            ("authorization", bearer.as_str()), ("keyward-roles", "admin"), ("keyward-assertion", "forged"),
            ("keyward-name", "forged"), ("keyward_key_id", "forged"), ("keywards", "another"),
        ];

        let response = listener.check(request(&gateway, "GET", "/a", &headers)).await;

        assert_eq!(response.status.unwrap().code, i32::from(Code::Ok));
        let Some(HttpResponse::OkResponse(ok)) = response.http_response else { panic!() };
        let headers: HashMap<_, _> = ok.headers.iter().map(|option| {
            assert!(option.keep_empty_value);
            let header = option.header.as_ref().unwrap();
            (header.key.as_str(), header.value.as_str())
        }).collect();
        assert_eq!(headers["keyward-key-id"], key.id);
        assert_eq!(headers["keyward-external-id"], "user_1");
        assert_eq!(headers["keyward-meta-plan"], "pro");
        assert_eq!(headers["keyward-roles"], "");
        assert_eq!(headers["keyward-assertion"], "");
        let removed: BTreeSet<_> = ok.headers_to_remove.iter().map(String::as_str).collect();
        assert_eq!(removed, BTreeSet::from(["keyward-name", "keyward_key_id"]));
        let credits = ok.response_headers_to_add[0].header.as_ref().unwrap();
        assert_eq!((credits.key.as_str(), credits.value.as_str()), ("keyward-credits-remaining", "4"));
        let metadata = response.dynamic_metadata.unwrap();
        let Some(Kind::StructValue(keyward)) = &metadata.fields["keyward"].kind else { panic!() };
        assert_eq!(keyward.fields["keyId"].kind, Some(Kind::StringValue(key.id.clone())));
        assert_eq!(keyward.fields.get("roles"), None);
    }

    async fn assertion_is_that_of_the_same_request_over_http(kw) {
        let gateway = Gateway::create(&kw, json!({ "identityHeaders": { "signed": true } })).await;
        kw.create_role("editor", ["documents.read", "documents.write"]).await;
        let key = gateway.create_key(json!({ "externalId": "user_1", "roles": ["editor"] })).await;
        let bearer = format!("Bearer {}", key.key);
        let headers = [("authorization", bearer.as_str()), ("keyward-assertion", "forged")];
        let listener = Listener::start(&kw).await;

        let over_http = gateway.ask_for("GET", "/", &key.key).await;
        let response = listener.check(request(&gateway, "GET", "/", &headers)).await;

        let Some(HttpResponse::OkResponse(ok)) = response.http_response else { panic!() };
        let headers = ok.headers.iter().filter_map(|option| option.header.as_ref());
        let found: HashMap<_, _> = headers.map(|header| (header.key.as_str(), header.value.as_str())).collect();
        let jwks = send(&kw, "GET", "/.well-known/jwks.json", &[]).await.text;
        let issuer = &kw.app.context.settings.public_url;
        let verify = |token| verify_assertion(token, &jwks, (issuer, "edge"), kw.clock.now()).unwrap();
        let (over_http, over_grpc) =
            (verify(header(&over_http, "keyward-assertion").unwrap()), verify(found["keyward-assertion"]));
        assert_eq!(over_grpc.id, found["keyward-request-id"]);
        assert_eq!(over_grpc, VerifiedAssertion { id: over_grpc.id.clone(), ..over_http });
        assert_eq!(over_grpc.subject, "user_1");
        // Other filters of Envoy find it, too.
        let metadata = response.dynamic_metadata.unwrap();
        let Some(Kind::StructValue(keyward)) = &metadata.fields["keyward"].kind else { panic!() };
        let told = Kind::StringValue(found["keyward-assertion"].to_owned());
        assert_eq!(keyward.fields["assertion"].kind, Some(told));
    }

    async fn refusal_has_the_status_for_the_client(kw) {
        let limit = json!({ "name": "each", "limit": 1, "duration": 60_000 });
        let rules = json!([{ "methods": ["GET"], "path": "/a", "ratelimits": [limit] }]);
        let gateway = Gateway::create(&kw, json!({ "rules": rules })).await;
        let bearer = format!("Bearer {}", gateway.create_key(json!({})).await.key);
        let with_key = [("authorization", bearer.as_str())];
        let listener = Listener::start(&kw).await;

        let response = listener.check(request(&gateway, "GET", "/a", &[])).await;
        assert_eq!(response.status.as_ref().unwrap().code, i32::from(Code::Unauthenticated));
        let (status, headers, body) = denied(&response);
        assert_eq!(status, 401);
        assert_eq!(headers["www-authenticate"], "Bearer realm=\"edge\", error=\"invalid_token\"");
        assert_eq!(headers["content-type"], "application/problem+json");
        assert!(body.contains("NO_KEY"), "{body}");
        for (method, path) in [("POST", "/a"), ("GET", "/b"), ("GET", "/a/../b")] {
            let response = listener.check(request(&gateway, method, path, &with_key)).await;
            assert_eq!(denied(&response).0, 403, "{method} {path}");
        }
        let passed = listener.check(request(&gateway, "GET", "/a?b", &with_key)).await;
        assert_eq!(passed.status.unwrap().code, i32::from(Code::Ok));
        let response = listener.check(request(&gateway, "GET", "/a", &with_key)).await;
        let (status, headers, _) = denied(&response);
        assert_eq!(status, 429);
        assert!(headers["retry-after"].parse::<i64>().unwrap() >= 1);
    }

    async fn gateway_is_refused_without_its_secret(kw) {
        let gateway = Gateway::create(&kw, json!({})).await;
        let bearer = format!("Bearer {}", gateway.create_key(json!({})).await.key);
        let with_key = [("authorization", bearer.as_str())];
        let listener = Listener::start(&kw).await;
        let with_extensions = |extensions: &[(&str, &str)]| {
            let mut request = request(&gateway, "GET", "/", &with_key);
            let context = &mut request.attributes.as_mut().unwrap().context_extensions;
            context.clear();
            let owned = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
            context.extend(extensions.iter().map(owned));
            request
        };

        for extensions in [
            &[][..],
            &[("keyward-policy", "edge")],
            &[("keyward-policy", "a\0")],
            &[("keyward-policy", "edge"), ("keyward-gateway-secret", "wrong")],
            &[("keyward-policy", "other"), ("keyward-gateway-secret", gateway.secret.as_str())],
        ] {
            let response = listener.check(with_extensions(extensions)).await;
            assert_eq!(denied(&response).0, 403, "{extensions:?}");
        }
        assert_eq!(denied(&listener.check(CheckRequest::default()).await).0, 403);
        let mut call = tonic::Request::new(with_extensions(&[]));
        call.metadata_mut().insert("keyward-policy", "edge".parse().unwrap());
        call.metadata_mut().insert("keyward-gateway-secret", gateway.secret.parse().unwrap());
        let mut client = AuthorizationClient::connect(listener.url.clone()).await.unwrap();
        let response = client.check(call).await.unwrap().into_inner();
        assert_eq!(response.status.unwrap().code, i32::from(Code::Ok));
    }

    async fn client_address_is_that_which_envoy_tells(kw) {
        let gateway = Gateway::create(&kw, json!({})).await;
        let bearer = format!("Bearer {}", gateway.create_key(json!({})).await.key);
        let with_key = [("authorization", bearer.as_str()), ("x-forwarded-for", "203.0.113.9")];
        let listener = Listener::start(&kw).await;

        for (network, is_allowed) in [("192.0.2.0/24", true), ("203.0.113.0/24", false)] {
            kw.update_api(&gateway.api, |settings| {
                settings.allowed_networks = Networks::new(Networks::parse(network).unwrap());
            })
            .await;
            let response = listener.check(request(&gateway, "GET", "/", &with_key)).await;
            assert_eq!(response.status.unwrap().code == 0, is_allowed, "{network}");
        }
    }

    async fn health_is_reported_until_the_server_drains(kw) {
        let listener = Listener::start(&kw).await;
        let channel = Endpoint::from_shared(listener.url.clone()).unwrap().connect().await.unwrap();
        let mut client = HealthClient::new(channel);
        for service in ["", "envoy.service.auth.v3.Authorization"] {
            let request = HealthCheckRequest { service: service.to_owned() };
            let status = client.check(request).await.unwrap().into_inner().status();
            assert_eq!(status, ServingStatus::Serving, "{service}");
        }
        let unknown = client.check(HealthCheckRequest { service: "other".to_owned() }).await;
        assert_eq!(unknown.unwrap_err().code(), Code::NotFound);

        kw.app.context.is_draining.store(true, std::sync::atomic::Ordering::Relaxed);

        let since = Stopwatch::new();
        loop {
            let request = HealthCheckRequest::default();
            let status = client.check(request).await.unwrap().into_inner().status();
            if status == ServingStatus::NotServing {
                break;
            }
            assert!(since.elapsed().as_secs() < 5);
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    }

    async fn call_is_rejected_when_its_metadata_or_message_is_too_large(kw) {
        let gateway = Gateway::create(&kw, json!({})).await;
        let listener = Listener::start(&kw).await;
        let mut client = AuthorizationClient::connect(listener.url.clone()).await.unwrap();

        let mut call = tonic::Request::new(request(&gateway, "GET", "/", &[]));
        call.metadata_mut().insert("x-large", "a".repeat(64 * 1024).parse().unwrap());
        let too_large = client.check(call).await.unwrap_err();
        // Request header fields too large.
        assert!(too_large.message().contains("431"), "{too_large}");
        let large = "a".repeat(1024 * 1024);
        let too_large = client.check(request(&gateway, "GET", "/", &[("x-large", &large)])).await;
        assert_eq!(too_large.unwrap_err().code(), Code::OutOfRange);
        let fits = client.check(request(&gateway, "GET", "/", &[("x-large", "a")])).await;
        assert_eq!(denied(&fits.unwrap().into_inner()).0, 401);
    }
}

#[tokio::test]
async fn client_address_is_that_which_a_trusted_proxy_before_envoy_reports() {
    let networks = |text: &str| Networks::new(Networks::parse(text).unwrap());
    let kw = Keyward::start_with(Stack::Embedded, |settings| {
        settings.trusted_proxies = networks("10.0.0.0/8");
    })
    .await;
    let gateway = Gateway::create(&kw, json!({})).await;
    let bearer = format!("Bearer {}", gateway.create_key(json!({})).await.key);
    let listener = Listener::start(&kw).await;

    for (network, source, forwarded, is_allowed) in [
        ("203.0.113.0/24", "10.0.0.9", "203.0.113.9, 10.0.0.9", true),
        ("203.0.113.0/24", "::ffff:10.0.0.9", "203.0.113.9", true),
        ("203.0.113.0/24", "10.0.0.9", "203.0.113.9, 198.51.100.1, 10.0.0.9", false),
        ("203.0.113.0/24", "198.51.100.1", "203.0.113.9, 198.51.100.1", false),
        ("10.0.0.0/8", "10.0.0.9", "203.0.113.9, 10.0.0.9", false),
        ("10.0.0.0/8", "10.0.0.9", "10.0.0.9", true),
    ] {
        kw.update_api(&gateway.api, |settings| settings.allowed_networks = networks(network)).await;
        let headers = [("authorization", bearer.as_str()), ("x-forwarded-for", forwarded)];
        let joined = request_from(source, &gateway, "GET", "/", &headers);
        for request in [joined.clone(), with_header_map(joined)] {
            let response = listener.check(request).await;
            let is_admitted = response.status.unwrap().code == 0;
            assert_eq!(is_admitted, is_allowed, "{network} {source} {forwarded}");
        }
    }
}

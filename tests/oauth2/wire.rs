//! Tests how the OAuth endpoints authenticate callers, read forms and report errors.

use axum::body::Body;
use axum::http::Request;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use domain::permission::Action;
use serde_json::json;

use crate::on_both_stacks;
use crate::support::{Keyward, Reply, post_form};

const FORM_MAX_BYTES: usize = 64 * 1024;

async fn send(kw: &Keyward, authorization: &str, form: impl Into<Body>) -> Reply {
    kw.send(post_form().header("authorization", authorization).body(form.into()).unwrap()).await
}

async fn send_form(kw: &Keyward, form: impl Into<Body>) -> Reply {
    send(kw, &format!("Bearer {}", kw.root_key), form).await
}

fn basic(credentials: &str) -> String {
    format!("Basic {}", STANDARD.encode(credentials))
}

fn challenges(reply: &Reply) -> Vec<&str> {
    let values = reply.headers.get_all("www-authenticate").iter();
    values.map(|value| value.to_str().unwrap()).collect()
}

on_both_stacks! {
    async fn root_key_is_accepted_as_bearer_and_as_basic_password(kw) {
        let key = kw.create_key(json!({})).await;
        let form = format!("token={}", key.key);

        for authorization in [
            format!("Bearer {}", kw.root_key),
            format!("bearer {}", kw.root_key),
            basic(&format!("resource-server:{}", kw.root_key)),
            basic(&format!(":{}", kw.root_key)),
            basic(&format!("https%3A%2F%2Fapi.example:{}", kw.root_key.replace('_', "%5F"))),
        ] {
            send(&kw, &authorization, form.clone()).await.assert_active();
        }
    }

    async fn endpoint_returns_401_before_the_form_is_read(kw) {
        for (authorization, challenge) in [
            ("Bearer nobody_knows_this_key", "Bearer realm=\"Keyward\", error=\"invalid_token\""),
            ("Basic eDpub2JvZHk=", "Bearer realm=\"Keyward\", error=\"invalid_token\""),
            ("Basic nonsense", "Bearer realm=\"Keyward\", error=\"invalid_token\""),
            ("Digest x", "Bearer realm=\"Keyward\", error=\"invalid_token\""),
        ] {
            let reply = send(&kw, authorization, "").await;

            reply.assert_oauth_error(401, "invalid_client");
            assert_eq!(challenges(&reply), [challenge, "Basic realm=\"Keyward\", charset=\"UTF-8\""]);
            assert_eq!(reply.headers["cache-control"], "no-store");
        }
    }

    async fn missing_credentials_get_a_challenge_without_error(kw) {
        let reply = kw.send(post_form().body(Body::from("token=x")).unwrap()).await;

        let description = reply.assert_oauth_error(401, "invalid_client");
        assert!(description.contains("Authorization"), "{description}");
        let expected = ["Bearer realm=\"Keyward\"", "Basic realm=\"Keyward\", charset=\"UTF-8\""];
        assert_eq!(challenges(&reply), expected);
    }

    async fn a_key_is_no_root_key(kw) {
        let key = kw.create_key(json!({})).await;

        let reply = kw.introspect_as(&key.key, &key.key, &[]).await;

        reply.assert_oauth_error(401, "invalid_client");
    }

    async fn endpoint_returns_403_when_root_key_may_not_verify_at_all(kw) {
        let key = kw.create_key(json!({})).await;
        let others = Action::ALL.iter().filter(|action| **action != Action::VerifyKey);
        let others = others.map(|action| action.to_wildcard_tuple()).collect();
        let root_key = kw.create_root_key_with(others).await;

        let reply = kw.introspect_as(&root_key, &key.key, &[]).await;

        let description = reply.assert_oauth_error(403, "insufficient_scope");
        assert!(description.contains("api.*.verify_key"), "{description}");
        assert_eq!(challenges(&reply), ["Bearer realm=\"Keyward\", error=\"insufficient_scope\""]);
    }

    async fn endpoint_returns_400_when_token_is_missing_or_repeated(kw) {
        for form in ["", "token", "token=", "cost=1", "tokens=x", "token=&token="] {
            let description = send_form(&kw, form).await.assert_oauth_error(400, "invalid_request");
            assert!(description.contains("token is missing"), "{description}");
        }
        for form in ["token=x&token=x", "token=x&token=y&cost=1", "token=a&%74oken=b"] {
            let description = send_form(&kw, form).await.assert_oauth_error(400, "invalid_request");
            assert!(description.contains("token must be given once"), "{description}");
        }
    }

    async fn endpoint_ignores_unknown_fields(kw) {
        let key = kw.create_key(json!({})).await;

        let form = format!("client_id=a&token={}&client_id=b&resource=%ff&&=", key.key);

        send_form(&kw, form).await.assert_active();
    }

    async fn endpoint_enforces_both_sides_of_the_bounds_of_cost(kw) {
        let key = kw.create_key(json!({ "credits": { "remaining": 1 } })).await;

        kw.introspect(&key.key, &[("cost", "0")]).await.assert_active();
        kw.introspect(&key.key, &[("cost", "1000000000000")]).await.assert_inactive();
        for (cost, bound) in [
            ("-1", "minimum of 0"),
            ("1000000000001", "maximum of 1000000000000"),
            ("1.5", "integer"),
            ("one", "integer"),
            ("NaN", "integer"),
            ("99999999999999999999999", "1000000000000"),
        ] {
            let reply = kw.introspect(&key.key, &[("cost", cost)]).await;
            let description = reply.assert_oauth_error(400, "invalid_request");
            assert!(description.contains("cost"), "{description}");
            assert!(description.contains(bound), "{cost}: {description}");
        }
        let reply = kw.introspect(&key.key, &[("ip_address", "nowhere")]).await;
        let description = reply.assert_oauth_error(400, "invalid_request");
        assert!(description.contains("ip_address"), "{description}");
        kw.verify(&key.key).await.assert_code("VALID");
    }

    async fn endpoint_returns_400_when_media_type_is_wrong(kw) {
        for media_type in [Some("application/json"), Some("text/plain"), Some(""), None] {
            let request = Request::post("/oauth2/introspect")
                .header("authorization", format!("Bearer {}", kw.root_key));
            let request = match media_type {
                Some(media_type) => request.header("content-type", media_type),
                None => request,
            };
            let reply = kw.send(request.body(Body::from("token=x")).unwrap()).await;

            let description = reply.assert_oauth_error(400, "invalid_request");
            assert!(description.contains("application/x-www-form-urlencoded"), "{description}");
        }
        let request = Request::post("/oauth2/introspect")
            .header("authorization", format!("Bearer {}", kw.root_key))
            .header("content-type", "Application/X-WWW-Form-URLEncoded; charset=UTF-8");
        kw.send(request.body(Body::from("token=x")).unwrap()).await.assert_inactive();
    }

    async fn endpoint_bounds_the_form(kw) {
        let token = |bytes: usize| format!("token={}", "x".repeat(bytes - "token=".len()));

        send_form(&kw, token(FORM_MAX_BYTES)).await.assert_inactive();
        let reply = send_form(&kw, token(FORM_MAX_BYTES + 1)).await;

        let description = reply.assert_oauth_error(413, "invalid_request");
        assert!(description.contains(&FORM_MAX_BYTES.to_string()), "{description}");
    }

    async fn a_token_may_be_any_bytes(kw) {
        for form in ["token=%00", "token=%ff%fe", "token=%", "token=%7B%5B%22", "token=a+b"] {
            send_form(&kw, form).await.assert_inactive();
        }
    }

    async fn another_method_or_path_is_rejected_in_the_oauth_format(kw) {
        let request = Request::get("/oauth2/introspect").body(Body::empty()).unwrap();
        let reply = kw.send(request).await;
        reply.assert_oauth_error(405, "invalid_request");
        assert_eq!(reply.headers["allow"], "POST");

        let request = Request::post("/oauth2/nothing").body(Body::empty()).unwrap();
        kw.send(request).await.assert_oauth_error(404, "invalid_request");
    }

    async fn endpoint_returns_503_while_the_database_is_unavailable(kw) {
        let key = kw.create_key(json!({})).await;
        kw.introspect("nobody_knows_this_key", &[]).await.assert_inactive();
        kw.store().close().await;

        let reply = kw.introspect(&key.key, &[]).await;

        reply.assert_oauth_error(503, "temporarily_unavailable");
        assert_eq!(reply.headers["retry-after"], "1");
    }
}

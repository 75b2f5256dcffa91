//! Tests that the tokens of a provider are verified with the keys that it has now.

use std::sync::{Arc, Mutex};

use axum::Router;
use axum::http::header::CONTENT_TYPE;
use axum::response::IntoResponse;
use axum::routing::{get, post};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use domain::users::single_sign_on::AuthorizationRequest;
use foundation::model::MemberRole;
use ring::signature::{Ed25519KeyPair, KeyPair as _};
use serde_json::{Value, json};
use tokio::net::TcpListener;

use super::super::Browser;
use super::{CALLBACK, TRIP, follow, with};
use crate::on_both_stacks;
use crate::support::Keyward;

/// A provider whose responses are set before each sign-in.
struct Provider {
    issuer: String,
    /// The key set, and the response with a token.
    responses: Arc<Mutex<(String, String)>>,
}

impl Provider {
    async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let issuer = format!("http://{}", listener.local_addr().unwrap());
        let metadata = json!({
            "issuer": issuer,
            "authorization_endpoint": format!("{issuer}/authorize"),
            "token_endpoint": format!("{issuer}/token"),
            "jwks_uri": format!("{issuer}/keys"),
            "response_types_supported": ["code"],
            "subject_types_supported": ["public"],
            "id_token_signing_alg_values_supported": ["EdDSA"],
        });
        let responses = Arc::new(Mutex::new((String::new(), String::new())));
        let (of_keys, of_token) = (responses.clone(), responses.clone());
        let metadata = move || async move { json_response(metadata.to_string()) };
        let keys = move || async move { json_response(of_keys.lock().unwrap().0.clone()) };
        let token = move || async move { json_response(of_token.lock().unwrap().1.clone()) };
        let routes = Router::new()
            .route("/.well-known/openid-configuration", get(metadata))
            .route("/keys", get(keys))
            .route("/token", post(token));
        tokio::spawn(async move { axum::serve(listener, routes).await });
        Self { issuer, responses }
    }

    /// Signs a user in while the provider has these keys, of which the first one signs. Returns whether the user is signed in.
    async fn sign_in(&self, kw: &Keyward, keys: &[Ed25519KeyPair], key_id: Option<&str>) -> bool {
        let mut guest = Browser::new(kw);
        guest.get("/dashboard/login").await;
        let request = AuthorizationRequest::from_secret("secret", &guest.csrf);
        let now = kw.clock.now().0 / 1000;
        let claims = json!({
            "iss": self.issuer, "aud": "keyward", "sub": "alan", "iat": now, "exp": now + 60,
            "nonce": request.nonce(), "email": "alan@example.com", "email_verified": true,
        });
        let token = sign(&keys[0], key_id, &claims);
        let token = json!({ "access_token": "a", "token_type": "bearer", "id_token": token });
        let keys: Vec<_> = keys.iter().map(|key| public_key(key, key_id)).collect();
        let keys = json!({ "keys": keys });
        *self.responses.lock().unwrap() = (keys.to_string(), token.to_string());

        guest.cookies.insert(TRIP.into(), "in.secret".into());
        let path = format!("{CALLBACK}?code=c&state={}", request.state());
        follow(&mut guest, &path, "cross-site").await;
        guest.is_signed_in().await
    }
}

fn json_response(body: String) -> impl IntoResponse {
    ([(CONTENT_TYPE, "application/json")], body)
}

fn key(seed: u8) -> Ed25519KeyPair {
    Ed25519KeyPair::from_seed_unchecked(&[seed; 32]).unwrap()
}

/// Returns a key as a key set contains it.
fn public_key(key: &Ed25519KeyPair, id: Option<&str>) -> Value {
    let x = URL_SAFE_NO_PAD.encode(key.public_key());
    let key = json!({ "kty": "OKP", "crv": "Ed25519", "use": "sig", "x": x });
    with_key_id(key, id)
}

/// Returns a token with these claims.
fn sign(key: &Ed25519KeyPair, key_id: Option<&str>, claims: &Value) -> String {
    let header = with_key_id(json!({ "alg": "EdDSA" }), key_id);
    let encode = |part: &Value| URL_SAFE_NO_PAD.encode(part.to_string());
    let signed = format!("{}.{}", encode(&header), encode(claims));
    let signature = URL_SAFE_NO_PAD.encode(key.sign(signed.as_bytes()));
    format!("{signed}.{signature}")
}

fn with_key_id(mut fields: Value, key_id: Option<&str>) -> Value {
    if let Some(id) = key_id {
        fields["kid"] = json!(id);
    }
    fields
}

on_both_stacks! {
    async fn user_signs_in_when_the_key_was_replaced_by_one_with_the_same_id_or_without_id(kw) {
        // Without ids, one of two keys is ambiguous.
        for (key_id, keys_before) in [(Some("key"), 1), (None, 1), (None, 2)] {
            let provider = Provider::start().await;
            let kw = with(&kw, |oidc| {
                oidc.issuer.clone_from(&provider.issuer);
                oidc.default_role = Some(MemberRole::Viewer);
            }).await;
            Browser::sign_in_owner(&kw).await;
            let before: Vec<_> = (1..=keys_before).map(key).collect();
            let is_signed_in = provider.sign_in(&kw, &before, key_id).await;
            assert_eq!(is_signed_in, keys_before == 1, "{key_id:?} {keys_before}");

            let is_signed_in = provider.sign_in(&kw, &[key(9)], key_id).await;

            assert!(is_signed_in, "{key_id:?} {keys_before}");
        }
    }
}

//! `GET /.well-known/jwks.json`: the public keys of assertions, as a JSON Web Key Set (RFC 7517).

use axum::body::Body;
use axum::http::header::{ACCESS_CONTROL_ALLOW_ORIGIN, CACHE_CONTROL, CONTENT_TYPE};
use axum::http::{HeaderValue, Response};
use domain::app::App;
use domain::signing_keys::PUBLISHED_MAX_AGE_SECONDS;
use foundation::vault::SealedSigningKey;
use serde_json::{Value, json};

/// The path of the keys.
pub const PATH: &str = "/.well-known/jwks.json";

/// Publishes the keys: the current one, the next one, and those whose tokens may be valid.
pub async fn serve(app: &App) -> Response<Body> {
    let found = match app.signing_keys.find().await {
        Ok(found) => found,
        Err(error) => return crate::render_path_error(app, PATH, &error),
    };
    let now = app.context.clock.now();
    let keys = found.iter().flat_map(|found| found.value.published(now)).map(to_jwk);
    let keys: Vec<_> = keys.collect();
    // That there are no keys is over as soon as a policy needs them.
    let cache_control = match keys.is_empty() {
        true => HeaderValue::from_static("no-store"),
        false => HeaderValue::try_from(format!("public, max-age={PUBLISHED_MAX_AGE_SECONDS}"))
            .unwrap_or(HeaderValue::from_static("no-store")),
    };
    let mut response = Response::new(Body::from(json!({ "keys": keys }).to_string()));
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/jwk-set+json"));
    headers.insert(CACHE_CONTROL, cache_control);
    headers.insert(ACCESS_CONTROL_ALLOW_ORIGIN, HeaderValue::from_static("*"));
    response
}

/// Returns the public key as a JSON Web Key (RFC 8037).
fn to_jwk(key: &SealedSigningKey) -> Value {
    json!({
        "kty": "OKP", "crv": "Ed25519", "alg": "EdDSA", "use": "sig",
        "kid": key.id, "x": key.public_key,
    })
}

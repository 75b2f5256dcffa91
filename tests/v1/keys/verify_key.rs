mod credits;
mod limits;
mod networks;
mod order;
mod permissions;
mod request;
mod shared_limits;
mod strangers;
mod told;

use ::request::PEER;
use axum::body::Body;
use axum::http::Request;
use futures_util::future::join_all;
use serde_json::{Value, json};

use crate::support::seed::IssuedKey;
use crate::support::{Keyward, Reply};

const MINUTE: i64 = 60_000;

/// A key that was made by version 1, in a new API, with these fields of `keys.createKey`.
async fn issued(kw: &Keyward, fields: Value) -> IssuedKey {
    issued_by(kw, &kw.root_key, fields).await
}

/// As [`issued`], by this root key.
async fn issued_by(kw: &Keyward, root_key: &str, mut fields: Value) -> IssuedKey {
    fields["apiId"] = kw
        .v1_as(root_key, "apis.createApi", json!({ "name": "payments" }))
        .await
        .v1_body()["apiId"]
        .clone();
    let made = kw.v1_as(root_key, "keys.createKey", fields).await;
    let text = |field: &str| made.v1_body()[field].as_str().unwrap().to_owned();
    IssuedKey { id: text("keyId"), key: text("key") }
}

/// Changes these fields of a key.
async fn update(kw: &Keyward, key: &IssuedKey, mut fields: Value) {
    fields["keyId"] = key.id.clone().into();
    kw.v1("keys.updateKey", fields).await.v1_body();
}

/// The API of a key.
async fn api_of(kw: &Keyward, key: &IssuedKey) -> String {
    let told = kw.v1_get("keys.getKey", &format!("keyId={}", key.id)).await;
    told.v1_body()["apiId"].as_str().unwrap().to_owned()
}

/// Verifies from an address, with an `X-Forwarded-For` header where there is one.
async fn verify_from(kw: &Keyward, address: &str, forwarded: Option<&str>, key: &str) -> Reply {
    let mut request =
        Request::post("/v1/keys.verifyKey").header("content-type", "application/json");
    if let Some(forwarded) = forwarded {
        request = request.header("x-forwarded-for", forwarded);
    }
    let request = request.body(Body::from(json!({ "key": key }).to_string())).unwrap();
    let peer = address.parse().unwrap_or_else(|_| panic!("{address} is no address with a port"));
    PEER.scope(peer, kw.send(request)).await
}

/// Verifies with a body that is written as it stands.
async fn verify_raw(kw: &Keyward, body: String) -> Reply {
    let request = Request::post("/v1/keys.verifyKey").header("content-type", "application/json");
    kw.send(request.body(Body::from(body)).unwrap()).await
}

/// Verifies a key at once as often as said; how often it was valid.
async fn valid_at_once(servers: &[&Keyward], key: &str, times: usize, request: Value) -> usize {
    let verifications =
        (0..times).map(|n| servers[n % servers.len()].verify_v1(key, request.clone()));
    let replies = join_all(verifications).await;
    replies.iter().filter(|reply| reply.v1_body()["valid"] == true).count()
}

/// Fails unless the answer is that of a key that never was.
#[track_caller]
fn assert_unknown(reply: &Reply) {
    let id = reply.headers["unkey-request-id"].to_str().unwrap();
    let nothing = json!({ "valid": false, "code": "NOT_FOUND", "requestId": id });
    assert_eq!(*reply.v1_body(), nothing);
}

//! The signed assertion: a short-lived JSON Web Token that proves to the upstream who calls.

use std::sync::Arc;

use domain::app::App;
use domain::caller::Cached;
use domain::gateways::{ActivePolicy, is_like_id};
use domain::keys::ResolvedKey;
use domain::signing_keys::SigningKeySet;
use foundation::clock::Timestamp;
use foundation::error::Result;
use foundation::id::RequestId;
use foundation::vault::SigningKey;
use serde::Serialize;

/// How long an assertion is valid.
const LIFETIME_SECONDS: i64 = 60;

/// Signs assertions of one request.
pub struct AssertionSigner<'a> {
    keys: Arc<Cached<SigningKeySet>>,
    issuer: &'a str,
    now: Timestamp,
}

/// The claims of an assertion (RFC 7519).
#[derive(Serialize)]
struct Claims<'a> {
    iss: &'a str,
    /// The name and the id of the policy. Policies of different workspaces may have the same name. A name that could be the id of
    /// another policy is omitted.
    aud: &'a [&'a str],
    sub: &'a str,
    scope: String,
    jti: &'a str,
    iat: i64,
    nbf: i64,
    exp: i64,
}

impl<'a> AssertionSigner<'a> {
    /// Returns a signer if the policy has assertions. It is created before a request is judged, so that a request which
    /// cannot be answered spends nothing.
    pub async fn for_policy(app: &'a App, policy: &ActivePolicy) -> Result<Option<Self>> {
        if !policy.policy.config.identity_headers.signed {
            return Ok(None);
        }
        let keys = app.signing_keys.require().await?;
        keys.value.current()?;
        let (issuer, now) = (app.context.settings.public_url.as_str(), app.context.clock.now());
        Ok(Some(Self { keys, issuer, now }))
    }

    /// Signs the assertion that the request has this key.
    pub fn sign(
        &self,
        policy: &ActivePolicy,
        resolved: &ResolvedKey,
        request_id: &RequestId,
    ) -> Option<String> {
        let (key, identity) = (&resolved.key, resolved.identity());
        let external_id = identity.map(|identity| identity.external_id.as_str());
        let iat = self.now.0.div_euclid(1000);
        let name = policy.policy.name.as_str();
        let audience = [name, policy.policy.id.as_str()];
        let claims = Claims {
            iss: self.issuer,
            aud: if is_like_id(name) { &audience[1..] } else { &audience },
            sub: external_id.or(key.owner_id()).unwrap_or(key.id()),
            scope: resolved.permissions().join(" "),
            jti: request_id.as_str(),
            iat,
            nbf: iat,
            exp: iat + LIFETIME_SECONDS,
        };
        let claims = serde_json::to_vec(&claims).ok()?;
        self.keys.value.current().ok().map(|key: &SigningKey| key.sign_token(&claims))
    }
}

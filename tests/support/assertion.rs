//! Verifies assertions as an upstream does, by another implementation than the one that signs: that of OpenID Connect
//! clients, which finds the key in the key set, and checks the signature, the issuer, the audience and the times.

use std::time::{Duration, SystemTime};

use foundation::clock::Timestamp;
use openidconnect::core::{
    CoreGenderClaim, CoreIdTokenVerifier, CoreJsonWebKeySet, CoreJweContentEncryptionAlgorithm,
    CoreJwsSigningAlgorithm,
};
use openidconnect::{AdditionalClaims, ClientId, IdToken, IssuerUrl, Nonce};
use serde::{Deserialize, Serialize};

/// The claims of an assertion that OpenID Connect does not have.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct OtherClaims {
    scope: String,
    jti: String,
    nbf: i64,
}

impl AdditionalClaims for OtherClaims {}

type Assertion = IdToken<
    OtherClaims,
    CoreGenderClaim,
    CoreJweContentEncryptionAlgorithm,
    CoreJwsSigningAlgorithm,
>;

/// What a verified assertion claims.
#[derive(Debug, PartialEq, Eq)]
pub struct VerifiedAssertion {
    pub audiences: Vec<String>,
    pub subject: String,
    pub scope: String,
    pub id: String,
    pub issued_at: i64,
    pub not_before: i64,
    pub expires_at: i64,
}

/// Verifies an assertion with a key set, for an audience, at a time.
pub fn verify_assertion(
    token: &str,
    jwks: &str,
    (issuer, audience): (&str, &str),
    now: Timestamp,
) -> Result<VerifiedAssertion, String> {
    let keys: CoreJsonWebKeySet = serde_json::from_str(jwks).map_err(|e| e.to_string())?;
    let since_epoch = Duration::from_millis(now.0.unsigned_abs());
    let issuer = IssuerUrl::new(issuer.to_owned()).map_err(|e| e.to_string())?;
    let audience = ClientId::new(audience.to_owned());
    let verifier = CoreIdTokenVerifier::new_public_client(audience, issuer, keys)
        .set_allowed_algs([CoreJwsSigningAlgorithm::EdDsa])
        .set_other_audience_verifier_fn(|_| true)
        .set_time_fn(move || (SystemTime::UNIX_EPOCH + since_epoch).into());
    let assertion: Assertion = token.parse().map_err(|e| format!("{e}"))?;
    let no_nonce = |_: Option<&Nonce>| Ok(());
    let claims = assertion.claims(&verifier, no_nonce).map_err(|e| e.to_string())?;
    let other = claims.additional_claims();
    Ok(VerifiedAssertion {
        audiences: claims.audiences().iter().map(|audience| audience.to_string()).collect(),
        subject: claims.subject().to_string(),
        scope: other.scope.clone(),
        id: other.jti.clone(),
        issued_at: claims.issue_time().timestamp(),
        not_before: other.nbf,
        expires_at: claims.expiration().timestamp(),
    })
}

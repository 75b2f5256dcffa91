//! Implements the client of the OIDC provider. No other module calls it. It returns the verified claims of a user; the
//! domain decides whether that user may sign in.
//!
//! The provider is not called before a user signs in, and its metadata is cached for an hour. If the provider is
//! unreachable, only the sign-in fails.

mod authorization_request;
mod fetch;

use std::sync::Arc;
use std::time::Duration;

pub use authorization_request::AuthorizationRequest;
use chrono::{DateTime, Utc};
use fetch::Fetcher;
use foundation::clock::{MINUTE_MS, Timestamp};
use foundation::config::OidcSettings;
use foundation::error::{Error, Result};
use moka::future::Cache;
use openidconnect::core::{
    CoreAuthenticationFlow, CoreClient, CoreClientAuthMethod, CoreErrorResponseType,
    CoreIdTokenClaims, CoreIdTokenVerifier, CoreJwsSigningAlgorithm, CoreProviderMetadata,
    CoreTokenResponse, CoreUserInfoClaims,
};
use openidconnect::{
    AuthType, AuthorizationCode, ClaimsVerificationError, ClientId, ClientSecret, CsrfToken,
    EndpointMaybeSet, EndpointNotSet, EndpointSet, IssuerUrl, Nonce, OAuth2TokenResponse as _,
    PkceCodeChallenge, PkceCodeVerifier, RedirectUrl, RequestTokenError, Scope,
    SignatureVerificationError, TokenResponse as _,
};

/// How long the provider's metadata is cached: its endpoints and keys. A token that cannot be verified with the cached keys
/// causes the metadata to be fetched again, because the provider may have other ones now.
const METADATA_TTL: Duration = Duration::from_hours(1);
/// The maximum difference between the provider's clock and this one.
const CLOCK_SKEW_MAX_MS: i64 = MINUTE_MS;
/// The maximum length of a subject, by the specification.
const SUBJECT_LENGTH_MAX: usize = 255;
/// The allowed signature algorithms: asymmetric ones, whose private key only the provider has.
const ALGORITHMS: [CoreJwsSigningAlgorithm; 9] = [
    CoreJwsSigningAlgorithm::RsaSsaPkcs1V15Sha256,
    CoreJwsSigningAlgorithm::RsaSsaPkcs1V15Sha384,
    CoreJwsSigningAlgorithm::RsaSsaPkcs1V15Sha512,
    CoreJwsSigningAlgorithm::RsaSsaPssSha256,
    CoreJwsSigningAlgorithm::RsaSsaPssSha384,
    CoreJwsSigningAlgorithm::RsaSsaPssSha512,
    CoreJwsSigningAlgorithm::EcdsaP256Sha256,
    CoreJwsSigningAlgorithm::EcdsaP384Sha384,
    CoreJwsSigningAlgorithm::EdDsa,
];

/// The claims of a user, verified by the provider's signature.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VerifiedClaims {
    pub issuer: String,
    /// The provider's permanent identifier of the user.
    pub subject: String,
    pub email: Option<String>,
    /// Whether the provider states that the e-mail belongs to the user.
    pub is_email_verified: bool,
}

type ProviderClient = CoreClient<
    EndpointSet,
    EndpointNotSet,
    EndpointNotSet,
    EndpointNotSet,
    EndpointMaybeSet,
    EndpointMaybeSet,
>;

pub struct OidcClient {
    settings: OidcSettings,
    fetcher: Fetcher,
    metadata_cache: Cache<(), Arc<CoreProviderMetadata>>,
}

impl OidcClient {
    /// Creates the client without calling the provider.
    pub fn new(settings: &OidcSettings) -> Result<Self> {
        let is_safe = settings.issuer.starts_with("https://");
        let fetcher = Fetcher::new(is_safe)?;
        let published = Cache::builder().max_capacity(1).time_to_live(METADATA_TTL).build();
        Ok(Self { settings: settings.clone(), fetcher, metadata_cache: published })
    }

    /// Returns the URL to which the browser is redirected. The provider redirects back to `redirect`.
    pub async fn authorization_url(
        &self,
        request: &AuthorizationRequest,
        redirect: &str,
    ) -> Result<String> {
        let client = self.create_client(&*self.provider_metadata().await?, redirect)?;
        let verifier = PkceCodeVerifier::new(request.verifier());
        let (state, nonce) = (CsrfToken::new(request.state()), Nonce::new(request.nonce()));
        let scopes = self.settings.scopes.iter().cloned().map(Scope::new);
        let (url, _, _) = client
            .authorize_url(CoreAuthenticationFlow::AuthorizationCode, || state, || nonce)
            .add_scopes(scopes)
            .set_pkce_challenge(PkceCodeChallenge::from_code_verifier_sha256(&verifier))
            .url();
        // The user enters a password there, so it must be as secure as the issuer.
        if url.scheme() == "https" || self.settings.issuer.starts_with("http://") {
            return Ok(url.into());
        }
        Err(Error::OidcProvider("its authorization_endpoint does not use https".into()))
    }

    /// Exchanges the code of a callback for the claims of the user. Returns `None` if the code has been used, has
    /// expired, or belongs to another request.
    pub async fn exchange_code(
        &self,
        code: &str,
        request: &AuthorizationRequest,
        redirect: &str,
        now: Timestamp,
    ) -> Result<Option<VerifiedClaims>> {
        let metadata = self.provider_metadata().await?;
        let client = self.create_client(&metadata, redirect)?;
        let result = client
            .exchange_code(AuthorizationCode::new(code.to_owned()))
            .map_err(|e| Error::OidcProvider(e.to_string()))?
            .set_pkce_verifier(PkceCodeVerifier::new(request.verifier()))
            .request_async(&self.fetcher.http_function())
            .await;
        let response = match result {
            Ok(response) => response,
            Err(RequestTokenError::ServerResponse(rejection))
                if matches!(rejection.error(), CoreErrorResponseType::InvalidGrant) =>
            {
                return Ok(None);
            }
            Err(error) => return Err(provider_error("its token_endpoint", &error)),
        };
        let claims = match verify_claims(&client, &response, request, now) {
            Err(error) if may_have_new_key(&error) => {
                self.metadata_cache.invalidate(&()).await;
                let client = self.create_client(&*self.provider_metadata().await?, redirect)?;
                verify_claims(&client, &response, request, now)
            }
            proven => proven,
        };
        let claims = claims.map_err(|error| provider_error("its token", &error))?;
        self.load_claims(&client, &response, claims).await.map(Some)
    }

    /// Returns the claims in the token, and the e-mail from the userinfo endpoint if the token has none.
    async fn load_claims(
        &self,
        client: &ProviderClient,
        response: &CoreTokenResponse,
        claims: &CoreIdTokenClaims,
    ) -> Result<VerifiedClaims> {
        let subject = claims.subject();
        if !(1..=SUBJECT_LENGTH_MAX).contains(&subject.len()) {
            return Err(Error::OidcProvider(format!(
                "its sub must have 1 to {SUBJECT_LENGTH_MAX} characters"
            )));
        }
        let mut email = claims.email().map(|email| email.to_string());
        let mut is_email_verified = claims.email_verified();
        let (token, same) = (response.access_token().clone(), Some(subject.clone()));
        if email.is_none()
            && let Ok(request) = client.user_info(token, same)
        {
            let result = request.request_async(&self.fetcher.http_function()).await;
            let more: CoreUserInfoClaims =
                result.map_err(|e| provider_error("its userinfo_endpoint", &e))?;
            email = more.email().map(|email| email.to_string());
            is_email_verified = more.email_verified();
        }
        Ok(VerifiedClaims {
            issuer: self.settings.issuer.clone(),
            subject: subject.to_string(),
            email,
            is_email_verified: is_email_verified.unwrap_or(false),
        })
    }

    /// Returns the provider's metadata, fetched once for all concurrent callers.
    async fn provider_metadata(&self) -> Result<Arc<CoreProviderMetadata>> {
        let fetched = self.metadata_cache.try_get_with((), async {
            let issuer = IssuerUrl::new(self.settings.issuer.clone())
                .map_err(|e| format!("KEYWARD_OIDC_ISSUER is not a valid URL: {e}"))?;
            let fetch = self.fetcher.http_function();
            let found = CoreProviderMetadata::discover_async(issuer, &fetch).await;
            found.map(Arc::new).map_err(|e| describe_error("its discovery document", &e))
        });
        fetched.await.map_err(|cause: Arc<String>| Error::OidcProvider(cause.to_string()))
    }

    fn create_client(
        &self,
        metadata: &CoreProviderMetadata,
        redirect: &str,
    ) -> Result<ProviderClient> {
        let redirect = RedirectUrl::new(redirect.to_owned()).map_err(|e| {
            Error::OidcProvider(format!("KEYWARD_PUBLIC_URL is not a valid URL: {e}"))
        })?;
        let client = CoreClient::from_provider_metadata(
            metadata.clone(),
            ClientId::new(self.settings.client_id.clone()),
            Some(ClientSecret::new(self.settings.client_secret.expose().to_owned())),
        );
        Ok(client.set_redirect_uri(redirect).set_auth_type(auth_type(metadata)))
    }
}

/// Returns the claims of a token, after verifying its signature, issuer, audience, times and nonce.
fn verify_claims<'t>(
    client: &ProviderClient,
    response: &'t CoreTokenResponse,
    request: &AuthorizationRequest,
    now: Timestamp,
) -> std::result::Result<&'t CoreIdTokenClaims, ClaimsVerificationError> {
    let token = response.id_token().ok_or_else(|| {
        ClaimsVerificationError::Other("the response contains no id_token".into())
    })?;
    let moment = |ms: i64| {
        let at = DateTime::from_timestamp_millis(now.plus_ms(ms).0);
        at.unwrap_or(DateTime::<Utc>::MAX_UTC)
    };
    let (late, early) = (moment(-CLOCK_SKEW_MAX_MS), moment(CLOCK_SKEW_MAX_MS));
    let verifier: CoreIdTokenVerifier<'_> = client
        .id_token_verifier()
        .set_allowed_algs(ALGORITHMS)
        .set_time_fn(move || late)
        .set_issue_time_verifier_fn(move |at| match at <= early {
            true => Ok(()),
            false => Err(format!("it was issued at {at}, which is in the future")),
        });
    token.claims(&verifier, &Nonce::new(request.nonce()))
}

/// Returns how this server sends its secret: in a header, unless the provider supports only the body.
fn auth_type(metadata: &CoreProviderMetadata) -> AuthType {
    let methods = metadata.token_endpoint_auth_methods_supported().map_or(&[][..], Vec::as_slice);
    let takes = |method| methods.contains(&method);
    match !takes(CoreClientAuthMethod::ClientSecretBasic)
        && takes(CoreClientAuthMethod::ClientSecretPost)
    {
        true => AuthType::RequestBody,
        false => AuthType::BasicAuth,
    }
}

/// Returns whether the provider may have signed a token with a key that it did not have when its keys were fetched. If keys
/// have no ids, or a new key has the id of the old one, the signature is invalid or the key is ambiguous.
fn may_have_new_key(error: &ClaimsVerificationError) -> bool {
    let ClaimsVerificationError::SignatureVerification(error) = error else { return false };
    matches!(
        error,
        SignatureVerificationError::NoMatchingKey
            | SignatureVerificationError::AmbiguousKeyId(_)
            | SignatureVerificationError::CryptoError(_)
    )
}

fn provider_error(what: &str, error: &(dyn std::error::Error + 'static)) -> Error {
    Error::OidcProvider(describe_error(what, error))
}

/// Describes an error with all its causes.
fn describe_error(what: &str, error: &(dyn std::error::Error + 'static)) -> String {
    let mut description = format!("{what}: {error}");
    let mut cause = error.source();
    while let Some(inner) = cause {
        description.push_str(": ");
        description.push_str(&inner.to_string());
        cause = inner.source();
    }
    description
}

//! The issuer of OpenID Connect: the one place that talks to it. What it says of somebody is told as it was proven;
//! who of those may come in is for the domain to say.
//!
//! Nothing is asked of it before somebody wants to sign in, and what it publishes of itself is kept for an hour. An
//! issuer that cannot be reached fails that one act and nothing else.

mod authorization_request;
mod fetch;

use std::sync::Arc;
use std::time::Duration;

pub use authorization_request::AuthorizationRequest;
use chrono::{DateTime, Utc};
use fetch::Fetcher;
use foundation::clock::Timestamp;
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

/// How long what the issuer publishes of itself is kept: its addresses and its keys. A token that is signed with a key
/// that is not among them has them fetched again.
const KEPT_FOR: Duration = Duration::from_hours(1);
/// By how much the issuer's clock and this one may differ.
const SKEW_MS: i64 = 60_000;
/// The longest name that an issuer may give somebody, by the specification.
const SUBJECT_MAX: usize = 255;
/// How tokens may be signed: with a key that the issuer alone has.
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

/// What the issuer says of somebody, proven by its signature.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Told {
    pub issuer: String,
    /// What it calls them, for good.
    pub subject: String,
    pub email: Option<String>,
    /// Whether it says that the e-mail is theirs.
    pub is_email_verified: bool,
}

type Client = CoreClient<
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
    published: Cache<(), Arc<CoreProviderMetadata>>,
}

impl OidcClient {
    /// Asks nothing yet.
    pub fn new(settings: &OidcSettings) -> Result<Self> {
        let is_safe = settings.issuer.starts_with("https://");
        let fetcher = Fetcher::new(is_safe).map_err(|e| Error::Internal(e.to_string()))?;
        let published = Cache::builder().max_capacity(1).time_to_live(KEPT_FOR).build();
        Ok(Self { settings: settings.clone(), fetcher, published })
    }

    /// Where the browser is sent, to come back to `redirect`.
    pub async fn authorization_url(
        &self,
        trip: &AuthorizationRequest,
        redirect: &str,
    ) -> Result<String> {
        let client = self.client(&*self.provider_metadata().await?, redirect)?;
        let verifier = PkceCodeVerifier::new(trip.verifier());
        let (state, nonce) = (CsrfToken::new(trip.state()), Nonce::new(trip.nonce()));
        let scopes = self.settings.scopes.iter().cloned().map(Scope::new);
        let (url, _, _) = client
            .authorize_url(CoreAuthenticationFlow::AuthorizationCode, || state, || nonce)
            .add_scopes(scopes)
            .set_pkce_challenge(PkceCodeChallenge::from_code_verifier_sha256(&verifier))
            .url();
        // Somebody types a password there, so it is held to what the issuer is.
        if url.scheme() == "https" || self.settings.issuer.starts_with("http://") {
            return Ok(url.into());
        }
        Err(Error::Issuer("its authorization_endpoint is not https".into()))
    }

    /// Whom the code stands for that the browser brought back. `None`: it has been used, is too old, or is not of this
    /// trip.
    pub async fn exchange_code(
        &self,
        code: &str,
        trip: &AuthorizationRequest,
        redirect: &str,
        now: Timestamp,
    ) -> Result<Option<Told>> {
        let published = self.provider_metadata().await?;
        let client = self.client(&published, redirect)?;
        let asked = client
            .exchange_code(AuthorizationCode::new(code.to_owned()))
            .map_err(|e| Error::Issuer(e.to_string()))?
            .set_pkce_verifier(PkceCodeVerifier::new(trip.verifier()))
            .request_async(&self.fetcher.fetch())
            .await;
        let answer = match asked {
            Ok(answer) => answer,
            Err(RequestTokenError::ServerResponse(refused))
                if matches!(refused.error(), CoreErrorResponseType::InvalidGrant) =>
            {
                return Ok(None);
            }
            Err(error) => return Err(failed("its token_endpoint", &error)),
        };
        let claims = match verify_claims(&client, &answer, trip, now) {
            Err(error) if is_unknown_key(&error) => {
                self.published.invalidate(&()).await;
                let client = self.client(&*self.provider_metadata().await?, redirect)?;
                verify_claims(&client, &answer, trip, now)
            }
            proven => proven,
        };
        let claims = claims.map_err(|error| failed("its token", &error))?;
        self.load_claims(&client, &answer, claims).await.map(Some)
    }

    /// What is said of them: in the token, or where the token points to.
    async fn load_claims(
        &self,
        client: &Client,
        answer: &CoreTokenResponse,
        claims: &CoreIdTokenClaims,
    ) -> Result<Told> {
        let subject = claims.subject();
        if !(1..=SUBJECT_MAX).contains(&subject.len()) {
            return Err(Error::Issuer(format!("its sub has not 1 to {SUBJECT_MAX} characters")));
        }
        let mut email = claims.email().map(|email| email.to_string());
        let mut is_email_verified = claims.email_verified();
        let (token, same) = (answer.access_token().clone(), Some(subject.clone()));
        if email.is_none()
            && let Ok(request) = client.user_info(token, same)
        {
            let asked = request.request_async(&self.fetcher.fetch()).await;
            let more: CoreUserInfoClaims =
                asked.map_err(|e| failed("its userinfo_endpoint", &e))?;
            email = more.email().map(|email| email.to_string());
            is_email_verified = more.email_verified();
        }
        Ok(Told {
            issuer: self.settings.issuer.clone(),
            subject: subject.to_string(),
            email,
            is_email_verified: is_email_verified.unwrap_or(false),
        })
    }

    /// What the issuer publishes of itself: fetched once for all who wait for it.
    async fn provider_metadata(&self) -> Result<Arc<CoreProviderMetadata>> {
        let fetched = self.published.try_get_with((), async {
            let issuer = IssuerUrl::new(self.settings.issuer.clone())
                .map_err(|e| format!("KEYWARD_OIDC_ISSUER is no URL: {e}"))?;
            let fetch = self.fetcher.fetch();
            let found = CoreProviderMetadata::discover_async(issuer, &fetch).await;
            found.map(Arc::new).map_err(|e| sentence("its discovery document", &e))
        });
        fetched.await.map_err(|fault: Arc<String>| Error::Issuer(fault.to_string()))
    }

    fn client(&self, published: &CoreProviderMetadata, redirect: &str) -> Result<Client> {
        let redirect = RedirectUrl::new(redirect.to_owned())
            .map_err(|e| Error::Issuer(format!("KEYWARD_PUBLIC_URL is no URL: {e}")))?;
        let client = CoreClient::from_provider_metadata(
            published.clone(),
            ClientId::new(self.settings.client_id.clone()),
            Some(ClientSecret::new(self.settings.client_secret.expose().to_owned())),
        );
        Ok(client.set_redirect_uri(redirect).set_auth_type(auth_type(published)))
    }
}

/// The claims of a token, with the signature, the issuer, the audience, the times and the nonce proven.
fn verify_claims<'t>(
    client: &Client,
    answer: &'t CoreTokenResponse,
    trip: &AuthorizationRequest,
    now: Timestamp,
) -> std::result::Result<&'t CoreIdTokenClaims, ClaimsVerificationError> {
    let token = answer.id_token().ok_or_else(|| {
        ClaimsVerificationError::Other("there is no id_token in the answer".into())
    })?;
    let moment = |ms: i64| {
        let at = DateTime::from_timestamp_millis(now.plus_ms(ms).0);
        at.unwrap_or(DateTime::<Utc>::MAX_UTC)
    };
    let (late, early) = (moment(-SKEW_MS), moment(SKEW_MS));
    let verifier: CoreIdTokenVerifier<'_> = client
        .id_token_verifier()
        .set_allowed_algs(ALGORITHMS)
        .set_time_fn(move || late)
        .set_issue_time_verifier_fn(move |at| match at <= early {
            true => Ok(()),
            false => Err(format!("it was issued at {at}, which is yet to come")),
        });
    token.claims(&verifier, &Nonce::new(trip.nonce()))
}

/// How this server shows its secret: in a header, unless the issuer takes it in the body alone.
fn auth_type(published: &CoreProviderMetadata) -> AuthType {
    let methods = published.token_endpoint_auth_methods_supported().map_or(&[][..], Vec::as_slice);
    let takes = |method| methods.contains(&method);
    match !takes(CoreClientAuthMethod::ClientSecretBasic)
        && takes(CoreClientAuthMethod::ClientSecretPost)
    {
        true => AuthType::RequestBody,
        false => AuthType::BasicAuth,
    }
}

fn is_unknown_key(error: &ClaimsVerificationError) -> bool {
    matches!(
        error,
        ClaimsVerificationError::SignatureVerification(SignatureVerificationError::NoMatchingKey)
    )
}

fn failed(what: &str, error: &(dyn std::error::Error + 'static)) -> Error {
    Error::Issuer(sentence(what, error))
}

/// What failed, down to its innermost cause.
fn sentence(what: &str, error: &(dyn std::error::Error + 'static)) -> String {
    let mut told = format!("{what}: {error}");
    let mut cause = error.source();
    while let Some(inner) = cause {
        told.push_str(": ");
        told.push_str(&inner.to_string());
        cause = inner.source();
    }
    told
}

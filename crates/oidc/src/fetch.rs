//! Calls the OIDC provider within bounds of time and size, and without following redirects.

use std::pin::Pin;
use std::time::Duration;

use foundation::error::Error;
use foundation::tls;
use openidconnect::{HttpRequest, HttpResponse, http};
use reqwest::redirect::Policy;
use thiserror::Error;

/// The timeouts to connect to the provider, and to receive a whole response.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(5);
/// The maximum size of a response.
const RESPONSE_BYTES_MAX: usize = 1024 * 1024;

#[derive(Debug, Error)]
pub enum FetchError {
    #[error("it is unreachable")]
    Unreachable(#[from] reqwest::Error),
    #[error("its response is larger than {RESPONSE_BYTES_MAX} bytes")]
    TooLarge,
    #[error("its response is not valid HTTP")]
    InvalidHttp(#[from] http::Error),
}

type FetchFuture = Pin<Box<dyn Future<Output = Result<HttpResponse, FetchError>> + Send>>;

pub struct Fetcher(reqwest::Client);

impl Fetcher {
    /// Creates the HTTP client. `is_safe` requires https for all requests. Certificates are validated against the roots
    /// of the machine and those of the web.
    pub fn new(is_safe: bool) -> foundation::error::Result<Self> {
        let client = reqwest::Client::builder()
            .tls_backend_preconfigured(tls::client_config()?)
            .https_only(is_safe)
            .redirect(Policy::none())
            .connect_timeout(CONNECT_TIMEOUT)
            .timeout(RESPONSE_TIMEOUT)
            .user_agent(concat!("keyward/", env!("CARGO_PKG_VERSION")))
            .build()
            .map_err(|e| Error::Internal(format!("failed to create the client for OIDC: {e}")))?;
        Ok(Self(client))
    }

    /// Returns the HTTP function for `openidconnect`.
    pub fn http_function(&self) -> impl Fn(HttpRequest) -> FetchFuture + Send + Sync + 'static {
        let client = self.0.clone();
        move |request| Box::pin(fetch(client.clone(), request))
    }
}

async fn fetch(client: reqwest::Client, request: HttpRequest) -> Result<HttpResponse, FetchError> {
    let mut response = client.execute(request.try_into()?).await?;
    let mut builder = http::Response::builder().status(response.status());
    for (name, value) in response.headers() {
        builder = builder.header(name, value);
    }
    let mut body = Vec::new();
    while let Some(chunk) = response.chunk().await? {
        if body.len() + chunk.len() > RESPONSE_BYTES_MAX {
            return Err(FetchError::TooLarge);
        }
        body.extend_from_slice(&chunk);
    }
    Ok(builder.body(body)?)
}

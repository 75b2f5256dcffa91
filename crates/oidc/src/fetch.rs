//! How the issuer is asked: within bounds of time and size, and only where it was said to be.

use std::pin::Pin;
use std::time::Duration;

use openidconnect::{HttpRequest, HttpResponse, http};
use reqwest::redirect::Policy;
use thiserror::Error;

/// How long a connection to the issuer may take, and a whole answer.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);
/// The largest answer.
const BYTES_MAX: usize = 1024 * 1024;

#[derive(Debug, Error)]
pub enum FetchError {
    #[error("it cannot be reached")]
    Away(#[from] reqwest::Error),
    #[error("it answers with more than {BYTES_MAX} bytes")]
    TooLarge,
    #[error("it answers with no HTTP")]
    Broken(#[from] http::Error),
}

type Fetched = Pin<Box<dyn Future<Output = Result<HttpResponse, FetchError>> + Send>>;

pub struct Fetcher(reqwest::Client);

impl Fetcher {
    /// `is_safe`: all is asked over https. Certificates are trusted that the machine trusts, and those of the web.
    pub fn new(is_safe: bool) -> reqwest::Result<Self> {
        let client = reqwest::Client::builder()
            .use_rustls_tls()
            .https_only(is_safe)
            .redirect(Policy::none())
            .connect_timeout(CONNECT_TIMEOUT)
            .timeout(ANSWER_TIMEOUT)
            .user_agent(concat!("keyward/", env!("CARGO_PKG_VERSION")))
            .build()?;
        Ok(Self(client))
    }

    /// What openidconnect asks through.
    pub fn fetch(&self) -> impl Fn(HttpRequest) -> Fetched + Send + Sync + 'static {
        let client = self.0.clone();
        move |request| Box::pin(fetch(client.clone(), request))
    }
}

async fn fetch(client: reqwest::Client, request: HttpRequest) -> Result<HttpResponse, FetchError> {
    let mut answer = client.execute(request.try_into()?).await?;
    let mut told = http::Response::builder().status(answer.status());
    for (name, value) in answer.headers() {
        told = told.header(name, value);
    }
    let mut body = Vec::new();
    while let Some(chunk) = answer.chunk().await? {
        if body.len() + chunk.len() > BYTES_MAX {
            return Err(FetchError::TooLarge);
        }
        body.extend_from_slice(&chunk);
    }
    Ok(told.body(body)?)
}

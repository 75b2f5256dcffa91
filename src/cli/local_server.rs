//! Calls the server on this machine, for commands that ask how it is or what it decides.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use foundation::config::Config;
use foundation::error::innermost_cause;
use foundation::tls;
use foundation::tls::server::CertificateFiles;
use reqwest::header::CONTENT_TYPE;
use reqwest::redirect::Policy;
use reqwest::{Client, RequestBuilder, StatusCode};
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;
use tokio_rustls::rustls::ClientConfig;

use super::{CommandError, CommandResult};

/// Limits how long a server may take to answer `/readyz`.
const HEALTH_TIMEOUT: Duration = Duration::from_secs(3);
/// Limits how long a server may take to answer an operation: a little longer than it takes at most.
const CALL_TIMEOUT: Duration = Duration::from_secs(12);
/// The maximum size of a response.
const RESPONSE_MAX_BYTES: usize = 8 * 1024 * 1024;

/// A server at an address of this machine.
#[derive(Clone, Copy)]
pub struct LocalServer {
    pub address: SocketAddr,
    pub has_tls: bool,
}

/// The response of a server.
pub struct LocalResponse {
    pub status: StatusCode,
    pub body: String,
}

/// Requests `/readyz` of the server, because a container image has no curl.
pub async fn health(config: &Config) -> CommandResult {
    let address = config.health_listen().map_err(CommandError::Usage)?;
    let server = LocalServer { address, has_tls: config.has_tls() };
    let not_ready =
        |why: String| CommandError::Runtime(format!("the server at {address} is not ready: {why}"));
    match tokio::time::timeout(HEALTH_TIMEOUT, server.get("/readyz")).await {
        Ok(Ok(response)) if response.status == StatusCode::OK => Ok(()),
        Ok(Ok(response)) => Err(not_ready(response.status.to_string())),
        Ok(Err(e)) => Err(not_ready(e.to_string())),
        Err(_) => Err(not_ready(format!("no response within {} s", HEALTH_TIMEOUT.as_secs()))),
    }
}

impl LocalServer {
    /// Sends a GET request and returns the response.
    pub async fn get(self, path: &str) -> io::Result<LocalResponse> {
        let tls = tls::local_client_config(None).map_err(io::Error::other)?;
        receive(create_client(tls)?.get(self.url(path))).await
    }

    /// Fails unless a server listens at the address.
    pub async fn require_listening(self) -> CommandResult {
        let address = self.address;
        match tokio::time::timeout(HEALTH_TIMEOUT, self.get("/livez")).await {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(_)) | Err(_) => Err(CommandError::Runtime(format!(
                "no server answers at {address}: start it, or set KEYWARD_LISTEN to the address of the running server"
            ))),
        }
    }

    /// Calls an operation of version 2 and returns its reply. With TLS, only a server with this certificate gets the root
    /// key: other users of this machine may listen at the address while the server is stopped.
    pub async fn call(
        self,
        certificate: Option<&CertificateFiles>,
        operation: &str,
        root_key: &str,
        request: &Value,
    ) -> Result<Box<RawValue>, CommandError> {
        let address = self.address;
        if !root_key.bytes().all(|byte| byte.is_ascii_graphic()) {
            let sentence = "KEYWARD_ROOT_KEY must consist of printable ASCII characters to be sent";
            return Err(CommandError::Usage(sentence.to_owned()));
        }
        let failed = |why: String| {
            CommandError::Runtime(format!("the server at {address} did not answer: {why}"))
        };
        let certificate = certificate.map(CertificateFiles::read_certificate).transpose();
        let tls = tls::local_client_config(certificate.map_err(CommandError::Usage)?);
        let client = tls.map_err(io::Error::other).and_then(create_client);
        let client = client.map_err(|e| failed(e.to_string()))?;
        let call = client
            .post(self.url(&format!("/v2/{operation}")))
            .bearer_auth(root_key)
            .header(CONTENT_TYPE, "application/json")
            .body(request.to_string());
        let response = match tokio::time::timeout(CALL_TIMEOUT, receive(call)).await {
            Ok(response) => response.map_err(|e| failed(e.to_string()))?,
            Err(_) => {
                return Err(failed(format!("no response within {} s", CALL_TIMEOUT.as_secs())));
            }
        };
        parse_reply(address, &response)
    }

    /// Returns the URL of a path.
    fn url(self, path: &str) -> String {
        let mut address = self.address;
        if address.ip().is_unspecified() {
            address.set_ip(match address {
                SocketAddr::V4(_) => Ipv4Addr::LOCALHOST.into(),
                SocketAddr::V6(_) => Ipv6Addr::LOCALHOST.into(),
            });
        }
        let scheme = if self.has_tls { "https" } else { "http" };
        format!("{scheme}://{address}{path}")
    }
}

/// Creates a client of this machine's server, which no proxy is between.
fn create_client(tls: ClientConfig) -> io::Result<Client> {
    let client = Client::builder().tls_backend_preconfigured(tls).no_proxy();
    client.redirect(Policy::none()).build().map_err(|e| to_io_error(&e))
}

/// Sends a request and receives the whole response.
async fn receive(request: RequestBuilder) -> io::Result<LocalResponse> {
    let mut response = request.send().await.map_err(|e| to_io_error(&e))?;
    let status = response.status();
    let mut body = Vec::new();
    while let Some(chunk) = response.chunk().await.map_err(|e| to_io_error(&e))? {
        if body.len() + chunk.len() > RESPONSE_MAX_BYTES {
            let message = format!("its response is larger than {RESPONSE_MAX_BYTES} bytes");
            return Err(io::Error::other(message));
        }
        body.extend_from_slice(&chunk);
    }
    Ok(LocalResponse { status, body: String::from_utf8_lossy(&body).into_owned() })
}

/// Returns the innermost cause: those around it name no more than the URL.
fn to_io_error(error: &reqwest::Error) -> io::Error {
    io::Error::other(innermost_cause(error).to_string())
}

/// The body of a successful response.
#[derive(Deserialize)]
struct Success {
    data: Box<RawValue>,
}

/// Returns the data of a successful response, as the server wrote it, or its error.
fn parse_reply(
    address: SocketAddr,
    response: &LocalResponse,
) -> Result<Box<RawValue>, CommandError> {
    if response.status == StatusCode::OK
        && let Ok(Success { data }) = serde_json::from_str(&response.body)
    {
        return Ok(data);
    }
    let reply: Value = serde_json::from_str(&response.body).unwrap_or_default();
    let detail = reply["error"]["detail"].as_str().unwrap_or("its response is not of Keyward");
    match response.status.as_u16() {
        401 => Err(CommandError::Usage(format!(
            "the server at {address} rejects the root key: {detail}; KEYWARD_LISTEN must be the address of a server that \
            uses this database, and KEYWARD_ROOT_KEY, if it is set, one of its root keys"
        ))),
        400..=499 => Err(CommandError::Usage(detail.to_owned())),
        _ => Err(CommandError::Runtime(format!("the server at {address} failed: {detail}"))),
    }
}

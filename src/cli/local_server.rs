//! Calls the server on this machine, for commands that ask how it is or what it decides.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use foundation::config::Config;
use foundation::tls;
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use super::{CommandError, CommandResult};

/// Limits how long a server may take to answer `/readyz`.
const HEALTH_TIMEOUT: Duration = Duration::from_secs(3);
/// Limits how long a server may take to answer an operation: a little longer than it takes at most.
const CALL_TIMEOUT: Duration = Duration::from_secs(12);
/// The maximum size of a response.
const RESPONSE_MAX_BYTES: u64 = 8 * 1024 * 1024;

/// A server at an address of this machine.
#[derive(Clone, Copy)]
pub struct LocalServer {
    pub address: SocketAddr,
    pub has_tls: bool,
}

/// Requests `/readyz` of the server, because a container image has no curl.
pub async fn health(config: &Config) -> CommandResult {
    let address = config.listen().map_err(CommandError::Usage)?;
    let server = LocalServer { address, has_tls: config.has_tls() };
    let not_ready =
        |why: String| CommandError::Runtime(format!("the server at {address} is not ready: {why}"));
    match tokio::time::timeout(HEALTH_TIMEOUT, server.get("/readyz")).await {
        Ok(Ok(answer)) if answer.starts_with("HTTP/1.1 200 ") => Ok(()),
        Ok(Ok(answer)) => {
            Err(not_ready(answer.lines().next().unwrap_or("empty response").to_owned()))
        }
        Ok(Err(e)) => Err(not_ready(e.to_string())),
        Err(_) => Err(not_ready(format!("no response within {} s", HEALTH_TIMEOUT.as_secs()))),
    }
}

impl LocalServer {
    /// Sends a GET request and returns the response, head and body.
    pub async fn get(self, path: &str) -> io::Result<String> {
        self.send("GET", path, "").await
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

    /// Calls an operation of version 2 and returns its reply.
    pub async fn call(
        self,
        operation: &str,
        root_key: &str,
        request: &Value,
    ) -> Result<Value, CommandError> {
        let address = self.address;
        if !root_key.bytes().all(|byte| byte.is_ascii_graphic()) {
            let sentence = "KEYWARD_ROOT_KEY must consist of printable ASCII characters to be sent";
            return Err(CommandError::Usage(sentence.to_owned()));
        }
        let body = request.to_string();
        let rest = format!(
            "Authorization: Bearer {root_key}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n",
            body.len()
        );
        let (path, rest) = (format!("/v2/{operation}"), format!("{rest}\r\n{body}"));
        let sent = self.send("POST", &path, &rest);
        let failed = |why: String| {
            CommandError::Runtime(format!("the server at {address} did not answer: {why}"))
        };
        let response = match tokio::time::timeout(CALL_TIMEOUT, sent).await {
            Ok(response) => response.map_err(|e| failed(e.to_string()))?,
            Err(_) => {
                return Err(failed(format!("no response within {} s", CALL_TIMEOUT.as_secs())));
            }
        };
        parse_reply(address, &response)
    }

    /// Sends a request and returns the response, head and body. `rest` is what follows the common headers.
    async fn send(self, method: &str, path: &str, rest: &str) -> io::Result<String> {
        let mut address = self.address;
        if address.ip().is_unspecified() {
            address.set_ip(match address {
                SocketAddr::V4(_) => Ipv4Addr::LOCALHOST.into(),
                SocketAddr::V6(_) => Ipv6Addr::LOCALHOST.into(),
            });
        }
        let stream = TcpStream::connect(address).await?;
        let end = if rest.is_empty() { "\r\n" } else { rest };
        let request =
            format!("{method} {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n{end}");
        if !self.has_tls {
            return exchange(stream, &request).await;
        }
        let client = tls::local_client_config().map_err(io::Error::other)?;
        let connector = TlsConnector::from(Arc::new(client));
        exchange(connector.connect(address.ip().into(), stream).await?, &request).await
    }
}

async fn exchange(
    mut stream: impl AsyncRead + AsyncWrite + Unpin,
    request: &str,
) -> io::Result<String> {
    stream.write_all(request.as_bytes()).await?;
    let mut answer = String::new();
    stream.take(RESPONSE_MAX_BYTES).read_to_string(&mut answer).await?;
    Ok(answer)
}

/// Returns the data of a successful response, or its error.
fn parse_reply(address: SocketAddr, response: &str) -> Result<Value, CommandError> {
    let (head, body) = response.split_once("\r\n\r\n").unwrap_or((response, ""));
    let status: u16 = head.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0);
    let mut reply: Value = serde_json::from_str(body).unwrap_or_default();
    let detail = reply["error"]["detail"].as_str().unwrap_or("its response is not of Keyward");
    match status {
        200 => Ok(reply["data"].take()),
        401 => Err(CommandError::Usage(format!(
            "the server at {address} rejects the root key: {detail}; KEYWARD_LISTEN must be the address of a server that \
            uses this database, and KEYWARD_ROOT_KEY, if it is set, one of its root keys"
        ))),
        400..=499 => Err(CommandError::Usage(detail.to_owned())),
        _ => Err(CommandError::Runtime(format!("the server at {address} failed: {detail}"))),
    }
}

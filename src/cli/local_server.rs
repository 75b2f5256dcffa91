//! Calls the server on this machine, for commands that ask how it is.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use foundation::config::Config;
use foundation::tls;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use super::{CommandError, CommandResult};

/// Limits how long a server may take to answer `/readyz`.
const HEALTH_TIMEOUT: Duration = Duration::from_secs(3);

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
        let mut address = self.address;
        if address.ip().is_unspecified() {
            address.set_ip(match address {
                SocketAddr::V4(_) => Ipv4Addr::LOCALHOST.into(),
                SocketAddr::V6(_) => Ipv6Addr::LOCALHOST.into(),
            });
        }
        let stream = TcpStream::connect(address).await?;
        let request =
            format!("GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
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
    stream.read_to_string(&mut answer).await?;
    Ok(answer)
}

//! Serves one connection: HTTP/1.1, or with TLS the protocol that the handshake has chosen.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use axum::body::Body;
use axum::http::header::{CONNECTION, HOST, STRICT_TRANSPORT_SECURITY};
use axum::http::{HeaderMap, HeaderValue, Request};
use foundation::tls::server::HTTP2;
use futures_util::FutureExt as _;
use hyper::body::Incoming;
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use hyper_util::server::graceful::Watcher;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;

use super::connection_timer::{ConnectionTimer, StreamTimer, TimedStream};
use super::connections::ListenerState;
use super::request_queue::RequestQueue;

/// Limits the size of a request's head, in bytes.
const HEAD_BYTES_MAX: usize = 64 * 1024;
/// [`HEAD_BYTES_MAX`] as HTTP/2 counts it: with 32 bytes for each field.
const HEADER_LIST_BYTES_MAX: u32 = 64 * 1024;
/// Limits the concurrent requests of an HTTP/2 connection.
const STREAMS_MAX: u32 = 100;
/// Limits how long a handshake may take.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// Makes browsers use https only, for one year.
const HSTS: HeaderValue = HeaderValue::from_static("max-age=31536000");

/// The handshake of a new connection.
pub struct Handshake {
    pub config: Arc<ServerConfig>,
    /// Its sender is dropped when the connection must be closed.
    pub is_closing: watch::Receiver<()>,
}

impl Handshake {
    /// Serves a connection with TLS until it ends.
    pub async fn serve(mut self, server: Arc<ListenerState>, stream: TcpStream, watcher: Watcher) {
        let accepted = TlsAcceptor::from(self.config).accept(stream);
        let stream = tokio::select! {
            accepted = tokio::time::timeout(HANDSHAKE_TIMEOUT, accepted) => match accepted {
                Ok(Ok(stream)) => stream,
                Ok(Err(e)) => return tracing::debug!(error = %e, "a handshake failed: {e}"),
                Err(_) => return tracing::debug!("closed a connection during its handshake"),
            },
            _ = self.is_closing.changed() => return,
        };
        match stream.get_ref().1.alpn_protocol() {
            Some(HTTP2) => serve_http2(server, stream, watcher).await,
            _ => serve_http1(server, stream, watcher).await,
        }
    }
}

/// Serves HTTP/1.1 until the connection ends.
pub async fn serve_http1<S>(server: Arc<ListenerState>, stream: S, watcher: Watcher)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let timer = ConnectionTimer::new();
    let stream = TimedStream { stream: TokioIo::new(stream), timer: timer.clone() };
    let waiting = timer.clone();
    let service = service_fn(move |request: Request<Incoming>| {
        timer.record_head();
        let answer = server.routes.answer(request.map(Body::new));
        let (server, timer) = (server.clone(), timer.clone());
        answer.map(move |mut answer| {
            timer.record_response();
            server.add_headers(answer.headers_mut());
            if server.app.context.is_draining.load(Ordering::Relaxed) {
                answer.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
            }
            Ok::<_, Infallible>(answer)
        })
    });
    // Without writev: copying a small body behind its head costs less than a vectored write.
    // Without pipeline_flush, with which hyper drops its response to a head that it cannot parse.
    let connection = http1::Builder::new()
        .max_buf_size(HEAD_BYTES_MAX)
        .writev(false)
        .serve_connection(stream, service);
    run_until(watcher.watch(connection), waiting.expired()).await;
}

/// Serves HTTP/2 until the connection ends.
pub async fn serve_http2<S>(server: Arc<ListenerState>, stream: S, watcher: Watcher)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let timer = StreamTimer::new();
    let stream = TimedStream { stream: TokioIo::new(stream), timer: timer.clone() };
    let waiting = timer.clone();
    let routes = server.routes.for_connection();
    // A service of gRPC is named by the path alone.
    let has_hosts = !server.is_grpc();
    let service = service_fn(move |mut request: Request<Incoming>| {
        let stream = timer.begin();
        if has_hosts {
            set_host(&mut request);
        }
        let answer = routes.answer(request.map(Body::new));
        let server = server.clone();
        answer.map(move |mut answer| {
            drop(stream);
            server.add_headers(answer.headers_mut());
            Ok::<_, Infallible>(answer)
        })
    });
    let requests = RequestQueue::default();
    let connection = http2::Builder::new(requests.clone())
        .max_concurrent_streams(STREAMS_MAX)
        .max_header_list_size(HEADER_LIST_BYTES_MAX)
        .serve_connection(stream, service);
    run_until(requests.run(Box::pin(watcher.watch(connection))), waiting.expired()).await;
}

/// Drives a connection until it ends, or has kept the server waiting for too long.
async fn run_until(
    connection: impl Future<Output = hyper::Result<()>>,
    expired: impl Future<Output = ()>,
) {
    tokio::select! {
        biased;
        ended = connection => if let Err(e) = ended {
            tracing::debug!(error = %e, "a connection failed: {e}");
        },
        () = expired => tracing::debug!("closed an idle connection"),
    }
}

/// Names the host of an HTTP/2 request where the host of an HTTP/1.1 request is.
fn set_host(request: &mut Request<Incoming>) {
    if request.headers().contains_key(HOST) {
        return;
    }
    let authority = request.uri().authority().map(|name| HeaderValue::from_str(name.as_str()));
    if let Some(Ok(host)) = authority {
        request.headers_mut().insert(HOST, host);
    }
}

impl ListenerState {
    /// Adds the headers of every response.
    fn add_headers(&self, headers: &mut HeaderMap) {
        if self.is_https {
            headers.insert(STRICT_TRANSPORT_SECURITY, HSTS);
        }
    }
}

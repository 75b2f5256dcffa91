//! Accepts connections, limits their number, and shuts the server down gracefully.

use std::convert::Infallible;
use std::future::pending;
use std::io::{Read as _, Write as _};
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::http::header::{CONNECTION, STRICT_TRANSPORT_SECURITY};
use axum::http::{HeaderMap, HeaderValue, Request};
use axum::routing::get;
use foundation::config::Settings;
use foundation::descriptors;
use foundation::metrics::{Counter, Gauge};
use futures_util::FutureExt as _;
use futures_util::future::join_all;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper_util::rt::TokioIo;
use hyper_util::server::graceful::GracefulShutdown;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinSet;
use tower::Service as _;

use super::connection_timer::{ConnectionTimer, TimedStream};
use super::{HttpService, metrics};
use crate::app::App;
use crate::request::PEER;
use crate::rpc::Answer;

/// Limits how long in-flight requests may take to finish during shutdown.
const FINISH_TIMEOUT: Duration = Duration::from_secs(30);
/// Limits the size of a request's head, in bytes.
const HEAD_BYTES_MAX: usize = 64 * 1024;
/// The number of groups in which idle connections are closed, one after the other, in the second half of the drain. A
/// client that sends a request while its connection is being closed loses the request, so few connections are closed at
/// any moment.
const GROUPS: usize = 16;
/// How long a new connection has for its first request before a stopping server closes it.
const FIRST_REQUEST: Duration = Duration::from_millis(100);
/// Limits how many rejected connections stay open until their clients have read the response. Further ones receive the
/// response and are closed immediately.
const REFUSALS_MAX: usize = 64;
/// Limits the open connections of the listener that serves only metrics.
const METRICS_CONNECTIONS_MAX: usize = 32;
/// Limits how long a client may take to read the rejection.
const REFUSAL_TIMEOUT: Duration = Duration::from_secs(1);
const REFUSAL: &[u8] =
    b"HTTP/1.1 503 Service Unavailable\r\nconnection: close\r\nretry-after: 1\r\n\
    content-type: text/plain\r\ncontent-length: 21\r\n\r\ntoo many connections\n";
/// Makes browsers use https only, for one year.
const HSTS: HeaderValue = HeaderValue::from_static("max-age=31536000");

/// The routes of a listener.
enum Routes {
    All(HttpService),
    Metrics(Router),
}

impl Routes {
    fn answer(&self, request: Request<Body>) -> Answer {
        match self {
            Self::All(paths) => paths.answer(request),
            Self::Metrics(router) => {
                Box::pin(router.clone().call(request).map(|Ok(answer)| answer))
            }
        }
    }
}

/// The shared state of all connections of a listener.
struct Server {
    app: Arc<App>,
    routes: Routes,
    /// Whether the public URL uses https.
    is_https: bool,
    room: Arc<Semaphore>,
    refusals: Arc<Semaphore>,
    /// The number of open connections.
    open: Gauge,
    /// The number of rejected connections.
    refused: Counter,
}

/// The connections, in the groups in which they are closed.
struct Groups {
    groups: Vec<GracefulShutdown>,
    accepted: usize,
}

impl Groups {
    fn new() -> Self {
        Self { groups: (0..GROUPS).map(|_| GracefulShutdown::new()).collect(), accepted: 0 }
    }

    /// Returns the group of a new connection. While draining, this is the group that is closed last: the connection's
    /// first request is answered, and that response closes the connection.
    fn next(&mut self, is_draining: bool) -> Option<&GracefulShutdown> {
        if is_draining {
            return self.groups.first();
        }
        self.accepted += 1;
        let last = self.groups.len().checked_sub(1)?;
        self.groups.get(self.accepted % (last + 1))
    }
}

/// Serves until `stop` completes, then for the drain time, in which the load balancer notices, then until every
/// in-flight request has been answered.
///
/// After `stop`, every response closes its connection. Connections that remain idle are closed over the second half of
/// the drain time, a few at a time.
pub async fn serve(app: Arc<App>, listener: TcpListener, stop: impl Future<Output = ()>) {
    let connections_max = connections_max(&app.settings);
    let server = Arc::new(Server {
        open: app.metrics.connections.clone(),
        refused: app.metrics.connections_refused.clone(),
        ..Server::new(app.clone(), Routes::All(HttpService::new(app.clone())), connections_max)
    });
    let mut groups = Groups::new();
    accept_until(&server, &listener, &mut groups, stop).await;

    let seconds = server.app.settings.drain_seconds;
    server.app.draining.store(true, Ordering::Relaxed);
    tracing::info!(seconds, "draining for {seconds} s");
    let half = Duration::from_secs(seconds) / 2;
    let first_half = tokio::time::sleep(half.max(FIRST_REQUEST));
    accept_until(&server, &listener, &mut groups, first_half).await;
    let mut closing = JoinSet::new();
    while groups.groups.len() > 1 {
        if let Some(group) = groups.groups.pop() {
            closing.spawn(group.shutdown());
        }
        let pause = half / u32::try_from(GROUPS).unwrap_or(1);
        accept_until(&server, &listener, &mut groups, tokio::time::sleep(pause)).await;
    }
    // Closing the listener would reset connections that the operating system has already accepted.
    while let Some(Ok((stream, peer))) = listener.accept().now_or_never() {
        server.clone().admit(stream, peer, &mut groups);
    }
    drop(listener);
    tokio::time::sleep(FIRST_REQUEST).await;
    let rest = join_all(groups.groups.into_iter().map(GracefulShutdown::shutdown));
    let finished =
        async { tokio::join!(rest, async { while closing.join_next().await.is_some() {} }) };
    if tokio::time::timeout(FINISH_TIMEOUT, finished).await.is_err() {
        tracing::warn!("failed to finish some requests within {} s", FINISH_TIMEOUT.as_secs());
    }
}

/// Returns and logs the maximum number of connections. It is lower than configured if the limit on open files requires
/// it.
fn connections_max(settings: &Settings) -> usize {
    let configured = settings.security.connections_max;
    let (limit, max) = match descriptors::limits() {
        Ok((limit, _)) => (limit, descriptors::connections_max(settings, limit)),
        Err(e) => {
            tracing::warn!(error = %e, "failed to read the limit on open files: {e}");
            return configured;
        }
    };
    if max < configured {
        let needed = descriptors::needed(settings);
        tracing::warn!(
            "reduced the connection limit from {configured} (KEYWARD_CONNECTIONS_MAX) to {max}, because the limit on \
            open files is {limit}; raise the hard limit to {needed}"
        );
    } else {
        tracing::info!("set the connection limit to {max}");
    }
    max
}

async fn accept_until(
    server: &Arc<Server>,
    listener: &TcpListener,
    groups: &mut Groups,
    until: impl Future<Output = ()>,
) {
    let mut until = pin!(until);
    loop {
        tokio::select! {
            () = &mut until => return,
            accepted = listener.accept() => match accepted {
                Ok((stream, peer)) => server.clone().admit(stream, peer, groups),
                Err(e) => {
                    // Usually no file descriptor is free; wait until other connections release theirs.
                    tracing::warn!(error = %e, "failed to accept a connection: {e}");
                    tokio::time::sleep(Duration::from_millis(50)).await;
                }
            }
        }
    }
}

impl Server {
    /// Creates the state of a listener with a maximum number of connections. Its counters are not exported as metrics.
    fn new(app: Arc<App>, routes: Routes, connections_max: usize) -> Self {
        Self {
            routes,
            is_https: app.settings.public_url.starts_with("https://"),
            room: Arc::new(Semaphore::new(connections_max)),
            refusals: Arc::new(Semaphore::new(REFUSALS_MAX.min(connections_max))),
            open: Gauge::default(),
            refused: Counter::default(),
            app,
        }
    }

    /// Serves a connection, or rejects it if the maximum is reached.
    fn admit(self: Arc<Self>, stream: TcpStream, peer: SocketAddr, groups: &mut Groups) {
        match self.room.clone().try_acquire_owned() {
            Ok(permit) => self.accept(stream, peer, permit, groups),
            Err(_) => self.refuse(stream),
        }
    }

    /// Serves a connection, which holds its permit until it ends.
    fn accept(
        self: Arc<Self>,
        stream: TcpStream,
        peer: SocketAddr,
        permit: OwnedSemaphorePermit,
        groups: &mut Groups,
    ) {
        let _ = stream.set_nodelay(true);
        let timer = ConnectionTimer::new();
        let stream = TimedStream { stream: TokioIo::new(stream), patience: timer.clone() };
        let waiting = timer.clone();
        let open = self.open.clone();
        let is_draining = self.app.draining.load(Ordering::Relaxed);
        let service = hyper::service::service_fn(move |request: Request<Incoming>| {
            timer.busy();
            let answer = self.routes.answer(request.map(Body::new));
            let (server, timer) = (self.clone(), timer.clone());
            answer.map(move |mut answer| {
                timer.rest();
                server.finish(answer.headers_mut());
                Ok::<_, Infallible>(answer)
            })
        });
        // Without writev: copying a small body behind its head costs less than a vectored write.
        // Without pipeline_flush, with which hyper drops its response to a head that it cannot parse.
        let connection = http1::Builder::new()
            .max_buf_size(HEAD_BYTES_MAX)
            .writev(false)
            .serve_connection(stream, service);
        let Some(group) = groups.next(is_draining) else { return };
        let connection = group.watch(connection);
        open.inc();
        tokio::spawn(PEER.scope(peer, async move {
            tokio::select! {
                biased;
                ended = connection => if let Err(e) = ended {
                    tracing::debug!(error = %e, "a connection failed: {e}");
                },
                () = waiting.expired() => tracing::debug!("closed an idle connection"),
            }
            open.dec();
            drop(permit);
        }));
    }

    /// Adds the headers of every response.
    fn finish(&self, headers: &mut HeaderMap) {
        if self.is_https {
            headers.insert(STRICT_TRANSPORT_SECURITY, HSTS);
        }
        if self.app.draining.load(Ordering::Relaxed) {
            headers.insert(CONNECTION, HeaderValue::from_static("close"));
        }
    }

    /// Answers 503 to a connection above the maximum and closes it.
    fn refuse(&self, mut stream: TcpStream) {
        self.refused.inc();
        let Ok(permit) = self.refusals.clone().try_acquire_owned() else {
            return refuse_at_once(stream);
        };
        tokio::spawn(async move {
            let refusing = async {
                stream.write_all(REFUSAL).await?;
                stream.shutdown().await?;
                // Read what the client has sent: otherwise the operating system resets the connection and discards
                // the response.
                let mut sent = [0; 1024];
                while stream.read(&mut sent).await? > 0 {}
                Ok::<_, std::io::Error>(())
            };
            let _ = tokio::time::timeout(REFUSAL_TIMEOUT, refusing).await;
            drop(permit);
        });
    }
}

/// Sends the rejection without waiting, as far as the socket buffer accepts it, and closes the connection.
fn refuse_at_once(stream: TcpStream) {
    // A tokio stream would first wait for the readiness event of the operating system.
    let Ok(mut stream) = stream.into_std() else { return };
    // Read what the client has sent: otherwise the operating system resets the connection and discards the response.
    let mut sent = [0; 8192];
    let _ = stream.read(&mut sent);
    let _ = stream.write_all(REFUSAL);
}

/// Serves only the metrics, until the task ends. Its connections have a separate limit and are not counted in metrics.
pub async fn serve_metrics(app: Arc<App>, listener: TcpListener) {
    let router = Router::new().route("/metrics", get(metrics)).with_state(app.clone());
    let server = Server::new(app, Routes::Metrics(router), METRICS_CONNECTIONS_MAX);
    accept_until(&Arc::new(server), &listener, &mut Groups::new(), pending()).await;
}

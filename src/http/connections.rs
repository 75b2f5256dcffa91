//! Accepts connections, limits their number, and shuts the server down gracefully.

use std::convert::Infallible;
use std::future::pending;
use std::io::{Read as _, Write as _};
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use api::ReplyFuture;
use axum::Router;
use axum::body::Body;
use axum::http::header::{CONNECTION, STRICT_TRANSPORT_SECURITY};
use axum::http::{HeaderMap, HeaderValue, Request};
use axum::routing::get;
use domain::app::App;
use foundation::config::Settings;
use foundation::descriptors;
use foundation::metrics::{Counter, Gauge};
use futures_util::FutureExt as _;
use futures_util::future::join_all;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper_util::rt::TokioIo;
use hyper_util::server::graceful::GracefulShutdown;
use request::PEER;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinSet;
use tower::Service as _;

use super::connection_timer::{ConnectionTimer, TimedStream};
use super::{HttpService, metrics};

/// Limits how long in-flight requests may take to finish during shutdown.
const FINISH_TIMEOUT: Duration = Duration::from_secs(30);
/// Limits the size of a request's head, in bytes.
const HEAD_BYTES_MAX: usize = 64 * 1024;
/// The number of groups in which idle connections are closed, one after the other, in the second half of the drain. A
/// client that sends a request while its connection is being closed loses the request, so few connections are closed at
/// any moment.
const CLOSE_GROUPS: usize = 16;
/// How long a new connection has for its first request before a stopping server closes it.
const FIRST_REQUEST_TIMEOUT: Duration = Duration::from_millis(100);
/// Limits how many rejected connections stay open until their clients have read the response. Further ones receive the
/// response and are closed immediately.
const REJECTIONS_MAX: usize = 64;
/// Limits the open connections of the listener that serves only metrics.
const METRICS_CONNECTIONS_MAX: usize = 32;
/// Limits how long a client may take to read the rejection.
const REJECTION_TIMEOUT: Duration = Duration::from_secs(1);
const REJECTION: &[u8] =
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
    fn answer(&self, request: Request<Body>) -> ReplyFuture {
        match self {
            Self::All(paths) => paths.answer(request),
            Self::Metrics(router) => {
                Box::pin(router.clone().call(request).map(|Ok(answer)| answer))
            }
        }
    }
}

/// The shared state of all connections of a listener.
struct ListenerState {
    app: Arc<App>,
    routes: Routes,
    /// Whether the public URL uses https.
    is_https: bool,
    permits: Arc<Semaphore>,
    rejection_permits: Arc<Semaphore>,
    /// The number of open connections.
    open_connections: Gauge,
    /// The number of rejected connections.
    rejected_connections: Counter,
}

/// The connections, in the groups in which they are closed.
struct ConnectionGroups {
    groups: Vec<GracefulShutdown>,
    accepted: usize,
}

impl ConnectionGroups {
    fn new() -> Self {
        Self { groups: (0..CLOSE_GROUPS).map(|_| GracefulShutdown::new()).collect(), accepted: 0 }
    }

    /// Returns the group of a new connection. While draining, this is the group that is closed last: the connection's
    /// first request is answered, and that response closes the connection.
    fn next_group(&mut self, is_draining: bool) -> Option<&GracefulShutdown> {
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
    let connections_max = connections_max(&app.context.settings);
    let server = Arc::new(ListenerState {
        open_connections: app.context.metrics.connections.clone(),
        rejected_connections: app.context.metrics.connections_refused.clone(),
        ..ListenerState::new(
            app.clone(),
            Routes::All(HttpService::new(app.clone())),
            connections_max,
        )
    });
    let mut groups = ConnectionGroups::new();
    accept_until(&server, &listener, &mut groups, stop).await;

    let seconds = server.app.context.settings.drain_seconds;
    server.app.context.is_draining.store(true, Ordering::Relaxed);
    tracing::info!(seconds, "draining for {seconds} s");
    let half = Duration::from_secs(seconds) / 2;
    let first_half = tokio::time::sleep(half.max(FIRST_REQUEST_TIMEOUT));
    accept_until(&server, &listener, &mut groups, first_half).await;
    let mut closing = JoinSet::new();
    while groups.groups.len() > 1 {
        if let Some(group) = groups.groups.pop() {
            closing.spawn(group.shutdown());
        }
        let pause = half / u32::try_from(CLOSE_GROUPS).unwrap_or(1);
        accept_until(&server, &listener, &mut groups, tokio::time::sleep(pause)).await;
    }
    // Closing the listener would reset connections that the operating system has already accepted. It is asked directly:
    // a tokio listener only knows of those that its runtime has noticed.
    if let Ok(listener) = listener.into_std() {
        while let Ok((stream, peer)) = listener.accept() {
            if let Ok(stream) =
                stream.set_nonblocking(true).and_then(|()| TcpStream::from_std(stream))
            {
                server.clone().admit(stream, peer, &mut groups);
            }
        }
    }
    tokio::time::sleep(FIRST_REQUEST_TIMEOUT).await;
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
    let (limit, max) = match descriptors::get_limits() {
        Ok((limit, _)) => (limit, descriptors::connections_max(settings, limit)),
        Err(e) => {
            tracing::warn!(error = %e, "failed to read the limit on open files: {e}");
            return configured;
        }
    };
    if max < configured {
        let needed = descriptors::needed_descriptors(settings);
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
    server: &Arc<ListenerState>,
    listener: &TcpListener,
    groups: &mut ConnectionGroups,
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

impl ListenerState {
    /// Creates the state of a listener with a maximum number of connections. Its counters are not exported as metrics.
    fn new(app: Arc<App>, routes: Routes, connections_max: usize) -> Self {
        Self {
            routes,
            is_https: app.context.settings.public_url.starts_with("https://"),
            permits: Arc::new(Semaphore::new(connections_max)),
            rejection_permits: Arc::new(Semaphore::new(REJECTIONS_MAX.min(connections_max))),
            open_connections: Gauge::default(),
            rejected_connections: Counter::default(),
            app,
        }
    }

    /// Serves a connection, or rejects it if the maximum is reached.
    fn admit(self: Arc<Self>, stream: TcpStream, peer: SocketAddr, groups: &mut ConnectionGroups) {
        match self.permits.clone().try_acquire_owned() {
            Ok(permit) => self.accept(stream, peer, permit, groups),
            Err(_) => self.reject(stream),
        }
    }

    /// Serves a connection, which holds its permit until it ends.
    fn accept(
        self: Arc<Self>,
        stream: TcpStream,
        peer: SocketAddr,
        permit: OwnedSemaphorePermit,
        groups: &mut ConnectionGroups,
    ) {
        let _ = stream.set_nodelay(true);
        let timer = ConnectionTimer::new();
        let stream = TimedStream { stream: TokioIo::new(stream), timer: timer.clone() };
        let waiting = timer.clone();
        let open = self.open_connections.clone();
        let is_draining = self.app.context.is_draining.load(Ordering::Relaxed);
        let service = hyper::service::service_fn(move |request: Request<Incoming>| {
            timer.record_head();
            let answer = self.routes.answer(request.map(Body::new));
            let (server, timer) = (self.clone(), timer.clone());
            answer.map(move |mut answer| {
                timer.record_response();
                server.add_headers(answer.headers_mut());
                Ok::<_, Infallible>(answer)
            })
        });
        // Without writev: copying a small body behind its head costs less than a vectored write.
        // Without pipeline_flush, with which hyper drops its response to a head that it cannot parse.
        let connection = http1::Builder::new()
            .max_buf_size(HEAD_BYTES_MAX)
            .writev(false)
            .serve_connection(stream, service);
        let Some(group) = groups.next_group(is_draining) else { return };
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
    fn add_headers(&self, headers: &mut HeaderMap) {
        if self.is_https {
            headers.insert(STRICT_TRANSPORT_SECURITY, HSTS);
        }
        if self.app.context.is_draining.load(Ordering::Relaxed) {
            headers.insert(CONNECTION, HeaderValue::from_static("close"));
        }
    }

    /// Answers 503 to a connection above the maximum and closes it.
    fn reject(&self, mut stream: TcpStream) {
        self.rejected_connections.inc();
        let Ok(permit) = self.rejection_permits.clone().try_acquire_owned() else {
            return reject_immediately(stream);
        };
        tokio::spawn(async move {
            let refusing = async {
                stream.write_all(REJECTION).await?;
                stream.shutdown().await?;
                // Read what the client has sent: otherwise the operating system resets the connection and discards
                // the response.
                let mut sent = [0; 1024];
                while stream.read(&mut sent).await? > 0 {}
                Ok::<_, std::io::Error>(())
            };
            let _ = tokio::time::timeout(REJECTION_TIMEOUT, refusing).await;
            drop(permit);
        });
    }
}

/// Sends the rejection without waiting, as far as the socket buffer accepts it, and closes the connection.
fn reject_immediately(stream: TcpStream) {
    // A tokio stream would first wait for the readiness event of the operating system.
    let Ok(mut stream) = stream.into_std() else { return };
    // Read what the client has sent: otherwise the operating system resets the connection and discards the response.
    let mut sent = [0; 8192];
    let _ = stream.read(&mut sent);
    let _ = stream.write_all(REJECTION);
}

/// Serves only the metrics, until the task ends. Its connections have a separate limit and are not counted in metrics.
pub async fn serve_metrics(app: Arc<App>, listener: TcpListener) {
    let router = Router::new().route("/metrics", get(metrics)).with_state(app.clone());
    let server = ListenerState::new(app, Routes::Metrics(router), METRICS_CONNECTIONS_MAX);
    accept_until(&Arc::new(server), &listener, &mut ConnectionGroups::new(), pending()).await;
}

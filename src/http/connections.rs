//! Accepts connections, limits their number, and shuts the server down gracefully.

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
use axum::http::Request;
use domain::app::App;
use foundation::config::Settings;
use foundation::descriptors::{self, GRPC_CONNECTIONS_MAX};
use foundation::metrics::{Counter, Gauge};
use foundation::tls::server::ServerCertificate;
use futures_util::FutureExt as _;
use futures_util::future::join_all;
use grpc::GrpcService;
use hyper_util::server::graceful::GracefulShutdown;
use request::PEER;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::task::JoinSet;
use tower::Service as _;

use super::protocols::{self, Handshake};
use super::{HttpService, build_metrics_router};

/// Limits how long in-flight requests may take to finish during shutdown.
const FINISH_TIMEOUT: Duration = Duration::from_secs(30);
/// The number of groups in which idle connections are closed, one after the other, in the second half of the drain. A
/// client that sends a request while its connection is being closed loses the request, so few connections are closed at
/// any moment.
const CLOSE_GROUPS: usize = 16;
/// How long a new connection has for its first request before a stopping server closes it.
const FIRST_REQUEST_TIMEOUT: Duration = Duration::from_millis(100);
/// Limits how many rejected connections stay open until their clients have read the response. Further ones receive the
/// response and are closed immediately.
const REJECTIONS_MAX: usize = 64;
/// Limits the open connections of the listener that serves only metrics and health.
const METRICS_CONNECTIONS_MAX: usize = 32;
/// Limits how long a client may take to read the rejection.
const REJECTION_TIMEOUT: Duration = Duration::from_secs(1);
const REJECTION: &[u8] =
    b"HTTP/1.1 503 Service Unavailable\r\nconnection: close\r\nretry-after: 1\r\n\
    content-type: text/plain\r\ncontent-length: 21\r\n\r\ntoo many connections\n";

/// The routes of a listener.
pub enum Routes {
    All(HttpService),
    Metrics(Router),
    Grpc(GrpcService),
}

impl Routes {
    pub fn answer(&self, request: Request<Body>) -> ReplyFuture {
        match self {
            Self::All(paths) => paths.answer(request),
            Self::Metrics(router) => {
                Box::pin(router.clone().call(request).map(|Ok(answer)| answer))
            }
            Self::Grpc(services) => Box::pin(services.clone().answer(request)),
        }
    }

    /// Returns the routes of a new connection, whose calls over gRPC have a bound in common.
    pub fn for_connection(&self) -> Self {
        match self {
            Self::All(paths) => Self::All(paths.clone()),
            Self::Metrics(router) => Self::Metrics(router.clone()),
            Self::Grpc(services) => Self::Grpc(services.for_connection()),
        }
    }
}

/// The shared state of all connections of a listener.
pub struct ListenerState {
    pub app: Arc<App>,
    pub routes: Routes,
    /// Whether the public URL uses https.
    pub is_https: bool,
    /// Absent: connections do not use TLS.
    certificate: Option<Arc<ServerCertificate>>,
    permits: Arc<Semaphore>,
    rejection_permits: Arc<Semaphore>,
    /// The number of open connections.
    open_connections: Gauge,
    /// The number of rejected connections.
    rejected_connections: Counter,
}

/// Connections that are closed at the same time.
struct ConnectionGroup {
    connections: GracefulShutdown,
    /// Ends the handshakes when it is dropped.
    handshakes: watch::Sender<()>,
}

impl ConnectionGroup {
    fn new() -> Self {
        Self { connections: GracefulShutdown::new(), handshakes: watch::channel(()).0 }
    }

    /// Ends handshakes, and each connection when its requests have been answered.
    async fn shutdown(self) {
        drop(self.handshakes);
        self.connections.shutdown().await;
    }
}

/// The connections, in the groups in which they are closed.
struct ConnectionGroups {
    groups: Vec<ConnectionGroup>,
    accepted: usize,
}

impl ConnectionGroups {
    fn new() -> Self {
        Self { groups: (0..CLOSE_GROUPS).map(|_| ConnectionGroup::new()).collect(), accepted: 0 }
    }

    /// Returns the group of a new connection. While draining, this is the group that is closed last: the connection's
    /// first request is answered, and that response closes the connection.
    fn next_group(&mut self, is_draining: bool) -> Option<&ConnectionGroup> {
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
pub async fn serve(
    app: Arc<App>,
    listener: TcpListener,
    certificate: Option<Arc<ServerCertificate>>,
    stop: impl Future<Output = ()>,
) {
    let connections_max = connections_max(&app.context.settings);
    let server = Arc::new(ListenerState {
        open_connections: app.context.metrics.connections.clone(),
        rejected_connections: app.context.metrics.connections_refused.clone(),
        ..ListenerState::new(
            app.clone(),
            Routes::All(HttpService::new(app.clone())),
            certificate,
            connections_max,
        )
    });
    serve_and_drain(server, listener, stop).await;
}

/// Serves the services of gateways over gRPC, and drains like [`serve`].
pub async fn serve_grpc(
    app: Arc<App>,
    listener: TcpListener,
    certificate: Option<Arc<ServerCertificate>>,
    stop: impl Future<Output = ()>,
) {
    let (services, health) = grpc::services(&app);
    let routes = Routes::Grpc(services);
    let server = ListenerState::new(app.clone(), routes, certificate, GRPC_CONNECTIONS_MAX);
    tokio::select! {
        () = serve_and_drain(Arc::new(server), listener, stop) => {}
        () = health.run(&app.context) => {}
    }
}

async fn serve_and_drain(
    server: Arc<ListenerState>,
    listener: TcpListener,
    stop: impl Future<Output = ()>,
) {
    let mut groups = ConnectionGroups::new();
    accept_until(&server, &listener, &mut groups, stop).await;

    let seconds = server.app.context.settings.drain_seconds;
    if !server.app.context.is_draining.swap(true, Ordering::Relaxed) {
        tracing::info!(seconds, "draining for {seconds} s");
    }
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
    let rest = join_all(groups.groups.into_iter().map(ConnectionGroup::shutdown));
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
    fn new(
        app: Arc<App>,
        routes: Routes,
        certificate: Option<Arc<ServerCertificate>>,
        connections_max: usize,
    ) -> Self {
        Self {
            routes,
            certificate,
            is_https: app.context.settings.public_url.starts_with("https://"),
            permits: Arc::new(Semaphore::new(connections_max)),
            rejection_permits: Arc::new(Semaphore::new(REJECTIONS_MAX.min(connections_max))),
            open_connections: Gauge::default(),
            rejected_connections: Counter::default(),
            app,
        }
    }

    pub fn is_grpc(&self) -> bool {
        matches!(self.routes, Routes::Grpc(_))
    }

    /// Serves a connection, or rejects it if the maximum is reached.
    fn admit(self: Arc<Self>, stream: TcpStream, peer: SocketAddr, groups: &mut ConnectionGroups) {
        match self.permits.clone().try_acquire_owned() {
            Ok(permit) => self.accept(stream, peer, permit, groups),
            // With TLS, it is closed without a response, which would cost a handshake. A client of gRPC could not read it.
            Err(_) if self.certificate.is_some() || self.is_grpc() => {
                self.rejected_connections.inc();
            }
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
        let is_draining = self.app.context.is_draining.load(Ordering::Relaxed);
        let Some(group) = groups.next_group(is_draining) else { return };
        let watcher = group.connections.watcher();
        let handshake = self.certificate.as_ref().map(|certificate| Handshake {
            config: certificate.config(),
            is_closing: group.handshakes.subscribe(),
        });
        let open = self.open_connections.clone();
        open.inc();
        tokio::spawn(PEER.scope(peer, async move {
            match handshake {
                None if self.is_grpc() => {
                    Box::pin(protocols::serve_http2(self, stream, watcher)).await;
                }
                None => protocols::serve_http1(self, stream, watcher).await,
                // On the heap: a connection without TLS has no room for it.
                Some(handshake) => Box::pin(handshake.serve(self, stream, watcher)).await,
            }
            open.dec();
            drop(permit);
        }));
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

/// Serves only metrics and health, until the task ends. Its connections have a separate limit and are not counted in
/// metrics.
pub async fn serve_metrics(
    app: Arc<App>,
    listener: TcpListener,
    certificate: Option<Arc<ServerCertificate>>,
) {
    let routes = Routes::Metrics(build_metrics_router(app.clone()));
    let server = ListenerState::new(app, routes, certificate, METRICS_CONNECTIONS_MAX);
    accept_until(&Arc::new(server), &listener, &mut ConnectionGroups::new(), pending()).await;
}

//! What listens, how many connections there may be, and how the server stops.

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

/// How long requests in flight may take to finish when the server stops.
const FINISH_TIMEOUT: Duration = Duration::from_secs(30);
/// What is read of a request's head.
const HEAD_BYTES_MAX: usize = 64 * 1024;
/// In how many groups idle connections are closed, one after the other, in the second half of the drain. A client that
/// sends a request at the moment in which its connection is closed loses it, so few are closed at any moment.
const GROUPS: usize = 16;
/// How long a connection that has just been accepted has for its first request before a server that stops closes it.
const FIRST_REQUEST: Duration = Duration::from_millis(100);
/// How many refused connections are kept at a time until their clients have read the refusal. Those beyond it are sent the
/// refusal and closed at once.
const REFUSALS_MAX: usize = 64;
/// How many connections may be open where the metrics alone are served.
const METRICS_CONNECTIONS_MAX: usize = 32;
/// How long a client may take to read the refusal.
const REFUSAL_TIMEOUT: Duration = Duration::from_secs(1);
const REFUSAL: &[u8] =
    b"HTTP/1.1 503 Service Unavailable\r\nconnection: close\r\nretry-after: 1\r\n\
    content-type: text/plain\r\ncontent-length: 21\r\n\r\ntoo many connections\n";
/// A year: browsers then come over https only.
const HSTS: HeaderValue = HeaderValue::from_static("max-age=31536000");

/// What answers the requests of a listener.
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

/// What every connection of a listener needs.
struct Server {
    app: Arc<App>,
    routes: Routes,
    /// Whether the public URL is https.
    is_https: bool,
    room: Arc<Semaphore>,
    refusals: Arc<Semaphore>,
    /// Counts open connections.
    open: Gauge,
    /// Counts refused connections.
    refused: Counter,
}

/// Connections by the group in which they are closed.
struct Groups {
    groups: Vec<GracefulShutdown>,
    accepted: usize,
}

impl Groups {
    fn new() -> Self {
        Self { groups: (0..GROUPS).map(|_| GracefulShutdown::new()).collect(), accepted: 0 }
    }

    /// The group of a new connection. While draining, that is the one which is closed last: its first request is
    /// answered, and that answer closes it.
    fn next(&mut self, is_draining: bool) -> Option<&GracefulShutdown> {
        if is_draining {
            return self.groups.first();
        }
        self.accepted += 1;
        let last = self.groups.len().checked_sub(1)?;
        self.groups.get(self.accepted % (last + 1))
    }
}

/// Serves until `stop` completes, then as long as the balancer needs to notice, then until every
/// request in flight has been answered.
///
/// From `stop` on every response closes its connection. What stays idle all the same is closed over the second half
/// of that time, a few connections at a time.
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
    // What the system has accepted by now would be cut off with the listener.
    while let Some(Ok((stream, peer))) = listener.accept().now_or_never() {
        server.clone().admit(stream, peer, &mut groups);
    }
    drop(listener);
    tokio::time::sleep(FIRST_REQUEST).await;
    let rest = join_all(groups.groups.into_iter().map(GracefulShutdown::shutdown));
    let finished =
        async { tokio::join!(rest, async { while closing.join_next().await.is_some() {} }) };
    if tokio::time::timeout(FINISH_TIMEOUT, finished).await.is_err() {
        tracing::warn!("some requests did not finish within {} s", FINISH_TIMEOUT.as_secs());
    }
}

/// Returns the bound on connections, which is lower than configured when the process may not open as many files, and logs
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
            "the limit on open files is {limit}: at most {max} connections are served instead of {configured} \
            (KEYWARD_CONNECTIONS_MAX); raise the hard limit to {needed}"
        );
    } else {
        tracing::info!("at most {max} connections are served");
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
                    // Out of file descriptors, mostly: those in use will be given back.
                    tracing::warn!(error = %e, "cannot accept a connection: {e}");
                    tokio::time::sleep(Duration::from_millis(50)).await;
                }
            }
        }
    }
}

impl Server {
    /// A server of one listener with this many connections at most. What it counts is in no metric.
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

    /// Serves a connection where there is room for it.
    fn admit(self: Arc<Self>, stream: TcpStream, peer: SocketAddr, groups: &mut Groups) {
        match self.room.clone().try_acquire_owned() {
            Ok(place) => self.accept(stream, peer, place, groups),
            Err(_) => self.refuse(stream),
        }
    }

    /// Serves a connection, which holds its place until it ends.
    fn accept(
        self: Arc<Self>,
        stream: TcpStream,
        peer: SocketAddr,
        place: OwnedSemaphorePermit,
        groups: &mut Groups,
    ) {
        let _ = stream.set_nodelay(true);
        let patience = ConnectionTimer::new();
        let stream = TimedStream { stream: TokioIo::new(stream), patience: patience.clone() };
        let waiting = patience.clone();
        let open = self.open.clone();
        let is_draining = self.app.draining.load(Ordering::Relaxed);
        let service = hyper::service::service_fn(move |request: Request<Incoming>| {
            patience.busy();
            let answer = self.routes.answer(request.map(Body::new));
            let (server, patience) = (self.clone(), patience.clone());
            answer.map(move |mut answer| {
                patience.rest();
                server.finish(answer.headers_mut());
                Ok::<_, Infallible>(answer)
            })
        });
        // Without writev: copying a small answer behind its head costs less than handing over two pieces.
        // Without pipeline_flush, with which hyper drops its answer to a head that it cannot read.
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
                    tracing::debug!(error = %e, "a connection broke: {e}");
                },
                () = waiting.expired() => tracing::debug!("a connection kept us waiting"),
            }
            open.dec();
            drop(place);
        }));
    }

    /// What every response says.
    fn finish(&self, headers: &mut HeaderMap) {
        if self.is_https {
            headers.insert(STRICT_TRANSPORT_SECURITY, HSTS);
        }
        if self.app.draining.load(Ordering::Relaxed) {
            headers.insert(CONNECTION, HeaderValue::from_static("close"));
        }
    }

    /// Tells a client that there are too many connections, and closes this one.
    fn refuse(&self, mut stream: TcpStream) {
        self.refused.inc();
        let Ok(turn) = self.refusals.clone().try_acquire_owned() else {
            return refuse_at_once(stream);
        };
        tokio::spawn(async move {
            let refusing = async {
                stream.write_all(REFUSAL).await?;
                stream.shutdown().await?;
                // What the client has sent is read: else the system would take the answer back.
                let mut sent = [0; 1024];
                while stream.read(&mut sent).await? > 0 {}
                Ok::<_, std::io::Error>(())
            };
            let _ = tokio::time::timeout(REFUSAL_TIMEOUT, refusing).await;
            drop(turn);
        });
    }
}

/// Sends the refusal as far as the system takes it without waiting, and closes the connection.
fn refuse_at_once(stream: TcpStream) {
    // A stream of tokio would first wait to hear from the system that it can be written.
    let Ok(mut stream) = stream.into_std() else { return };
    // What the client has sent is read: else the system would take the answer back.
    let mut sent = [0; 8192];
    let _ = stream.read(&mut sent);
    let _ = stream.write_all(REFUSAL);
}

/// Serves the metrics alone, until the task ends. Its connections have a bound of their own, and are in no metric.
pub async fn serve_metrics(app: Arc<App>, listener: TcpListener) {
    let router = Router::new().route("/metrics", get(metrics)).with_state(app.clone());
    let server = Server::new(app, Routes::Metrics(router), METRICS_CONNECTIONS_MAX);
    accept_until(&Arc::new(server), &listener, &mut Groups::new(), pending()).await;
}

//! The services as they are served on connections, and the bounds of what callers make the server hold: a call that does not
//! arrive is ended, and one connection holds a few megabytes at most, however many calls it begins.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes, HttpBody};
use axum::http::request::Parts;
use axum::http::{Request, Response};
use envoy_types::ext_authz::v3::pb::AuthorizationServer;
use hyper::body::{Frame, SizeHint};
use tokio::time::Sleep;
use tonic::server::NamedService;
use tonic::{Code, Status};
use tower::{Service as _, ServiceExt as _};

use crate::ext_authz::ExtAuthz;
use crate::rate_limit::RateLimits;
use crate::{MESSAGE_MAX_BYTES, rate_limit_call};

/// Limits how long a message may take to arrive. What follows, the decision, has a bound of its own.
const ARRIVAL_TIMEOUT: Duration = Duration::from_secs(30);
/// Limits the size of the calls in flight of a connection: their heads, and what has arrived of their messages. A connection has
/// room for a hundred calls about requests with the largest heads that Envoy accepts, 60 KiB: otherwise such clients would make
/// the calls of others fail.
const CONNECTION_BYTES_MAX: usize = 8 * 1024 * 1024;
/// What a header needs besides its name and value, as HTTP/2 counts it.
const HEADER_BYTES: usize = 32;

/// The services of a server.
pub(crate) struct Services {
    pub authorization: AuthorizationServer<ExtAuthz>,
    pub limits: Arc<RateLimits>,
    /// The other services, and the answer to calls of unknown ones.
    pub others: Router,
}

/// The services, for the calls of one connection.
#[derive(Clone)]
pub struct GrpcService {
    services: Arc<Services>,
    /// The size of the calls in flight.
    held: Arc<AtomicUsize>,
}

impl GrpcService {
    pub(crate) fn new(services: Arc<Services>) -> Self {
        Self { services, held: Arc::default() }
    }

    /// Returns the services for another connection.
    pub fn for_connection(&self) -> Self {
        Self::new(self.services.clone())
    }

    /// Answers a call.
    pub async fn answer(self, request: Request<Body>) -> Response<Body> {
        let (head, body) = request.into_parts();
        let call = CallBytes { own: AtomicUsize::new(0), of_connection: self.held };
        let call = Arc::new(call);
        if !call.add(head_bytes(&head)) {
            return too_many_bytes().into_http();
        }
        let body = ArrivingBody { body, call: call.clone(), timeout: None };
        let answer = self.services.call(Request::from_parts(head, body)).await;
        drop(call);
        answer
    }
}

impl Services {
    /// Calls the service that the path names. Gateways call the first two for every request, so these need no router.
    async fn call(&self, request: Request<ArrivingBody>) -> Response<Body> {
        let service = request.uri().path().split('/').nth(1).unwrap_or_default();
        if service == rate_limit_call::SERVICE {
            let limits = self.limits.clone();
            rate_limit_call::call(limits, request, MESSAGE_MAX_BYTES).await.map(Body::new)
        } else if service == AuthorizationServer::<ExtAuthz>::NAME {
            let Ok(answer) = self.authorization.clone().call(request).await;
            answer.map(Body::new)
        } else {
            let Ok(answer) = self.others.clone().oneshot(request.map(Body::new)).await;
            answer
        }
    }
}

/// The message of a call, which is counted as it arrives.
struct ArrivingBody {
    body: Body,
    call: Arc<CallBytes>,
    /// Absent until a part of the message is waited for: most arrive with their heads.
    timeout: Option<Pin<Box<Sleep>>>,
}

impl HttpBody for ArrivingBody {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        match Pin::new(&mut self.body).poll_frame(cx) {
            Poll::Ready(Some(Ok(frame))) => {
                let is_held = self.call.add(frame.data_ref().map_or(0, Bytes::len));
                Poll::Ready(Some(if is_held { Ok(frame) } else { Err(too_many_bytes()) }))
            }
            Poll::Ready(Some(Err(error))) => {
                Poll::Ready(Some(Err(Status::from_error(error.into_inner()))))
            }
            Poll::Ready(None) => Poll::Ready(None),
            Poll::Pending => {
                let sleep = || Box::pin(tokio::time::sleep(ARRIVAL_TIMEOUT));
                ready!(self.timeout.get_or_insert_with(sleep).as_mut().poll(cx));
                Poll::Ready(Some(Err(too_late())))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// The size of a call while it is in flight.
struct CallBytes {
    own: AtomicUsize,
    of_connection: Arc<AtomicUsize>,
}

impl CallBytes {
    /// Adds to the size. Returns whether the connection may still hold it.
    fn add(&self, bytes: usize) -> bool {
        self.own.fetch_add(bytes, Ordering::Relaxed);
        let held = self.of_connection.fetch_add(bytes, Ordering::Relaxed);
        held.saturating_add(bytes) <= CONNECTION_BYTES_MAX
    }
}

impl Drop for CallBytes {
    fn drop(&mut self) {
        self.of_connection.fetch_sub(*self.own.get_mut(), Ordering::Relaxed);
    }
}

fn too_many_bytes() -> Status {
    let message = format!(
        "the calls in flight on this connection have more than {CONNECTION_BYTES_MAX} bytes; try again later"
    );
    Status::new(Code::ResourceExhausted, message)
}

fn too_late() -> Status {
    let message = format!("the message took longer than {} s", ARRIVAL_TIMEOUT.as_secs());
    Status::new(Code::DeadlineExceeded, message)
}

fn head_bytes(head: &Parts) -> usize {
    let headers = head.headers.iter();
    let headers = headers.map(|(name, value)| name.as_str().len() + value.len() + HEADER_BYTES);
    head.uri.path().len() + headers.sum::<usize>()
}

//! The services as they are served on connections, and the bounds of what callers make the server hold: a call that does not
//! arrive is ended, and one connection holds a few megabytes at most, however many calls it begins.

use std::convert::Infallible;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::body::Body;
use axum::http::request::Parts;
use axum::http::{Request, Response};
use axum::{BoxError, Router};
use futures_util::StreamExt as _;
use request::body::with_timeout;
use tonic::{Code, Status};
use tower::ServiceExt as _;

/// Limits how long a call may take until its answer begins: for its message to arrive, and for the decision.
const CALL_TIMEOUT: Duration = Duration::from_secs(30);
/// Limits the size of the calls in flight of a connection: their heads, and what has arrived of their messages. A connection has
/// room for a hundred calls about requests with the largest heads that Envoy accepts, 60 KiB: otherwise such clients would make
/// the calls of others fail.
const CONNECTION_BYTES_MAX: usize = 8 * 1024 * 1024;
/// What a header needs besides its name and value, as HTTP/2 counts it.
const HEADER_BYTES: usize = 32;

/// The services, for the calls of one connection.
#[derive(Clone)]
pub struct GrpcService {
    router: Router,
    /// The size of the calls in flight.
    held: Arc<AtomicUsize>,
}

impl GrpcService {
    pub(crate) fn new(router: Router) -> Self {
        Self { router, held: Arc::default() }
    }

    /// Returns the services for another connection.
    pub fn for_connection(&self) -> Self {
        Self::new(self.router.clone())
    }

    /// Answers a call.
    pub async fn answer(self, request: Request<Body>) -> Response<Body> {
        let (head, body) = request.into_parts();
        let call = CallBytes { own: AtomicUsize::new(0), of_connection: self.held };
        let call = Arc::new(call);
        if !call.add(head_bytes(&head)) {
            return too_many_bytes().into_http();
        }
        let arriving = call.clone();
        let body = body.into_data_stream().map(move |chunk| {
            let chunk = chunk.map_err(axum::Error::into_inner)?;
            if arriving.add(chunk.len()) {
                Ok(chunk)
            } else {
                Err(BoxError::from(too_many_bytes()))
            }
        });
        let request = Request::from_parts(head, Body::from_stream(body));
        let answer = with_timeout(CALL_TIMEOUT, pin!(self.router.oneshot(request))).await;
        drop(call);
        match answer {
            Some(Ok::<_, Infallible>(answer)) => answer,
            None => {
                let message = format!("the call took longer than {} s", CALL_TIMEOUT.as_secs());
                Status::new(Code::DeadlineExceeded, message).into_http()
            }
        }
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

fn head_bytes(head: &Parts) -> usize {
    let headers = head.headers.iter();
    let headers = headers.map(|(name, value)| name.as_str().len() + value.len() + HEADER_BYTES);
    head.uri.path().len() + headers.sum::<usize>()
}

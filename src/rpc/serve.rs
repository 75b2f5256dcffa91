//! The one straight line that every request walks: authenticate, read, decode, run, reply.

use std::future::poll_fn;
use std::net::SocketAddr;
use std::panic::AssertUnwindSafe;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use axum::body::Body;
use axum::http::header::{AUTHORIZATION, CONTENT_LENGTH, CONTENT_TYPE, USER_AGENT};
use axum::http::{HeaderMap, Request, Response};
use bytes::Bytes;
use futures_util::FutureExt as _;
use http_body_util::{BodyExt as _, LengthLimitError, Limited};

use super::decode::{self, decode};
use super::{Operation, reply};
use crate::app::App;
use crate::domain::caller::{Caller, Origin};
use crate::domain::root_keys;
use crate::error::{Error, Fault, Result, Unknown};
use crate::id::RequestId;

/// How long a body may take to arrive.
const BODY_SECONDS: u64 = 30;
/// How long an operation may take.
const RUN_TIMEOUT: Duration = Duration::from_secs(10);
/// As much of a user agent as the audit log keeps.
const USER_AGENT_MAX: usize = 512;

/// Where a connection comes from; the server puts it into each request.
#[derive(Debug, Clone, Copy)]
pub struct Peer(pub SocketAddr);

/// Answers one request of an operation.
pub async fn serve<O: Operation>(app: Arc<App>, request: Request<Body>) -> Response<Body> {
    let request_id = RequestId::random();
    // A panic is our fault and ends this request, not those that share its connection.
    let answer = pin!(answer::<O>(&app, request));
    let answered = AssertUnwindSafe(answer).catch_unwind().await;
    let answered =
        answered.unwrap_or_else(|_| Err(Error::Internal("the operation panicked".into())));
    match answered {
        Ok(data) => reply::success(&request_id, &data),
        Err(error) => {
            if error.code().status() >= 500 {
                tracing::error!(
                    operation = O::NAME, request.id = %request_id, error = %error,
                    "{} failed: {error}", O::NAME
                );
            }
            reply::failure(&app.settings.docs_url, &request_id, &error)
        }
    }
}

async fn answer<O: Operation>(app: &App, request: Request<Body>) -> Result<O::Reply> {
    let (head, body) = request.into_parts();
    let authority = root_keys::authenticate(app, bearer(&head.headers)?).await?;
    let origin = match O::WRITES {
        true => origin(&head.headers, head.extensions.get::<Peer>()),
        false => Origin::default(),
    };
    is_json(&head.headers)?;
    let body = read(&head.headers, body, O::BODY_MAX_BYTES).await?;
    let request: O = decode(&body)?;
    let caller = Caller { authority, origin };
    // Counters have a limit of their own, so this is the database's.
    within(RUN_TIMEOUT, pin!(request.run(app, &caller)))
        .await
        .unwrap_or(Err(Error::StoreTimeout(RUN_TIMEOUT.as_secs())))
}

/// The future's outcome, unless it takes longer. One that is ready at once, as most are, costs no
/// timer.
async fn within<F: Future>(limit: Duration, mut future: Pin<&mut F>) -> Option<F::Output> {
    let at_once = poll_fn(|cx| Poll::Ready(future.as_mut().poll(cx))).await;
    match at_once {
        Poll::Ready(outcome) => Some(outcome),
        Poll::Pending => tokio::time::timeout(limit, future).await.ok(),
    }
}

/// The token of `Authorization: Bearer <token>`; the scheme is written so and not otherwise.
fn bearer(headers: &HeaderMap) -> Result<&str> {
    let header = headers.get(AUTHORIZATION).ok_or(Error::Unauthenticated(Unknown::Missing))?;
    let token = header.to_str().ok().and_then(|text| text.strip_prefix("Bearer "));
    token
        .map(str::trim)
        .filter(|token| !token.is_empty() && !token.contains(' '))
        .ok_or(Error::Unauthenticated(Unknown::Malformed))
}

fn origin(headers: &HeaderMap, peer: Option<&Peer>) -> Origin {
    let user_agent = headers.get(USER_AGENT).and_then(|value| value.to_str().ok());
    Origin {
        address: peer.map(|peer| peer.0.ip().to_string()),
        user_agent: user_agent.map(|text| text.chars().take(USER_AGENT_MAX).collect()),
    }
}

fn is_json(headers: &HeaderMap) -> Result<()> {
    let media_type = headers
        .get(CONTENT_TYPE)
        .and_then(|value| value.to_str().ok())
        .map(|text| text.split(';').next().unwrap_or_default().trim());
    match media_type {
        Some(name) if name.eq_ignore_ascii_case("application/json") => Ok(()),
        _ => Err(Error::Invalid(vec![Fault {
            location: decode::BODY.into(),
            message: "the Content-Type header must be application/json".into(),
            fix: Some("send `Content-Type: application/json`"),
        }])),
    }
}

async fn read(headers: &HeaderMap, body: Body, max_bytes: usize) -> Result<Bytes> {
    let too_large = || Error::BodyTooLarge(max_bytes);
    let announced = headers.get(CONTENT_LENGTH).and_then(|value| value.to_str().ok());
    if announced.and_then(|text| text.parse().ok()).is_some_and(|bytes: usize| bytes > max_bytes) {
        return Err(too_large());
    }
    let whole = Limited::new(body, max_bytes).collect();
    match within(Duration::from_secs(BODY_SECONDS), pin!(whole)).await {
        Some(Ok(body)) => Ok(body.to_bytes()),
        Some(Err(e)) if e.is::<LengthLimitError>() => Err(too_large()),
        Some(Err(_)) => Err(Error::invalid(decode::BODY, "the body could not be read to its end")),
        None => Err(Error::BodyTimeout(BODY_SECONDS)),
    }
}

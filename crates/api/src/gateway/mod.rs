//! `ANY /gateway/{policy}`: judges the requests of a gateway, as gateways ask for it over HTTP.

mod assertion;
mod identity_headers;
mod original_request;
mod outcome;
mod preview;

use std::panic::AssertUnwindSafe;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, HttpBody as _};
use axum::http::header::{CONNECTION, CONTENT_TYPE};
use axum::http::request::Parts;
use axum::http::{HeaderName, HeaderValue, Request, Response, StatusCode, Version};
use domain::app::App;
use domain::caller::{Cached, Caller, ClientInfo};
use domain::gateways::{self, ActivePolicy, GatewayIdentity};
use foundation::error::{Error, Result};
use foundation::id::RequestId;
use foundation::traces;
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use request::address;
use request::body::{discard_body_within, with_timeout};

use crate::{Endpoint, ReplyFuture};
use assertion::AssertionSigner;
use identity_headers::NO_STORE;
use original_request::rest_of;
pub use original_request::{
    ForwardedRequest, bearer_token, cookie, non_empty, path_of, query_of, query_parameter,
};
pub use outcome::{ExceededLimit, FailureBody, GatewayAnswer, Header, retry_after, retry_at};
use outcome::{answer_decision, answer_error, answer_stray_slash};
pub use preview::{AnswerPreview, preview};

/// The path of the endpoint, without the policy.
pub const PREFIX: &str = "/gateway/";
/// The header with which a gateway proves itself.
pub static SECRET_HEADER: HeaderName = HeaderName::from_static("keyward-gateway-secret");
/// Names the status that a gateway which knows only 401 and 403 shall answer.
const STATUS_HEADER: HeaderName = HeaderName::from_static("keyward-status");
/// The maximum time of a decision.
const TIMEOUT: Duration = Duration::from_secs(10);
/// How long a body may arrive after the decision.
const BODY_TIMEOUT: Duration = Duration::from_millis(500);

/// How a gateway expects refusals.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum AnswerMode {
    /// With the status that the client shall get.
    Plain,
    /// With 401 and 403 alone and without bodies, as `auth_request` of nginx. It reads no body, and closes a connection that
    /// has one.
    Nginx,
}

/// Judges one request of a gateway.
pub fn handle_request(endpoint: Arc<Endpoint>, request: Request<Body>) -> ReplyFuture {
    Box::pin(handle(endpoint, request))
}

async fn handle(endpoint: Arc<Endpoint>, request: Request<Body>) -> Response<Body> {
    let app = &*endpoint.app;
    let request_id = RequestId::new(app.context.clock.now());
    traces::request_id(&request_id);
    let (head, body) = request.into_parts();
    let (named, rest) = split_path(&head);
    let mode = answer_mode(&head, rest);
    let answer = pin!(answer(app, &head, named, rest, request_id));
    let mut response = to_response(answer_within_bounds(answer, &request_id).await, mode);
    if !body.is_end_stream() && !discard_body(body, mode).await && head.version <= Version::HTTP_11
    {
        // Otherwise the gateway would send its next request into a connection that is about to be closed.
        response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    }
    endpoint.requests.record_status(response.status().as_u16());
    response
}

/// Discards the body of a request, which a decision does not need. Returns whether it has ended.
///
/// nginx announces the body of its client unless it is told otherwise, and never sends it.
async fn discard_body(body: Body, mode: AnswerMode) -> bool {
    match mode {
        AnswerMode::Plain => discard_body_within(BODY_TIMEOUT, body).await,
        AnswerMode::Nginx => false,
    }
}

/// Builds the answer, also if it takes too long or panics.
pub async fn answer_within_bounds(
    answer: Pin<&mut impl Future<Output = Result<GatewayAnswer>>>,
    request_id: &RequestId,
) -> GatewayAnswer {
    within_bounds(answer).await.unwrap_or_else(|error| failed(None, &error, request_id))
}

/// Completes within the time of a decision. A panic is an error of one request. The decision is pinned by the caller: it is
/// large, and would be copied here.
pub async fn within_bounds<T>(decision: Pin<&mut impl Future<Output = Result<T>>>) -> Result<T> {
    let decision = with_timeout(TIMEOUT, pin!(AssertUnwindSafe(decision).catch_unwind())).await;
    let decision = decision.unwrap_or(Ok(Err(Error::StoreTimeout(TIMEOUT.as_secs()))));
    decision.unwrap_or_else(|_| Err(Error::Internal("the decision panicked".into())))
}

/// Returns the policy that a path names, and the rest of the path with the query.
fn split_path(head: &Parts) -> (&str, Option<&str>) {
    let named = head.uri.path().strip_prefix(PREFIX).unwrap_or_default();
    let named = named.split('/').next().unwrap_or_default();
    (named, rest_of(&head.uri, PREFIX.len() + named.len()))
}

/// Below the policy's own path, the query is that of the client.
fn answer_mode(head: &Parts, rest: Option<&str>) -> AnswerMode {
    let query = head.uri.query().filter(|_| rest.is_none()).unwrap_or_default();
    match query_parameter(query, "mode").as_deref() {
        Some("nginx") => AnswerMode::Nginx,
        _ => AnswerMode::Plain,
    }
}

async fn answer(
    app: &App,
    head: &Parts,
    named: &str,
    rest: Option<&str>,
    request_id: RequestId,
) -> Result<GatewayAnswer> {
    let gateway = GatewayIdentity {
        policy: Some(named),
        secret: non_empty_secret(head.headers.get(&SECRET_HEADER).map(HeaderValue::as_bytes)),
        peer: address::peer(),
    };
    let policy = gateways::authenticate(&app.gateways, &gateway).await?;
    let trusted = app.context.settings.trusted_proxies.as_ref();
    let address = address::client_address(trusted, &head.headers);
    let request = ForwardedRequest::parse(head, rest);
    if request.has_stray_slash() {
        tracing::warn!(
            policy = %policy.value.policy.id, request.id = %request_id,
            "a gateway asks with a slash after the name of its policy, and tells another path in a header"
        );
        return Ok(answer_stray_slash(&policy.value, &request_id));
    }
    Ok(judge(app, &policy, &request, ClientInfo { address, user_agent: None }, request_id).await)
}

/// Returns the secret of a gateway. An empty one, as of a variable that is not set, is none.
pub fn non_empty_secret(secret: Option<&[u8]>) -> Option<&[u8]> {
    secret.filter(|secret| !secret.is_empty())
}

/// Judges a request by a policy whose gateway is authenticated.
///
/// The future is boxed: it is large, and is compiled here alone, for every protocol.
pub fn judge<'a>(
    app: &'a App,
    policy: &'a Arc<Cached<ActivePolicy>>,
    request: &'a (dyn gateways::OriginalRequest + Sync),
    client: ClientInfo,
    request_id: RequestId,
) -> BoxFuture<'a, GatewayAnswer> {
    Box::pin(judge_request(app, policy, request, client, request_id))
}

async fn judge_request(
    app: &App,
    policy: &Arc<Cached<ActivePolicy>>,
    request: &(dyn gateways::OriginalRequest + Sync),
    client: ClientInfo,
    request_id: RequestId,
) -> GatewayAnswer {
    let caller = Caller {
        principal: policy.value.principal.clone(),
        client,
        idempotency_key: None,
        form_submission: None,
        request_id,
        skips_analytics: false,
        undone_entry_id: None,
    };
    traces::workspace(caller.workspace_id());
    let answer = decide(app, &caller, &policy.value, request).await;
    answer.unwrap_or_else(|error| failed(Some(&policy.value), &error, &request_id))
}

async fn decide(
    app: &App,
    caller: &Caller,
    policy: &ActivePolicy,
    request: &(dyn gateways::OriginalRequest + Sync),
) -> Result<GatewayAnswer> {
    let signer = AssertionSigner::for_policy(app, policy).await?;
    let decision = gateways::decide(&app.keys, caller, policy, request).await?;
    let format = app.context.settings.ratelimit_headers.for_gateways();
    let now = app.context.clock.now();
    Ok(answer_decision(policy, &decision, &caller.request_id, now, format, signer.as_ref()))
}

/// Logs an error and builds its answer.
fn failed(policy: Option<&ActivePolicy>, error: &Error, request_id: &RequestId) -> GatewayAnswer {
    traces::outcome(error.code().name());
    if error.code().status() >= 500 {
        tracing::error!(request.id = %request_id, error = %error, "the gateway failed: {error}");
    } else if let Some(policy) = policy {
        tracing::warn!(
            policy = %policy.policy.id, request.id = %request_id,
            "a request cannot be judged by the gateway policy: {error}"
        );
    }
    answer_error(policy, error, request_id)
}

fn to_response(answer: GatewayAnswer, mode: AnswerMode) -> Response<Body> {
    let GatewayAnswer { status, identity_headers, headers, body } = answer;
    let mut response = Response::new(Body::empty());
    *response.headers_mut() = identity_headers;
    if let Some(body) = body.filter(|_| mode == AnswerMode::Plain) {
        let media_type = HeaderValue::from_static(body.media_type);
        response.headers_mut().insert(CONTENT_TYPE, media_type);
        *response.body_mut() = Body::from(body.text);
    }
    let is_mapped = mode == AnswerMode::Nginx && status == 429;
    let code = StatusCode::from_u16(if is_mapped { 403 } else { status });
    *response.status_mut() = code.unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let fields = response.headers_mut();
    for (name, value) in headers {
        // Values are built from valid characters alone.
        if let Ok(value) = HeaderValue::try_from(value) {
            fields.insert(name, value);
        }
    }
    if is_mapped {
        fields.insert(STATUS_HEADER, HeaderValue::from(status));
    }
    let (name, value) = NO_STORE;
    fields.insert(name, value);
    response
}

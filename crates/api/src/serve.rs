//! The pipeline that handles every request: authenticate, read, decode, run, reply.

use std::panic::AssertUnwindSafe;
use std::pin::pin;
use std::sync::Arc;

use axum::body::Body;
use axum::http::header::CONTENT_TYPE;
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, Request, Response, StatusCode};
use domain::app::App;
use domain::caller::{Cached, Caller, ClientInfo, Principal};
use domain::idempotency_key::IdempotencyKey;
use domain::root_keys;
use foundation::clock::Stopwatch;
use foundation::error::{Error, FieldError, Result};
use foundation::id::RequestId;
use foundation::traces;
use futures_util::FutureExt as _;
use request::body::{discard_body, read, with_timeout};
use request::{address, user_agent};

use super::decode::{self, decode};
use super::{AccessRule, Endpoint, HttpMethod, Operation, Version, query, reply};

/// The header that, with the value `disabled`, suppresses the analytics event if the operation allows it.
const METRICS_HEADER: &str = "x-unkey-metrics";
/// The header with the client's idempotency key, under which it may safely resend a request.
const IDEMPOTENCY_KEY_HEADER: &str = "idempotency-key";
const IDEMPOTENCY_KEY_LENGTH_MAX: usize = 255;

/// Handles one request of an operation.
pub async fn handle_request<V: Version, O: Operation>(
    endpoint: Arc<Endpoint>,
    request: Request<Body>,
) -> Response<Body> {
    let app = &*endpoint.app;
    let stopwatch = V::REPORTS_LATENCY.then(Stopwatch::new);
    let request_id = RequestId::new(app.context.clock.now());
    traces::request_id(&request_id);
    // A panic is a server error. It must end only this request, not the others on the same connection.
    let (head, body) = request.into_parts();
    let answer = pin!(run_operation::<V, O>(app, request_id, &head, body));
    let result = AssertUnwindSafe(answer).catch_unwind().await;
    let result = result.unwrap_or_else(|_| Err(Error::Internal("the operation panicked".into())));
    let mut response = match result {
        Ok(data) => V::render_success(&request_id, &data),
        Err(error) => {
            traces::outcome(error.code().name());
            if error.code().status() >= 500 {
                tracing::error!(
                    operation = O::NAME, request.id = %request_id, error = %error,
                    "{} failed: {error}", O::NAME
                );
            }
            let media_type = if O::USES_PROBLEM_JSON {
                reply::PROBLEM_JSON_MEDIA_TYPE
            } else {
                reply::JSON_MEDIA_TYPE
            };
            V::render_error(&app.context.settings.docs_url, &request_id, &error, media_type)
        }
    };
    if V::is_pretty(head.uri.query()) {
        response = reply::indent_body(response).await;
    }
    if O::STATUS != 200 && response.status() == StatusCode::OK {
        *response.status_mut() = StatusCode::from_u16(O::STATUS).unwrap_or(StatusCode::OK);
    }
    V::add_common_headers(&mut response, &request_id, stopwatch.map(|since| since.elapsed()));
    endpoint.requests.record_status(response.status().as_u16());
    response
}

async fn run_operation<V: Version, O: Operation>(
    app: &App,
    request_id: RequestId,
    head: &Parts,
    body: Body,
) -> Result<O::Reply> {
    let (bearer, principal) = match O::ACCESS {
        AccessRule::NoRootKey => (&[][..], app.root_keys.anonymous.clone()),
        AccessRule::Permission(_) | AccessRule::HiddenUnlessPermitted(_) => {
            match authenticate::<V>(app, head).await {
                Ok(authenticated) => authenticated,
                Err(error) => {
                    discard_body(body).await;
                    return Err(error);
                }
            }
        }
    };
    traces::workspace(&principal.value.workspace_id);
    let trusted = app.context.settings.trusted_proxies.as_ref();
    let address = address::client_address(trusted, &head.headers);
    let user_agent = if O::MAY_WRITE { user_agent(&head.headers) } else { None };
    let client = ClientInfo { address, user_agent };
    let body = match O::METHOD {
        HttpMethod::Get => query::body_from_query::<O>(head.uri.query().unwrap_or_default()),
        HttpMethod::Post => {
            require_json(&head.headers)?;
            read(body, O::BODY_MAX_BYTES).await?
        }
    };
    let request: O = decode::<V, O>(&body)?;
    let idempotency_key = match O::ACCEPTS_IDEMPOTENCY_KEY {
        true => parse_idempotency_key(&head.headers, bearer, O::NAME, &body)?,
        false => None,
    };
    let is_unrecorded = O::CAN_SKIP_EVENTS
        && head.headers.get(METRICS_HEADER).is_some_and(|value| value == "disabled");
    let caller = Caller {
        principal,
        client,
        idempotency_key,
        request_id,
        skips_analytics: is_unrecorded,
        undone_entry_id: None,
    };
    // Redis calls have their own, shorter deadline, so this timeout means that the database was too slow.
    with_timeout(O::TIMEOUT, pin!(request.run(app, &caller)))
        .await
        .unwrap_or(Err(Error::StoreTimeout(O::TIMEOUT.as_secs())))
}

async fn authenticate<'a, V: Version>(
    app: &App,
    head: &'a Parts,
) -> Result<(&'a [u8], Arc<Cached<Principal>>)> {
    let bearer = V::parse_bearer(&head.headers)?;
    Ok((bearer, root_keys::authenticate(&app.root_keys, bearer).await?))
}

/// Parses the `Idempotency-Key` header. Returns `None` if the request has none.
fn parse_idempotency_key(
    headers: &HeaderMap,
    bearer: &[u8],
    operation: &str,
    body: &[u8],
) -> Result<Option<Arc<IdempotencyKey>>> {
    let Some(name) = headers.get(IDEMPOTENCY_KEY_HEADER).map(HeaderValue::as_bytes) else {
        return Ok(None);
    };
    let is_valid = (1..=IDEMPOTENCY_KEY_LENGTH_MAX).contains(&name.len())
        && name.iter().all(|byte| byte.is_ascii_graphic() || *byte == b' ');
    if !is_valid {
        let message = format!(
            "the Idempotency-Key header must have 1 to {IDEMPOTENCY_KEY_LENGTH_MAX} printable ASCII characters"
        );
        return Err(Error::invalid(IDEMPOTENCY_KEY_HEADER, message));
    }
    Ok(Some(Arc::new(IdempotencyKey::new(name, bearer, operation, body))))
}

fn require_json(headers: &HeaderMap) -> Result<()> {
    let value = headers.get(CONTENT_TYPE).map_or(&[][..], HeaderValue::as_bytes);
    let media_type = value.split(|byte| *byte == b';').next().unwrap_or_default().trim_ascii();
    let is_json = |name: &[u8]| {
        name.eq_ignore_ascii_case(b"json") || name.to_ascii_lowercase().ends_with(b"+json")
    };
    match media_type.split_at_checked(b"application/".len()) {
        Some((kind, name)) if kind.eq_ignore_ascii_case(b"application/") && is_json(name) => Ok(()),
        _ => Err(Error::Invalid(vec![FieldError {
            location: decode::BODY_LOCATION.into(),
            message: "the Content-Type header must be application/json".into(),
            fix: Some("send `Content-Type: application/json`"),
        }])),
    }
}

//! The pipeline that handles every request: authenticate, read, decode, run, reply.

use std::borrow::Cow;
use std::panic::AssertUnwindSafe;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::http::header::{CONTENT_ENCODING, CONTENT_TYPE};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, Request, Response, StatusCode};
use bytes::Bytes;
use domain::app::App;
use domain::caller::{Cached, Caller, ClientInfo, Principal};
use domain::idempotency_key::IdempotencyKey;
use domain::root_keys;
use foundation::clock::Stopwatch;
use foundation::config::RatelimitHeaders;
use foundation::error::{Error, FieldError, Result};
use foundation::id::RequestId;
use foundation::traces;
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use request::body::{discard_body, read, with_timeout};
use request::{address, user_agent};
use serde_json::Value;

use super::decode::{self, decode};
use super::reply::Reply as _;
use super::{
    AccessRule, BodyEncoding, Endpoint, HttpMethod, Operation, Version, form, query, reply,
};

/// The header that, with the value `disabled`, suppresses the analytics event if the operation allows it.
const METRICS_HEADER: &str = "x-unkey-metrics";
/// The header with the client's idempotency key, under which it may safely resend a request.
const IDEMPOTENCY_KEY_HEADER: &str = "idempotency-key";
const IDEMPOTENCY_KEY_LENGTH_MAX: usize = 255;

type ResponseFuture<'a> = BoxFuture<'a, Result<Response<Body>>>;

/// An operation as the pipeline sees it. The pipeline is compiled once for each version; what depends on the types of
/// an operation is compiled for each.
#[expect(clippy::struct_excessive_bools, reason = "independent constants of the operation")]
pub struct ServedOperation {
    name: &'static str,
    method: HttpMethod,
    status: u16,
    requires_root_key: bool,
    may_write: bool,
    accepts_idempotency_key: bool,
    can_skip_events: bool,
    body_max_bytes: usize,
    timeout: Duration,
    uses_problem_json: bool,
    request_schema: fn() -> Arc<Value>,
    decode: fn(&[u8]) -> Result<()>,
    run: for<'a> fn(&'a App, Caller, Bytes) -> ResponseFuture<'a>,
}

impl ServedOperation {
    pub const fn new<V: Version, O: Operation>() -> Self {
        Self {
            name: O::NAME,
            method: O::METHOD,
            status: O::STATUS,
            requires_root_key: !matches!(O::ACCESS, AccessRule::NoRootKey),
            may_write: O::MAY_WRITE,
            accepts_idempotency_key: O::ACCEPTS_IDEMPOTENCY_KEY,
            can_skip_events: O::CAN_SKIP_EVENTS,
            body_max_bytes: O::BODY_MAX_BYTES,
            timeout: O::TIMEOUT,
            uses_problem_json: O::USES_PROBLEM_JSON,
            request_schema: decode::cached_schema::<O>,
            decode: |body| decode::<V, O>(body).map(drop),
            run: |app, caller, body| Box::pin(run::<V, O>(app, caller, body)),
        }
    }

    /// Validates a body without running the operation.
    pub fn validate(&self, body: &[u8]) -> Result<()> {
        self.require_size(body)?;
        (self.decode)(body)
    }

    /// Runs the operation for a caller in this process.
    pub async fn run_for(&self, app: &App, caller: Caller, body: Bytes) -> Result<Response<Body>> {
        self.require_size(&body)?;
        self.run_with_timeout(app, caller, body).await
    }

    fn require_size(&self, body: &[u8]) -> Result<()> {
        match body.len() > self.body_max_bytes {
            true => Err(Error::BodyTooLarge(self.body_max_bytes)),
            false => Ok(()),
        }
    }

    async fn run_with_timeout(
        &self,
        app: &App,
        caller: Caller,
        body: Bytes,
    ) -> Result<Response<Body>> {
        // Redis calls have their own, shorter deadline, so this timeout means that the database was too slow.
        with_timeout(self.timeout, pin!((self.run)(app, caller, body)))
            .await
            .unwrap_or(Err(Error::StoreTimeout(self.timeout.as_secs())))
    }
}

/// A request whose root key is authenticated and whose body is read, but not decoded.
struct AuthenticatedRequest<'a> {
    operation: &'static ServedOperation,
    app: &'a App,
    id: RequestId,
    head: &'a Parts,
    body: &'a [u8],
    root_key: Cow<'a, [u8]>,
    principal: Arc<Cached<Principal>>,
}

/// Handles one request of an operation.
pub async fn handle_request<V: Version>(
    operation: &'static ServedOperation,
    endpoint: Arc<Endpoint>,
    request: Request<Body>,
) -> Response<Body> {
    let app = &*endpoint.app;
    let stopwatch = V::REPORTS_LATENCY.then(Stopwatch::new);
    let request_id = RequestId::new(app.context.clock.now());
    traces::request_id(&request_id);
    // A panic is a server error. It must end only this request, not the others on the same connection.
    let (head, body) = request.into_parts();
    let answer = pin!(run_operation::<V>(operation, app, request_id, &head, body));
    let result = AssertUnwindSafe(answer).catch_unwind().await;
    let result = result.unwrap_or_else(|_| Err(Error::Internal("the operation panicked".into())));
    let mut response = result.unwrap_or_else(|error| {
        traces::outcome(error.code().name());
        if error.code().status() >= 500 {
            let name = operation.name;
            tracing::error!(
                operation = name, request.id = %request_id, error = %error,
                "{name} failed: {error}"
            );
        }
        let media_type = if operation.uses_problem_json || error.code().status() == 429 {
            reply::PROBLEM_JSON_MEDIA_TYPE
        } else {
            reply::JSON_MEDIA_TYPE
        };
        V::render_error(&app.context.settings.docs_url, &request_id, &error, media_type)
    });
    if V::is_pretty(head.uri.query()) {
        response = reply::indent_body(response).await;
    }
    if operation.status != 200 && response.status() == StatusCode::OK {
        *response.status_mut() = StatusCode::from_u16(operation.status).unwrap_or(StatusCode::OK);
    }
    V::add_common_headers(&mut response, &request_id, stopwatch.map(|since| since.elapsed()));
    endpoint.requests.record_status(response.status().as_u16());
    response
}

async fn run_operation<V: Version>(
    operation: &'static ServedOperation,
    app: &App,
    id: RequestId,
    head: &Parts,
    body: Body,
) -> Result<Response<Body>> {
    let (root_key, principal) = if operation.requires_root_key {
        match authenticate::<V>(app, head).await {
            Ok(authenticated) => authenticated,
            Err(error) => {
                discard_body(body).await;
                return Err(error);
            }
        }
    } else {
        (Cow::Borrowed(&[][..]), app.root_keys.anonymous.clone())
    };
    traces::workspace(&principal.value.workspace_id);
    let body = match operation.method {
        HttpMethod::Get => query::body_from_query(
            &(operation.request_schema)(),
            head.uri.query().unwrap_or_default(),
        ),
        HttpMethod::Post => {
            let checked = require_media_type(&head.headers, V::BODY_ENCODING)
                .and_then(|()| require_uncompressed(&head.headers));
            if let Err(error) = checked {
                discard_body(body).await;
                return Err(error);
            }
            let body = read(body, operation.body_max_bytes).await?;
            match V::BODY_ENCODING {
                BodyEncoding::Json => body,
                BodyEncoding::Form => form::body_from_form(&(operation.request_schema)(), &body)?,
            }
        }
    };
    let request =
        AuthenticatedRequest { operation, app, id, head, body: &body, root_key, principal };
    let caller = request.into_caller()?;
    operation.run_with_timeout(app, caller, body).await
}

/// Decodes a request, runs its operation and renders the reply.
async fn run<V: Version, O: Operation>(
    app: &App,
    caller: Caller,
    body: Bytes,
) -> Result<Response<Body>> {
    let decoded: O = decode::<V, O>(&body)?;
    drop(body);
    let reply = decoded.run(app, &caller).await?;
    let mut response = V::render_success(&caller.request_id, &reply);
    let format = app.context.settings.ratelimit_headers;
    if format != RatelimitHeaders::Off {
        reply.add_ratelimit_headers(response.headers_mut(), format, app.context.clock.now());
    }
    Ok(response)
}

impl AuthenticatedRequest<'_> {
    fn into_caller(self) -> Result<Caller> {
        let Self { operation, app, id, head, body, root_key, principal } = self;
        let idempotency_key = match operation.accepts_idempotency_key {
            true => parse_idempotency_key(&head.headers, &root_key, operation.name, body)?,
            false => None,
        };
        let trusted = app.context.settings.trusted_proxies.as_ref();
        let address = address::client_address(trusted, &head.headers);
        let user_agent = if operation.may_write { user_agent(&head.headers) } else { None };
        let skips_analytics = operation.can_skip_events
            && head.headers.get(METRICS_HEADER).is_some_and(|value| value == "disabled");
        Ok(Caller {
            principal,
            client: ClientInfo { address, user_agent },
            idempotency_key,
            form_submission: None,
            request_id: id,
            skips_analytics,
            undone_entry_id: None,
        })
    }
}

async fn authenticate<'a, V: Version>(
    app: &App,
    head: &'a Parts,
) -> Result<(Cow<'a, [u8]>, Arc<Cached<Principal>>)> {
    let root_key = V::parse_root_key(&head.headers)?;
    let principal = root_keys::authenticate(&app.root_keys, &root_key).await?;
    Ok((root_key, principal))
}

/// Parses the `Idempotency-Key` header. Returns `None` if the request has none.
fn parse_idempotency_key(
    headers: &HeaderMap,
    root_key: &[u8],
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
    Ok(Some(Arc::new(IdempotencyKey::new(name, root_key, operation, body))))
}

fn require_media_type(headers: &HeaderMap, encoding: BodyEncoding) -> Result<()> {
    let value = headers.get(CONTENT_TYPE).map_or(&[][..], HeaderValue::as_bytes);
    let media_type = value.split(|byte| *byte == b';').next().unwrap_or_default().trim_ascii();
    let (is_right, message, fix) = match encoding {
        BodyEncoding::Json => (
            is_json(media_type),
            "the Content-Type header must be application/json",
            "send `Content-Type: application/json`",
        ),
        BodyEncoding::Form => (
            media_type.eq_ignore_ascii_case(encoding.media_type().as_bytes()),
            "the Content-Type header must be application/x-www-form-urlencoded",
            "send `Content-Type: application/x-www-form-urlencoded`",
        ),
    };
    match is_right {
        true => Ok(()),
        false => Err(invalid_body(message, fix)),
    }
}

fn require_uncompressed(headers: &HeaderMap) -> Result<()> {
    let values = headers.get_all(CONTENT_ENCODING).iter();
    let mut codings = values.flat_map(|value| value.as_bytes().split(|byte| *byte == b','));
    let is_identity = |coding: &[u8]| {
        let coding = coding.trim_ascii();
        coding.is_empty() || coding.eq_ignore_ascii_case(b"identity")
    };
    match codings.all(is_identity) {
        true => Ok(()),
        false => Err(invalid_body(
            "the Content-Encoding header must be missing or identity",
            "send the body without compression",
        )),
    }
}

fn invalid_body(message: &str, fix: &'static str) -> Error {
    Error::Invalid(vec![FieldError {
        location: decode::BODY_LOCATION.into(),
        message: message.into(),
        fix: Some(fix),
    }])
}

fn is_json(media_type: &[u8]) -> bool {
    let is_json = |name: &[u8]| {
        name.eq_ignore_ascii_case(b"json") || name.to_ascii_lowercase().ends_with(b"+json")
    };
    media_type
        .split_at_checked(b"application/".len())
        .is_some_and(|(kind, name)| kind.eq_ignore_ascii_case(b"application/") && is_json(name))
}

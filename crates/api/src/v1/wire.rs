//! The wire format of version 1: replies without an envelope, errors with one flat code, and a few headers that only
//! version 1 has.

use std::borrow::Cow;
use std::time::Duration;

use axum::body::Body;
use axum::http::header::{
    ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS, ACCESS_CONTROL_ALLOW_ORIGIN,
    ACCESS_CONTROL_REQUEST_HEADERS, AUTHORIZATION,
};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode};
use domain::app::App;
use foundation::error::{AuthenticationError, Code, Error, FieldError, Refusal, Result};
use foundation::id::RequestId;
use jsonschema::error::{TypeKind, ValidationErrorKind};
use jsonschema::{JsonType, ValidationError};
use serde::Serialize;
use serde_json::{Value, json};

use super::super::reply::{self, Reply, ReplyKind};
use super::super::{OperationEntry, Version, to_embedded_schema};

const REQUEST_ID_HEADER: HeaderName = HeaderName::from_static("unkey-request-id");
const LATENCY_HEADER: HeaderName = HeaderName::from_static("unkey-latency");
const VERSION_HEADER: HeaderName = HeaderName::from_static("unkey-version");
/// The response header with the name of the rate limit that rejected a verification.
pub const TRIGGERED_LIMIT_HEADER: HeaderName = HeaderName::from_static("unkey-ratelimit-triggered");
const ANY_ORIGIN: HeaderValue = HeaderValue::from_static("*");
const ALLOWED_METHODS: HeaderValue = HeaderValue::from_static("GET,HEAD,PUT,POST,DELETE,PATCH");
const KEYWARD_VERSION: HeaderValue = HeaderValue::from_static(env!("CARGO_PKG_VERSION"));

/// The maximum number of characters of an invalid enum value that an error message repeats.
const ECHOED_CHARS_MAX: usize = 64;

/// Version 1.
#[derive(Debug)]
pub struct V1;

impl Version for V1 {
    const PREFIX: &'static str = "/v1/";
    const REPORTS_LATENCY: bool = true;
    const INVALID_JSON_MESSAGE: Option<&'static str> = Some("Malformed JSON in request body");

    /// Returns whether the query string has the parameter `pretty`, with any value.
    fn is_pretty(query: Option<&str>) -> bool {
        query.is_some_and(|query| {
            form_urlencoded::parse(query.as_bytes()).any(|(name, _)| name == "pretty")
        })
    }

    /// Returns the root key. The scheme `Bearer` may be omitted, because version 1 has always allowed this.
    fn parse_root_key(headers: &HeaderMap) -> Result<Cow<'_, [u8]>> {
        let header = headers.get(AUTHORIZATION).map(|value| value.as_bytes().trim_ascii());
        let header = header.filter(|value| !value.is_empty());
        let header = header.ok_or(Error::Unauthenticated(AuthenticationError::HeaderMissing))?;
        let token = header.strip_prefix(b"Bearer ").unwrap_or(header).trim_ascii();
        match token.iter().all(u8::is_ascii_graphic) && token != b"Bearer" {
            true => Ok(Cow::Borrowed(token)),
            false => Err(Error::Unauthenticated(AuthenticationError::Malformed)),
        }
    }

    fn to_field_error(e: &ValidationError<'_>) -> FieldError {
        let mut path = e.instance_path().as_str().trim_start_matches('/').replace('/', ".");
        if let ValidationErrorKind::Required { property } = e.kind() {
            let dot = if path.is_empty() { "" } else { "." };
            path = format!("{path}{dot}{}", property.as_str().unwrap_or_default());
        }
        FieldError {
            location: path.clone(),
            message: format!("{path}: {}", field_error_text(e)),
            fix: None,
        }
    }

    fn format_field_error(path: &str, message: &str) -> String {
        format!("{path}: {message}")
    }

    fn render_success<T: Reply>(request_id: &RequestId, data: &T) -> Response<Body> {
        let mut response = reply::render_json(StatusCode::OK, &BareReply { request_id, data });
        reply::mark_if_degraded(&mut response, data);
        if let Some(name) = data.rejected_by().and_then(|name| HeaderValue::from_str(name).ok()) {
            response.headers_mut().insert(TRIGGERED_LIMIT_HEADER, name);
        }
        response
    }

    fn render_error(
        docs_url: &str,
        request_id: &RequestId,
        error: &Error,
        _: HeaderValue,
    ) -> Response<Body> {
        let (status, code) = status_and_code(error);
        let problem = V1Error {
            code,
            docs: format!("{docs_url}/errors/{}", error.code().name()),
            message: error_message(error),
            request_id: request_id.as_str(),
        };
        reply::render_error(status, error.code(), &V1ErrorBody { error: problem })
    }

    fn add_common_headers(
        response: &mut Response<Body>,
        request_id: &RequestId,
        elapsed: Option<Duration>,
    ) {
        let headers = response.headers_mut();
        headers.insert(ACCESS_CONTROL_ALLOW_ORIGIN, ANY_ORIGIN);
        headers.insert(VERSION_HEADER, KEYWARD_VERSION);
        if let Ok(id) = HeaderValue::from_str(request_id.as_str()) {
            headers.insert(REQUEST_ID_HEADER, id);
        }
        let Some(elapsed) = elapsed else { return };
        let text = format!("service={:.3}ms", elapsed.as_secs_f64() * 1000.0);
        if let Ok(text) = HeaderValue::from_str(&text) {
            headers.insert(LATENCY_HEADER, text);
        }
    }

    fn success_schema(row: &OperationEntry) -> Value {
        match row.reply_kind {
            ReplyKind::NoData => json!({ "type": "object" }),
            ReplyKind::Data | ReplyKind::Page => to_embedded_schema((row.reply)().to_value()),
        }
    }

    fn failure_schema() -> Value {
        let texts = ["code", "docs", "message", "requestId"];
        let fields = texts.map(|name| (name.to_owned(), json!({ "type": "string" })));
        json!({
            "type": "object",
            "required": ["error"],
            "properties": {
                "error": {
                    "type": "object",
                    "required": texts,
                    "properties": serde_json::Map::from_iter(fields),
                },
            },
        })
    }
}

/// Returns a 204 preflight response that allows every origin and all requested headers.
pub fn preflight_response(app: &App, request_headers: &HeaderMap) -> Response<Body> {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::NO_CONTENT;
    let headers = response.headers_mut();
    headers.insert(ACCESS_CONTROL_ALLOW_METHODS, ALLOWED_METHODS);
    if let Some(names) = request_headers.get(ACCESS_CONTROL_REQUEST_HEADERS) {
        headers.insert(ACCESS_CONTROL_ALLOW_HEADERS, names.clone());
    }
    V1::add_common_headers(&mut response, &RequestId::new(app.context.clock.now()), None);
    response
}

/// A reply without an envelope.
struct BareReply<'a, T> {
    request_id: &'a RequestId,
    data: &'a T,
}

impl<T: Reply> Reply for BareReply<'_, T> {
    fn write(&self, into: &mut Vec<u8>) -> serde_json::Result<()> {
        match T::KIND {
            ReplyKind::NoData => {
                into.extend_from_slice(b"{}");
                Ok(())
            }
            ReplyKind::Data | ReplyKind::Page => {
                self.data.write_with_request_id(self.request_id, into)
            }
        }
    }
}

#[derive(Serialize)]
struct V1ErrorBody<'a> {
    error: V1Error<'a>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct V1Error<'a> {
    code: &'static str,
    docs: String,
    message: String,
    request_id: &'a str,
}

/// Returns the status and the version 1 code of an error.
fn status_and_code(error: &Error) -> (u16, &'static str) {
    let code = error.code();
    let name = match code {
        // The request names a rate limit that does not exist, so the request is invalid.
        _ if matches!(error, Error::PreconditionFailed(Refusal::UnknownRatelimit { .. })) => {
            return (400, "BAD_REQUEST");
        }
        // Version 1 does not distinguish deleted namespaces from missing ones.
        Code::RatelimitNamespaceGone => return (404, "NOT_FOUND"),
        Code::InvalidInput
        | Code::KeyMalformed
        | Code::PermissionsQuerySyntaxError
        | Code::InvalidAnalyticsQuery
        | Code::InvalidAnalyticsTable
        | Code::InvalidAnalyticsFunction
        | Code::InvalidAnalyticsQueryType
        | Code::QueryRangeExceedsRetention
        | Code::QueryExecutionTimeout
        | Code::QueryMemoryLimitExceeded
        | Code::QueryRowsLimitExceeded
        | Code::RequestTimeout
        | Code::RequestBodyTooLarge => "BAD_REQUEST",
        Code::AuthenticationMissing
        | Code::AuthenticationMalformed
        | Code::RootKeyNotFound
        | Code::RootKeyRevoked
        | Code::RootKeyExpired => "UNAUTHORIZED",
        Code::InsufficientPermissions => "INSUFFICIENT_PERMISSIONS",
        Code::WorkspaceDisabled | Code::OperationSwitchedOff | Code::GatewayRefused => "FORBIDDEN",
        Code::NotFound
        | Code::ApiNotFound
        | Code::KeyNotFound
        | Code::IdentityNotFound
        | Code::PermissionNotFound
        | Code::RoleNotFound
        | Code::WorkspaceNotFound
        | Code::MigrationNotFound
        | Code::RatelimitNamespaceNotFound
        | Code::RatelimitOverrideNotFound
        | Code::GatewayPolicyNotFound => "NOT_FOUND",
        Code::MethodNotAllowed => "METHOD_NOT_ALLOWED",
        Code::IdentityAlreadyExists
        | Code::PermissionAlreadyExists
        | Code::RoleAlreadyExists
        | Code::RatelimitAlreadyExists
        | Code::KeyAlreadyExists
        | Code::GatewayPolicyAlreadyExists
        | Code::IdempotencyKeyInUse => "CONFLICT",
        Code::PreconditionFailed => "PRECONDITION_FAILED",
        Code::ProtectedResource => "DELETE_PROTECTED",
        Code::TooManyRequests | Code::QueryQuotaExceeded => "RATE_LIMITED",
        Code::UnexpectedError | Code::ServiceUnavailable => "INTERNAL_SERVER_ERROR",
    };
    (code.status(), name)
}

/// Returns the message of an error. If there are several field errors, only the first is reported.
fn error_message(error: &Error) -> String {
    if let Error::PreconditionFailed(Refusal::UnknownRatelimit { name, key: Some(key), identity }) =
        error
    {
        // Version 1 clients receive the ids of the key and the identity that lack the limit.
        let identity = identity.as_ref().map(|id| format!(", nor has identity {id}"));
        return format!(
            "key {key} has no ratelimit named {name}{}; send limit and duration for an ad-hoc limit",
            identity.unwrap_or_default()
        );
    }
    error
        .field_errors()
        .first()
        .map_or_else(|| error.detail(), |field_error| field_error.message.clone())
}

/// Describes a schema violation in the wording that version 1 clients expect.
fn field_error_text(e: &ValidationError<'_>) -> String {
    let schema = e.schema_path().as_str();
    match e.kind() {
        ValidationErrorKind::Required { .. } => "Required".to_owned(),
        ValidationErrorKind::MinLength { limit } => {
            format!("String must contain at least {limit} character(s)")
        }
        ValidationErrorKind::MaxLength { limit } => {
            format!("String must contain at most {limit} character(s)")
        }
        ValidationErrorKind::Minimum { limit } => {
            format!("Number must be greater than or equal to {limit}")
        }
        ValidationErrorKind::Maximum { limit } => {
            format!("Number must be less than or equal to {limit}")
        }
        ValidationErrorKind::MinItems { limit } => {
            format!("Array must contain at least {limit} element(s)")
        }
        ValidationErrorKind::MaxItems { limit } => {
            format!("Array must contain at most {limit} element(s)")
        }
        ValidationErrorKind::Enum { options } => {
            let options = options.as_array().into_iter().flatten().filter_map(Value::as_str);
            let options: Vec<_> = options.map(|option| format!("'{option}'")).collect();
            let received = match e.instance().as_ref() {
                Value::String(text) => {
                    format!("'{}'", text.chars().take(ECHOED_CHARS_MAX).collect::<String>())
                }
                other => json_type_name(other).to_owned(),
            };
            format!("Invalid enum value. Expected {}, received {received}", options.join(" | "))
        }
        ValidationErrorKind::Type { kind } => {
            let expected = match kind {
                TypeKind::Single(expected) => expected.to_string(),
                TypeKind::Multiple(several) => {
                    let first = several.iter().find(|expected| *expected != JsonType::Null);
                    first.map_or_else(String::new, |expected| expected.to_string())
                }
            };
            match (expected.as_str(), json_type_name(e.instance())) {
                ("integer", "number") => "Expected integer, received float".to_owned(),
                ("integer", received) => format!("Expected number, received {received}"),
                (expected, received) => format!("Expected {expected}, received {received}"),
            }
        }
        ValidationErrorKind::Pattern { pattern } => format!("must match {pattern}"),
        _ if schema.contains("/anyOf") => "Invalid input".to_owned(),
        _ => e.masked_with("it").to_string(),
    }
}

fn json_type_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

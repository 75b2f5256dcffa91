//! The wire format of the OAuth endpoints: forms, replies without an envelope, and the errors of RFC 6749 and RFC 6750.

use std::borrow::Cow;
use std::time::Duration;

use axum::body::Body;
use axum::http::header::WWW_AUTHENTICATE;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode};
use foundation::error::{AuthenticationError, Error, FieldError, Result};
use foundation::id::RequestId;
use jsonschema::ValidationError;
use serde::Serialize;
use serde_json::{Value, json};

use super::super::reply::{self, Reply};
use super::super::{BodyEncoding, OperationEntry, Version, to_embedded_schema, v2};
use super::root_key;

/// The response header with the id by which the server log and the dashboard find a request.
const REQUEST_ID_HEADER: HeaderName = HeaderName::from_static("keyward-request-id");
const BASIC_CHALLENGE: HeaderValue =
    HeaderValue::from_static("Basic realm=\"Keyward\", charset=\"UTF-8\"");
const BEARER_CHALLENGE: HeaderValue = HeaderValue::from_static("Bearer realm=\"Keyward\"");
const INVALID_TOKEN_CHALLENGE: HeaderValue =
    HeaderValue::from_static("Bearer realm=\"Keyward\", error=\"invalid_token\"");
const INSUFFICIENT_SCOPE_CHALLENGE: HeaderValue =
    HeaderValue::from_static("Bearer realm=\"Keyward\", error=\"insufficient_scope\"");

/// The OAuth endpoints.
#[derive(Debug)]
pub struct OAuth2;

impl Version for OAuth2 {
    const PREFIX: &'static str = "/oauth2/";
    const BODY_ENCODING: BodyEncoding = BodyEncoding::Form;
    const FAILURE_SCHEMA: &'static str = "OAuthError";
    const ACCEPTS_BASIC: bool = true;
    const ERRORS: &'static [(u16, &'static str)] = &[
        (400, "A field is missing, given twice or invalid, or the body is not a form."),
        (401, "The root key is missing, malformed, unknown, revoked or expired."),
        (403, "The root key lacks a permission; `error_description` names it."),
        (413, "The request body is too large."),
        (500, "An internal server error occurred."),
        (503, "A dependency of the server is unavailable."),
    ];

    fn parse_root_key(headers: &HeaderMap) -> Result<Cow<'_, [u8]>> {
        root_key::parse(headers)
    }

    fn to_field_error(e: &ValidationError<'_>) -> FieldError {
        v2::field_error_from_schema(e)
    }

    fn format_field_error(path: &str, message: &str) -> String {
        format!("{path} {message}")
    }

    fn render_success<T: Reply>(_: &RequestId, data: &T) -> Response<Body> {
        let mut response = reply::render_json(StatusCode::OK, data);
        reply::mark_if_degraded(&mut response, data);
        response
    }

    fn render_error(
        docs_url: &str,
        _: &RequestId,
        error: &Error,
        _: HeaderValue,
    ) -> Response<Body> {
        let code = error.code();
        let body = OAuthError {
            error: error_name(error),
            error_description: to_description(&description(error)),
            error_uri: format!("{docs_url}/errors/{}", code.name()),
        };
        let mut response = reply::render_error(code.status(), code, &body);
        for challenge in challenges(error) {
            response.headers_mut().append(WWW_AUTHENTICATE, challenge);
        }
        response
    }

    fn add_common_headers(
        response: &mut Response<Body>,
        request_id: &RequestId,
        _: Option<Duration>,
    ) {
        if let Ok(id) = HeaderValue::from_str(request_id.as_str()) {
            response.headers_mut().insert(REQUEST_ID_HEADER, id);
        }
    }

    fn success_schema(row: &OperationEntry) -> Value {
        to_embedded_schema((row.reply)().to_value())
    }

    fn failure_schema() -> Value {
        json!({
            "type": "object",
            "required": ["error", "error_description", "error_uri"],
            "properties": {
                "error": { "type": "string" },
                "error_description": { "type": "string" },
                "error_uri": { "type": "string", "format": "uri" },
            },
        })
    }
}

#[derive(Serialize)]
struct OAuthError {
    error: &'static str,
    error_description: String,
    error_uri: String,
}

/// Returns the name that OAuth has for an error.
fn error_name(error: &Error) -> &'static str {
    match error.code().status() {
        401 => "invalid_client",
        403 if matches!(error, Error::Forbidden(_)) => "insufficient_scope",
        403 => "access_denied",
        503 => "temporarily_unavailable",
        500.. => "server_error",
        _ => "invalid_request",
    }
}

/// Returns the challenges of a rejected root key: a client must find the scheme that it has used (RFC 6749, 5.2), and
/// one that has sent no credentials gets no error code (RFC 6750, 3.1).
fn challenges(error: &Error) -> Vec<HeaderValue> {
    match error {
        Error::Unauthenticated(AuthenticationError::HeaderMissing) => {
            vec![BEARER_CHALLENGE, BASIC_CHALLENGE]
        }
        Error::Unauthenticated(_) => vec![INVALID_TOKEN_CHALLENGE, BASIC_CHALLENGE],
        Error::Forbidden(_) => vec![INSUFFICIENT_SCOPE_CHALLENGE],
        _ => Vec::new(),
    }
}

fn description(error: &Error) -> String {
    match error {
        Error::Unauthenticated(
            AuthenticationError::HeaderMissing | AuthenticationError::Malformed,
        ) => {
            "the Authorization header must be Bearer with a root key, or Basic with a root key as \
            the password"
                .into()
        }
        _ => error.detail(),
    }
}

/// Replaces the characters that `error_description` must not contain (RFC 6749, 5.2).
fn to_description(text: &str) -> String {
    let allowed = |c: char| match c {
        '"' | '`' => '\'',
        '\\' => '/',
        ' '..='~' => c,
        _ => '?',
    };
    text.chars().map(allowed).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn description_has_only_allowed_characters() {
        assert_eq!(to_description("a \"b\" \\ `c` \u{e9}\n~"), "a 'b' / 'c' ??~");
    }
}

//! The wire format of version 2: replies in an envelope, and errors that list every field error.

use std::borrow::Cow;

use axum::body::Body;
use axum::http::header::{AUTHORIZATION, CONTENT_TYPE};
use axum::http::{HeaderMap, HeaderValue, Response, StatusCode};
use foundation::error::{AuthenticationError, Error, FieldError, Result};
use foundation::id::RequestId;
use jsonschema::ValidationError;
use jsonschema::error::ValidationErrorKind;
use serde::Serialize;
use serde_json::{Value, json};

use super::super::bounds::find_rule;
use super::super::decode::path_from_pointer;
use super::super::reply::{self, Pagination, Reply, ReplyKind};
use super::super::{OperationEntry, Version, generate_reply_schema, to_embedded_schema};

/// Version 2.
#[derive(Debug)]
pub struct V2;

impl Version for V2 {
    const PREFIX: &'static str = "/v2/";

    fn parse_root_key(headers: &HeaderMap) -> Result<Cow<'_, [u8]>> {
        parse_bearer_token(headers).map(Cow::Borrowed)
    }

    fn to_field_error(e: &ValidationError<'_>) -> FieldError {
        field_error_from_schema(e)
    }

    fn format_field_error(path: &str, message: &str) -> String {
        format!("{path} {message}")
    }

    fn render_success<T: Reply>(request_id: &RequestId, data: &T) -> Response<Body> {
        render_success_envelope(request_id, data)
    }

    fn render_error(
        docs_url: &str,
        request_id: &RequestId,
        error: &Error,
        media_type: HeaderValue,
    ) -> Response<Body> {
        render_error_envelope(docs_url, request_id, error, media_type)
    }

    fn success_schema(row: &OperationEntry) -> Value {
        let reply = to_embedded_schema((row.reply)().to_value());
        let mut envelope = json!({
            "type": "object",
            "required": ["meta", "data"],
            "properties": { "meta": success_meta_schema(), "data": reply },
        });
        if row.reply_kind == ReplyKind::NoData {
            envelope["required"] = json!(["meta"]);
            envelope["properties"] = json!({ "meta": success_meta_schema() });
        }
        if row.reply_kind == ReplyKind::Page {
            envelope["required"] = json!(["meta", "data", "pagination"]);
            envelope["properties"]["pagination"] =
                to_embedded_schema(generate_reply_schema::<Pagination<'_>>().to_value());
        }
        envelope
    }

    fn failure_schema() -> Value {
        error_schema()
    }
}

/// Returns the token of `Authorization: Bearer <token>`. The scheme is case-sensitive.
fn parse_bearer_token(headers: &HeaderMap) -> Result<&[u8]> {
    let header = headers
        .get(AUTHORIZATION)
        .ok_or(Error::Unauthenticated(AuthenticationError::HeaderMissing))?;
    let token = header.as_bytes().strip_prefix(b"Bearer ").map(<[u8]>::trim_ascii);
    token
        .filter(|token| !token.is_empty() && token.iter().all(u8::is_ascii_graphic))
        .ok_or(Error::Unauthenticated(AuthenticationError::Malformed))
}

/// A reply in its envelope.
struct SuccessEnvelope<'a, T> {
    request_id: &'a RequestId,
    data: &'a T,
}

impl<T: Reply> Reply for SuccessEnvelope<'_, T> {
    fn write(&self, into: &mut Vec<u8>) -> serde_json::Result<()> {
        into.extend_from_slice(br#"{"meta":{"requestId":""#);
        into.extend_from_slice(self.request_id.as_str().as_bytes());
        into.push(b'"');
        if self.data.is_degraded() {
            into.extend_from_slice(br#","degraded":true"#);
        }
        into.push(b'}');
        if T::KIND != ReplyKind::NoData {
            into.extend_from_slice(br#","data":"#);
            self.data.write(into)?;
        }
        if let Some(pagination) = self.data.pagination() {
            into.extend_from_slice(br#","pagination":"#);
            pagination.write(into)?;
        }
        into.push(b'}');
        Ok(())
    }
}

#[derive(Serialize)]
struct ErrorEnvelope<'a> {
    meta: EnvelopeMeta<'a>,
    error: ErrorBody<'a>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct EnvelopeMeta<'a> {
    request_id: &'a str,
}

#[derive(Serialize)]
struct ErrorBody<'a> {
    title: &'static str,
    detail: String,
    status: u16,
    r#type: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    errors: Option<Vec<FieldErrorBody<'a>>>,
}

#[derive(Serialize)]
struct FieldErrorBody<'a> {
    location: &'a str,
    message: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    fix: Option<&'static str>,
}

impl<'a> From<&'a FieldError> for FieldErrorBody<'a> {
    fn from(error: &'a FieldError) -> Self {
        Self { location: &error.location, message: &error.message, fix: error.fix }
    }
}

/// Builds a 200 response with the reply in an envelope.
pub fn render_success_envelope<T: Reply>(request_id: &RequestId, data: &T) -> Response<Body> {
    reply::render_json(StatusCode::OK, &SuccessEnvelope { request_id, data })
}

/// Builds an error response with the URL of the page that explains the error.
pub fn render_error_envelope(
    docs_url: &str,
    request_id: &RequestId,
    error: &Error,
    media_type: HeaderValue,
) -> Response<Body> {
    let code = error.code();
    // Clients require the list with every error about the request itself, even if it is empty.
    let has_error_list = matches!(code.status(), 400 | 408 | 413);
    let problem = ErrorBody {
        title: code.title(),
        detail: error.detail(),
        status: code.status(),
        r#type: format!("{docs_url}/errors/{}", code.name()),
        errors: has_error_list
            .then(|| error.field_errors().iter().map(FieldErrorBody::from).collect()),
    };
    let meta = EnvelopeMeta { request_id: request_id.as_str() };
    let mut response =
        reply::render_error(code.status(), code, &ErrorEnvelope { meta, error: problem });
    response.headers_mut().insert(CONTENT_TYPE, media_type);
    response
}

/// Converts a schema violation to a field error. The message names the field as the caller wrote it and does not
/// contain the value, which may be a secret.
pub fn field_error_from_schema(e: &ValidationError<'_>) -> FieldError {
    let field = path_from_pointer(e.instance_path().as_str());
    let location = without_any_of(e.schema_path().as_str());
    let within = if field.is_empty() { String::new() } else { format!(" of {field}") };
    let message = match e.kind() {
        ValidationErrorKind::Required { property } => {
            format!("{}{within} is missing", property.as_str().unwrap_or_default())
        }
        ValidationErrorKind::AdditionalProperties { unexpected } => {
            format!("{}{within} is not a field of this request", unexpected.join(", "))
        }
        ValidationErrorKind::Pattern { pattern } if !field.is_empty() => find_rule(pattern)
            .map_or_else(
                || e.masked_with(field.as_str()).to_string(),
                |rule| format!("{field} {rule}"),
            ),
        _ if field.is_empty() => e.masked_with("the body").to_string(),
        _ => e.masked_with(field.as_str()).to_string(),
    };
    FieldError { location, message, fix: None }
}

/// Removes the `anyOf` part of a schema path: the alternatives of a nullable field exist only in the schema.
fn without_any_of(path: &str) -> String {
    path.split("/anyOf").next().unwrap_or(path).to_owned()
}

fn meta_schema() -> Value {
    json!({
        "type": "object",
        "required": ["requestId"],
        "properties": { "requestId": { "type": "string" } },
    })
}

fn success_meta_schema() -> Value {
    let mut meta = meta_schema();
    meta["properties"]["degraded"] = json!({
        "type": "boolean",
        "description": "Present and true if limits were decided without the counters that all \
            replicas share, because Redis was unreachable.",
    });
    meta
}

fn error_schema() -> Value {
    json!({
        "type": "object",
        "required": ["meta", "error"],
        "properties": {
            "meta": meta_schema(),
            "error": {
                "type": "object",
                "required": ["title", "detail", "status", "type"],
                "properties": {
                    "title": { "type": "string" },
                    "detail": { "type": "string" },
                    "status": { "type": "integer" },
                    "type": { "type": "string", "format": "uri" },
                    "errors": {
                        "type": "array",
                        "items": {
                            "type": "object",
                            "required": ["location", "message"],
                            "properties": {
                                "location": { "type": "string" },
                                "message": { "type": "string" },
                                "fix": { "type": "string" },
                            },
                        },
                    },
                },
            },
        },
    })
}

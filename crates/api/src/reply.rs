//! Replies of operations, independent of the API version that renders them.

use axum::body::Body;
use axum::http::header::{CACHE_CONTROL, CONNECTION, CONTENT_TYPE, RETRY_AFTER};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode};
use domain::page::Page;
use foundation::clock::Timestamp;
use foundation::config::RatelimitHeaders;
use foundation::error::Code;
use foundation::id::RequestId;
use http_body_util::{BodyExt as _, Collected};
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::Serialize;

/// The initial buffer size; a typical reply fits.
const REPLY_CAPACITY_BYTES: usize = 512;
/// The media type of nearly all responses.
pub const JSON_MEDIA_TYPE: HeaderValue = HeaderValue::from_static("application/json");
/// The media type of some errors.
pub const PROBLEM_JSON_MEDIA_TYPE: HeaderValue =
    HeaderValue::from_static("application/problem+json");
/// The response header that is `true` if limits were decided without the counters that all replicas share, and absent
/// otherwise.
const DEGRADED_HEADER: HeaderName = HeaderName::from_static("keyward-degraded");
/// The time that a client should wait before a retry when a dependency of the server is unavailable.
const RETRY_AFTER_SECONDS: HeaderValue = HeaderValue::from_static("1");

/// The content of a reply besides its meta.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReplyKind {
    NoData,
    Data,
    /// One page of a list, and whether more pages follow.
    Page,
}

/// The reply of an operation.
pub trait Reply {
    const KIND: ReplyKind = ReplyKind::Data;

    /// Writes the reply as JSON.
    fn write(&self, into: &mut Vec<u8>) -> serde_json::Result<()>;

    /// Writes the reply as JSON, including the request id if the reply contains it.
    fn write_with_request_id(&self, _: &RequestId, into: &mut Vec<u8>) -> serde_json::Result<()> {
        self.write(into)
    }

    /// Returns whether limits were decided without the counters that all replicas share.
    fn is_degraded(&self) -> bool {
        false
    }

    /// Returns the name of the rate limit that rejected the request, if one did.
    fn rejected_by(&self) -> Option<&str> {
        None
    }

    /// Adds the headers that describe the limits that were checked, if the reply has them. Not called when they are
    /// off.
    fn add_ratelimit_headers(&self, _: &mut HeaderMap, _: RatelimitHeaders, _now: Timestamp) {}

    /// Returns the pagination of a page.
    fn pagination(&self) -> Option<Pagination<'_>> {
        None
    }
}

/// A reply with limit decisions, and whether they were made without the counters that all replicas share.
#[derive(Debug)]
pub struct DegradableReply<T> {
    pub data: T,
    pub is_degraded: bool,
}

impl<T: Serialize> Reply for DegradableReply<T> {
    fn write(&self, into: &mut Vec<u8>) -> serde_json::Result<()> {
        self.data.write(into)
    }

    fn is_degraded(&self) -> bool {
        self.is_degraded
    }
}

impl<T: JsonSchema> JsonSchema for DegradableReply<T> {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        T::schema_name()
    }
    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        T::json_schema(generator)
    }
}

/// A reply without data.
#[derive(Debug, JsonSchema)]
pub struct EmptyReply;

impl Reply for EmptyReply {
    const KIND: ReplyKind = ReplyKind::NoData;

    fn write(&self, _: &mut Vec<u8>) -> serde_json::Result<()> {
        Ok(())
    }
}

impl<T: Serialize> Reply for T {
    fn write(&self, into: &mut Vec<u8>) -> serde_json::Result<()> {
        serde_json::to_writer(into, self)
    }
}

/// Whether more pages follow, and their cursor.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Pagination<'a> {
    has_more: bool,
    /// The cursor to send for the next page; omitted on the last page.
    #[serde(skip_serializing_if = "Option::is_none")]
    cursor: Option<&'a str>,
}

/// A page of a list.
#[derive(Debug)]
pub struct PageReply<T>(pub Page<T>);

impl<T> PageReply<T> {
    /// Creates the reply from a page of the domain.
    pub fn new<U>(page: Page<U>) -> Self
    where
        T: From<U>,
    {
        Self(page.map(T::from))
    }
}

impl<T: Serialize> Reply for PageReply<T> {
    const KIND: ReplyKind = ReplyKind::Page;

    fn write(&self, into: &mut Vec<u8>) -> serde_json::Result<()> {
        serde_json::to_writer(into, &self.0.items)
    }

    fn pagination(&self) -> Option<Pagination<'_>> {
        let cursor = self.0.next_start.as_deref();
        Some(Pagination { has_more: cursor.is_some(), cursor })
    }
}

impl<T: JsonSchema> JsonSchema for PageReply<T> {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        Vec::<T>::schema_name()
    }
    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        Vec::<T>::json_schema(generator)
    }
}

/// Builds an error response from a rendered body, with the headers that its code requires.
pub fn render_error<T: Reply>(status: u16, code: Code, body: &T) -> Response<Body> {
    let status = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let mut response = render_json(status, body);
    if code == Code::ServiceUnavailable {
        response.headers_mut().insert(RETRY_AFTER, RETRY_AFTER_SECONDS);
    }
    if code == Code::RequestTimeout {
        // The unread rest of the body would be parsed as the next request.
        response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    }
    response
}

/// Adds a header if limits were decided without the counters that all replicas share, for replies without a place for it.
pub fn mark_if_degraded<T: Reply>(response: &mut Response<Body>, reply: &T) {
    if reply.is_degraded() {
        response.headers_mut().insert(DEGRADED_HEADER, HeaderValue::from_static("true"));
    }
}

/// Returns the same response with its JSON indented.
pub async fn indent_body(response: Response<Body>) -> Response<Body> {
    let (head, body) = response.into_parts();
    // The body is in memory, so collecting it does not fail.
    let json = body.collect().await.map(Collected::to_bytes).unwrap_or_default();
    Response::from_parts(head, Body::from(indent_json(&json)))
}

/// Indents JSON. Values keep their notation and their order.
fn indent_json(json: &[u8]) -> Vec<u8> {
    fn push_line(into: &mut Vec<u8>, depth: usize) {
        into.push(b'\n');
        into.resize(into.len() + 2 * depth, b' ');
    }

    let mut into = Vec::with_capacity(2 * json.len());
    let (mut depth, mut opened, mut in_text, mut escaped) = (0_usize, false, false, false);
    for byte in json {
        if in_text {
            in_text = *byte != b'"' || escaped;
            escaped = *byte == b'\\' && !escaped;
            into.push(*byte);
            continue;
        }
        if byte.is_ascii_whitespace() {
            continue;
        }
        let closes = matches!(byte, b'}' | b']');
        depth -= usize::from(closes && depth > 0);
        // Empty lists and objects stay on one line.
        if opened != closes {
            push_line(&mut into, depth);
        }
        into.push(*byte);
        opened = matches!(byte, b'{' | b'[');
        depth += usize::from(opened);
        in_text = *byte == b'"';
        match byte {
            b',' => push_line(&mut into, depth),
            b':' => into.push(b' '),
            _ => {}
        }
    }
    into
}

/// Builds a JSON response.
pub fn render_json<T: Reply>(status: StatusCode, value: &T) -> Response<Body> {
    let mut body = Vec::with_capacity(REPLY_CAPACITY_BYTES);
    // Writing to memory fails only for maps with non-string keys, and replies have none.
    match value.write(&mut body) {
        Ok(()) => build_json_response(status, body),
        Err(e) => {
            tracing::error!(error = %e, "failed to write a reply: {e}");
            Response::builder()
                .status(StatusCode::INTERNAL_SERVER_ERROR)
                .body(Body::empty())
                .unwrap_or_default()
        }
    }
}

/// Builds a response of JSON that is rendered already.
pub fn build_json_response(status: StatusCode, body: impl Into<Body>) -> Response<Body> {
    let mut response = Response::new(body.into());
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, JSON_MEDIA_TYPE);
    // The response may contain a key or other data that only its caller may see.
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn indented_json_keeps_notation_and_order_of_values() {
        let indented = indent_json(br#"{"b":{ },"a":[1.50,[],{"c":"{\"x\": [1,2]}\\"}]}"#);

        let lines = [
            "{",
            "  \"b\": {},",
            "  \"a\": [",
            "    1.50,",
            "    [],",
            "    {",
            "      \"c\": \"{\\\"x\\\": [1,2]}\\\\\"",
            "    }",
            "  ]",
            "}",
        ];
        assert_eq!(String::from_utf8_lossy(&indented), lines.join("\n"));
    }

    #[test]
    fn indented_json_equals_pretty_output_of_serde_json() {
        for value in [json!({}), json!([]), json!(null), json!({ "a": [{ "b": "c, d" }, "", -1] })]
        {
            let indented = indent_json(value.to_string().as_bytes());

            assert_eq!(indented, serde_json::to_vec_pretty::<Value>(&value).expect("JSON"));
        }
    }
}

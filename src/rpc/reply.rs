//! Replies: what operations answer with, before a version words it.

use axum::body::Body;
use axum::http::header::{CACHE_CONTROL, CONNECTION, CONTENT_TYPE, RETRY_AFTER};
use axum::http::{HeaderValue, Response, StatusCode};
use foundation::error::Code;
use foundation::id::RequestId;
use http_body_util::{BodyExt as _, Collected};
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::Serialize;

use crate::domain::page::Page;

/// A typical reply fits into this.
const REPLY_BYTES: usize = 512;
/// What nearly everything is sent as.
pub const JSON: HeaderValue = HeaderValue::from_static("application/json");
/// What some errors are sent as.
pub const PROBLEM: HeaderValue = HeaderValue::from_static("application/problem+json");
/// How long a client should wait when something behind the server is away.
const RETRY_AFTER_SECONDS: HeaderValue = HeaderValue::from_static("1");

/// What stands in a reply beside its meta.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shape {
    Nothing,
    Data,
    /// A page of a list, and whether the list goes on.
    Page,
}

/// What an operation answers with.
pub trait Reply {
    const SHAPE: Shape = Shape::Data;

    /// Writes it as JSON.
    fn write(&self, into: &mut Vec<u8>) -> serde_json::Result<()>;

    /// As [`Reply::write`], of a reply that tells its request.
    fn write_for(&self, _: &RequestId, into: &mut Vec<u8>) -> serde_json::Result<()> {
        self.write(into)
    }

    /// Whether it was decided without the counters that all replicas share.
    fn is_degraded(&self) -> bool {
        false
    }

    /// The limit that refused, where one did.
    fn refused_by(&self) -> Option<&str> {
        None
    }

    /// What stands beside a page.
    fn pagination(&self) -> Option<Pagination<'_>> {
        None
    }
}

/// What was counted, and whether without the counters that all replicas share.
#[derive(Debug)]
pub struct DegradableReply<T> {
    pub data: T,
    pub degraded: bool,
}

impl<T: Serialize> Reply for DegradableReply<T> {
    fn write(&self, into: &mut Vec<u8>) -> serde_json::Result<()> {
        self.data.write(into)
    }

    fn is_degraded(&self) -> bool {
        self.degraded
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

/// An answer that is nothing but a yes.
#[derive(Debug, JsonSchema)]
pub struct EmptyReply;

impl Reply for EmptyReply {
    const SHAPE: Shape = Shape::Nothing;

    fn write(&self, _: &mut Vec<u8>) -> serde_json::Result<()> {
        Ok(())
    }
}

impl<T: Serialize> Reply for T {
    fn write(&self, into: &mut Vec<u8>) -> serde_json::Result<()> {
        serde_json::to_writer(into, self)
    }
}

/// Whether a list goes on.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Pagination<'a> {
    has_more: bool,
    /// Send it to get the next page; left out on the last one.
    #[serde(skip_serializing_if = "Option::is_none")]
    cursor: Option<&'a str>,
}

impl<T: Serialize> Reply for Page<T> {
    const SHAPE: Shape = Shape::Page;

    fn write(&self, into: &mut Vec<u8>) -> serde_json::Result<()> {
        serde_json::to_writer(into, &self.items)
    }

    fn pagination(&self) -> Option<Pagination<'_>> {
        let cursor = self.next.as_deref();
        Some(Pagination { has_more: cursor.is_some(), cursor })
    }
}

impl<T: JsonSchema> JsonSchema for Page<T> {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        Vec::<T>::schema_name()
    }
    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        Vec::<T>::json_schema(generator)
    }
}

/// An error, worded, with the headers that its kind needs.
pub fn failure<T: Reply>(status: u16, code: Code, worded: &T) -> Response<Body> {
    let status = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let mut response = json(status, worded);
    if code == Code::ServiceUnavailable {
        response.headers_mut().insert(RETRY_AFTER, RETRY_AFTER_SECONDS);
    }
    if code == Code::RequestTimeout {
        // The rest of the body would be taken for the next request.
        response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    }
    response
}

/// The same answer with a line for each of its values.
pub async fn pretty(response: Response<Body>) -> Response<Body> {
    let (head, body) = response.into_parts();
    // It is in memory, and never breaks off.
    let json = body.collect().await.map(Collected::to_bytes).unwrap_or_default();
    Response::from_parts(head, Body::from(indented(&json)))
}

/// JSON on several lines, its values as they are written and in their order.
fn indented(json: &[u8]) -> Vec<u8> {
    fn line(into: &mut Vec<u8>, depth: usize) {
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
        // What is empty stays on its line.
        if opened != closes {
            line(&mut into, depth);
        }
        into.push(*byte);
        opened = matches!(byte, b'{' | b'[');
        depth += usize::from(opened);
        in_text = *byte == b'"';
        match byte {
            b',' => line(&mut into, depth),
            b':' => into.push(b' '),
            _ => {}
        }
    }
    into
}

/// Any JSON.
pub fn json<T: Reply>(status: StatusCode, value: &T) -> Response<Body> {
    let mut body = Vec::with_capacity(REPLY_BYTES);
    // Writing into memory fails only for maps whose keys are no texts, which replies do not have.
    if let Err(e) = value.write(&mut body) {
        tracing::error!(error = %e, "cannot write a reply: {e}");
        return Response::builder()
            .status(StatusCode::INTERNAL_SERVER_ERROR)
            .body(Body::empty())
            .unwrap_or_default();
    }
    let mut response = Response::new(Body::from(body));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, JSON);
    // It may hold a key, or what only its caller may know.
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn values_are_spread_over_lines_as_they_are_written_and_in_their_order() {
        let told = indented(br#"{"b":{ },"a":[1.50,[],{"c":"{\"x\": [1,2]}\\"}]}"#);

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
        assert_eq!(String::from_utf8_lossy(&told), lines.join("\n"));
    }

    #[test]
    fn it_is_written_as_everybody_does() {
        for value in [json!({}), json!([]), json!(null), json!({ "a": [{ "b": "c, d" }, "", -1] })]
        {
            let told = indented(value.to_string().as_bytes());

            assert_eq!(told, serde_json::to_vec_pretty::<Value>(&value).expect("JSON"));
        }
    }
}

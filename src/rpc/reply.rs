//! Replies: the envelope of version 2, and errors in the form that its clients read.

use axum::body::Body;
use axum::http::header::{CONNECTION, CONTENT_TYPE, RETRY_AFTER};
use axum::http::{HeaderValue, Response, StatusCode};
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::Serialize;

use crate::domain::page::Page;
use crate::error::{Code, Error, Fault};
use crate::id::RequestId;

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

    /// Whether it was decided without the counters that all replicas share.
    fn is_degraded(&self) -> bool {
        false
    }

    /// What stands beside a page.
    fn pagination(&self) -> Option<Pagination<'_>> {
        None
    }
}

/// What was counted, and whether without the counters that all replicas share.
#[derive(Debug)]
pub struct Counted<T> {
    pub data: T,
    pub degraded: bool,
}

impl<T: Serialize> Reply for Counted<T> {
    fn write(&self, into: &mut Vec<u8>) -> serde_json::Result<()> {
        self.data.write(into)
    }

    fn is_degraded(&self) -> bool {
        self.degraded
    }
}

impl<T: JsonSchema> JsonSchema for Counted<T> {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        T::schema_name()
    }
    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        T::json_schema(generator)
    }
}

/// An answer that is nothing but a yes.
#[derive(Debug, JsonSchema)]
pub struct Nothing;

impl Reply for Nothing {
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

/// A reply in its envelope.
struct Success<'a, T> {
    request_id: &'a RequestId,
    data: &'a T,
}

impl<T: Reply> Reply for Success<'_, T> {
    fn write(&self, into: &mut Vec<u8>) -> serde_json::Result<()> {
        into.extend_from_slice(br#"{"meta":{"requestId":""#);
        into.extend_from_slice(self.request_id.as_str().as_bytes());
        into.push(b'"');
        if self.data.is_degraded() {
            into.extend_from_slice(br#","degraded":true"#);
        }
        into.push(b'}');
        if T::SHAPE != Shape::Nothing {
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
struct Failure<'a> {
    meta: Meta<'a>,
    error: Problem<'a>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Meta<'a> {
    request_id: &'a str,
}

#[derive(Serialize)]
struct Problem<'a> {
    title: &'static str,
    detail: String,
    status: u16,
    r#type: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    errors: Option<Vec<Item<'a>>>,
}

#[derive(Serialize)]
struct Item<'a> {
    location: &'a str,
    message: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    fix: Option<&'static str>,
}

impl<'a> From<&'a Fault> for Item<'a> {
    fn from(fault: &'a Fault) -> Self {
        Self { location: &fault.location, message: &fault.message, fix: fault.fix }
    }
}

/// 200 with what was asked for.
pub fn success<T: Reply>(request_id: &RequestId, data: &T) -> Response<Body> {
    json(StatusCode::OK, &Success { request_id, data })
}

/// An error, with the address of the page that explains it.
pub fn failure(
    docs_url: &str,
    request_id: &RequestId,
    error: &Error,
    media_type: HeaderValue,
) -> Response<Body> {
    let code = error.code();
    // The clients want the list with every fault of the request itself, be it empty.
    let lists_faults = matches!(code.status(), 400 | 408 | 413);
    let problem = Problem {
        title: code.title(),
        detail: error.detail(),
        status: code.status(),
        r#type: format!("{docs_url}/errors/{}", code.name()),
        errors: lists_faults.then(|| error.faults().iter().map(Item::from).collect()),
    };
    let status = StatusCode::from_u16(code.status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let meta = Meta { request_id: request_id.as_str() };
    let mut response = json(status, &Failure { meta, error: problem });
    response.headers_mut().insert(CONTENT_TYPE, media_type);
    if code == Code::ServiceUnavailable {
        response.headers_mut().insert(RETRY_AFTER, RETRY_AFTER_SECONDS);
    }
    if code == Code::RequestTimeout {
        // The rest of the body would be taken for the next request.
        response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    }
    response
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
    response
}

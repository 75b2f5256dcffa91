//! HTTP operations of both API versions.
//!
//! Each operation has one file. Its request type is the operation: the doc comment is its API documentation,
//! the field types define its validation and its schema, and its entry in the operation table defines its
//! route, its permission and its entry in the OpenAPI document. `run` translates and calls the domain.

pub mod bounds;
mod decode;
pub mod example;
mod form;
pub mod gateway;
pub mod import_keys;
pub mod in_process;
pub mod oauth2;
mod openapi;
mod query;
pub mod ratelimit_headers;
pub mod reply;
mod schemas;
mod serve;
pub mod v1;
pub mod v2;
pub mod well_known;

use std::borrow::Cow;
use std::marker::PhantomData;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::http::{HeaderMap, HeaderValue, Method, Request, Response};
use jsonschema::ValidationError;
use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, Schema};
use serde::de::DeserializeOwned;
use serde_json::Value;

use bounds::Object;
pub use decode::{FIELD_ERRORS_MAX, decode};
use domain::app::App;
use domain::caller::Caller;
use domain::permission::Action;
use foundation::error::{Error, FieldError, Result};
use foundation::id::RequestId;
use foundation::metrics::Requests;
use openapi::{COMMON_ERRORS, to_embedded_schema};
pub use openapi::{v1_document, v2_document};
use reply::{Reply, ReplyKind};
use request::json_depth::DEPTH_MAX;
use serve::ServedOperation;

/// Re-exports the names that every operation's file uses.
pub mod prelude {
    pub use schemars::JsonSchema;
    pub use serde::{Deserialize, Serialize};
    pub use serde_json::{Value, json};

    pub use super::bounds::{
        ExternalId, Id, IdChars, Int, List, Nullable, Object, OneOf, Optional, Printable, Slug,
        SlugChars, Text,
    };
    pub use super::{AccessRule, HttpMethod, Operation, example};
    pub use domain::app::App;
    pub use domain::caller::Caller;
    pub use domain::keys::Patch;
    pub use domain::permission::Action;
    pub use foundation::error::Result;
    pub use foundation::model::{BoundedMeta, Meta};
}

/// The permissions that the root key of a request must have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AccessRule {
    /// No root key is required.
    NoRootKey,
    /// All of these permissions are required. If one is missing, the response is 403 and names it.
    Permission(&'static [Action]),
    /// All of these permissions are required. If one is missing, the resource is reported as not found.
    HiddenUnlessPermitted(&'static [Action]),
}

impl AccessRule {
    pub fn actions(&self) -> &[Action] {
        match self {
            Self::NoRootKey => &[],
            Self::Permission(actions) | Self::HiddenUnlessPermitted(actions) => actions,
        }
    }
}

/// The HTTP method of an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HttpMethod {
    /// The request is in the query string.
    Get,
    /// The request is in the body, in the encoding of the version.
    Post,
}

impl HttpMethod {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Get => "GET",
            Self::Post => "POST",
        }
    }
}

/// How the body of a POST request is encoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BodyEncoding {
    Json,
    /// Name and value pairs, as HTML forms and OAuth clients send them.
    Form,
}

impl BodyEncoding {
    pub fn media_type(self) -> &'static str {
        match self {
            Self::Json => "application/json",
            Self::Form => "application/x-www-form-urlencoded",
        }
    }
}

/// The wire format of one API version: it parses requests and renders replies. It does not affect what an operation
/// does.
pub trait Version: 'static {
    /// The prefix of every path.
    const PREFIX: &'static str;
    const BODY_ENCODING: BodyEncoding = BodyEncoding::Json;
    /// The name of the schema of error responses in the OpenAPI document.
    const FAILURE_SCHEMA: &'static str = "Error";
    /// The error statuses that every operation may return, and their reasons.
    const ERRORS: &'static [(u16, &'static str)] = COMMON_ERRORS;
    /// Whether a root key may be the password of HTTP Basic authentication.
    const ACCEPTS_BASIC: bool = false;
    /// Whether responses have a header with the time they took.
    const REPORTS_LATENCY: bool = false;
    /// The fixed message for a body that is not JSON. If `None`, the message describes the problem.
    const INVALID_JSON_MESSAGE: Option<&'static str> = None;

    /// Returns whether the query string of the request asks for indented JSON.
    fn is_pretty(_: Option<&str>) -> bool {
        false
    }
    /// Returns the root key of a request.
    fn parse_root_key(headers: &HeaderMap) -> Result<Cow<'_, [u8]>>;
    /// Converts a schema violation to a field error in the wording of the version.
    fn to_field_error(e: &ValidationError<'_>) -> FieldError;
    /// Formats a field error that no schema reports, in the wording of the version.
    fn format_field_error(path: &str, message: &str) -> String;
    fn render_success<T: Reply>(request_id: &RequestId, data: &T) -> Response<Body>;
    fn render_error(
        docs_url: &str,
        request_id: &RequestId,
        error: &Error,
        media_type: HeaderValue,
    ) -> Response<Body>;
    /// Adds the headers that every response has.
    fn add_common_headers(_: &mut Response<Body>, _: &RequestId, _: Option<Duration>) {}
    /// Returns the schema of an operation's successful response.
    fn success_schema(row: &OperationEntry) -> Value;
    /// Returns the schema of error responses.
    fn failure_schema() -> Value;
}

/// An operation. The implementing type is its request.
pub trait Operation: DeserializeOwned + JsonSchema + Send + 'static {
    /// The public name, such as `keys.createKey`.
    const NAME: &'static str;
    const METHOD: HttpMethod = HttpMethod::Post;
    /// The status of a successful response.
    const STATUS: u16 = 200;
    const ACCESS: AccessRule;
    /// Whether the operation changes data and therefore writes an audit entry.
    const WRITES: bool = false;
    /// Whether the operation may write an audit entry: an operation that creates missing resources sometimes does.
    const MAY_WRITE: bool = Self::WRITES;
    /// Whether the operation supports `Idempotency-Key`, which makes a retry safe.
    const ACCEPTS_IDEMPOTENCY_KEY: bool = false;
    /// Whether a caller may disable the analytics event of a request.
    const CAN_SKIP_EVENTS: bool = false;
    /// The maximum size of the body.
    const BODY_MAX_BYTES: usize = 1024 * 1024;
    /// The maximum nesting depth of the body.
    const BODY_DEPTH_MAX: usize = DEPTH_MAX;
    /// The maximum time that the operation may take.
    const TIMEOUT: Duration = Duration::from_secs(10);
    /// Whether all errors are sent as `application/problem+json`, which the official clients expect of some operations.
    /// Those with the status 429 always are.
    const USES_PROBLEM_JSON: bool = false;
    /// The error statuses that are specific to this operation, and their reasons.
    const ERRORS: &'static [(u16, &'static str)] = &[];
    type Reply: Reply + JsonSchema + Send;

    /// Parses the body, which is an object unless the operation says otherwise.
    fn parse(body: &[u8]) -> serde_json::Result<Self> {
        serde_json::from_slice(body).map(|Object(request)| request)
    }

    /// Returns a valid request. The documentation shows it and the tests send it.
    fn example() -> Value;

    fn run(self, app: &App, caller: &Caller) -> impl Future<Output = Result<Self::Reply>> + Send;
}

/// A future that resolves to the response.
pub type ReplyFuture = Pin<Box<dyn Future<Output = Response<Body>> + Send>>;

/// The entry of one operation in the operation table.
pub struct OperationEntry {
    pub name: &'static str,
    pub method: HttpMethod,
    pub status: u16,
    pub access: AccessRule,
    pub writes: bool,
    /// Whether the operation supports `Idempotency-Key`, which makes a retry safe.
    pub accepts_idempotency_key: bool,
    pub body_max_bytes: usize,
    pub request: fn() -> Schema,
    pub reply: fn() -> Schema,
    pub reply_kind: ReplyKind,
    pub uses_problem_json: bool,
    /// The error statuses that are specific to this operation, and their reasons.
    pub errors: &'static [(u16, &'static str)],
    pub example: fn() -> Value,
    /// Handles one request.
    pub handler: fn(Arc<Endpoint>, Request<Body>) -> ReplyFuture,
    served: &'static ServedOperation,
}

/// The state that all requests of one operation share.
pub struct Endpoint {
    pub app: Arc<App>,
    pub requests: Requests,
}

/// The table of all operations of one API version.
pub struct OperationTable {
    /// The prefix of every path, such as `/v2/`.
    pub prefix: &'static str,
    pub operations: Vec<OperationEntry>,
    body_encoding: BodyEncoding,
    accepts_basic: bool,
    failure_schema_name: &'static str,
    errors: &'static [(u16, &'static str)],
    success_schema: fn(&OperationEntry) -> Value,
    failure_schema: fn() -> Value,
}

/// Builds the operation table of one API version.
struct TableBuilder<V>(Vec<OperationEntry>, PhantomData<V>);

impl<V: Version> TableBuilder<V> {
    fn new() -> Self {
        Self(Vec::new(), PhantomData)
    }

    fn build(self) -> OperationTable {
        let (success, failure) = (V::success_schema, V::failure_schema);
        OperationTable {
            prefix: V::PREFIX,
            operations: self.0,
            body_encoding: V::BODY_ENCODING,
            accepts_basic: V::ACCEPTS_BASIC,
            failure_schema_name: V::FAILURE_SCHEMA,
            errors: V::ERRORS,
            success_schema: success,
            failure_schema: failure,
        }
    }

    #[must_use]
    fn with_operation<O: Operation>(mut self) -> Self {
        let served = const { &ServedOperation::new::<V, O>() };
        self.0.push(OperationEntry {
            name: O::NAME,
            method: O::METHOD,
            status: O::STATUS,
            access: O::ACCESS,
            writes: O::WRITES,
            accepts_idempotency_key: O::ACCEPTS_IDEMPOTENCY_KEY,
            body_max_bytes: O::BODY_MAX_BYTES,
            request: generate_schema::<O>,
            reply: generate_reply_schema::<O::Reply>,
            reply_kind: <O::Reply as Reply>::KIND,
            uses_problem_json: O::USES_PROBLEM_JSON,
            errors: O::ERRORS,
            example: O::example,
            handler: |endpoint, request| {
                let served = const { &ServedOperation::new::<V, O>() };
                Box::pin(serve::handle_request::<V>(served, endpoint, request))
            },
            served,
        });
        self
    }
}

/// Renders an error about a path in the format of the API version that the path belongs to.
pub fn render_path_error(app: &App, path: &str, error: &Error) -> Response<Body> {
    fn render<V: Version>(app: &App, error: &Error) -> Response<Body> {
        let request_id = RequestId::new(app.context.clock.now());
        let mut response = V::render_error(
            &app.context.settings.docs_url,
            &request_id,
            error,
            reply::JSON_MEDIA_TYPE,
        );
        V::add_common_headers(&mut response, &request_id, None);
        response
    }

    if path.starts_with(v1::V1::PREFIX) {
        render::<v1::V1>(app, error)
    } else if path.starts_with(oauth2::OAuth2::PREFIX) {
        render::<oauth2::OAuth2>(app, error)
    } else {
        render::<v2::V2>(app, error)
    }
}

/// Returns the response to a CORS preflight request, or `None` for any other request. Only version 1 allows
/// cross-origin requests, from every origin.
pub fn preflight_response(app: &App, request: &Request<Body>) -> Option<Response<Body>> {
    let is_preflight =
        *request.method() == Method::OPTIONS && request.uri().path().starts_with(v1::V1::PREFIX);
    is_preflight.then(|| v1::preflight_response(app, request.headers()))
}

/// Generates the JSON schema of a request type. It is inlined, without references, so that the location of a field
/// error in it reads like a path.
fn generate_schema<T: JsonSchema>() -> Schema {
    schema_settings().into_generator().into_root_schema_for::<T>()
}

/// Generates the JSON schema of a reply type, in which fields that may be omitted are not required.
fn generate_reply_schema<T: JsonSchema>() -> Schema {
    schema_settings().for_serialize().into_generator().into_root_schema_for::<T>()
}

fn schema_settings() -> SchemaSettings {
    SchemaSettings::draft2020_12().with(|settings| settings.inline_subschemas = true)
}

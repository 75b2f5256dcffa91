//! Operations as they are called over HTTP.
//!
//! One operation, one file. Its request type is the operation: the doc comment is its documentation,
//! the types of its fields are its validation and its schema, its row in the table is its route, its
//! permission and its entry in the OpenAPI document. `run` translates and calls the domain.

pub mod bounds;
mod decode;
pub mod example;
mod openapi;
mod query;
pub mod reply;
mod schemas;
mod serve;
pub use schemas::IssuedReply;
pub mod v1;
pub mod v2;

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

pub use decode::decode;
use openapi::bare;
pub use openapi::document;

use foundation::error::{Error, FieldError, Result};
use foundation::id::RequestId;
use foundation::metrics::Requests;
use reply::{Reply, Shape};

use crate::app::App;
use crate::domain::caller::Caller;
use crate::domain::permission::Action;

/// What an operation's file brings along with.
pub mod prelude {
    pub use schemars::JsonSchema;
    pub use serde::{Deserialize, Serialize};
    pub use serde_json::{Value, json};

    pub use super::bounds::{
        ExternalId, Id, IdLetters, Int, List, Nullable, Object, Optional, Printable, Slug,
        SlugLetters, Text,
    };
    pub use super::{AccessRule, Operation, Verb, example};
    pub use crate::app::App;
    pub use crate::domain::caller::Caller;
    pub use crate::domain::keys::Patch;
    pub use crate::domain::permission::Action;
    pub use foundation::error::Result;
    pub use foundation::model::Meta;
}

/// What the root key of a request must hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AccessRule {
    /// No root key: anybody may ask.
    Nothing,
    /// These permissions; without one, 403 names it.
    Permission(&'static [Action]),
    /// These permissions; without one, what was asked about does not exist.
    HiddenUnlessPermitted(&'static [Action]),
}

impl AccessRule {
    pub fn actions(&self) -> &[Action] {
        match self {
            Self::Nothing => &[],
            Self::Permission(actions) | Self::HiddenUnlessPermitted(actions) => actions,
        }
    }
}

/// How an operation is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verb {
    /// With its request in the query.
    Get,
    /// With its request in the body, as JSON.
    Post,
}

impl Verb {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Get => "GET",
            Self::Post => "POST",
        }
    }
}

/// How a version of the interface words what goes in and out; what an operation does is none of its business.
pub trait Version: 'static {
    /// What every path begins with.
    const PREFIX: &'static str;
    /// Whether answers tell how long they took.
    const TELLS_LATENCY: bool = false;
    /// What is told of a body that is no JSON. Absent: what is wrong with it.
    const NO_JSON: Option<&'static str> = None;

    /// Whether the answer is to be written for people, by the query of its request.
    fn is_pretty(_: Option<&str>) -> bool {
        false
    }
    /// The root key of a request.
    fn bearer(headers: &HeaderMap) -> Result<&[u8]>;
    /// What is wrong with a request, in the words of the version.
    fn fault(e: &ValidationError<'_>) -> FieldError;
    /// A fault that no schema tells, in the words of the version.
    fn sentence(path: &str, fault: &str) -> String;
    fn success<T: Reply>(request_id: &RequestId, data: &T) -> Response<Body>;
    fn failure(
        docs_url: &str,
        request_id: &RequestId,
        error: &Error,
        media_type: HeaderValue,
    ) -> Response<Body>;
    /// Adds the headers that every answer has.
    fn finish(_: &mut Response<Body>, _: &RequestId, _: Option<Duration>) {}
    /// The schema of what a row answers with.
    fn success_schema(row: &OperationEntry) -> Value;
    /// The schema of errors.
    fn failure_schema() -> Value;
}

/// An operation. The implementing type is its request.
pub trait Operation: DeserializeOwned + JsonSchema + Send + 'static {
    /// As it is called: `keys.createKey`.
    const NAME: &'static str;
    const VERB: Verb = Verb::Post;
    /// The status of an answer that is no error.
    const STATUS: u16 = 200;
    const NEEDS: AccessRule;
    /// Whether it changes something, and so leaves an audit entry.
    const WRITES: bool = false;
    /// Whether it may leave one: an operation that makes what is missing does at times.
    const MAY_WRITE: bool = Self::WRITES;
    /// Whether its body is a list and not an object.
    const IS_LIST: bool = false;
    /// Whether an `Idempotency-Key` makes it safe to repeat.
    const REPEATABLE: bool = false;
    /// Whether a caller may ask that it leaves no event.
    const MAY_GO_UNRECORDED: bool = false;
    /// The largest body that it takes.
    const BODY_MAX_BYTES: usize = 1024 * 1024;
    /// How long it may take.
    const TIMEOUT: Duration = Duration::from_secs(10);
    /// Whether its errors are sent as `application/problem+json`, which the official clients expect of some.
    const ERRORS_ARE_PROBLEMS: bool = false;
    /// The statuses that it may answer with besides those that any may, and why.
    const ERRORS: &'static [(u16, &'static str)] = &[];
    type Reply: Reply + JsonSchema + Send;

    /// A request that is accepted: shown in the documentation, sent by the tests.
    fn example() -> Value;

    fn run(self, app: &App, caller: &Caller) -> impl Future<Output = Result<Self::Reply>> + Send;
}

/// An answer that is being made.
pub type Answer = Pin<Box<dyn Future<Output = Response<Body>> + Send>>;

/// An operation as the table knows it.
pub struct OperationEntry {
    pub name: &'static str,
    pub verb: Verb,
    pub status: u16,
    pub needs: AccessRule,
    pub writes: bool,
    /// Whether an `Idempotency-Key` makes it safe to repeat.
    pub repeatable: bool,
    pub body_max_bytes: usize,
    pub request: fn() -> Schema,
    pub reply: fn() -> Schema,
    pub shape: Shape,
    pub errors_are_problems: bool,
    /// Statuses of its own, and why they are answered.
    pub errors: &'static [(u16, &'static str)],
    pub example: fn() -> Value,
    /// Answers one request.
    pub call: fn(Arc<Endpoint>, Request<Body>) -> Answer,
}

/// What all requests of one operation share.
pub struct Endpoint {
    pub app: Arc<App>,
    pub requests: Requests,
}

/// All operations of a version.
pub struct OperationTable {
    /// What every path begins with: `/v2/`.
    pub prefix: &'static str,
    pub rows: Vec<OperationEntry>,
    success: fn(&OperationEntry) -> Value,
    failure: fn() -> Value,
}

/// A table of a version that is being filled.
struct TableBuilder<V>(Vec<OperationEntry>, PhantomData<V>);

impl<V: Version> TableBuilder<V> {
    fn new() -> Self {
        Self(Vec::new(), PhantomData)
    }

    fn table(self) -> OperationTable {
        let (success, failure) = (V::success_schema, V::failure_schema);
        OperationTable { prefix: V::PREFIX, rows: self.0, success, failure }
    }

    #[must_use]
    fn with<O: Operation>(mut self) -> Self {
        self.0.push(OperationEntry {
            name: O::NAME,
            verb: O::VERB,
            status: O::STATUS,
            needs: O::NEEDS,
            writes: O::WRITES,
            repeatable: O::REPEATABLE,
            body_max_bytes: O::BODY_MAX_BYTES,
            request: schema::<O>,
            reply: reply_schema::<O::Reply>,
            shape: <O::Reply as Reply>::SHAPE,
            errors_are_problems: O::ERRORS_ARE_PROBLEMS,
            errors: O::ERRORS,
            example: O::example,
            call: |endpoint, request| Box::pin(serve::serve::<V, O>(endpoint, request)),
        });
        self
    }
}

/// An error about a path, in the words of the version that the path belongs to.
pub fn failure(app: &App, path: &str, error: &Error) -> Response<Body> {
    fn worded<V: Version>(app: &App, error: &Error) -> Response<Body> {
        let request_id = RequestId::new(app.clock.now());
        let mut response = V::failure(&app.settings.docs_url, &request_id, error, reply::JSON);
        V::finish(&mut response, &request_id, None);
        response
    }

    match path.starts_with(v1::V1::PREFIX) {
        true => worded::<v1::V1>(app, error),
        false => worded::<v2::V2>(app, error),
    }
}

/// The answer to a browser that asks whether it may ask; version 1 lets any page.
pub fn preflight(app: &App, request: &Request<Body>) -> Option<Response<Body>> {
    let is_asked =
        *request.method() == Method::OPTIONS && request.uri().path().starts_with(v1::V1::PREFIX);
    is_asked.then(|| v1::preflight(app, request.headers()))
}

/// The JSON schema of a type, without references, so that a fault's place in it reads like a path.
fn schema<T: JsonSchema>() -> Schema {
    settings().into_generator().into_root_schema_for::<T>()
}

/// As [`schema`], of what is written and not read: what may be left out is not required.
fn reply_schema<T: JsonSchema>() -> Schema {
    settings().for_serialize().into_generator().into_root_schema_for::<T>()
}

fn settings() -> SchemaSettings {
    SchemaSettings::draft2020_12().with(|settings| settings.inline_subschemas = true)
}

//! Operations as they are called over HTTP.
//!
//! One operation, one file. Its request type is the operation: the doc comment is its documentation,
//! the types of its fields are its validation and its schema, its row in the table is its route, its
//! permission and its entry in the OpenAPI document. `run` translates and calls the domain.

mod address;
pub mod bounds;
mod decode;
pub mod example;
mod openapi;
pub mod reply;
mod serve;
pub mod v2;

use std::pin::Pin;
use std::sync::Arc;

use axum::body::Body;
use axum::http::{Request, Response};
use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, Schema};
use serde::de::DeserializeOwned;
use serde_json::Value;

pub use address::PEER;
pub use openapi::document;

use crate::app::App;
use crate::domain::caller::Caller;
use crate::domain::permission::Action;
use crate::error::Result;
use crate::metrics::Requests;
use reply::{Reply, Shape};

/// What an operation's file brings along with.
pub mod prelude {
    pub use schemars::JsonSchema;
    pub use serde::{Deserialize, Serialize};
    pub use serde_json::{Value, json};

    pub use super::bounds::{
        ExternalId, Given, Id, IdLetters, Int, List, Nullable, Object, Slug, SlugLetters, Text,
    };
    pub use super::{Needs, Operation, example};
    pub use crate::app::App;
    pub use crate::domain::caller::Caller;
    pub use crate::domain::keys::Patch;
    pub use crate::domain::permission::Action;
    pub use crate::error::Result;
    pub use crate::model::Meta;
}

/// What the root key of a request must hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Needs {
    /// These permissions; without one, 403 names it.
    Permission(&'static [Action]),
    /// These permissions; without one, what was asked about does not exist.
    Hidden(&'static [Action]),
}

impl Needs {
    pub fn actions(&self) -> &[Action] {
        match self {
            Self::Permission(actions) | Self::Hidden(actions) => actions,
        }
    }
}

/// An operation. The implementing type is its request.
pub trait Operation: DeserializeOwned + JsonSchema + Send + 'static {
    /// As it is called: `keys.createKey`.
    const NAME: &'static str;
    const NEEDS: Needs;
    /// Whether it changes something, and so leaves an audit entry.
    const WRITES: bool = false;
    /// Whether it may leave one: an operation that makes what is missing does at times.
    const MAY_WRITE: bool = Self::WRITES;
    /// Whether its body is a list and not an object.
    const IS_LIST: bool = false;
    /// Whether an `Idempotency-Key` makes it safe to repeat.
    const REPEATABLE: bool = false;
    /// The largest body that it takes.
    const BODY_MAX_BYTES: usize = 1024 * 1024;
    /// Whether its errors are sent as `application/problem+json`, which the official clients expect of some.
    const ERRORS_ARE_PROBLEMS: bool = false;
    type Reply: Reply + JsonSchema + Send;

    /// A request that is accepted: shown in the documentation, sent by the tests.
    fn example() -> Value;

    fn run(self, app: &App, caller: &Caller) -> impl Future<Output = Result<Self::Reply>> + Send;
}

/// An answer that is being made.
pub type Answer = Pin<Box<dyn Future<Output = Response<Body>> + Send>>;

/// An operation as the table knows it.
pub struct Row {
    pub name: &'static str,
    pub needs: Needs,
    pub writes: bool,
    pub body_max_bytes: usize,
    pub request: fn() -> Schema,
    pub reply: fn() -> Schema,
    pub shape: Shape,
    pub errors_are_problems: bool,
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
pub struct Table {
    /// What every path begins with: `/v2/`.
    pub prefix: &'static str,
    pub rows: Vec<Row>,
}

impl Table {
    fn new(prefix: &'static str) -> Self {
        Self { prefix, rows: Vec::new() }
    }

    #[must_use]
    fn with<O: Operation>(mut self) -> Self {
        self.rows.push(Row {
            name: O::NAME,
            needs: O::NEEDS,
            writes: O::WRITES,
            body_max_bytes: O::BODY_MAX_BYTES,
            request: schema::<O>,
            reply: reply_schema::<O::Reply>,
            shape: <O::Reply as Reply>::SHAPE,
            errors_are_problems: O::ERRORS_ARE_PROBLEMS,
            example: O::example,
            call: |endpoint, request| Box::pin(serve::serve::<O>(endpoint, request)),
        });
        self
    }
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

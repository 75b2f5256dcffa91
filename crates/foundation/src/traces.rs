//! Traces for OpenTelemetry, where a build has them (the feature `otel`). In any other build every function here is
//! empty, and what it is handed comes back as it was.
//!
//! A span tells of a request which operation it was and what came of it. It never holds what a caller wrote: no key, no
//! root key, no name.

#[cfg(feature = "otel")]
mod spans;

#[cfg(feature = "otel")]
pub use spans::{Exporter, begin, end, outcome, request_id, step, workspace};

#[cfg(not(feature = "otel"))]
pub use nothing::{outcome, request_id, step, workspace};

#[cfg(not(feature = "otel"))]
mod nothing {
    use crate::id::{RequestId, WorkspaceId};

    /// A step of a request that waits for another server.
    pub fn step<F: Future>(_name: &'static str, step: F) -> F {
        step
    }

    /// How the request is called.
    pub fn request_id(_id: &RequestId) {}

    /// Whose request it is.
    pub fn workspace(_id: &WorkspaceId) {}

    /// What came of it: the code of a verification, or the name of an error.
    pub fn outcome(_outcome: &'static str) {}
}

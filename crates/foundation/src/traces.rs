//! Records OpenTelemetry traces in builds with the feature `otel`. In other builds every function here does nothing,
//! and returns its argument unchanged.
//!
//! A span holds the operation of a request and its outcome. It never holds what a caller wrote: no key, no root key, no
//! name.

#[cfg(feature = "otel")]
mod spans;

#[cfg(feature = "otel")]
pub use spans::{Exporter, begin, end, outcome, request_id, step, workspace};

#[cfg(not(feature = "otel"))]
pub use nothing::{outcome, request_id, step, workspace};

#[cfg(not(feature = "otel"))]
mod nothing {
    use crate::id::{RequestId, WorkspaceId};

    /// Wraps a step of a request that waits for another server.
    pub fn step<F: Future>(_name: &'static str, step: F) -> F {
        step
    }

    /// Records the ID of the request.
    pub fn request_id(_id: &RequestId) {}

    /// Records the workspace of the request.
    pub fn workspace(_id: &WorkspaceId) {}

    /// Records the outcome: the code of a verification, or the name of an error.
    pub fn outcome(_outcome: &'static str) {}
}

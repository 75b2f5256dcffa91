//! Standalone rate limits: namespaces, which are created on first use, and overrides for
//! identifiers in them.

mod limit;
pub mod namespaces;
pub mod overrides;
mod simulate;
mod snapshot;

pub use limit::{LimitCheck, LimitResult, limit, limit_all};
pub use limiter::WindowStatus;
pub use namespaces::NamespaceName;
pub use simulate::{CandidateOverride, SimulationResult, simulate};
pub use snapshot::OverrideState;

use foundation::model::Namespace;

use super::audit::Target;

fn target(namespace: &Namespace) -> Target<'_> {
    Target::new("ratelimitNamespace", namespace.id.as_str()).named(Some(&namespace.name))
}

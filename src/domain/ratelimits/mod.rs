//! Standalone rate limits: namespaces, which are created on first use, and overrides for
//! identifiers in them.

mod limit;
pub mod namespaces;
pub mod overrides;
mod simulate;
mod snapshot;

pub use limit::{LimitCheck, LimitResult, check_limit, check_limits};
pub use limiter::WindowStatus;
pub use namespaces::NamespaceRef;
pub use simulate::{CandidateOverride, SimulationResult, simulate};
pub use snapshot::OverrideSnapshot;

use foundation::model::Namespace;

use super::audit::Target;

fn namespace_target(namespace: &Namespace) -> Target<'_> {
    Target::new("ratelimitNamespace", namespace.id.as_str()).with_name(Some(&namespace.name))
}

//! Standalone rate limits: namespaces, which are created on first use, and overrides for
//! identifiers in them.

mod descriptors;
mod limit;
pub mod namespaces;
pub mod overrides;
mod simulate;
mod snapshot;

pub use descriptors::{DescriptorCheck, DescriptorReply, DescriptorRules, Hits, check_descriptors};
pub use limit::{LimitCheck, LimitResult, check_limit, check_limits};
pub use limiter::WindowStatus;
pub use namespaces::NamespaceRef;
pub use simulate::{CandidateOverride, SimulationResult, simulate};
pub use snapshot::OverrideSnapshot;

use std::sync::Arc;

use analytics::Analytics;
use foundation::model::Namespace;
use store::StoredNamespace;
use store::cache::RowCache;
use store::freshness::CacheTag;

use crate::admission::Admission;
use crate::audit::Target;
use crate::context::Context;

/// Decides checks of the standalone limiter.
pub struct Ratelimits {
    pub context: Arc<Context>,
    pub admission: Arc<Admission>,
    pub analytics: Arc<Analytics>,
    namespaces: RowCache<NamespaceRef, StoredNamespace>,
}

impl Ratelimits {
    /// Creates a service with an empty cache.
    pub fn new(
        context: Arc<Context>,
        admission: Arc<Admission>,
        analytics: Arc<Analytics>,
    ) -> Self {
        let loads = &context.metrics.cache_loads.namespaces;
        let tag = |name: &NamespaceRef| Some(CacheTag::NewNamespace(name.fingerprint()));
        let namespaces = RowCache::new(&context.caches.memory, 1 << 10, loads, tag);
        Self { context, admission, analytics, namespaces }
    }
}

fn namespace_target(namespace: &Namespace) -> Target<'_> {
    Target::new("ratelimitNamespace", namespace.id.as_str()).with_name(Some(&namespace.name))
}

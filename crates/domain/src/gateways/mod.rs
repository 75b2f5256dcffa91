//! Gateway policies: how a gateway's requests are judged, and the judgement itself. A policy is what a gateway
//! authenticates with; it may verify keys of its APIs and check limits in its namespaces, and nothing else.

pub mod configurations;
mod decide;
mod lookup;
mod path_pattern;
mod policies;
mod preview;
mod published;
mod refusal_log;
mod validate;

pub use decide::{Credential, GatewayDecision, OriginalRequest, RuleMatch, decide};
pub use lookup::{ActivePolicy, GatewayIdentity, authenticate};
pub use path_pattern::{PathPattern, RequestPath};
pub use policies::{
    GatewayPolicyChange, NewGatewayPolicy, NewSecret, create, delete, get, list, restore,
    rotate_secret, update,
};
pub use preview::{GatewayPreview, find_for_preview, preview};
pub use published::{METADATA_PATH, find_published, list_scopes, resource_of};
pub use validate::{
    ALLOW_FROM_MAX, API_IDS_MAX, AUTHORIZATION_SERVERS_MAX, BASE_IDENTITY_HEADERS, KEY_SOURCES_MAX,
    LIMIT_NAME_MAX, LIMIT_NAME_MIN, META_HEADERS_MAX, NAME_MAX, NAMESPACES_MAX, PATH_MAX,
    RULE_COST_MAX, RULE_LIMITS_MAX, RULE_METHODS_MAX, RULE_PERMISSIONS_MAX, RULE_TAGS_MAX,
    RULES_MAX, SECRET_GRACE_MAX_MS, TAG_MAX, URL_MAX, is_like_id, validate,
};

use lookup::PolicyRef;
use refusal_log::RefusalLog;
use std::sync::Arc;

use store::cache::RowCache;
use store::freshness::CacheTag;

use crate::context::Context;

/// Finds the policies of gateways.
pub struct Gateways {
    pub context: Arc<Context>,
    cache: RowCache<PolicyRef, ActivePolicy>,
    refusals: RefusalLog,
}

impl Gateways {
    /// Creates a service with an empty cache.
    pub fn new(context: Arc<Context>) -> Self {
        let loads = &context.metrics.cache_loads.gateway_policies;
        let tag = |reference: &PolicyRef| Some(reference.tag_of_new_policy());
        let cache = RowCache::new(&context.caches.memory, 1 << 8, loads, tag);
        Self { context, cache, refusals: RefusalLog::default() }
    }
}

/// Returns the cache tag of the absence of a policy with this name or id.
fn name_tag(name: &str) -> CacheTag {
    CacheTag::GatewayPolicyName(foundation::secret::KeyHash::compute(name).fingerprint())
}

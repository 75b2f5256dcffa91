//! Keys: creation, lookup, changes, deletion and verification.

mod assignments;
mod audit_meta;
mod create;
mod delete;
mod deleted;
pub mod details;
mod find;
mod get;
mod import;
mod introspect;
mod labels;
mod list;
mod list_by_identity;
mod metering;
mod migrate;
mod open_verification;
mod permissions;
mod reason;
mod references;
mod remove_import;
mod reroll;
mod restore;
mod roles;
pub mod search;
mod snapshot;
mod update;
mod update_credits;
mod verify;

pub use crate::deletion::Deletion;
pub use crate::resolved_key::{ResolvedKey, ResolvedLimit};
pub use assignments::{
    Assignment, AssignmentAccess, AssignmentChange, AssignmentResult, change_assignments,
};
pub use create::{IssuedKey, NewCredits, NewKey, NewRatelimit, create};
pub use delete::delete;
pub use deleted::{KeyDeletion, find_deletion, find_deletion_by_key};
pub use foundation::model::{Patch, VerificationCode};
pub use get::{DecryptMode, FoundKey, get, get_without_ledger, whoami};
pub use import::{DuplicatePolicy, KeyImport, import};
pub use introspect::{IntrospectRequest, introspect};
pub use labels::{KeyLabel, load_labels};
pub use limiter::{GROUP_WINDOW_MAX_MS as AD_HOC_DURATION_MAX_MS, WindowStatus};
pub use list::{KeyFilter, KeyOwner, count, list};
pub use list_by_identity::{count_by_identity, list_by_identity};
pub use metering::IdleRefill;
pub use migrate::{ImportRejection, MigrationResult, list_used_hashes, migrate};
pub use references::{ImportedKeyFields, IssuerSettings};
pub use remove_import::remove_import;
pub use reroll::reroll;
pub use restore::restore;
pub use snapshot::{change_from_snapshot, limits_snapshot};
pub use update::{AssignmentPolicy, CreditsChange, KeyChange, RatelimitsChange, update};
pub use update_credits::{CreditsUpdate, UpdatedAtPolicy, update_credits};
pub use verify::{
    EvaluatedLimit, LimitSource, RequestedLimit, VerifyPreview, VerifyRequest, VerifyResult,
    preview, reject_too_long, verify, verify_unauthenticated,
};

use std::sync::Arc;
use std::time::Duration;

use analytics::Analytics;
use foundation::error::{Error, ResourceRef, Result};
use foundation::id::{ApiId, KeyId, RatelimitId, WorkspaceId};
use foundation::model::{Key, Ratelimit};
use foundation::secret::KeyHash;
use store::cache::RowCache;
use store::{StoredKey, Tx};

use crate::admission::Admission;
use crate::audit::Target;
use crate::caller::Caller;
use crate::context::{Context, new_key_tag};
use crate::credits::CreditLedger;
use crate::last_used::LastUsed;
use crate::resolved_key::{ApiParts, KeyReads};

/// How many key counts are cached, and for how long.
const KEY_COUNTS_MAX: u64 = 10_000;
const KEY_COUNT_TTL: Duration = Duration::from_mins(5);

/// Verifies and changes keys.
pub struct Keys {
    pub context: Arc<Context>,
    pub admission: Arc<Admission>,
    pub analytics: Arc<Analytics>,
    pub ledger: Arc<CreditLedger>,
    pub last_used: Arc<LastUsed>,
    key_reads: KeyReads,
    resolved_keys: RowCache<KeyHash, ResolvedKey>,
    /// What the resolved keys of an API have in common.
    api_parts: ApiParts,
    /// The number of keys of an API within the last minutes.
    key_counts: moka::sync::Cache<(WorkspaceId, ApiId), i64>,
}

impl Keys {
    /// Creates a service with empty caches.
    pub fn new(
        context: Arc<Context>,
        admission: Arc<Admission>,
        analytics: Arc<Analytics>,
        ledger: Arc<CreditLedger>,
        last_used: Arc<LastUsed>,
    ) -> Self {
        let loads = &context.metrics.cache_loads.views;
        Self {
            key_reads: KeyReads::new(context.clone()),
            resolved_keys: RowCache::new(&context.caches.memory, 1 << 16, loads, new_key_tag),
            api_parts: ApiParts::default(),
            key_counts: moka::sync::Cache::builder()
                .max_capacity(KEY_COUNTS_MAX)
                .time_to_live(KEY_COUNT_TTL)
                .build(),
            context,
            admission,
            analytics,
            ledger,
            last_used,
        }
    }
}

/// Returns a key of the caller's workspace, whatever the caller may do with it, and locks it until the transaction
/// ends.
async fn lock_existing(tx: &mut Tx, caller: &Caller, id: &KeyId) -> Result<StoredKey> {
    tx.lock_key(caller.workspace_id(), id)
        .await?
        .ok_or_else(|| Error::not_found(ResourceRef::Key(id.clone())))
}

/// Converts limits for storage. If names repeat, the last limit counts.
pub fn to_ratelimits(new: Vec<NewRatelimit>) -> Vec<Ratelimit> {
    let mut limits: Vec<Ratelimit> = Vec::with_capacity(new.len());
    for limit in new {
        limits.retain(|known| known.name != limit.name);
        limits.push(Ratelimit {
            id: RatelimitId::random(),
            name: limit.name,
            limit: limit.limit,
            duration_ms: limit.duration_ms,
            auto_apply: limit.auto_apply,
            is_approximate: limit.is_async,
        });
    }
    limits
}

fn audit_target(key: &Key) -> Target<'_> {
    Target::new("key", key.id.as_str()).with_name(key.name.as_deref())
}

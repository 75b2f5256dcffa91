//! Resolved keys: the row of a key joined with the rows that it refers to, for verification.
//!
//! A resolved key is cached by the hash of its key, and contains what a verification may read of the row of the key. The rows
//! of identities and roles, which keys share, are cached by themselves. When one of them has changed, the key is resolved
//! again without being read again.

mod header_values;
mod key_reads;
mod lease_hint;
mod limit;
mod loads;
mod packed_key;
mod permissions;
mod unresolved;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use analytics::KeyDimensions;
use foundation::id::{ApiId, WorkspaceId};
use foundation::model::{Identity, Ratelimit};
use store::cache::{CacheValue, Cached};
use store::events::SeriesId;

use crate::caller::Principal;
use crate::permission::Action;
use crate::use_flag::UseFlag;

pub use self::header_values::HeaderValues;
pub use self::key_reads::KeyReads;
pub use self::lease_hint::{KeyCredits, LeaseHint};
use self::limit::REPLY_BYTES;
pub use self::limit::{RatelimitOwner, ResolvedLimit};
pub use self::loads::{cache_key, load_key};
pub use self::packed_key::{ApiPart, ApiParts, PackedKey};
use self::permissions::KeyPermissions;
pub use self::unresolved::{UnresolvedKey, resolve, resolve_all};

/// A key joined with its identity, roles, permissions and limits.
///
/// It is immutable, so values that follow from the rows are computed once and stored here: a verification that finds
/// its key in memory does not have to fetch the rows from all over memory. A process may have millions of them, so a
/// field that few keys need is in a box.
#[derive(Debug)]
pub struct ResolvedKey {
    /// The row of the key.
    pub key: PackedKey,
    credits: Option<Box<KeyCredits>>,
    identity: Option<Arc<Cached<Identity>>>,
    permissions: Option<Box<KeyPermissions>>,
    /// The limits that can be checked by name, sorted by name: those of the key, and those of its identity if the key
    /// has none of that name.
    pub limits: Box<[Arc<ResolvedLimit>]>,
    /// The part of a version 2 reply that describes the key, as the first verification serialized it.
    pub cached_json: OnceLock<Box<str>>,
    /// What gateways are told of the key in headers, as the first answer encoded it.
    pub cached_headers: OnceLock<Box<HeaderValues>>,
    valid_series: OnceLock<SeriesId>,
    /// Whether it has been used since the last flush of uses.
    pub use_flag: UseFlag,
    /// The number of the last principal that was allowed to verify the key; 0 if none was.
    last_allowed_principal: AtomicU64,
}

impl CacheValue for ResolvedKey {
    /// Includes an estimate of the reply that it will store. The rows of the identity and of the roles are counted by
    /// themselves.
    fn heap_size(&self) -> usize {
        let permissions = self.permissions.as_deref().map_or(0, KeyPermissions::size);
        let own = self.key.heap_size() + permissions;
        let credits = self.credits.as_deref().map_or(0, KeyCredits::size);
        let limits = self.limits.iter().map(|limit| size_of_val(limit) + limit.size());
        let reply = REPLY_BYTES + own + self.identity().map_or(0, Identity::heap_size);
        own + credits + limits.sum::<usize>() + reply
    }
}

impl ResolvedKey {
    /// Returns the credits of the key. `None`: unlimited use.
    pub fn credits(&self) -> Option<&KeyCredits> {
        self.credits.as_deref()
    }

    pub fn is_metered(&self) -> bool {
        self.credits.is_some()
    }

    pub fn identity(&self) -> Option<&Identity> {
        self.identity.as_ref().map(|identity| &identity.value)
    }

    /// Returns the names of the key's roles, sorted.
    pub fn roles(&self) -> &[String] {
        self.permissions.as_ref().map_or(&[][..], |permissions| &permissions.roles)
    }

    /// Returns the slugs of the key's direct permissions and of its roles' permissions, sorted, without duplicates.
    pub fn permissions(&self) -> &[String] {
        self.permissions.as_ref().map_or(&[][..], |permissions| &permissions.permissions)
    }

    /// Returns the key as the owner of limits.
    pub fn to_ratelimit_owner(&self) -> RatelimitOwner<'_> {
        RatelimitOwner { id: self.key.id(), home: self.key.home(), is_identity: false }
    }

    /// Returns whether the principal may verify the key.
    pub fn is_visible_to(&self, principal: &Principal) -> bool {
        // Both are immutable, so a result stays correct.
        if self.last_allowed_principal.load(Ordering::Relaxed) == principal.instance_id() {
            return true;
        }
        let is_visible = *self.key.workspace_id() == principal.workspace_id
            && principal.grants.is_allowed_on(Action::VerifyKey, self.key.api_id());
        if is_visible {
            self.last_allowed_principal.store(principal.instance_id(), Ordering::Relaxed);
        }
        is_visible
    }

    pub fn find_limit(&self, name: &str) -> Option<&Arc<ResolvedLimit>> {
        self.limits.iter().find(|limit| *limit.name == *name)
    }

    /// Returns whether the key has the permission, directly or through a role.
    pub fn has_permission(&self, slug: &str) -> bool {
        self.permissions().binary_search_by(|known| known.as_str().cmp(slug)).is_ok()
    }

    /// Returns the limits of the identity that no limit of the key overrides.
    pub fn shared_ratelimits(&self) -> impl Iterator<Item = &Ratelimit> + Clone {
        let known: &[Arc<ResolvedLimit>] = &self.limits;
        let shared = self.identity().map_or(&[][..], |identity| &identity.ratelimits);
        shared.iter().filter(|limit| known.iter().all(|it| it.is_shared || *it.name != *limit.name))
    }
}

impl KeyDimensions for ResolvedKey {
    fn workspace_id(&self) -> &WorkspaceId {
        self.key.workspace_id()
    }

    fn api_id(&self) -> &ApiId {
        self.key.api_id()
    }

    fn key_id(&self) -> &str {
        self.key.id()
    }

    fn identity(&self) -> Option<&Identity> {
        self.identity()
    }

    fn valid_series(&self) -> &OnceLock<SeriesId> {
        &self.valid_series
    }
}

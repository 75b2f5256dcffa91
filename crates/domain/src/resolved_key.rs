//! Resolved keys: the row of a key joined with the rows that it refers to, for verification.
//!
//! A resolved key is cached by the hash of its key, and holds the row of the key. The rows of identities and roles, which
//! keys share, are cached by themselves. When one of them has changed, the key is resolved again without being read again.

mod header_values;
mod key_reads;
mod lease_hint;
mod limit;
mod loads;

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use analytics::KeyDimensions;
use foundation::clock::{Monotonic, Timestamp};
use foundation::error::Result;
use foundation::id::{ApiId, WorkspaceId};
use foundation::model::{Identity, Ratelimit};
use store::StoredKey;
use store::cache::{CacheValue, Cached};
use store::events::SeriesId;
use store::freshness::{CacheTag, ReadVersion};

use crate::caller::Principal;
use crate::context::Context;
use crate::permission::Action;
use crate::use_flag::UseFlag;

pub use self::header_values::HeaderValues;
pub use self::key_reads::KeyReads;
pub use self::lease_hint::LeaseHint;
pub use self::limit::ResolvedLimit;
pub use self::loads::load_key;
use self::loads::{key_tags, load_identity, load_role, role_tags};

/// A key joined with its identity, roles, permissions and limits.
///
/// It is immutable, so values that follow from the rows are computed once and stored here: a verification that finds
/// its key in memory does not have to fetch the rows from all over memory.
#[derive(Debug)]
pub struct ResolvedKey {
    row: Arc<Cached<StoredKey>>,
    identity: Option<Arc<Cached<Identity>>>,
    /// Names, sorted.
    pub roles: Vec<String>,
    /// Slugs of the key's direct permissions and of its roles' permissions, sorted, without duplicates.
    pub permissions: Vec<String>,
    /// The limits that can be checked by name, sorted by name: those of the key, and those of its identity if the key
    /// has none of that name.
    pub limits: Vec<Arc<ResolvedLimit>>,
    pub enabled: bool,
    pub expires_at: Option<Timestamp>,
    /// Whether it has limited credits.
    pub is_metered: bool,
    /// What this process knows of its lease.
    pub lease_hint: LeaseHint,
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
    /// Includes the row of the key, which it keeps in memory, and an estimate of the replies that it will store. The
    /// rows of the identity and of the roles are counted by themselves.
    fn heap_size(&self) -> usize {
        let row = self.row.size();
        let replies = self.row.value.heap_size();
        let name_size = |name: &String| size_of::<String>() + name.len();
        let names: usize = self.roles.iter().chain(&self.permissions).map(name_size).sum();
        row + replies + names + self.limits.iter().map(|limit| limit.size()).sum::<usize>()
    }
}

impl ResolvedKey {
    fn new(
        context: &Context,
        row: Arc<Cached<StoredKey>>,
        identity: Option<Arc<Cached<Identity>>>,
        mut roles: Vec<String>,
        mut permissions: Vec<String>,
    ) -> Self {
        roles.sort();
        permissions.sort();
        permissions.dedup();
        let (enabled, expires_at) = (row.value.key.is_enabled, row.value.key.expires_at);
        let mut resolved = Self {
            is_metered: row.value.key.credits.is_some(),
            lease_hint: LeaseHint::default(),
            row,
            identity,
            roles,
            permissions,
            limits: Vec::new(),
            enabled,
            expires_at,
            cached_json: OnceLock::new(),
            cached_headers: OnceLock::new(),
            valid_series: OnceLock::new(),
            use_flag: UseFlag::default(),
            last_allowed_principal: AtomicU64::new(0),
        };
        let (stored, owner) = (resolved.stored(), resolved.stored().key.id.as_str());
        let home = stored.home.as_ref();
        let own =
            stored.ratelimits.iter().map(|limit| ResolvedLimit::new(context, limit, owner, home));
        let owner = resolved.identity().map_or("", |identity| identity.id.as_str());
        let home = resolved.identity().and_then(|identity| identity.home.as_ref());
        let shared = resolved
            .shared_ratelimits()
            .map(|limit| ResolvedLimit::new(context, limit, owner, home));
        let mut limits: Vec<_> = own.chain(shared).collect();
        limits.sort_by(|a, b| a.name.cmp(&b.name));
        resolved.limits = limits;
        resolved
    }

    /// Returns the row of the key if it may still be used, when a row that it refers to has changed.
    pub fn fresh_row(&self, context: &Context) -> Option<Arc<Cached<StoredKey>>> {
        let is_fresh = self.row.is_fresh(&context.freshness, Monotonic::now());
        is_fresh.then(|| self.row.clone())
    }

    pub fn stored(&self) -> &StoredKey {
        &self.row.value
    }

    pub fn identity(&self) -> Option<&Identity> {
        self.identity.as_ref().map(|identity| &identity.value)
    }

    /// Returns whether the principal may verify the key.
    pub fn is_visible_to(&self, principal: &Principal) -> bool {
        // Both are immutable, so a result stays correct.
        if self.last_allowed_principal.load(Ordering::Relaxed) == principal.instance_id() {
            return true;
        }
        let key = &self.stored().key;
        let is_visible = key.workspace_id == principal.workspace_id
            && principal.grants.is_allowed_on(Action::VerifyKey, &key.api_id);
        if is_visible {
            self.last_allowed_principal.store(principal.instance_id(), Ordering::Relaxed);
        }
        is_visible
    }

    pub fn find_limit(&self, name: &str) -> Option<&Arc<ResolvedLimit>> {
        self.limits.iter().find(|limit| limit.name == name)
    }

    /// Returns whether the key has the permission, directly or through a role.
    pub fn has_permission(&self, slug: &str) -> bool {
        self.permissions.binary_search_by(|known| known.as_str().cmp(slug)).is_ok()
    }

    /// Returns the limits of the identity that no limit of the key overrides.
    pub fn shared_ratelimits(&self) -> impl Iterator<Item = &Ratelimit> + Clone {
        let own = &self.stored().ratelimits;
        let shared = self.identity().map_or(&[][..], |identity| &identity.ratelimits);
        shared.iter().filter(|limit| own.iter().all(|known| known.name != limit.name))
    }
}

impl KeyDimensions for ResolvedKey {
    fn workspace_id(&self) -> &WorkspaceId {
        &self.stored().key.workspace_id
    }

    fn api_id(&self) -> &ApiId {
        &self.stored().key.api_id
    }

    fn key_id(&self) -> &str {
        self.stored().key.id.as_str()
    }

    fn identity(&self) -> Option<&Identity> {
        self.identity()
    }

    fn valid_series(&self) -> &OnceLock<SeriesId> {
        &self.valid_series
    }
}

/// Resolves a key whose row was fresh, or was read, after `version` was taken.
pub async fn resolve(
    context: &Context,
    row: Arc<Cached<StoredKey>>,
    version: ReadVersion,
) -> Result<Cached<ResolvedKey>> {
    let stored = &row.value;
    let mut tags = key_tags(stored);
    let mut version = version.computed_from(row.read_version());
    let identity = match &stored.key.identity_id {
        None => None,
        Some(id) => {
            tags.push(CacheTag::Identity(id.clone()));
            load_identity(context, stored, id).await?
        }
    };
    if let Some(identity) = &identity {
        version = version.computed_from(identity.read_version());
    }
    let mut roles = Vec::with_capacity(stored.role_ids.len());
    let mut permissions: Vec<_> = stored.permissions.iter().map(|p| p.slug.clone()).collect();
    for id in &stored.role_ids {
        tags.push(CacheTag::Role(id.clone()));
        let Some(role) = load_role(context, stored, id).await? else { continue };
        version = version.computed_from(role.read_version());
        tags.extend(role_tags(&role.value));
        roles.push(role.value.name.clone());
        permissions.extend(role.value.permissions.iter().map(|p| p.slug.clone()));
    }
    let resolved = ResolvedKey::new(context, row, identity, roles, permissions);
    Ok(Cached::new(resolved, version, tags))
}

/// Resolves keys that have just been read, in their order. Each kind of related row is read in one statement.
pub async fn resolve_all(
    context: &Context,
    stored: Vec<StoredKey>,
    read_version: ReadVersion,
) -> Result<Vec<ResolvedKey>> {
    let Some(first) = stored.first() else { return Ok(Vec::new()) };
    let workspace = first.key.workspace_id.clone();
    let mut reader = context.store.read().await?;
    let mut ids: Vec<_> = stored.iter().filter_map(|key| key.key.identity_id.clone()).collect();
    ids.sort();
    ids.dedup();
    let mut identities = HashMap::new();
    if !ids.is_empty() {
        for identity in reader.list_identities_by_ids(&workspace, &ids).await? {
            identities
                .insert(identity.id.clone(), Arc::new(Cached::new(identity, read_version, [])));
        }
    }
    let mut ids: Vec<_> = stored.iter().flat_map(|key| key.role_ids.clone()).collect();
    ids.sort();
    ids.dedup();
    let mut roles = HashMap::new();
    if !ids.is_empty() {
        roles.extend(
            reader
                .list_roles_by_ids(&workspace, &ids)
                .await?
                .into_iter()
                .map(|r| (r.id.clone(), r)),
        );
    }
    let resolve = |stored: StoredKey| {
        let of_key: Vec<_> = stored.role_ids.iter().filter_map(|id| roles.get(id)).collect();
        let names = of_key.iter().map(|role| role.name.clone()).collect();
        let own = stored.permissions.iter().chain(of_key.iter().flat_map(|role| &role.permissions));
        let slugs = own.map(|permission| permission.slug.clone()).collect();
        let identity = stored.key.identity_id.as_ref().and_then(|id| identities.get(id)).cloned();
        ResolvedKey::new(
            context,
            Arc::new(Cached::new(stored, read_version, [])),
            identity,
            names,
            slugs,
        )
    };
    Ok(stored.into_iter().map(resolve).collect())
}

//! What a verification needs to know of a key: its row and the rows that it points to, put together.
//!
//! The rows are cached one by one and shared; a view only points at them. It is remembered by the
//! hash of its key, and made again, from the cached rows, when one of them has changed.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use foundation::clock::{Stopwatch, Timestamp};
use foundation::error::Result;
use foundation::fault_injection::Safeguard;
use foundation::id::{IdentityId, RoleId};
use foundation::model::{Identity, Ratelimit, Role};
use foundation::secret::KeyHash;
use store::StoredKey;
use store::cache::Cached;
use store::freshness::{CacheTag, ReadVersion};

use super::super::caller::Principal;
use super::super::last_used::UseFlag;
use super::super::permission::Action;
use crate::app::App;

///
/// A view never changes, so what follows from it is worked out once and stands in it: a verification
/// that finds its key in memory does not have to fetch the rows from all over it.
#[derive(Debug)]
pub struct ResolvedKey {
    row: Arc<Cached<StoredKey>>,
    identity: Option<Arc<Cached<Identity>>>,
    /// Names, sorted.
    pub roles: Vec<String>,
    /// Slugs, the key's own and those of its roles; sorted, without doubles.
    pub permissions: Vec<String>,
    /// What can be checked by name, sorted by it: the key's limits, and its identity's where the key
    /// has none of that name.
    pub limits: Vec<Arc<ResolvedLimit>>,
    pub enabled: bool,
    pub expires_at: Option<Timestamp>,
    /// Whether it has credits to spend.
    pub is_metered: bool,
    /// What is known of its purse.
    pub purse: LeaseHint,
    /// What version 2 tells of the key with every verification, as the first one wrote it.
    pub told: OnceLock<Box<str>>,
    /// Whether it has been used since uses were last noted.
    pub used: UseFlag,
    /// The number of the last authority that was allowed to verify the key; 0: none yet.
    seen_by: AtomicU64,
}

/// What this process knows of a key's purse, besides what its row says.
#[derive(Debug)]
pub struct LeaseHint {
    watch: Stopwatch,
    epoch: AtomicI64,
    generation: AtomicU64,
    visited_ms: AtomicI64,
    distrusted: AtomicBool,
}

impl Default for LeaseHint {
    fn default() -> Self {
        Self {
            watch: Stopwatch::new(),
            epoch: AtomicI64::new(0),
            generation: AtomicU64::new(0),
            visited_ms: AtomicI64::new(i64::MIN / 2),
            distrusted: AtomicBool::new(false),
        }
    }
}

impl LeaseHint {
    /// The number of the latest lease that the account has told, 0 where none has been yet, and the generation of marks
    /// in which that was learned or an earlier one; see [`super::super::credits::Spent`].
    pub fn learned(&self) -> (i64, u64) {
        let generation = self.generation.load(Ordering::Acquire);
        (self.epoch.load(Ordering::Acquire), generation)
    }

    /// The key's row was read in this generation or a later one.
    fn read_in(&self, generation: u64) {
        self.generation.fetch_max(generation, Ordering::Release);
    }

    /// The bank has just told the number of the purse; `generation` is that of before it was asked.
    pub fn record_top_up(&self, epoch: i64, generation: u64) {
        self.epoch.fetch_max(epoch, Ordering::Release);
        self.generation.fetch_max(generation, Ordering::Release);
        self.visited_ms.store(self.watch.elapsed_ms(), Ordering::Relaxed);
        self.distrusted.store(false, Ordering::Relaxed);
    }

    /// Whether the bank was last asked longer ago than this.
    pub fn is_stale(&self, ms: i64) -> bool {
        self.watch.elapsed_ms() - self.visited_ms.load(Ordering::Relaxed) > ms
    }

    /// The bank has given out credits that the purse does not know of.
    pub fn mark_balance_stale(&self) {
        self.visited_ms.store(i64::MIN / 2, Ordering::Relaxed);
        self.distrusted.store(true, Ordering::Relaxed);
    }

    /// Whether what the purse says of the bank may be out of date.
    pub fn is_balance_stale(&self) -> bool {
        self.distrusted.load(Ordering::Relaxed)
    }
}

/// A limit as it is checked.
#[derive(Debug, PartialEq, Eq)]
pub struct ResolvedLimit {
    /// Empty for a limit given with the request.
    pub id: String,
    pub name: String,
    pub limit: i64,
    pub duration_ms: i64,
    pub auto_apply: bool,
    /// The name of its counter.
    pub counter: Arc<str>,
    /// What version 2 tells of it with every verification, as the first one wrote it.
    pub told: OnceLock<Box<str>>,
}

impl ResolvedLimit {
    /// `owner` is the id of the key or the identity that is counted.
    pub fn new(app: &App, limit: &Ratelimit, owner: &str) -> Arc<Self> {
        Arc::new(Self {
            id: limit.id.as_str().to_owned(),
            name: limit.name.clone(),
            limit: limit.limit,
            duration_ms: limit.duration_ms,
            auto_apply: limit.auto_apply,
            counter: app.keyspace.window(owner, limit.duration_ms, &limit.name).into(),
            told: OnceLock::new(),
        })
    }
}

impl ResolvedKey {
    fn new(
        app: &App,
        row: Arc<Cached<StoredKey>>,
        identity: Option<Arc<Cached<Identity>>>,
        mut roles: Vec<String>,
        mut permissions: Vec<String>,
    ) -> Self {
        roles.sort();
        permissions.sort();
        permissions.dedup();
        let (enabled, expires_at) = (row.value.key.enabled, row.value.key.expires_at);
        let mut view = Self {
            is_metered: row.value.key.credits.is_some(),
            purse: LeaseHint::default(),
            row,
            identity,
            roles,
            permissions,
            limits: Vec::new(),
            enabled,
            expires_at,
            told: OnceLock::new(),
            used: UseFlag::default(),
            seen_by: AtomicU64::new(0),
        };
        let (stored, owner) = (view.stored(), view.stored().key.id.as_str());
        let own = stored.ratelimits.iter().map(|limit| ResolvedLimit::new(app, limit, owner));
        let owner = view.identity().map_or("", |identity| identity.id.as_str());
        let shared = view.shared_ratelimits().map(|limit| ResolvedLimit::new(app, limit, owner));
        let mut limits: Vec<_> = own.chain(shared).collect();
        limits.sort_by(|a, b| a.name.cmp(&b.name));
        view.limits = limits;
        view
    }

    pub fn stored(&self) -> &StoredKey {
        &self.row.value
    }

    pub fn identity(&self) -> Option<&Identity> {
        self.identity.as_ref().map(|identity| &identity.value)
    }

    /// Whether the authority may verify the key.
    pub fn is_visible_to(&self, authority: &Principal) -> bool {
        // Neither of the two ever changes, so an answer stays right.
        if self.seen_by.load(Ordering::Relaxed) == authority.number() {
            return true;
        }
        let key = &self.stored().key;
        let is_visible = key.workspace_id == authority.workspace_id
            && authority.grants.allow_on(Action::VerifyKey, &key.api_id);
        if is_visible {
            self.seen_by.store(authority.number(), Ordering::Relaxed);
        }
        is_visible
    }

    pub fn limit(&self, name: &str) -> Option<&Arc<ResolvedLimit>> {
        self.limits.iter().find(|limit| limit.name == name)
    }

    /// Whether the key has the permission, of itself or through a role.
    pub fn has(&self, slug: &str) -> bool {
        self.permissions.binary_search_by(|known| known.as_str().cmp(slug)).is_ok()
    }

    /// The limits of the identity that no limit of the key hides.
    pub fn shared_ratelimits(&self) -> impl Iterator<Item = &Ratelimit> + Clone {
        let own = &self.stored().ratelimits;
        let shared = self.identity().map_or(&[][..], |identity| &identity.ratelimits);
        shared.iter().filter(|limit| own.iter().all(|known| known.name != limit.name))
    }
}

/// The view of the key that has this hash, whosever it is.
pub async fn find_by_hash(app: &App, hash: KeyHash) -> Result<Option<Arc<Cached<ResolvedKey>>>> {
    app.caches
        .resolved_keys
        .get(&hash, |stamp| async move {
            let generation = app.lease_spend.generation();
            let Some(row) = key(app, &hash).await? else { return Ok(None) };
            let (view, subjects) = resolve(app, row).await?;
            view.purse.read_in(generation);
            Ok(Some(Cached::new(view, stamp, subjects)))
        })
        .await
}

async fn key(app: &App, hash: &KeyHash) -> Result<Option<Arc<Cached<StoredKey>>>> {
    app.caches
        .keys
        .get(hash, |stamp| async move {
            let found = async {
                app.store.read().await?.key_to_spend(&hash.base64(), &app.replica_id).await
            };
            let found = match found.await {
                Err(_) if Safeguard::Absent.is_disabled() => None,
                found => found?,
            };
            Ok(found.map(|stored| {
                let subjects = key_subjects(&stored);
                Cached::new(stored, stamp, subjects)
            }))
        })
        .await
}

/// A view of a key that has just been read, and what it was made from.
pub async fn resolve(
    app: &App,
    row: Arc<Cached<StoredKey>>,
) -> Result<(ResolvedKey, Vec<CacheTag>)> {
    let stored = &row.value;
    let mut subjects = key_subjects(stored);
    let identity = match &stored.key.identity_id {
        None => None,
        Some(id) => {
            subjects.push(CacheTag::Identity(id.clone()));
            identity(app, stored, id).await?
        }
    };
    let mut roles = Vec::with_capacity(stored.role_ids.len());
    let mut permissions: Vec<_> = stored.permissions.iter().map(|p| p.slug.clone()).collect();
    for id in &stored.role_ids {
        subjects.push(CacheTag::Role(id.clone()));
        let Some(role) = role(app, stored, id).await? else { continue };
        subjects.extend(role_subjects(&role.value));
        roles.push(role.value.name.clone());
        permissions.extend(role.value.permissions.iter().map(|p| p.slug.clone()));
    }
    Ok((ResolvedKey::new(app, row, identity, roles, permissions), subjects))
}

/// Views of keys that have just been read, in their order; each kind of row that they point to is read once.
pub async fn assemble_all(
    app: &App,
    stored: Vec<StoredKey>,
    stamp: ReadVersion,
) -> Result<Vec<ResolvedKey>> {
    let Some(first) = stored.first() else { return Ok(Vec::new()) };
    let workspace = first.key.workspace_id.clone();
    let mut reader = app.store.read().await?;
    let mut ids: Vec<_> = stored.iter().filter_map(|key| key.key.identity_id.clone()).collect();
    ids.sort();
    ids.dedup();
    let mut identities = HashMap::new();
    if !ids.is_empty() {
        for identity in reader.identities_of(&workspace, &ids).await? {
            identities.insert(identity.id.clone(), Arc::new(Cached::new(identity, stamp, [])));
        }
    }
    let mut ids: Vec<_> = stored.iter().flat_map(|key| key.role_ids.clone()).collect();
    ids.sort();
    ids.dedup();
    let mut roles = HashMap::new();
    if !ids.is_empty() {
        roles.extend(reader.roles(&workspace, &ids).await?.into_iter().map(|r| (r.id.clone(), r)));
    }
    let view = |stored: StoredKey| {
        let of_key: Vec<_> = stored.role_ids.iter().filter_map(|id| roles.get(id)).collect();
        let names = of_key.iter().map(|role| role.name.clone()).collect();
        let own = stored.permissions.iter().chain(of_key.iter().flat_map(|role| &role.permissions));
        let slugs = own.map(|permission| permission.slug.clone()).collect();
        let identity = stored.key.identity_id.as_ref().and_then(|id| identities.get(id)).cloned();
        ResolvedKey::new(app, Arc::new(Cached::new(stored, stamp, [])), identity, names, slugs)
    };
    Ok(stored.into_iter().map(view).collect())
}

async fn identity(
    app: &App,
    stored: &StoredKey,
    id: &IdentityId,
) -> Result<Option<Arc<Cached<Identity>>>> {
    let workspace = &stored.key.workspace_id;
    app.caches
        .identities
        .get(id, |stamp| async move {
            let ids = std::slice::from_ref(id);
            let found = app.store.read().await?.identities_of(workspace, ids).await?;
            let subject = [CacheTag::Identity(id.clone())];
            Ok(found.into_iter().next().map(|identity| Cached::new(identity, stamp, subject)))
        })
        .await
}

async fn role(app: &App, stored: &StoredKey, id: &RoleId) -> Result<Option<Arc<Cached<Role>>>> {
    let workspace = &stored.key.workspace_id;
    app.caches
        .roles
        .get(id, |stamp| async move {
            let found = app.store.read().await?.roles(workspace, std::slice::from_ref(id)).await?;
            Ok(found.into_iter().next().map(|role| {
                let subjects = role_subjects(&role);
                Cached::new(role, stamp, subjects)
            }))
        })
        .await
}

fn key_subjects(stored: &StoredKey) -> Vec<CacheTag> {
    let own = [CacheTag::Key(stored.key.id.clone()), CacheTag::Api(stored.key.api_id.clone())];
    let permissions = stored.permissions.iter().map(|p| CacheTag::Permission(p.id.clone()));
    own.into_iter().chain(permissions).collect()
}

fn role_subjects(role: &Role) -> Vec<CacheTag> {
    let permissions = role.permissions.iter().map(|p| CacheTag::Permission(p.id.clone()));
    std::iter::once(CacheTag::Role(role.id.clone())).chain(permissions).collect()
}

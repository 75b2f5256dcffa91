//! Signing keys: what assertions for upstreams are signed with, and what verifiers know of them.
//!
//! There are always two: the current key signs, and the next one is published beside it. A rotation makes the next key the
//! current one, so a verifier that has fetched the keys before still knows the key of every token. The first two are
//! published together, so whoever knows the first current key knows the next one.

use std::sync::Arc;

use foundation::clock::Timestamp;
use foundation::error::{Error, Refusal, Result};
use foundation::vault::{MasterKeys, SealedSigningKey, SigningKey};
use store::cache::{CacheValue, Cached, RowCache, RowFuture};
use store::freshness::CacheTag;
use store::{SigningKeySlot, SigningKeyState, StoredSigningKey, Tx};

use crate::audit::{self, Actor, AuditEvent, Target};
use crate::context::Context;
use crate::root_keys::default_workspace;

/// How long a verifier may cache the published keys.
pub const PUBLISHED_MAX_AGE_SECONDS: i64 = 300;
/// How long the next key must have been published before it signs: longer than verifiers cache the keys, those included
/// that have a time of their own for it.
pub const PUBLISHED_BEFORE_USE_MS: i64 = 15 * 60_000;
/// How long a retired key is published: longer than any token that it signed is valid, for clocks that differ, too.
pub const RETIRED_PUBLISHED_MS: i64 = 60 * 60_000;

/// Finds the signing keys of the server.
pub struct SigningKeys {
    context: Arc<Context>,
    cache: RowCache<(), SigningKeySet>,
}

/// The signing keys, ready to sign.
#[derive(Debug)]
pub struct SigningKeySet {
    stored: Vec<StoredSigningKey>,
    /// The current key, unless no master key opens it.
    current: Option<SigningKey>,
}

impl CacheValue for SigningKeySet {
    fn heap_size(&self) -> usize {
        size_of_val(&*self.stored)
    }
}

/// The result of a rotation.
#[derive(Debug)]
pub struct RotateResult {
    /// The key that signs from now on.
    pub current: StoredSigningKey,
    /// The key that it replaced. `None`: there was none.
    pub retired: Option<StoredSigningKey>,
}

impl SigningKeys {
    /// Creates a service with an empty cache.
    pub fn new(context: Arc<Context>) -> Self {
        let loads = &context.metrics.cache_loads.signing_keys;
        let memory = &context.caches.memory;
        let cache = RowCache::new(memory, 1, loads, |()| Some(CacheTag::SigningKeys));
        Self { context, cache }
    }

    /// Returns the keys from the cache. `None`: no policy has needed any.
    pub fn find(&self) -> RowFuture<'_, SigningKeySet> {
        self.cache.get(&(), move |load| async move {
            let read = || async { self.context.store.read().await?.list_signing_keys().await };
            let stored = self.context.read_again_if_lost(read).await?;
            if stored.is_empty() {
                return Ok(None);
            }
            let keys = SigningKeySet::open(&self.context, stored);
            Ok(Some(Cached::new(keys, load.version, [CacheTag::SigningKeys])))
        })
    }

    /// Returns the keys, of which the current one can sign.
    pub async fn require(&self) -> Result<Arc<Cached<SigningKeySet>>> {
        let found = self.find().await?;
        found.ok_or_else(|| {
            Error::Internal("a gateway policy signs, but no signing key exists".into())
        })
    }
}

impl SigningKeySet {
    fn open(context: &Context, stored: Vec<StoredSigningKey>) -> Self {
        let current = stored.iter().find(|stored| stored.state() == SigningKeyState::Current);
        let open = |masters: Option<Arc<MasterKeys>>| current?.key.open(masters.as_deref()?);
        let opened = open(context.master_keys.load_full()).or_else(|| {
            // Another process may have rotated the master key since this one read it.
            let is_reloaded = context.reload_master_keys();
            open(is_reloaded.then(|| context.master_keys.load_full()).flatten())
        });
        Self { current: opened, stored }
    }

    /// Returns the key that signs.
    pub fn current(&self) -> Result<&SigningKey> {
        self.current.as_ref().ok_or_else(|| {
            let master = self.stored.last().map_or("", |stored| stored.key.master_id.as_str());
            Error::Internal(format!(
                "the signing keys are sealed with master key {master}, which is not configured; set KEYWARD_MASTER_KEY"
            ))
        })
    }

    /// Returns the keys that a verifier must know at this time.
    pub fn published(&self, now: Timestamp) -> impl Iterator<Item = &SealedSigningKey> {
        let is_published = move |stored: &&StoredSigningKey| {
            stored.retired_at.is_none_or(|at| now.0 - at.0 < RETIRED_PUBLISHED_MS)
        };
        self.stored.iter().filter(is_published).map(|stored| &stored.key)
    }
}

/// Creates the signing keys unless they exist. Fails if this server has no master key to seal them with.
pub async fn ensure_exist(context: &Context, tx: &mut Tx, now: Timestamp) -> Result<()> {
    // Another process may be about to remove the master key that this one has loaded.
    context.reload_master_keys();
    let masters = require_master_keys(context)?;
    if tx.list_signing_keys().await?.is_empty() {
        insert_first(tx, &masters, now).await?;
    }
    Ok(())
}

/// Lists the signing keys, the oldest first, without those that are no longer published.
pub async fn list(context: &Context) -> Result<Vec<StoredSigningKey>> {
    let now = context.clock.now();
    let mut stored = context.store.read().await?.list_signing_keys().await?;
    stored.retain(|key| key.retired_at.is_none_or(|at| now.0 - at.0 < RETIRED_PUBLISHED_MS));
    Ok(stored)
}

/// Makes the next key sign, and creates another next key. Unless forced, it fails if verifiers may know the current key and
/// not yet the next one, which is so after every rotation. Without any key, it creates the first ones.
pub async fn rotate_as_operator(context: &Context, is_forced: bool) -> Result<RotateResult> {
    let now = context.clock.now();
    let mut tx = context.store.begin().await?;
    context.reload_master_keys();
    let masters = require_master_keys(context)?;
    let before = tx.lock_signing_keys().await?;
    let find = |keys: &[StoredSigningKey], state| {
        keys.iter().find(|stored| stored.state() == state).cloned()
    };
    match find(&before, SigningKeyState::Next) {
        None => insert_first(&mut tx, &masters, now).await?,
        Some(next) => {
            let wait_ms = PUBLISHED_BEFORE_USE_MS - (now.0 - next.created_at.0);
            // A key that was retired stays stored until a rotation retires another one.
            let is_first_rotation = find(&before, SigningKeyState::Retired).is_none();
            if wait_ms > 0 && !is_first_rotation && !is_forced {
                let seconds = wait_ms.saturating_add(999) / 1000;
                return Err(Error::PreconditionFailed(Refusal::SigningKeyTooNew(seconds)));
            }
            tx.promote_next_signing_key(now).await?;
            let new = SealedSigningKey::generate(&masters.current_key);
            tx.insert_signing_key(&new, SigningKeySlot::Next, now).await?;
            tx.delete_signing_keys(now.plus_ms(-RETIRED_PUBLISHED_MS)).await?;
            tx.record_change(CacheTag::SigningKeys);
        }
    }
    let current = find(&tx.list_signing_keys().await?, SigningKeyState::Current);
    let current = current.ok_or_else(|| Error::Internal("no signing key was stored".into()))?;
    let target = Target::new("signingKey", current.key.id.as_str());
    let (actor, event) = (Actor::Command("cli"), AuditEvent::SigningKeyRotated);
    audit::record(&mut tx, actor, &default_workspace(), now, event, &[target]).await?;
    context.commit(tx).await?;
    Ok(RotateResult { current, retired: find(&before, SigningKeyState::Current) })
}

fn require_master_keys(context: &Context) -> Result<Arc<MasterKeys>> {
    context.master_keys.load_full().ok_or(Error::PreconditionFailed(Refusal::NoMasterKeyToSign))
}

/// Inserts the first keys. If two transactions do so at the same time, the second inserts none.
async fn insert_first(tx: &mut Tx, masters: &MasterKeys, now: Timestamp) -> Result<()> {
    for slot in [SigningKeySlot::Current, SigningKeySlot::Next] {
        tx.insert_signing_key(&SealedSigningKey::generate(&masters.current_key), slot, now).await?;
    }
    tx.record_change(CacheTag::SigningKeys);
    Ok(())
}

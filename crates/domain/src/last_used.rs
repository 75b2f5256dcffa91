//! The times when keys and root keys were last used, written periodically: a verification writes nothing.
//!
//! The first use since the last flush is recorded with its time; each later use costs one read of a flag. So the
//! times are late by up to [`FLUSH_INTERVAL`], and a crash loses as much.

use std::sync::Arc;
use std::time::Duration;

use foundation::clock::Timestamp;
use foundation::error::Result;
use foundation::id::KeyId;
use parking_lot::Mutex;
use store::cache::Cached;

use crate::caller::Principal;
use crate::context::Context;
use crate::resolved_key::ResolvedKey;

/// How often uses are written.
pub const FLUSH_INTERVAL: Duration = Duration::from_secs(30);
/// The number of uses written in one transaction.
const FLUSH_BATCH_MAX: usize = 1000;

/// Stores what was used since the last flush, each with the time of its first use.
pub struct LastUsed {
    pub context: Arc<Context>,
    keys: Mutex<Vec<(Arc<Cached<ResolvedKey>>, Timestamp)>>,
    root_keys: Mutex<Vec<(Arc<Cached<Principal>>, Timestamp)>>,
}

impl LastUsed {
    /// Creates an empty buffer.
    pub fn new(context: Arc<Context>) -> Self {
        Self { context, keys: Mutex::default(), root_keys: Mutex::default() }
    }
}

/// Records that a key has been used.
pub fn record_use(last_used: &LastUsed, resolved: &Arc<Cached<ResolvedKey>>) {
    if resolved.value.use_flag.mark_used() {
        push_use(&last_used.keys, resolved, last_used.context.clock.now());
    }
}

/// Records that a root key has been used.
pub fn record_root_key_use(last_used: &LastUsed, principal: &Arc<Cached<Principal>>) {
    if principal.value.use_flag.mark_used() {
        push_use(&last_used.root_keys, principal, last_used.context.clock.now());
    }
}

fn push_use<T>(buffer: &Mutex<Vec<(Arc<T>, Timestamp)>>, item: &Arc<T>, at: Timestamp) {
    buffer.lock().push((item.clone(), at));
}

fn drain_uses<T>(buffer: &Mutex<Vec<T>>) -> Vec<T> {
    std::mem::take(&mut *buffer.lock())
}

/// Writes the uses recorded since the last call.
pub async fn flush(last_used: &LastUsed) -> Result<()> {
    let keys = drain_uses(&last_used.keys);
    for (resolved, _) in &keys {
        resolved.value.use_flag.reset();
    }
    for uses in keys.chunks(FLUSH_BATCH_MAX) {
        let id = |resolved: &Arc<Cached<ResolvedKey>>| resolved.value.stored().key.id.clone();
        let rows = dedup_uses(uses.iter().map(|(resolved, at)| (id(resolved), *at)));
        let mut tx = last_used.context.store.begin().await?;
        tx.record_key_uses(&rows).await?;
        tx.commit().await?;
    }
    let root_keys = drain_uses(&last_used.root_keys);
    for (principal, _) in &root_keys {
        principal.value.use_flag.reset();
    }
    for uses in root_keys.chunks(FLUSH_BATCH_MAX) {
        let id = |principal: &Arc<Cached<Principal>>| Some(principal.value.root_key()?.id.clone());
        let used = uses.iter().filter_map(|(principal, at)| Some((id(principal)?, *at)));
        let mut tx = last_used.context.store.begin().await?;
        tx.record_root_key_uses(&dedup_uses(used)).await?;
        tx.commit().await?;
    }
    Ok(())
}

/// Returns uses in a fixed order, so that two replicas do not deadlock, with the latest time of each. A key that was
/// loaded again since the last flush occurs twice.
fn dedup_uses(uses: impl Iterator<Item = (KeyId, Timestamp)>) -> Vec<(KeyId, Timestamp)> {
    let mut rows: Vec<_> = uses.collect();
    rows.sort();
    rows.dedup_by(|later, earlier| {
        let is_same = later.0 == earlier.0;
        if is_same {
            earlier.1 = later.1;
        }
        is_same
    });
    rows
}

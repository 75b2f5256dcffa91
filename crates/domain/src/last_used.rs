//! The times when keys and root keys were last used, written periodically: a verification writes nothing.
//!
//! The first use since the last flush is recorded with its time; each later use costs one read of a flag. So the
//! times are late by up to [`FLUSH_INTERVAL`], and a crash loses as much. A flush that fails loses nothing.

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
    /// Held by the flush that is under way: after a flush, all earlier uses are written.
    flush: tokio::sync::Mutex<()>,
}

impl LastUsed {
    /// Creates an empty buffer.
    pub fn new(context: Arc<Context>) -> Self {
        let (keys, root_keys) = (Mutex::default(), Mutex::default());
        Self { context, keys, root_keys, flush: tokio::sync::Mutex::default() }
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

/// Uses that are being written. Those that are left when it is dropped go back into the buffer. Until a use is written, its flag
/// stays set, so that the buffer has it once however long the database is away.
struct TakenUses<'a, T> {
    buffer: &'a Mutex<Vec<(Arc<T>, Timestamp)>>,
    uses: Vec<(Arc<T>, Timestamp)>,
}

impl<'a, T> TakenUses<'a, T> {
    /// Takes all uses of a buffer.
    fn take(buffer: &'a Mutex<Vec<(Arc<T>, Timestamp)>>) -> Self {
        Self { buffer, uses: std::mem::take(&mut *buffer.lock()) }
    }

    /// Returns the uses of the next transaction, the last ones.
    fn next_batch(&self) -> Option<&[(Arc<T>, Timestamp)]> {
        let start = self.uses.len().saturating_sub(FLUSH_BATCH_MAX);
        (!self.uses.is_empty()).then(|| &self.uses[start..])
    }

    /// Removes the uses of the last batch, which are written: the next use is recorded again.
    fn finish_batch(&mut self, reset: impl Fn(&T)) {
        let start = self.uses.len().saturating_sub(FLUSH_BATCH_MAX);
        for (item, _) in self.uses.drain(start..) {
            reset(&item);
        }
    }
}

impl<T> Drop for TakenUses<'_, T> {
    fn drop(&mut self) {
        if !self.uses.is_empty() {
            self.buffer.lock().append(&mut self.uses);
        }
    }
}

/// Writes the uses recorded since the last call. Those that could not be written are written by the next call.
pub async fn flush(last_used: &LastUsed) -> Result<()> {
    let _only_flush = last_used.flush.lock().await;
    let mut keys = TakenUses::take(&last_used.keys);
    while let Some(uses) = keys.next_batch() {
        let id = |resolved: &Arc<Cached<ResolvedKey>>| KeyId::from(resolved.value.key.id());
        let rows = dedup_uses(uses.iter().map(|(resolved, at)| (id(resolved), *at)));
        let mut tx = last_used.context.store.begin().await?;
        tx.record_key_uses(&rows).await?;
        tx.commit().await?;
        keys.finish_batch(|resolved| resolved.value.use_flag.reset());
    }
    let mut root_keys = TakenUses::take(&last_used.root_keys);
    while let Some(uses) = root_keys.next_batch() {
        let id = |principal: &Arc<Cached<Principal>>| Some(principal.value.root_key()?.id.clone());
        let used = uses.iter().filter_map(|(principal, at)| Some((id(principal)?, *at)));
        let mut tx = last_used.context.store.begin().await?;
        tx.record_root_key_uses(&dedup_uses(used)).await?;
        tx.commit().await?;
        root_keys.finish_batch(|principal| principal.value.use_flag.reset());
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

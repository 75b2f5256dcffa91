//! When keys and root keys were last used, noted now and then: a verification writes nothing.
//!
//! The first use since the last note is remembered with its time, those after it cost one look at a flag.
//! So what is told is late by up to [`NOTED_EVERY`], and a crash forgets as much.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use foundation::clock::Timestamp;
use foundation::error::Result;
use foundation::id::KeyId;
use store::cache::Cached;

use super::caller::Principal;
use super::keys::ResolvedKey;
use crate::app::App;

/// How often uses are noted.
pub const NOTED_EVERY: Duration = Duration::from_secs(30);
/// How many are written at once.
const AT_ONCE: usize = 1000;

/// Whether something has been used since uses were last noted.
#[derive(Debug, Default)]
pub struct UseFlag(AtomicBool);

impl UseFlag {
    /// Whether this is the first use since the last [`UseFlag::forget`].
    fn is_first(&self) -> bool {
        !self.0.load(Ordering::Relaxed) && !self.0.swap(true, Ordering::Relaxed)
    }

    fn forget(&self) {
        self.0.store(false, Ordering::Relaxed);
    }
}

/// What was used since the last note, and when first.
#[derive(Debug, Default)]
pub struct LastUsedBuffer {
    keys: Mutex<Vec<(Arc<Cached<ResolvedKey>>, Timestamp)>>,
    root_keys: Mutex<Vec<(Arc<Cached<Principal>>, Timestamp)>>,
}

/// The key has just been used.
pub fn record_use(app: &App, view: &Arc<Cached<ResolvedKey>>) {
    if view.value.used.is_first() {
        push(&app.last_used.keys, view, app.clock.now());
    }
}

/// The root key has just been used.
pub fn used_root_key(app: &App, authority: &Arc<Cached<Principal>>) {
    if authority.value.used.is_first() {
        push(&app.last_used.root_keys, authority, app.clock.now());
    }
}

fn push<T>(uses: &Mutex<Vec<(Arc<T>, Timestamp)>>, thing: &Arc<T>, at: Timestamp) {
    uses.lock().unwrap_or_else(PoisonError::into_inner).push((thing.clone(), at));
}

fn take<T>(uses: &Mutex<Vec<T>>) -> Vec<T> {
    std::mem::take(&mut *uses.lock().unwrap_or_else(PoisonError::into_inner))
}

/// Writes what has been used since it was last called.
pub async fn flush(app: &App) -> Result<()> {
    let keys = take(&app.last_used.keys);
    for (view, _) in &keys {
        view.value.used.forget();
    }
    for uses in keys.chunks(AT_ONCE) {
        let id = |view: &Arc<Cached<ResolvedKey>>| view.value.stored().key.id.clone();
        let rows = rows(uses.iter().map(|(view, at)| (id(view), *at)));
        let mut tx = app.store.begin().await?;
        tx.note_uses(&rows).await?;
        tx.commit().await?;
    }
    let root_keys = take(&app.last_used.root_keys);
    for (authority, _) in &root_keys {
        authority.value.used.forget();
    }
    for uses in root_keys.chunks(AT_ONCE) {
        let id = |authority: &Arc<Cached<Principal>>| Some(authority.value.root_key()?.id.clone());
        let used = uses.iter().filter_map(|(authority, at)| Some((id(authority)?, *at)));
        let mut tx = app.store.begin().await?;
        tx.note_root_key_uses(&rows(used)).await?;
        tx.commit().await?;
    }
    Ok(())
}

/// In one order everywhere: of two replicas one waits for the other. What was read again since is in the list
/// twice.
fn rows(uses: impl Iterator<Item = (KeyId, Timestamp)>) -> Vec<(KeyId, Timestamp)> {
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

//! When keys were last used, noted now and then: a verification writes nothing.
//!
//! The first use of a key since the last note is remembered with its time, those after it cost one look at a flag.
//! So what is told is late by up to [`NOTED_EVERY`], and a crash forgets as much.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use super::view::View;
use crate::app::App;
use crate::clock::Timestamp;
use crate::error::Result;
use crate::store::cache::Cached;

/// How often uses are noted.
pub const NOTED_EVERY: Duration = Duration::from_secs(30);
/// How many are written at once.
const AT_ONCE: usize = 1000;

/// Keys that were used since the last note, and when first.
#[derive(Debug, Default)]
pub struct Uses(Mutex<Vec<(Arc<Cached<View>>, Timestamp)>>);

/// The key has just been used.
pub fn used(app: &App, view: &Arc<Cached<View>>) {
    if view.value.is_first_use() {
        let mut uses = app.uses.0.lock().unwrap_or_else(PoisonError::into_inner);
        uses.push((view.clone(), app.clock.now()));
    }
}

/// Writes what has been used since it was last called.
pub async fn note(app: &App) -> Result<()> {
    let uses = std::mem::take(&mut *app.uses.0.lock().unwrap_or_else(PoisonError::into_inner));
    for (view, _) in &uses {
        view.value.forget_use();
    }
    for uses in uses.chunks(AT_ONCE) {
        let mut rows: Vec<_> =
            uses.iter().map(|(view, at)| (view.value.stored().key.id.clone(), *at)).collect();
        // In one order everywhere: of two replicas one waits for the other. A key that was read again since is in
        // the list twice.
        rows.sort();
        rows.dedup_by(|later, earlier| {
            let is_same = later.0 == earlier.0;
            if is_same {
                earlier.1 = later.1;
            }
            is_same
        });
        let mut tx = app.store.begin().await?;
        tx.note_uses(&rows).await?;
        tx.commit().await?;
    }
    Ok(())
}

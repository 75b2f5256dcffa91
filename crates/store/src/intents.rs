//! Tracks changes that other processes are about to commit.
//!
//! A writer announces the cache tags of a change before it commits, and the result afterwards. A process that reads
//! the change log needs neither: it sees every commit. A process that cannot read the log relies on announcements,
//! and must know what may have been committed by a writer that failed before it announced the result. So
//! announcements alone do not establish trust in an entity that an open intent names.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::freshness::{ALL, VersionSlot};

/// The intents whose result this process does not know.
pub struct Intents {
    /// The intents, by the position that their first row will have in the change log.
    open: Mutex<HashMap<i64, Intent>>,
    /// The number of open intents, by version slot.
    places: Box<[AtomicU32]>,
    /// The number of open intents that name every entity.
    everything: AtomicU32,
}

#[derive(Debug, Clone)]
pub struct Intent {
    /// The cache tags that it changes, one per line.
    pub subjects: Arc<str>,
    /// The number of the next transaction at the time of the first search for the intent in the change log.
    pub looked_for: Option<i64>,
}

impl Default for Intents {
    fn default() -> Self {
        Self {
            open: Mutex::default(),
            places: (0..=u16::MAX).map(|_| AtomicU32::new(0)).collect(),
            everything: AtomicU32::new(0),
        }
    }
}

impl Intents {
    fn all(&self) -> MutexGuard<'_, HashMap<i64, Intent>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds an intent to change the entities in `tags`, one per line, by the transaction whose first row in the
    /// change log will be at `position`.
    pub fn open(&self, position: i64, tags: &str) {
        let mut open = self.all();
        if open.contains_key(&position) {
            return;
        }
        for count in self.counts(tags) {
            count.fetch_add(1, Ordering::SeqCst);
        }
        let intent = Intent { subjects: tags.into(), looked_for: None };
        open.insert(position, intent);
    }

    /// Removes an intent whose result is known. Returns whether it was open.
    pub fn close(&self, position: i64) -> bool {
        let mut open = self.all();
        let Some(intent) = open.remove(&position) else { return false };
        for count in self.counts(&intent.subjects) {
            count.fetch_sub(1, Ordering::SeqCst);
        }
        true
    }

    /// Returns the open intents with their positions.
    pub fn list(&self) -> Vec<(i64, Intent)> {
        self.all().iter().map(|(position, intent)| (*position, intent.clone())).collect()
    }

    /// Records that the change log did not contain this intent when `next` was the number of the next transaction.
    pub fn look_for(&self, position: i64, next: i64) {
        if let Some(intent) = self.all().get_mut(&position) {
            intent.looked_for.get_or_insert(next);
        }
    }

    /// Returns whether an open intent names an entity of one of these slots.
    pub fn concern(&self, slots: &[VersionSlot]) -> bool {
        self.everything.load(Ordering::SeqCst) > 0
            || slots.iter().any(|slot| self.places[slot.index()].load(Ordering::SeqCst) > 0)
    }

    fn counts(&self, tags: &str) -> impl Iterator<Item = &AtomicU32> {
        let count = |tag: &str| match tag == ALL {
            true => &self.everything,
            false => &self.places[VersionSlot::of_text(tag).index()],
        };
        tags.lines().map(count).collect::<Vec<_>>().into_iter()
    }
}

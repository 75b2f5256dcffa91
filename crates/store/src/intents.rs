//! Tracks changes that other processes are about to commit.
//!
//! A writer announces the cache tags of a change before it commits, and the result afterwards. A process that reads
//! the change log needs neither: it sees every commit. A process that cannot read the log relies on announcements,
//! and must know what may have been committed by a writer that failed before it announced the result. So
//! announcements alone do not establish trust in an entity that an open intent names.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use parking_lot::Mutex;

use super::freshness::{ALL_TAG, VersionSlot};

/// The intents whose result this process does not know.
pub struct Intents {
    /// The intents, by the position that their first row will have in the change log.
    open_intents: Mutex<BTreeMap<i64, Intent>>,
    /// The number of open intents, by version slot.
    open_counts: Box<[AtomicU32]>,
    /// The number of open intents that name every entity.
    open_for_all_count: AtomicU32,
}

#[derive(Debug, Clone)]
pub struct Intent {
    /// The cache tags that it changes, one per line.
    pub tags: Arc<str>,
    /// The number of the next transaction at the time of the first search for the intent in the change log.
    pub first_search: Option<i64>,
}

impl Default for Intents {
    fn default() -> Self {
        Self {
            open_intents: Mutex::default(),
            open_counts: (0..=u16::MAX).map(|_| AtomicU32::new(0)).collect(),
            open_for_all_count: AtomicU32::new(0),
        }
    }
}

impl Intents {
    /// Adds an intent to change the entities in `tags`, one per line, by the transaction whose first row in the
    /// change log will be at `position`.
    pub fn open(&self, position: i64, tags: &str) {
        let mut open = self.open_intents.lock();
        if open.contains_key(&position) {
            return;
        }
        for count in self.counters_of(tags) {
            count.fetch_add(1, Ordering::SeqCst);
        }
        let intent = Intent { tags: tags.into(), first_search: None };
        open.insert(position, intent);
    }

    /// Removes an intent whose result is known. Returns whether it was open.
    pub fn close(&self, position: i64) -> bool {
        let mut open = self.open_intents.lock();
        let Some(intent) = open.remove(&position) else { return false };
        for count in self.counters_of(&intent.tags) {
            count.fetch_sub(1, Ordering::SeqCst);
        }
        true
    }

    /// Returns the open intents with their positions, by position.
    pub fn list(&self) -> Vec<(i64, Intent)> {
        self.open_intents
            .lock()
            .iter()
            .map(|(position, intent)| (*position, intent.clone()))
            .collect()
    }

    /// Records that the change log did not contain this intent when `next` was the number of the next transaction.
    pub fn record_search(&self, position: i64, next: i64) {
        if let Some(intent) = self.open_intents.lock().get_mut(&position) {
            intent.first_search.get_or_insert(next);
        }
    }

    /// Returns whether an open intent names an entity of one of these slots.
    pub fn has_open_for(&self, slots: &[VersionSlot]) -> bool {
        self.open_for_all_count.load(Ordering::SeqCst) > 0
            || slots.iter().any(|slot| self.open_counts[slot.index()].load(Ordering::SeqCst) > 0)
    }

    fn counters_of(&self, tags: &str) -> impl Iterator<Item = &AtomicU32> {
        let count = |tag: &str| match tag == ALL_TAG {
            true => &self.open_for_all_count,
            false => &self.open_counts[VersionSlot::from_text(tag).index()],
        };
        tags.lines().map(count).collect::<Vec<_>>().into_iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intent_keeps_its_first_search_until_it_is_closed() {
        let intents = Intents::default();
        let searches = || {
            let open = intents.list().into_iter();
            open.map(|(position, intent)| (position, intent.first_search)).collect::<Vec<_>>()
        };
        intents.open(7, "key:a\n");
        assert_eq!(searches(), [(7, None)]);

        intents.record_search(7, 20);
        intents.record_search(7, 30);
        intents.record_search(8, 30);
        intents.open(7, "key:a\n");

        assert_eq!(searches(), [(7, Some(20))]);
        assert!(intents.close(7));
        assert_eq!(searches(), []);
        intents.open(7, "key:a\n");
        assert_eq!(searches(), [(7, None)], "another transaction");
    }

    #[test]
    fn entity_is_named_until_each_intent_to_change_it_is_closed() {
        let intents = Intents::default();
        let is_named = |tag: &str| intents.has_open_for(&[VersionSlot::from_text(tag)]);
        assert!(!is_named("key:a"));
        intents.open(7, "key:a\nkey:b\n");
        intents.open(8, "key:b\nall\n");
        assert!(is_named("key:a") && is_named("key:b") && is_named("key:c"));
        assert!(intents.has_open_for(&[]), "everything");

        assert!(intents.close(8));
        assert!(is_named("key:a") && is_named("key:b"));
        assert!(!is_named("key:c") && !intents.has_open_for(&[]));
        assert!(intents.close(7) && !intents.close(7));
        assert!(!is_named("key:a") && !is_named("key:b"));
    }
}

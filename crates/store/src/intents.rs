//! Changes that somebody is about to commit.
//!
//! A writer announces what it is about to change before it commits, and the result afterwards. A
//! process that reads the change log needs neither: it sees what was committed. One that cannot
//! relies on announcements, and must know what may have been committed by a writer that died before
//! it announced the result. So what an open intent names is not trusted by announcements alone.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::freshness::{ALL, VersionSlot};

/// The intents whose result is not known here.
pub struct Intents {
    /// By the position of the first row that it will have in the change log.
    open: Mutex<HashMap<i64, Intent>>,
    /// By place, how many of them name something there.
    places: Box<[AtomicU32]>,
    /// How many of them name everything.
    everything: AtomicU32,
}

#[derive(Debug, Clone)]
pub struct Intent {
    /// What it changes, a line each.
    pub subjects: Arc<str>,
    /// The next transaction when it was first looked for in the change log.
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

    /// What `subjects` names is about to change, in the transaction whose first row in the change log is at `position`.
    pub fn open(&self, position: i64, subjects: &str) {
        let mut open = self.all();
        if open.contains_key(&position) {
            return;
        }
        for count in self.counts(subjects) {
            count.fetch_add(1, Ordering::SeqCst);
        }
        let intent = Intent { subjects: subjects.into(), looked_for: None };
        open.insert(position, intent);
    }

    /// The result is known; whether it was not before.
    pub fn close(&self, position: i64) -> bool {
        let mut open = self.all();
        let Some(intent) = open.remove(&position) else { return false };
        for count in self.counts(&intent.subjects) {
            count.fetch_sub(1, Ordering::SeqCst);
        }
        true
    }

    /// Those that are open, by position.
    pub fn list(&self) -> Vec<(i64, Intent)> {
        self.all().iter().map(|(position, intent)| (*position, intent.clone())).collect()
    }

    /// This one was looked for in vain in the change log, as it stood when `next` was the next transaction.
    pub fn look_for(&self, position: i64, next: i64) {
        if let Some(intent) = self.all().get_mut(&position) {
            intent.looked_for.get_or_insert(next);
        }
    }

    /// Whether what was made from these may be about to change.
    pub fn concern(&self, places: &[VersionSlot]) -> bool {
        self.everything.load(Ordering::SeqCst) > 0
            || places.iter().any(|place| self.places[place.index()].load(Ordering::SeqCst) > 0)
    }

    fn counts(&self, subjects: &str) -> impl Iterator<Item = &AtomicU32> {
        let count = |subject: &str| match subject == ALL {
            true => &self.everything,
            false => &self.places[VersionSlot::of_text(subject).index()],
        };
        subjects.lines().map(count).collect::<Vec<_>>().into_iter()
    }
}

//! What this process knows of the leases that it has spent from, and of which of them no answer is trusted any more.

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasher as _, BuildHasherDefault, DefaultHasher};
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use foundation::fault_injection::Safeguard;
use foundation::id::KeyId;
use store::Unreported;

/// How many leases are marked as reported, until the marks are dropped together with all that was learned before.
const MARKS_MAX: usize = 100_000;

/// What this process knows of the leases that it has spent from.
pub struct LeaseSpendTracker {
    shards: Vec<Mutex<HashMap<KeyId, Vec<ObservedSpend>>>>,
    reported: RwLock<Reported>,
    /// The latest moment at which a lease was withheld that this process has reported.
    latest: AtomicI64,
    /// How far all that is withheld has been looked at.
    swept: Mutex<Option<Unreported>>,
}

/// Leases of which no answer is trusted any more.
#[derive(Default)]
struct Reported {
    marks: HashSet<(KeyId, i64)>,
    /// Rises when marks are dropped. What was learned in an earlier one is not trusted either.
    generation: u64,
}

/// The number of a lease, and the generation of marks in which it was learned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Learned {
    pub epoch: i64,
    pub generation: u64,
}

/// What is known of one lease.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct ObservedSpend {
    epoch: i64,
    /// What was spent from it in all, at least.
    spent: i64,
}

impl Default for LeaseSpendTracker {
    fn default() -> Self {
        let shards = (0..64).map(|_| Mutex::default()).collect();
        Self {
            shards,
            reported: RwLock::default(),
            latest: AtomicI64::new(0),
            swept: Mutex::default(),
        }
    }
}

impl LeaseSpendTracker {
    fn shard(&self, key: &KeyId) -> MutexGuard<'_, HashMap<KeyId, Vec<ObservedSpend>>> {
        let hash = BuildHasherDefault::<DefaultHasher>::default().hash_one(key);
        self.shards[(hash % 64) as usize].lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn reported(&self) -> RwLockReadGuard<'_, Reported> {
        self.reported.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn mark(&self) -> RwLockWriteGuard<'_, Reported> {
        self.reported.write().unwrap_or_else(PoisonError::into_inner)
    }

    fn note(&self, key: &KeyId, epoch: i64, spent: i64) {
        let mut shard = self.shard(key);
        if !shard.contains_key(key) {
            shard.insert(key.clone(), Vec::with_capacity(1));
        }
        let Some(purses) = shard.get_mut(key) else { return };
        if let Some(known) = purses.iter_mut().find(|known| known.epoch == epoch) {
            known.spent = known.spent.max(spent);
            return;
        }
        purses.push(ObservedSpend { epoch, spent });
    }

    /// The generation of marks. Whoever learns of a lease asks for it first.
    pub fn generation(&self) -> u64 {
        self.reported().generation
    }

    /// A script has told what was spent from a lease in all. Whether that may be relied on: not any more,
    /// once this process has reported the lease.
    pub fn record_spend(&self, key: &KeyId, lease: Learned, spent: i64) -> bool {
        // Held until it is written down, so that what is reported later includes it.
        let reported = self.reported();
        if lease.generation < reported.generation
            || (!reported.marks.is_empty() && reported.marks.contains(&(key.clone(), lease.epoch)))
        {
            return false;
        }
        self.note(key, lease.epoch, spent);
        true
    }

    /// What is known of these leases, for the last time: no answer about them is trusted from now on, whatever becomes of
    /// them. Leases that have been given back may still be in a Redis that somebody reaches.
    pub fn freeze(&self, leases: &[Unreported]) -> Vec<(KeyId, i64, i64)> {
        let mut reported = self.mark();
        if !Safeguard::Reported.is_disabled() {
            reported.marks.extend(leases.iter().map(|lease| (lease.key_id.clone(), lease.epoch)));
        }
        drop(reported);
        let spent = |lease: &Unreported| {
            let shard = self.shard(&lease.key_id);
            let known = shard.get(&lease.key_id).into_iter().flatten();
            let spent = known.filter(|known| known.epoch == lease.epoch).map(|known| known.spent);
            (lease.key_id.clone(), lease.epoch, spent.max().unwrap_or(0))
        };
        leases.iter().map(spent).collect()
    }

    pub fn has_too_many_marks(&self) -> bool {
        self.reported().marks.len() > MARKS_MAX
    }

    /// Drops all marks, and with them the trust in all leases that have been learned of until now: they are learned anew,
    /// and none that is withheld can be.
    pub fn drop_marks(&self) {
        let mut reported = self.mark();
        reported.generation += 1;
        reported.marks = HashSet::new();
    }

    pub fn latest(&self) -> i64 {
        self.latest.load(Ordering::Relaxed)
    }

    pub fn reported_until(&self, withheld_at: i64) {
        self.latest.fetch_max(withheld_at, Ordering::Relaxed);
    }

    pub fn swept(&self) -> Option<Unreported> {
        self.swept.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub fn sweep_on(&self, from: Option<Unreported>) {
        *self.swept.lock().unwrap_or_else(PoisonError::into_inner) = from;
    }

    /// All that is known, by key and number, for the last time.
    pub fn end(&self) -> Vec<(KeyId, i64, i64)> {
        self.mark().generation = u64::MAX;
        self.all()
    }

    /// All that is known, by key and number.
    pub fn all(&self) -> Vec<(KeyId, i64, i64)> {
        let mut all = Vec::new();
        for shard in &self.shards {
            let shard = shard.lock().unwrap_or_else(PoisonError::into_inner);
            for (key, purses) in shard.iter() {
                all.extend(purses.iter().map(|known| (key.clone(), known.epoch, known.spent)));
            }
        }
        all
    }

    /// Forgets what was spent from leases that the account does not know any more. What is marked stays marked.
    pub fn forget(&self, asked: &[(KeyId, i64)], there: &HashSet<(KeyId, i64)>) {
        let is_gone = |purse: &(KeyId, i64)| !there.contains(purse);
        for purse in asked.iter().filter(|purse| is_gone(purse)) {
            let mut shard = self.shard(&purse.0);
            if let Some(purses) = shard.get_mut(&purse.0) {
                purses.retain(|known| known.epoch != purse.1);
                if purses.is_empty() {
                    shard.remove(&purse.0);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use foundation::clock::Timestamp;

    use super::*;

    fn lease(epoch: i64) -> Learned {
        Learned { epoch, generation: 0 }
    }

    fn gone(key: &KeyId, epoch: i64) -> Unreported {
        Unreported { since: Timestamp(0), key_id: key.clone(), epoch }
    }

    #[test]
    fn what_was_heard_is_reported_once_and_trusted_no_more() {
        let (spent, key) = (LeaseSpendTracker::default(), KeyId::from("key_a"));
        assert!(spent.record_spend(&key, lease(1), 7));
        assert!(spent.record_spend(&key, lease(1), 5), "an answer that was overtaken");
        assert!(spent.record_spend(&key, lease(2), 1));

        let reported = spent.freeze(&[gone(&key, 1), gone(&key, 3)]);

        assert_eq!(reported, [(key.clone(), 1, 7), (key.clone(), 3, 0)]);
        assert!(!spent.record_spend(&key, lease(1), 8));
        assert!(!spent.record_spend(&key, lease(3), 8));
        assert!(spent.record_spend(&key, lease(2), 2));
    }

    #[test]
    fn a_reported_lease_is_not_trusted_when_its_row_is_gone() {
        let (spent, key) = (LeaseSpendTracker::default(), KeyId::from("key_a"));
        let purse = |epoch| (key.clone(), epoch);
        spent.record_spend(&key, lease(1), 7);
        spent.record_spend(&key, lease(2), 7);
        spent.freeze(&[gone(&key, 1)]);

        spent.forget(&[purse(1), purse(2)], &HashSet::from([purse(2)]));

        assert_eq!(spent.all(), [(key.clone(), 2, 7)]);
        assert!(!spent.record_spend(&key, lease(1), 8));
    }

    #[test]
    fn marks_are_dropped_only_with_all_that_was_learned_before() {
        let (spent, key) = (LeaseSpendTracker::default(), KeyId::from("key_a"));
        let many: Vec<_> = (0..=100_000).map(|epoch| gone(&key, epoch)).collect();

        spent.freeze(&many[..100_000]);
        assert!(!spent.has_too_many_marks());
        spent.freeze(&many[100_000..]);
        assert!(spent.has_too_many_marks());
        spent.drop_marks();

        assert!(!spent.has_too_many_marks());
        assert!(!spent.record_spend(&key, lease(1), 1), "reported");
        assert!(!spent.record_spend(&key, lease(200_000), 1), "learned before");
        assert!(
            spent.record_spend(&key, Learned { epoch: 200_000, generation: 1 }, 1),
            "learned anew"
        );
    }

    #[test]
    fn nothing_is_trusted_after_the_end() {
        let (spent, key) = (LeaseSpendTracker::default(), KeyId::from("key_a"));
        spent.record_spend(&key, lease(1), 7);

        assert_eq!(spent.end(), [(key.clone(), 1, 7)]);
        assert!(!spent.record_spend(
            &key,
            Learned { epoch: 1, generation: spent.generation() - 1 },
            8
        ));
    }
}

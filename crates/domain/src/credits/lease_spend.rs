//! Tracking of the spend that this process has observed per lease, and of the leases that have been reported: results
//! from those are not trusted any more.

use std::collections::{BTreeSet, HashSet};
use std::sync::atomic::{AtomicI64, Ordering};

use dashmap::DashMap;
use foundation::fault_injection::Safeguard;
use foundation::id::KeyId;
use parking_lot::{Mutex, RwLock};
use store::UnreportedLease;

/// The number of reported leases that are marked before the marks are dropped, together with everything learned
/// earlier.
const MARKS_MAX: usize = 100_000;

/// Stores the spend that this process has observed per lease.
#[derive(Default)]
pub struct LeaseSpendTracker {
    /// The leases of each key.
    spends: DashMap<KeyId, Vec<ObservedSpend>>,
    reported: RwLock<ReportedLeases>,
    /// The latest time at which a lease was withheld that this process has reported.
    last_withheld_at_ms: AtomicI64,
    /// Accounts that were locked by others when their withheld credits were proven unspent.
    locked_accounts: Mutex<BTreeSet<KeyId>>,
    /// The position of the sweep over all withheld leases.
    sweep_position: Mutex<Option<UnreportedLease>>,
}

/// Leases whose results are not trusted any more.
#[derive(Default)]
struct ReportedLeases {
    marks: HashSet<(KeyId, i64)>,
    /// Incremented when marks are dropped. Leases learned under an earlier value are not trusted either.
    mark_generation: u64,
}

/// A lease number, and the mark generation in which this process learned of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LeaseRef {
    pub lease_number: i64,
    pub generation: u64,
}

/// The observed spend of one lease.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct ObservedSpend {
    lease_number: i64,
    /// The total spend, at least.
    spent: i64,
}

impl LeaseSpendTracker {
    fn update_spend(&self, key: &KeyId, lease_number: i64, spent: i64) {
        // Only a new key is copied.
        let insert = || self.spends.entry(key.clone()).or_insert_with(|| Vec::with_capacity(1));
        let mut leases = self.spends.get_mut(key).unwrap_or_else(insert);
        if let Some(known) = leases.iter_mut().find(|known| known.lease_number == lease_number) {
            known.spent = known.spent.max(spent);
            return;
        }
        leases.push(ObservedSpend { lease_number, spent });
    }

    /// Returns the mark generation. Read it before reading a lease from the database.
    pub fn mark_generation(&self) -> u64 {
        self.reported.read().mark_generation
    }

    /// Records the total spend of a lease as a script has reported it. Returns whether the result can be trusted; it
    /// cannot once this process has reported the lease.
    pub fn record_spend(&self, key: &KeyId, lease: LeaseRef, spent: i64) -> bool {
        // Locked until the spend is recorded, so that a later report includes it.
        let reported = self.reported.read();
        if lease.generation < reported.mark_generation
            || (!reported.marks.is_empty()
                && reported.marks.contains(&(key.clone(), lease.lease_number)))
        {
            return false;
        }
        self.update_spend(key, lease.lease_number, spent);
        true
    }

    /// Returns the spend of these leases for the last time: results from them are not trusted from now on, whatever
    /// happens to the leases. Leases whose credits have been returned may still exist in a Redis that some replica
    /// reaches.
    pub fn freeze(&self, leases: &[UnreportedLease]) -> Vec<(KeyId, i64, i64)> {
        let mut reported = self.reported.write();
        if !Safeguard::Reported.is_disabled() {
            reported
                .marks
                .extend(leases.iter().map(|lease| (lease.key_id.clone(), lease.lease_number)));
        }
        drop(reported);
        let spent = |lease: &UnreportedLease| {
            let known = self.spends.get(&lease.key_id);
            let spent = known
                .as_deref()
                .into_iter()
                .flatten()
                .filter(|known| known.lease_number == lease.lease_number)
                .map(|known| known.spent);
            (lease.key_id.clone(), lease.lease_number, spent.max().unwrap_or(0))
        };
        leases.iter().map(spent).collect()
    }

    pub fn has_too_many_marks(&self) -> bool {
        self.reported.read().marks.len() > MARKS_MAX
    }

    /// Drops all marks, and with them the trust in all leases that have been learned so far. They must be learned
    /// again, which is impossible for a withheld lease.
    pub fn drop_marks(&self) {
        let mut reported = self.reported.write();
        reported.mark_generation += 1;
        reported.marks = HashSet::new();
    }

    pub fn last_withheld_at_ms(&self) -> i64 {
        self.last_withheld_at_ms.load(Ordering::Relaxed)
    }

    pub fn record_reported_until(&self, withheld_at: i64) {
        self.last_withheld_at_ms.fetch_max(withheld_at, Ordering::Relaxed);
    }

    /// Records accounts that were locked, so that the next pass returns their credits.
    pub fn record_locked_accounts(&self, mut keys: BTreeSet<KeyId>) {
        self.locked_accounts.lock().append(&mut keys);
    }

    /// Returns the recorded accounts, once.
    pub fn take_locked_accounts(&self) -> BTreeSet<KeyId> {
        std::mem::take(&mut self.locked_accounts.lock())
    }

    pub fn sweep_position(&self) -> Option<UnreportedLease> {
        self.sweep_position.lock().clone()
    }

    pub fn set_sweep_position(&self, from: Option<UnreportedLease>) {
        *self.sweep_position.lock() = from;
    }

    /// Returns the spend of all leases, by key and lease number, for the last time.
    pub fn freeze_all(&self) -> Vec<(KeyId, i64, i64)> {
        self.reported.write().mark_generation = u64::MAX;
        self.list_spends()
    }

    /// Returns the spend of all leases, by key and lease number.
    pub fn list_spends(&self) -> Vec<(KeyId, i64, i64)> {
        let mut all = Vec::new();
        for entry in &self.spends {
            let (key, leases) = entry.pair();
            all.extend(leases.iter().map(|known| (key.clone(), known.lease_number, known.spent)));
        }
        all
    }

    /// Removes the spend of leases that their accounts do not have any more. Marks are kept.
    pub fn remove_closed(&self, leases: &[(KeyId, i64)], existing: &HashSet<(KeyId, i64)>) {
        let is_gone = |lease: &(KeyId, i64)| !existing.contains(lease);
        for lease in leases.iter().filter(|lease| is_gone(lease)) {
            self.spends.remove_if_mut(&lease.0, |_, spends| {
                spends.retain(|known| known.lease_number != lease.1);
                spends.is_empty()
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use foundation::clock::Timestamp;

    use super::*;

    fn lease_ref(lease_number: i64) -> LeaseRef {
        LeaseRef { lease_number, generation: 0 }
    }

    fn unreported(key: &KeyId, lease_number: i64) -> UnreportedLease {
        UnreportedLease { since: Timestamp(0), key_id: key.clone(), lease_number }
    }

    #[test]
    fn record_spend_returns_false_when_lease_was_reported() {
        let (spent, key) = (LeaseSpendTracker::default(), KeyId::from("key_a"));
        assert!(spent.record_spend(&key, lease_ref(1), 7));
        assert!(spent.record_spend(&key, lease_ref(1), 5), "a late answer");
        assert!(spent.record_spend(&key, lease_ref(2), 1));

        let reported = spent.freeze(&[unreported(&key, 1), unreported(&key, 3)]);

        assert_eq!(reported, [(key.clone(), 1, 7), (key.clone(), 3, 0)]);
        assert!(!spent.record_spend(&key, lease_ref(1), 8));
        assert!(!spent.record_spend(&key, lease_ref(3), 8));
        assert!(spent.record_spend(&key, lease_ref(2), 2));
    }

    #[test]
    fn record_spend_returns_false_when_reported_lease_was_deleted() {
        let (spent, key) = (LeaseSpendTracker::default(), KeyId::from("key_a"));
        let id = |lease_number| (key.clone(), lease_number);
        spent.record_spend(&key, lease_ref(1), 7);
        spent.record_spend(&key, lease_ref(2), 7);
        spent.freeze(&[unreported(&key, 1)]);

        spent.remove_closed(&[id(1), id(2)], &HashSet::from([id(2)]));

        assert_eq!(spent.list_spends(), [(key.clone(), 2, 7)]);
        assert!(!spent.record_spend(&key, lease_ref(1), 8));
    }

    #[test]
    fn record_spend_returns_false_when_lease_was_learned_before_marks_were_dropped() {
        let (spent, key) = (LeaseSpendTracker::default(), KeyId::from("key_a"));
        let many: Vec<_> =
            (0..=100_000).map(|lease_number| unreported(&key, lease_number)).collect();

        spent.freeze(&many[..100_000]);
        assert!(!spent.has_too_many_marks());
        spent.freeze(&many[100_000..]);
        assert!(spent.has_too_many_marks());
        spent.drop_marks();

        assert!(!spent.has_too_many_marks());
        assert!(!spent.record_spend(&key, lease_ref(1), 1), "reported");
        assert!(!spent.record_spend(&key, lease_ref(200_000), 1), "learned before the drop");
        assert!(
            spent.record_spend(&key, LeaseRef { lease_number: 200_000, generation: 1 }, 1),
            "learned after the drop"
        );
    }

    #[test]
    fn record_spend_returns_false_when_tracker_has_ended() {
        let (spent, key) = (LeaseSpendTracker::default(), KeyId::from("key_a"));
        spent.record_spend(&key, lease_ref(1), 7);

        assert_eq!(spent.freeze_all(), [(key.clone(), 1, 7)]);
        assert!(!spent.record_spend(
            &key,
            LeaseRef { lease_number: 1, generation: spent.mark_generation() - 1 },
            8
        ));
    }

    #[test]
    fn mark_generation_is_the_number_of_times_that_marks_were_dropped() {
        let spent = LeaseSpendTracker::default();
        assert_eq!(spent.mark_generation(), 0);

        spent.drop_marks();
        spent.drop_marks();

        assert_eq!(spent.mark_generation(), 2);
    }

    #[test]
    fn last_withheld_time_never_decreases() {
        let spent = LeaseSpendTracker::default();
        assert_eq!(spent.last_withheld_at_ms(), 0);

        for withheld_at in [7_000, 5_000] {
            spent.record_reported_until(withheld_at);
            assert_eq!(spent.last_withheld_at_ms(), 7_000);
        }
    }

    #[test]
    fn sweep_position_is_the_last_one_that_was_set() {
        let spent = LeaseSpendTracker::default();
        assert_eq!(spent.sweep_position(), None);

        for position in [Some(unreported(&KeyId::from("key_a"), 3)), None] {
            spent.set_sweep_position(position.clone());
            assert_eq!(spent.sweep_position(), position);
        }
    }
}

//! The credits of a metered key, and what this process knows of its lease.

use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};

use foundation::clock::Monotonic;
use foundation::id::KeyId;
use foundation::model::Credits;

/// The credits of a metered key.
#[derive(Debug, Clone)]
pub struct KeyCredits {
    pub key_id: KeyId,
    /// The account as the key's row has it.
    pub account: Credits,
    /// What this process knows of its lease.
    pub lease_hint: LeaseHint,
}

impl KeyCredits {
    /// Creates the credits of a key of whose lease nothing is known beyond its row.
    pub fn new(key_id: KeyId, account: Credits) -> Self {
        Self { key_id, account, lease_hint: LeaseHint::default() }
    }

    /// Returns the approximate size in bytes.
    pub fn size(&self) -> usize {
        size_of::<Self>() + self.key_id.as_str().len()
    }
}

/// The time of what has not happened yet: earlier than any time, and far enough from the bounds to be subtracted.
const NEVER_MS: i64 = i64::MIN / 2;

/// Stores what this process knows of a key's lease beyond the key's row.
#[derive(Debug)]
pub struct LeaseHint {
    lease_number: AtomicI64,
    mark_generation: AtomicU64,
    /// The time of the last top-up, a [`Monotonic`] in milliseconds; [`NEVER_MS`] before the first.
    topped_up_ms: AtomicI64,
    is_balance_stale: AtomicBool,
}

impl Default for LeaseHint {
    fn default() -> Self {
        Self {
            lease_number: AtomicI64::new(0),
            mark_generation: AtomicU64::new(0),
            topped_up_ms: AtomicI64::new(NEVER_MS),
            is_balance_stale: AtomicBool::new(false),
        }
    }
}

/// Copies what is known at this moment.
impl Clone for LeaseHint {
    fn clone(&self) -> Self {
        let (lease_number, mark_generation) = self.last_lease();
        Self {
            lease_number: AtomicI64::new(lease_number),
            mark_generation: AtomicU64::new(mark_generation),
            topped_up_ms: AtomicI64::new(self.topped_up_ms.load(Ordering::Relaxed)),
            is_balance_stale: AtomicBool::new(self.is_balance_stale()),
        }
    }
}

impl LeaseHint {
    /// Returns the number of the latest lease that the account has reported, 0 before the first report, and the mark
    /// generation in which that was learned or an earlier one; see [`crate::credits::LeaseSpendTracker`].
    pub fn last_lease(&self) -> (i64, u64) {
        let mark_generation = self.mark_generation.load(Ordering::Acquire);
        (self.lease_number.load(Ordering::Acquire), mark_generation)
    }

    /// Records that the key's row was read in this mark generation or a later one.
    pub fn record_read(&self, mark_generation: u64) {
        self.mark_generation.fetch_max(mark_generation, Ordering::Release);
    }

    /// Records the lease number that the account has just reported; `mark_generation` was read before the account.
    pub fn record_top_up(&self, lease_number: i64, mark_generation: u64, now: Monotonic) {
        self.lease_number.fetch_max(lease_number, Ordering::Release);
        self.mark_generation.fetch_max(mark_generation, Ordering::Release);
        self.topped_up_ms.store(now.as_ms(), Ordering::Relaxed);
        self.is_balance_stale.store(false, Ordering::Relaxed);
    }

    /// Returns whether the last top-up was more than `ms` ago.
    pub fn is_top_up_older_than(&self, ms: i64, now: Monotonic) -> bool {
        now.as_ms() - self.topped_up_ms.load(Ordering::Relaxed) > ms
    }

    /// Records that the account has granted credits that the lease does not know of.
    pub fn mark_balance_stale(&self) {
        self.topped_up_ms.store(NEVER_MS, Ordering::Relaxed);
        self.is_balance_stale.store(true, Ordering::Relaxed);
    }

    /// Returns whether the account balance that the lease reports may be stale.
    pub fn is_balance_stale(&self) -> bool {
        self.is_balance_stale.load(Ordering::Relaxed)
    }
}

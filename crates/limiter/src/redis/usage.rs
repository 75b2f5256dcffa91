//! Stores the last usage that Redis reported to this replica for recently used windows, in a table of fixed size.

use std::hash::{BuildHasher as _, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};

use foundation::clock::Timestamp;

use super::super::Window;

const SLOT_COUNT: usize = 1 << 16;
const USAGE_BITS: u32 = 40;
const NUMBER_BITS: u32 = 8;
const USAGE_MAX: u64 = (1 << USAGE_BITS) - 1;
const NUMBER_MASK: u64 = (1 << NUMBER_BITS) - 1;

/// A table of the last usage of windows. Each slot holds one window: 16 bits of the hash of its name, 8 bits of its
/// number, 40 bits of its usage. A window that loses its slot to another one is unknown, and so is bounded by its limit
/// alone. A number that repeats after 256 windows yields less than what remains.
pub struct LastUsage {
    slots: Box<[AtomicU64]>,
    hasher: RandomState,
}

impl LastUsage {
    pub fn new() -> Self {
        let slots = (0..SLOT_COUNT).map(|_| AtomicU64::new(0)).collect();
        Self { slots, hasher: RandomState::new() }
    }

    fn slot(&self, name: &str) -> (&AtomicU64, u64) {
        let hash = self.hasher.hash_one(name);
        let index = usize::try_from(hash & (SLOT_COUNT as u64 - 1)).unwrap_or(0);
        (&self.slots[index], hash >> (USAGE_BITS + NUMBER_BITS))
    }

    /// Records the amount that counted against the limit of a window after a reply.
    pub fn record(&self, name: &str, number: i64, used: i64) {
        let (slot, tag) = self.slot(name);
        slot.store(pack(tag, number, used), Ordering::Relaxed);
    }

    /// Records an amount that counted at an earlier time, unless more is known to have counted in that window.
    pub fn record_earlier(&self, name: &str, number: i64, used: i64) {
        let (slot, tag) = self.slot(name);
        let (known, value) = (slot.load(Ordering::Relaxed), pack(tag, number, used));
        if known >> USAGE_BITS != value >> USAGE_BITS || known < value {
            slot.store(value, Ordering::Relaxed);
        }
    }

    /// Returns the amount that counted against the limit of a window at the last reply; of the previous window, the
    /// share that still counts. Returns `None` if it is unknown.
    pub fn find(&self, window: &Window, now: Timestamp) -> Option<i64> {
        let (slot, tag) = self.slot(&window.key);
        let value = slot.load(Ordering::Relaxed);
        if value >> (USAGE_BITS + NUMBER_BITS) != tag {
            return None;
        }
        let used = i64::try_from(value & USAGE_MAX).unwrap_or(i64::MAX);
        let number = now.0 / window.duration_ms;
        let is_of =
            |number: i64| value >> USAGE_BITS & NUMBER_MASK == number.unsigned_abs() & NUMBER_MASK;
        if is_of(number) {
            return Some(used);
        }
        let left_ms = i128::from((number + 1) * window.duration_ms - now.0);
        let share = i128::from(used) * left_ms / i128::from(window.duration_ms);
        is_of(number - 1).then(|| i64::try_from(share).unwrap_or(i64::MAX))
    }
}

/// Packs the tag of a window, its number and its usage.
fn pack(tag: u64, number: i64, used: i64) -> u64 {
    let number = number.unsigned_abs() & NUMBER_MASK;
    let used = u64::try_from(used).unwrap_or(0).min(USAGE_MAX);
    (tag << NUMBER_BITS | number) << USAGE_BITS | used
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: i64 = 60_000;

    #[test]
    fn find_returns_share_of_previous_window_and_nothing_older() {
        let usage = LastUsage::new();
        let window = Window::new("a", 10, MINUTE, 1);
        let found = |ms| usage.find(&window, Timestamp(ms));
        usage.record("a", 5, 8);

        assert_eq!(found(5 * MINUTE), Some(8));
        assert_eq!(found(6 * MINUTE - 1), Some(8));
        assert_eq!(found(6 * MINUTE), Some(8));
        assert_eq!(found(6 * MINUTE + MINUTE / 2), Some(4));
        assert_eq!(found(7 * MINUTE), None);
        assert_eq!(usage.find(&Window::new("b", 10, MINUTE, 1), Timestamp(5 * MINUTE)), None);
    }

    #[test]
    fn earlier_usage_replaces_what_is_known_of_other_windows_and_less_of_the_same_one() {
        let usage = LastUsage::new();
        let find =
            |number| usage.find(&Window::new("a", 10, MINUTE, 1), Timestamp(number * MINUTE));
        for (number, used, expected) in [(5, 8, 8), (5, 7, 8), (5, 9, 9), (6, 2, 2), (6, 1, 2)] {
            usage.record_earlier("a", number, used);

            assert_eq!(find(number), Some(expected), "{used} in window {number}");
        }
        usage.record("a", 6, 1);
        assert_eq!(find(6), Some(1));
    }

    #[test]
    fn record_stores_maximum_usage_when_it_does_not_fit() {
        let usage = LastUsage::new();
        let window = Window::new("a", i64::MAX, MINUTE, 1);

        usage.record("a", 1, i64::MAX);

        assert_eq!(usage.find(&window, Timestamp(MINUTE)), Some((1 << 40) - 1));
    }
}

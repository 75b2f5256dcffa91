//! Implements the circuit breaker for Redis. When half of the calls fail, it opens: requests are decided without Redis,
//! without waiting for it, until a probe succeeds.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use foundation::clock::Stopwatch;

/// How long calls are counted before a new count begins.
const PERIOD: Duration = Duration::from_millis(500);
/// The minimum number of failed calls, so that a single failure does not count as an outage.
const FAILURES_MIN: u32 = 4;

pub struct Breaker {
    watch: Stopwatch,
    open: AtomicBool,
    tally: Mutex<BreakerPeriod>,
}

/// Counts the calls of the current and the previous period.
#[derive(Debug, Default, Clone, Copy)]
struct BreakerPeriod {
    period: u128,
    now: CallCounts,
    before: CallCounts,
}

#[derive(Debug, Default, Clone, Copy)]
struct CallCounts {
    answered: u32,
    failed: u32,
}

impl BreakerPeriod {
    fn at(self, period: u128) -> Self {
        match period - self.period {
            0 => self,
            1 => Self { period, now: CallCounts::default(), before: self.now },
            _ => Self { period, ..Self::default() },
        }
    }

    fn trips(&self) -> bool {
        let failed = self.now.failed + self.before.failed;
        failed >= FAILURES_MIN && failed >= self.now.answered + self.before.answered
    }
}

impl Breaker {
    pub fn new() -> Self {
        Self {
            watch: Stopwatch::new(),
            open: AtomicBool::new(false),
            tally: Mutex::new(BreakerPeriod::default()),
        }
    }

    /// Returns whether calls to Redis are suspended.
    pub fn is_open(&self) -> bool {
        self.open.load(Ordering::Relaxed)
    }

    /// Records a call that succeeded.
    pub fn answered(&self) {
        self.count(|calls| calls.answered += 1);
    }

    /// Records a call that failed. Returns whether this call opened the breaker: the caller must then probe until Redis
    /// replies.
    pub fn failed(&self) -> bool {
        self.count(|calls| calls.failed += 1).trips() && !self.open.swap(true, Ordering::Relaxed)
    }

    /// Closes the breaker after a successful probe.
    pub fn close(&self) {
        *self.tally.lock().unwrap_or_else(PoisonError::into_inner) = BreakerPeriod::default();
        self.open.store(false, Ordering::Relaxed);
    }

    fn count(&self, add: impl FnOnce(&mut CallCounts)) -> BreakerPeriod {
        let mut period_counts = self.tally.lock().unwrap_or_else(PoisonError::into_inner);
        let period =
            (self.watch.elapsed().as_millis() / PERIOD.as_millis()).max(period_counts.period);
        *period_counts = period_counts.at(period);
        add(&mut period_counts.now);
        *period_counts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn breaker_opens_once_when_half_of_the_calls_fail() {
        let breaker = Breaker::new();
        for _ in 0..3 {
            assert!(!breaker.failed());
        }
        assert!(!breaker.is_open());

        assert!(breaker.failed(), "the fourth failure of four calls");
        assert!(breaker.is_open());
        assert!(!breaker.failed(), "the probe is already running");

        breaker.close();
        assert!(!breaker.is_open());
    }

    #[test]
    fn breaker_stays_closed_when_most_calls_succeed() {
        let breaker = Breaker::new();
        (0..100).for_each(|_| breaker.answered());

        assert!(!(0..50).any(|_| breaker.failed()));
        assert!(!breaker.is_open());
    }

    #[test]
    fn breaker_ignores_failures_when_they_are_old() {
        let failed = CallCounts { failed: 3, answered: 0 };
        let period_counts = BreakerPeriod { period: 10, now: failed, before: failed };

        assert!(period_counts.trips());
        assert!(!period_counts.at(11).trips());
        assert!(!period_counts.at(12).trips());
    }
}

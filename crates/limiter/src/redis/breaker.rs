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
    stopwatch: Stopwatch,
    is_open: AtomicBool,
    current_period: Mutex<BreakerPeriod>,
}

/// Counts the calls of the current and the previous period.
#[derive(Debug, Default, Clone, Copy)]
struct BreakerPeriod {
    period_number: u128,
    current_counts: CallCounts,
    previous_counts: CallCounts,
}

#[derive(Debug, Default, Clone, Copy)]
struct CallCounts {
    success_count: u32,
    failure_count: u32,
}

impl BreakerPeriod {
    fn advance_to(self, period: u128) -> Self {
        match period - self.period_number {
            0 => self,
            1 => Self {
                period_number: period,
                current_counts: CallCounts::default(),
                previous_counts: self.current_counts,
            },
            _ => Self { period_number: period, ..Self::default() },
        }
    }

    fn is_over_threshold(&self) -> bool {
        let failed = self.current_counts.failure_count + self.previous_counts.failure_count;
        failed >= FAILURES_MIN
            && failed >= self.current_counts.success_count + self.previous_counts.success_count
    }
}

impl Breaker {
    pub fn new() -> Self {
        Self {
            stopwatch: Stopwatch::new(),
            is_open: AtomicBool::new(false),
            current_period: Mutex::new(BreakerPeriod::default()),
        }
    }

    /// Returns whether calls to Redis are suspended.
    pub fn is_open(&self) -> bool {
        self.is_open.load(Ordering::Relaxed)
    }

    /// Records a call that succeeded.
    pub fn record_success(&self) {
        self.record(|calls| calls.success_count += 1);
    }

    /// Records a call that failed. Returns whether this call opened the breaker: the caller must then probe until Redis
    /// replies.
    pub fn record_failure(&self) -> bool {
        self.record(|calls| calls.failure_count += 1).is_over_threshold()
            && !self.is_open.swap(true, Ordering::Relaxed)
    }

    /// Closes the breaker after a successful probe.
    pub fn close(&self) {
        *self.current_period.lock().unwrap_or_else(PoisonError::into_inner) =
            BreakerPeriod::default();
        self.is_open.store(false, Ordering::Relaxed);
    }

    fn record(&self, add: impl FnOnce(&mut CallCounts)) -> BreakerPeriod {
        let mut period_counts = self.current_period.lock().unwrap_or_else(PoisonError::into_inner);
        let period = (self.stopwatch.elapsed().as_millis() / PERIOD.as_millis())
            .max(period_counts.period_number);
        *period_counts = period_counts.advance_to(period);
        add(&mut period_counts.current_counts);
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
            assert!(!breaker.record_failure());
        }
        assert!(!breaker.is_open());

        assert!(breaker.record_failure(), "the fourth failure of four calls");
        assert!(breaker.is_open());
        assert!(!breaker.record_failure(), "the probe is already running");

        breaker.close();
        assert!(!breaker.is_open());
    }

    #[test]
    fn breaker_stays_closed_when_most_calls_succeed() {
        let breaker = Breaker::new();
        (0..100).for_each(|_| breaker.record_success());

        assert!(!(0..50).any(|_| breaker.record_failure()));
        assert!(!breaker.is_open());
    }

    #[test]
    fn breaker_ignores_failures_when_they_are_old() {
        let failed = CallCounts { failure_count: 3, success_count: 0 };
        let period_counts =
            BreakerPeriod { period_number: 10, current_counts: failed, previous_counts: failed };

        assert!(period_counts.is_over_threshold());
        assert!(!period_counts.advance_to(11).is_over_threshold());
        assert!(!period_counts.advance_to(12).is_over_threshold());
    }
}

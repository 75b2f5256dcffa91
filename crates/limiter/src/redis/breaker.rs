//! Implements the circuit breaker for Redis. When half of the calls fail, it opens: requests are decided without Redis,
//! without waiting for it, until a probe succeeds. It reads no clock: each call is recorded with the time.

use std::sync::atomic::{AtomicBool, Ordering};

use foundation::clock::Monotonic;
use parking_lot::Mutex;

/// How long calls are counted before a new count begins.
const PERIOD_MS: i64 = 500;
/// The minimum number of failed calls, so that a single failure does not count as an outage.
const FAILURES_MIN: u32 = 4;

/// Counts the calls to Redis and decides whether they are suspended. It begins closed.
#[derive(Debug, Default)]
pub struct Breaker {
    is_open: AtomicBool,
    current_period: Mutex<BreakerPeriod>,
}

/// Counts the calls of the current and the previous period.
#[derive(Debug, Default, Clone, Copy)]
struct BreakerPeriod {
    period_number: i64,
    current_counts: CallCounts,
    previous_counts: CallCounts,
}

#[derive(Debug, Default, Clone, Copy)]
struct CallCounts {
    success_count: u32,
    failure_count: u32,
}

impl BreakerPeriod {
    fn advance_to(self, period: i64) -> Self {
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
    /// Returns whether calls to Redis are suspended.
    pub fn is_open(&self) -> bool {
        self.is_open.load(Ordering::Relaxed)
    }

    /// Records a call that succeeded.
    pub fn record_success(&self, now: Monotonic) {
        self.record(now, |calls| calls.success_count += 1);
    }

    /// Records a call that failed. Returns whether this call opened the breaker: the caller must then probe until Redis
    /// replies.
    pub fn record_failure(&self, now: Monotonic) -> bool {
        self.record(now, |calls| calls.failure_count += 1).is_over_threshold()
            && !self.is_open.swap(true, Ordering::Relaxed)
    }

    /// Closes the breaker after a successful probe.
    pub fn close(&self) {
        *self.current_period.lock() = BreakerPeriod::default();
        self.is_open.store(false, Ordering::Relaxed);
    }

    fn record(&self, now: Monotonic, add: impl FnOnce(&mut CallCounts)) -> BreakerPeriod {
        let mut period_counts = self.current_period.lock();
        let period = (now.as_ms() / PERIOD_MS).max(period_counts.period_number);
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
        let breaker = Breaker::default();
        for _ in 0..3 {
            assert!(!breaker.record_failure(Monotonic::default()));
        }
        assert!(!breaker.is_open());

        assert!(breaker.record_failure(Monotonic::default()), "the fourth failure of four calls");
        assert!(breaker.is_open());
        assert!(!breaker.record_failure(Monotonic::default()), "the probe is already running");

        breaker.close();
        assert!(!breaker.is_open());
    }

    #[test]
    fn breaker_opens_at_exactly_half() {
        let breaker = Breaker::default();
        (0..5).for_each(|_| breaker.record_success(Monotonic::default()));

        assert!(!(0..4).any(|_| breaker.record_failure(Monotonic::default())), "four of nine");
        assert!(breaker.record_failure(Monotonic::default()), "five of ten");
    }

    #[test]
    fn breaker_stays_closed_when_most_calls_succeed() {
        let breaker = Breaker::default();
        (0..100).for_each(|_| breaker.record_success(Monotonic::default()));

        assert!(!(0..50).any(|_| breaker.record_failure(Monotonic::default())));
        assert!(!breaker.is_open());
    }

    #[test]
    fn breaker_stays_closed_when_failures_are_rare() {
        let breaker = Breaker::default();

        assert!(!(0..100).any(|n| breaker.record_failure(Monotonic::from_ms(n * 400))));
        assert!(!(0..3).any(|_| breaker.record_failure(Monotonic::from_ms(60_000))));
    }

    #[test]
    fn breaker_counts_a_late_call_in_the_current_period() {
        let breaker = Breaker::default();
        let at = Monotonic::from_ms;
        assert!(!breaker.record_failure(at(10_000)) && !breaker.record_failure(at(10_400)));
        assert!(!breaker.record_failure(at(9_000)), "its time was read earlier");

        assert!(breaker.record_failure(at(10_600)));
        assert!(!breaker.record_failure(at(10_600)));
        breaker.close();
        assert!(!breaker.record_failure(at(10_700)), "the count begins anew");
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

    #[test]
    fn breaker_counts_the_successes_of_the_previous_period() {
        let breaker = Breaker::default();
        let at = Monotonic::from_ms;
        (0..5).for_each(|_| breaker.record_success(at(10_400)));
        breaker.record_success(at(10_600));

        assert!(!(0..5).any(|_| breaker.record_failure(at(10_600))), "five of eleven");
        assert!(breaker.record_failure(at(10_600)), "six of twelve");
    }
}

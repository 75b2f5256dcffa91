//! Whether Redis is asked at all. When half of the calls fail, nobody waits for it any more: what it would
//! have said is decided without it, at once, until a probe is answered.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use foundation::clock::Stopwatch;

/// For how long calls are counted before the count begins anew.
const PERIOD: Duration = Duration::from_millis(500);
/// How many must have failed, lest a single hiccup counts as an outage.
const FAILURES_MIN: u32 = 4;

pub struct Breaker {
    watch: Stopwatch,
    open: AtomicBool,
    tally: Mutex<BreakerPeriod>,
}

/// Calls of this period and of the one before.
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

    /// Whether Redis is not to be asked.
    pub fn is_open(&self) -> bool {
        self.open.load(Ordering::Relaxed)
    }

    /// A call has been answered.
    pub fn answered(&self) {
        self.count(|calls| calls.answered += 1);
    }

    /// A call has failed. Whether that was one too many: then somebody must probe until Redis answers.
    pub fn failed(&self) -> bool {
        self.count(|calls| calls.failed += 1).trips() && !self.open.swap(true, Ordering::Relaxed)
    }

    /// A probe was answered.
    pub fn close(&self) {
        *self.tally.lock().unwrap_or_else(PoisonError::into_inner) = BreakerPeriod::default();
        self.open.store(false, Ordering::Relaxed);
    }

    fn count(&self, add: impl FnOnce(&mut CallCounts)) -> BreakerPeriod {
        let mut tally = self.tally.lock().unwrap_or_else(PoisonError::into_inner);
        let period = (self.watch.elapsed().as_millis() / PERIOD.as_millis()).max(tally.period);
        *tally = tally.at(period);
        add(&mut tally.now);
        *tally
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_opens_once_when_half_of_the_calls_fail_and_not_for_a_hiccup() {
        let breaker = Breaker::new();
        for _ in 0..3 {
            assert!(!breaker.failed());
        }
        assert!(!breaker.is_open());

        assert!(breaker.failed(), "the fourth failure of four calls");
        assert!(breaker.is_open());
        assert!(!breaker.failed(), "who probes has been told");

        breaker.close();
        assert!(!breaker.is_open());
    }

    #[test]
    fn a_few_failures_among_many_answers_keep_it_closed() {
        let breaker = Breaker::new();
        (0..100).for_each(|_| breaker.answered());

        assert!(!(0..50).any(|_| breaker.failed()));
        assert!(!breaker.is_open());
    }

    #[test]
    fn failures_of_long_ago_do_not_count() {
        let failed = CallCounts { failed: 3, answered: 0 };
        let tally = BreakerPeriod { period: 10, now: failed, before: failed };

        assert!(tally.trips());
        assert!(!tally.at(11).trips());
        assert!(!tally.at(12).trips());
    }
}

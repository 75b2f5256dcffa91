//! What time it is for Redis, as far as a caller must know: no later than Redis itself thinks. So a
//! script can be told until when somebody waits for it, and does nothing when it comes too late: what it would
//! have taken, nobody would hear of.

use std::sync::atomic::{AtomicI64, Ordering};

use foundation::clock::{Stopwatch, Timestamp};

/// How long what an answer taught is good: clocks drift.
const PERIOD_MS: i64 = 10_000;
const UNKNOWN: i64 = i64::MIN;

/// How far Redis' clock is ahead of a stopwatch, at least.
pub struct RedisTime {
    watch: Stopwatch,
    /// The best of this period and of the one before.
    now: AtomicI64,
    before: AtomicI64,
    period: AtomicI64,
}

impl RedisTime {
    pub fn new() -> Self {
        Self {
            watch: Stopwatch::new(),
            now: AtomicI64::new(UNKNOWN),
            before: AtomicI64::new(UNKNOWN),
            period: AtomicI64::new(0),
        }
    }

    /// An answer has just come, which Redis gave at `at`.
    pub fn record_reply(&self, at: Timestamp) {
        let elapsed = self.watch.elapsed_ms();
        let period = elapsed / PERIOD_MS;
        if self.period.swap(period, Ordering::Relaxed) != period {
            self.before.store(self.now.swap(UNKNOWN, Ordering::Relaxed), Ordering::Relaxed);
        }
        // It was given earlier than it came, so Redis' clock is ahead by this much at least.
        self.now.fetch_max(at.0 - elapsed, Ordering::Relaxed);
    }

    /// Redis found that it was too late: whatever was known is forgotten.
    pub fn reset(&self, at: Timestamp) {
        self.now.store(UNKNOWN, Ordering::Relaxed);
        self.before.store(UNKNOWN, Ordering::Relaxed);
        self.record_reply(at);
    }

    /// Redis' time so many milliseconds from now, or a little less; unknown before the first answer.
    pub fn deadline_after_ms(&self, ms: i64) -> Option<Timestamp> {
        let ahead = self.now.load(Ordering::Relaxed).max(self.before.load(Ordering::Relaxed));
        (ahead != UNKNOWN).then(|| Timestamp(ahead + self.watch.elapsed_ms() + ms))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_quickest_answer_teaches_most_and_a_late_one_all_anew() {
        let time = RedisTime::new();
        assert_eq!(time.deadline_after_ms(0), None);

        time.record_reply(Timestamp(1_000_000));
        time.record_reply(Timestamp(999_990));
        let told = time.deadline_after_ms(30).expect("it has heard").0;
        assert!((1_000_030..1_000_130).contains(&told), "{told}");

        time.reset(Timestamp(5_000));
        let told = time.deadline_after_ms(0).expect("it has heard").0;
        assert!((5_000..5_100).contains(&told), "{told}");
    }
}

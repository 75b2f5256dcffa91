//! Estimates Redis' time, never later than Redis itself reads it. So a script can be given the time until which a
//! caller waits for it, and does nothing when it arrives too late: no caller would receive the result.

use std::sync::atomic::{AtomicI64, Ordering};

use foundation::clock::{Stopwatch, Timestamp};

/// How long an estimate from a reply is used: clocks drift.
const PERIOD_MS: i64 = 10_000;
const OFFSET_UNKNOWN_MS: i64 = i64::MIN;

/// Stores how far Redis' clock is ahead of a stopwatch, at least.
pub struct RedisTime {
    stopwatch: Stopwatch,
    /// The best offset of the current period and of the previous one.
    current_offset_ms: AtomicI64,
    previous_offset_ms: AtomicI64,
    period_number: AtomicI64,
}

impl RedisTime {
    pub fn new() -> Self {
        Self {
            stopwatch: Stopwatch::new(),
            current_offset_ms: AtomicI64::new(OFFSET_UNKNOWN_MS),
            previous_offset_ms: AtomicI64::new(OFFSET_UNKNOWN_MS),
            period_number: AtomicI64::new(0),
        }
    }

    /// Records a reply that has just arrived and that Redis sent at `at`.
    pub fn record_reply(&self, at: Timestamp) {
        let elapsed = self.stopwatch.elapsed_ms();
        let period = elapsed / PERIOD_MS;
        if self.period_number.swap(period, Ordering::Relaxed) != period {
            self.previous_offset_ms.store(
                self.current_offset_ms.swap(OFFSET_UNKNOWN_MS, Ordering::Relaxed),
                Ordering::Relaxed,
            );
        }
        // It was sent before it arrived, so Redis' clock is ahead by at least this much.
        self.current_offset_ms.fetch_max(at.0 - elapsed, Ordering::Relaxed);
    }

    /// Resets the estimate, because Redis found that a deadline had passed.
    pub fn reset(&self, at: Timestamp) {
        self.current_offset_ms.store(OFFSET_UNKNOWN_MS, Ordering::Relaxed);
        self.previous_offset_ms.store(OFFSET_UNKNOWN_MS, Ordering::Relaxed);
        self.record_reply(at);
    }

    /// Returns Redis' time this many milliseconds from now, or slightly less. Returns `None` before the first reply.
    pub fn deadline_after_ms(&self, ms: i64) -> Option<Timestamp> {
        let ahead = self
            .current_offset_ms
            .load(Ordering::Relaxed)
            .max(self.previous_offset_ms.load(Ordering::Relaxed));
        (ahead != OFFSET_UNKNOWN_MS).then(|| Timestamp(ahead + self.stopwatch.elapsed_ms() + ms))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn estimate_uses_fastest_reply_and_is_replaced_when_reset() {
        let time = RedisTime::new();
        assert_eq!(time.deadline_after_ms(0), None);

        time.record_reply(Timestamp(1_000_000));
        time.record_reply(Timestamp(999_990));
        let deadline = time.deadline_after_ms(30).expect("a reply was recorded").0;
        assert!((1_000_030..1_000_130).contains(&deadline), "{deadline}");

        time.reset(Timestamp(5_000));
        let deadline = time.deadline_after_ms(0).expect("a reply was recorded").0;
        assert!((5_000..5_100).contains(&deadline), "{deadline}");
    }
}

//! Estimates Redis' time, never later than Redis itself reads it. So a script can be given the time until which a
//! caller waits for it, and does nothing when it arrives too late: no caller would receive the result.

use std::sync::atomic::{AtomicI64, Ordering};

use foundation::clock::{Monotonic, Timestamp};

/// How long an estimate from a reply is used: clocks drift.
const PERIOD_MS: i64 = 10_000;
const OFFSET_UNKNOWN_MS: i64 = i64::MIN;

/// Stores how far Redis' clock is ahead of the [`Monotonic`] time of this process, at least.
pub struct RedisTime {
    /// The best offset of the current period and of the previous one.
    current_offset_ms: AtomicI64,
    previous_offset_ms: AtomicI64,
    period_number: AtomicI64,
}

impl Default for RedisTime {
    /// Nothing is known before the first reply.
    fn default() -> Self {
        Self {
            current_offset_ms: AtomicI64::new(OFFSET_UNKNOWN_MS),
            previous_offset_ms: AtomicI64::new(OFFSET_UNKNOWN_MS),
            period_number: AtomicI64::new(0),
        }
    }
}

impl RedisTime {
    /// Records a reply that arrived at `now` and that Redis sent at `at`.
    pub fn record_reply(&self, at: Timestamp, now: Monotonic) {
        let elapsed = now.as_ms();
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
    pub fn reset(&self, at: Timestamp, now: Monotonic) {
        self.current_offset_ms.store(OFFSET_UNKNOWN_MS, Ordering::Relaxed);
        self.previous_offset_ms.store(OFFSET_UNKNOWN_MS, Ordering::Relaxed);
        self.record_reply(at, now);
    }

    /// Returns Redis' time this many milliseconds from now, or slightly less. Returns `None` before the first reply.
    pub fn deadline_after_ms(&self, ms: i64, now: Monotonic) -> Option<Timestamp> {
        let ahead = self
            .current_offset_ms
            .load(Ordering::Relaxed)
            .max(self.previous_offset_ms.load(Ordering::Relaxed));
        (ahead != OFFSET_UNKNOWN_MS).then(|| Timestamp(ahead + now.as_ms() + ms))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn estimate_uses_fastest_reply_and_is_replaced_when_reset() {
        let (time, at) = (RedisTime::default(), Monotonic::from_ms);
        assert_eq!(time.deadline_after_ms(0, at(0)), None);

        time.record_reply(Timestamp(1_000_000), at(50));
        time.record_reply(Timestamp(1_000_001), at(90));
        time.record_reply(Timestamp(1_000_002), at(95));
        assert_eq!(time.deadline_after_ms(30, at(100)), Some(Timestamp(1_000_080)));

        time.reset(Timestamp(5_000), at(100));
        assert_eq!(time.deadline_after_ms(0, at(101)), Some(Timestamp(5_001)));
    }

    #[test]
    fn estimate_is_forgotten_after_two_periods() {
        let (time, at) = (RedisTime::default(), Monotonic::from_ms);
        time.record_reply(Timestamp(1_000_000), at(0));

        time.record_reply(Timestamp(1_009_000), at(10_000));
        assert_eq!(time.deadline_after_ms(0, at(10_000)), Some(Timestamp(1_010_000)));
        time.record_reply(Timestamp(1_019_000), at(20_000));
        assert_eq!(time.deadline_after_ms(0, at(20_000)), Some(Timestamp(1_019_000)));
    }

    #[test]
    fn estimate_of_the_previous_period_is_replaced_when_reset() {
        let (time, at) = (RedisTime::default(), Monotonic::from_ms);
        time.record_reply(Timestamp(1_000_000), at(9_000));
        time.record_reply(Timestamp(1_001_000), at(10_000));

        time.reset(Timestamp(5_000), at(10_000));

        assert_eq!(time.deadline_after_ms(0, at(10_001)), Some(Timestamp(5_001)));
    }
}

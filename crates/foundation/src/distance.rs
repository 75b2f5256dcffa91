//! Measures how far away a server is, so that a far Redis is slow and not unreachable.
//!
//! The distance is the shortest round trip of the last seconds. It follows the network and not the load: a server that
//! stalls does not make its callers wait longer.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use crate::clock::Monotonic;

/// How long a round trip counts, at least. It counts at most for twice as long: then the calls to a server that has moved
/// away have enough time.
const PERIOD_MS: i64 = 10_000;
const UNKNOWN_US: u64 = u64::MAX;
/// How many round trips a call may take: a lost packet is sent again after about two.
const ROUND_TRIPS: u32 = 4;
/// The time that a call may take at any distance.
pub const CALL_TIMEOUT_MAX: Duration = Duration::from_secs(1);

/// The shortest round trips of the current period and of the previous one.
pub struct Distance {
    current_us: AtomicU64,
    previous_us: AtomicU64,
    period_number: AtomicI64,
}

impl Default for Distance {
    /// Nothing is known before the first reply.
    fn default() -> Self {
        Self {
            current_us: AtomicU64::new(UNKNOWN_US),
            previous_us: AtomicU64::new(UNKNOWN_US),
            period_number: AtomicI64::new(0),
        }
    }
}

impl Distance {
    /// Records that the reply to a command arrived at `now`, `round_trip` after the command was sent.
    pub fn record(&self, round_trip: Duration, now: Monotonic) {
        let period = now.as_ms() / PERIOD_MS;
        if self.period_number.load(Ordering::Relaxed) != period
            && self.period_number.swap(period, Ordering::Relaxed) != period
        {
            // In this order, and visible in it: the distance is never unknown once it is known.
            self.previous_us.store(self.current_us.load(Ordering::Acquire), Ordering::Release);
            self.current_us.store(UNKNOWN_US, Ordering::Release);
        }
        let us = u64::try_from(round_trip.as_micros()).unwrap_or(UNKNOWN_US);
        if us < self.current_us.load(Ordering::Relaxed) {
            self.current_us.fetch_min(us, Ordering::Relaxed);
        }
    }

    /// Returns the shortest round trip of the last 10 to 20 seconds with a reply. `None`: there was no reply yet.
    pub fn round_trip(&self) -> Option<Duration> {
        let current_us = self.current_us.load(Ordering::Acquire);
        let us = current_us.min(self.previous_us.load(Ordering::Acquire));
        (us != UNKNOWN_US).then(|| Duration::from_micros(us))
    }

    /// Returns the time that a call may take: `min`, or more if the server is far away.
    pub fn call_timeout(&self, min: Duration) -> Duration {
        let needed = self.round_trip().unwrap_or_default().saturating_mul(ROUND_TRIPS);
        min.max(needed.min(CALL_TIMEOUT_MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn at(ms: u64) -> Monotonic {
        Monotonic::from_ms(ms)
    }

    #[test]
    fn call_timeout_is_the_minimum_until_redis_is_far() {
        let distance = Distance::default();
        assert_eq!(distance.round_trip(), None);
        assert_eq!(distance.call_timeout(40 * MS), 40 * MS);

        distance.record(10 * MS, at(1));
        assert_eq!(distance.call_timeout(40 * MS), 40 * MS);
        assert_eq!(distance.call_timeout(30 * MS), 40 * MS);
    }

    #[test]
    fn call_timeout_is_four_round_trips_and_at_most_a_second() {
        let distance = Distance::default();
        distance.record(80 * MS, at(1));
        assert_eq!(distance.call_timeout(40 * MS), 320 * MS);

        let farther = Distance::default();
        farther.record(251 * MS, at(1));
        assert_eq!(farther.call_timeout(40 * MS), CALL_TIMEOUT_MAX);
        assert_eq!(farther.call_timeout(3_000 * MS), 3_000 * MS, "as configured");
    }

    #[test]
    fn distance_is_the_shortest_round_trip_when_redis_stalls() {
        let distance = Distance::default();
        for (round_trip, ms) in [(5 * MS, 1), (2 * MS, 2), (900 * MS, 3)] {
            distance.record(round_trip, at(ms));
        }

        assert_eq!(distance.round_trip(), Some(2 * MS));
    }

    #[test]
    fn distance_grows_within_twenty_seconds_when_redis_has_moved() {
        let distance = Distance::default();
        distance.record(2 * MS, at(9_999));
        distance.record(80 * MS, at(10_000));
        assert_eq!(distance.round_trip(), Some(2 * MS));

        distance.record(81 * MS, at(20_000));
        assert_eq!(distance.round_trip(), Some(80 * MS));
    }

    #[test]
    fn distance_is_kept_when_there_is_no_reply_for_long() {
        let distance = Distance::default();
        distance.record(80 * MS, at(1));

        assert_eq!(distance.call_timeout(40 * MS), 320 * MS);
        distance.record(90 * MS, at(600_000));
        assert_eq!(distance.round_trip(), Some(80 * MS));
    }
}

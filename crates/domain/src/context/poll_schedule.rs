//! Decides when the change log is read next, and whether a database that does not reply gets new connections.

use std::time::Duration;

use foundation::clock::Monotonic;

const POLL_INTERVAL: Duration = Duration::from_millis(500);
/// The interval while changes or intents are pending.
const POLL_INTERVAL_PENDING: Duration = Duration::from_millis(20);
/// How long that is expected to last at most.
const PENDING_EXPECTED_MAX: Duration = Duration::from_secs(3);
/// How long after a reconnect all connections may be replaced again: a database that is only slow should not get more
/// of them.
const RECONNECT_INTERVAL_MIN: Duration = Duration::from_secs(30);

/// The schedule of reads of the change log.
#[derive(Debug, Default)]
pub struct PollSchedule {
    is_unresponsive: bool,
    reconnected_at: Option<Monotonic>,
    pending_since: Option<Monotonic>,
}

/// The result of a read of the change log, as far as it decides when the next one begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PollResult {
    /// `has_pending`: some changes or intents are not settled yet.
    Read {
        has_pending: bool,
    },
    /// The database did not reply in time.
    TimedOut,
    Failed,
}

impl PollSchedule {
    /// Records the result of a read that ended at `now`. Returns how long to wait before the next one.
    pub fn record_result(&mut self, result: PollResult, now: Monotonic) -> Duration {
        let may_reconnect =
            self.reconnected_at.is_none_or(|at| now.since(at) >= RECONNECT_INTERVAL_MIN);
        self.is_unresponsive = result == PollResult::TimedOut && may_reconnect;
        let PollResult::Read { has_pending } = result else { return POLL_INTERVAL };
        self.pending_since = has_pending.then(|| self.pending_since.unwrap_or(now));
        match self.pending_since {
            Some(since) if now.since(since) < PENDING_EXPECTED_MAX => POLL_INTERVAL_PENDING,
            _ => POLL_INTERVAL,
        }
    }

    /// Returns whether all connections should be replaced, as soon as the database accepts a new one.
    pub fn should_reconnect(&self) -> bool {
        self.is_unresponsive
    }

    /// Records that all connections were replaced. The next read begins at once.
    pub fn record_reconnect(&mut self, now: Monotonic) {
        self.is_unresponsive = false;
        self.reconnected_at = Some(now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn log_is_polled_often_while_changes_are_pending_but_not_for_long() {
        let (mut schedule, start) = (PollSchedule::default(), Monotonic::from_ms(7));
        let pending = PollResult::Read { has_pending: true };
        let mut next = |result, after| schedule.record_result(result, start + after);

        assert_eq!(next(PollResult::Read { has_pending: false }, SECOND), POLL_INTERVAL);
        assert_eq!(next(pending, 2 * SECOND), POLL_INTERVAL_PENDING);
        assert_eq!(next(PollResult::Failed, 3 * SECOND), POLL_INTERVAL);
        assert_eq!(next(pending, Duration::from_millis(4_999)), POLL_INTERVAL_PENDING);
        assert_eq!(next(pending, 5 * SECOND), POLL_INTERVAL, "it does not end");
        assert_eq!(next(PollResult::Read { has_pending: false }, 6 * SECOND), POLL_INTERVAL);
        assert_eq!(next(pending, 7 * SECOND), POLL_INTERVAL_PENDING);
    }

    #[test]
    fn connections_are_replaced_when_database_does_not_reply_but_not_often() {
        let (mut schedule, start) = (PollSchedule::default(), Monotonic::default());
        schedule.record_result(PollResult::Failed, start);
        assert!(!schedule.should_reconnect(), "it refuses connections");
        schedule.record_result(PollResult::TimedOut, start);
        assert!(schedule.should_reconnect());

        schedule.record_reconnect(start + SECOND);
        assert!(!schedule.should_reconnect());
        schedule.record_result(PollResult::TimedOut, start + 30 * SECOND);
        assert!(!schedule.should_reconnect());
        schedule.record_result(PollResult::TimedOut, start + 31 * SECOND);
        assert!(schedule.should_reconnect());
        schedule.record_result(PollResult::Read { has_pending: false }, start + 32 * SECOND);
        assert!(!schedule.should_reconnect(), "it has replied");
    }
}

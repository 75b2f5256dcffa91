//! Decides how a change that needs closed leases, and a transaction whose account is locked, are tried again.

use std::time::Duration;

use foundation::clock::Monotonic;
use foundation::error::Error;
use foundation::fault_injection::Safeguard;

use crate::context::reach::REACH_TIMEOUT;

/// How long a top-up waits for a database connection, and a reported balance for the database.
pub const CONNECTION_TIMEOUT: Duration = Duration::from_secs(1);
/// How long a top-up waits for its account: whoever has locked it may be waiting until other replicas know of its change,
/// or may be closing a lease in each of several regions, one after the other.
pub const LOCKED_ACCOUNT_TIMEOUT: Duration = Duration::from_secs(3);
const _: () = assert!(
    LOCKED_ACCOUNT_TIMEOUT.as_millis() > REACH_TIMEOUT.as_millis() + 500,
    "a change that waits for other replicas must not reject verifications"
);
/// How long a change waits for Redis before it is tried again: longer than the circuit breaker stays open after a short
/// stall.
const RETRY_PAUSE: Duration = Duration::from_millis(250);
/// The first and the longest pause of a transaction whose account is locked.
const LOCK_PAUSE_MIN: Duration = Duration::from_millis(20);
const LOCK_PAUSE_MAX: Duration = Duration::from_millis(160);

/// A change that needs the leases of a key closed. If the close of one is unconfirmed, the change is tried again once
/// after a pause, in which no account is locked: Redis may only have stalled for a moment. By then each lease is closed
/// or, if Redis is still unreachable, withheld, so that every replica reports it and a later attempt can succeed.
#[derive(Debug)]
pub struct ChangeRetry {
    next: ChangeStep,
    is_retried: bool,
}

/// What to do next for a change that needs closed leases.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChangeStep {
    /// Make the change, in a transaction.
    Change,
    Pause(Duration),
    /// Close the leases of the key, or withhold those that cannot be closed, in a transaction.
    CloseLeases,
    /// The result of the previous step is the result. `is_outdated`: a lease may have been closed in Redis only, and must
    /// be closed in the account soon.
    End {
        is_outdated: bool,
    },
}

impl Default for ChangeRetry {
    /// Begins with the change.
    fn default() -> Self {
        Self { next: ChangeStep::Change, is_retried: false }
    }
}

impl ChangeRetry {
    /// Returns what to do next.
    pub fn next_step(&self) -> ChangeStep {
        self.next
    }

    /// Records the end of the step. `failure` is its error, if it failed.
    pub fn record_result(&mut self, failure: Option<&Error>) {
        self.next = match (self.next, failure) {
            (ChangeStep::Change, Some(Error::LeaseNotClosed)) if !self.is_retried => {
                self.is_retried = true;
                ChangeStep::Pause(RETRY_PAUSE)
            }
            (ChangeStep::Pause(_), _) => ChangeStep::CloseLeases,
            (ChangeStep::CloseLeases, None) => ChangeStep::Change,
            (ChangeStep::Change | ChangeStep::CloseLeases | ChangeStep::End { .. }, _) => {
                ChangeStep::End { is_outdated: failure.is_some_and(may_follow_close) }
            }
        };
    }
}

/// Returns whether a change may have closed a lease in Redis before it failed with this error. Its transaction was rolled
/// back, so the account does not know.
fn may_follow_close(failure: &Error) -> bool {
    // Whether a new balance is possible depends on what the lease has returned.
    let is_late = matches!(
        failure,
        Error::Invalid(_) | Error::IdempotencyConflict | Error::Store(_) | Error::Internal(_)
    );
    is_late || failure.is_outage()
}

/// A transaction that is retried while its account is locked. It holds no connection while it pauses.
#[derive(Debug)]
pub struct LockRetry {
    began_at: Monotonic,
    timeout: Duration,
    pause: Duration,
}

impl LockRetry {
    pub fn new(now: Monotonic, timeout: Duration) -> Self {
        Self { began_at: now, timeout, pause: LOCK_PAUSE_MIN }
    }

    /// Returns how long to wait before the transaction, which has found the account locked, is run again. `None`: it is
    /// not.
    pub fn next_pause(&mut self, now: Monotonic) -> Option<Duration> {
        let is_late = now.since(self.began_at) >= self.timeout;
        if is_late && !Safeguard::RetryDeadline.is_disabled() {
            return None;
        }
        let pause = self.pause;
        self.pause = (pause * 2).min(LOCK_PAUSE_MAX);
        Some(pause)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs a change whose steps other than pauses end with these results. Returns the steps.
    fn run(results: &[Option<Error>]) -> Vec<ChangeStep> {
        let (mut retry, mut results, mut steps) =
            (ChangeRetry::default(), results.iter(), Vec::new());
        loop {
            let step = retry.next_step();
            steps.push(step);
            match step {
                ChangeStep::End { .. } => break,
                ChangeStep::Pause(_) => retry.record_result(None),
                ChangeStep::Change | ChangeStep::CloseLeases => {
                    retry.record_result(results.next().expect("a result").as_ref());
                }
            }
        }
        assert!(results.next().is_none());
        steps
    }

    const RETRIED: [ChangeStep; 4] = [
        ChangeStep::Change,
        ChangeStep::Pause(RETRY_PAUSE),
        ChangeStep::CloseLeases,
        ChangeStep::Change,
    ];

    #[test]
    fn change_is_made_once_when_it_succeeds_or_cannot_succeed() {
        let end = |is_outdated| [ChangeStep::Change, ChangeStep::End { is_outdated }];

        assert_eq!(run(&[None]), end(false));
        assert_eq!(run(&[Some(Error::Overloaded("credits"))]).len(), 2);
        assert_eq!(run(&[Some(Error::StoreNotReady)]), end(true), "Redis may have closed a lease");
        for late in [
            Error::invalid("/properties/value", "too much"),
            Error::IdempotencyConflict,
            Error::Internal("no row".into()),
        ] {
            assert_eq!(run(&[Some(late)]), end(true));
        }
        for early in [Error::NotFound(Vec::new()), Error::Forbidden(String::new())] {
            assert_eq!(run(&[Some(early)]), end(false), "before any lease");
        }
    }

    #[test]
    fn change_is_retried_once_when_a_lease_was_not_closed() {
        let not_closed = || Some(Error::LeaseNotClosed);
        let end = |is_outdated| [&RETRIED[..], &[ChangeStep::End { is_outdated }]].concat();

        assert_eq!(run(&[not_closed(), None, None]), end(false));
        assert_eq!(run(&[not_closed(), None, not_closed()]), end(true));
    }

    #[test]
    fn change_is_not_retried_when_leases_can_neither_be_closed_nor_withheld() {
        let steps = run(&[Some(Error::LeaseNotClosed), Some(Error::StoreNotReady)]);

        assert_eq!(steps[..3], RETRIED[..3]);
        assert_eq!(steps[3..], [ChangeStep::End { is_outdated: true }]);
    }

    #[test]
    fn transaction_is_retried_for_three_seconds_while_its_account_is_locked() {
        let start = Monotonic::from_ms(1_000);
        let mut retry = LockRetry::new(start, LOCKED_ACCOUNT_TIMEOUT);
        let pauses: Vec<_> = (0..5).map_while(|_| retry.next_pause(start)).collect();
        assert_eq!(pauses, [20, 40, 80, 160, 160].map(Duration::from_millis));

        assert!(retry.next_pause(start + Duration::from_millis(2_999)).is_some());
        assert_eq!(retry.next_pause(start + Duration::from_secs(3)), None);
    }
}

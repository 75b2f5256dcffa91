//! Decides how a request for a metered key goes on: whether it tops up its lease, waits, or debits the account itself.
//!
//! Nothing here calls Redis or the database; the replies and the time come from outside.

use std::time::Duration;

use foundation::clock::Monotonic;
use limiter::{ConsumeReply, LeaseState, LeaseStatus, TopUp, Window};

use super::SCRIPT_BALANCE_MAX;
use super::top_up::{LeaseProblem, TopUpResult};
use crate::resolved_key::LeaseHint;

/// The maximum number of top-ups for one request while other replicas drain the lease first.
const TOP_UP_ATTEMPTS_MAX: u8 = 8;
/// How often a request waits, and for how long each time, for a lease that another replica has opened but Redis does
/// not have yet, or for top-ups of other replicas that are in flight. Afterwards they count as lost.
const IN_FLIGHT_RETRIES_MAX: u8 = 4;
const IN_FLIGHT_PAUSE: Duration = Duration::from_millis(3);
/// How long after the last top-up a lease's report that the account is exhausted is trusted.
const EXHAUSTED_TTL_MS: i64 = 1_000;

/// The result of one attempt to consume.
#[derive(Debug)]
pub struct Attempt {
    pub reply: ConsumeReply,
    pub lease_status: LeaseStatus,
    /// The part of the top-up that was not added to the lease.
    pub not_added: i64,
}

impl Attempt {
    /// Interprets a reply to a request with this top-up, if it had one. `is_trusted`: this process has not reported the
    /// lease as lost.
    pub fn new(
        reply: ConsumeReply,
        mut lease_status: LeaseStatus,
        top_up: Option<TopUp>,
        is_trusted: bool,
    ) -> Self {
        let rejected = top_up.filter(|_| lease_status.state.rejects_top_up());
        let not_added = rejected.map_or(0, |top_up| top_up.top_up);
        if !is_trusted {
            // The lease has been reported as lost, so this result does not count. A top-up that was added is lost
            // with it, because other replicas may still spend it.
            lease_status.state = LeaseState::Closed;
        }
        Self { reply, lease_status, not_added }
    }

    /// Returns whether the account may hold more than a lease can report.
    fn has_large_account(&self) -> bool {
        self.lease_status.account_balance.is_some_and(|balance| balance >= SCRIPT_BALANCE_MAX)
    }

    /// Returns the problem to solve at the account, if the request failed for a lack of something that the account
    /// can provide.
    pub fn find_problem(
        &self,
        windows: &[Window],
        cost: i64,
        hint: &LeaseHint,
        now: impl FnOnce() -> Monotonic,
    ) -> Option<LeaseProblem> {
        let top_up = self.not_added;
        let is_admitted =
            self.reply.windows.iter().zip(windows).all(|(count, w)| count.is_within_limit(w));
        match self.lease_status.state {
            // A top-up that was not added returns to the account, whatever else the result is.
            LeaseState::WrongGeneration | LeaseState::NotFound => {
                Some(LeaseProblem::TopUpRejected { block: top_up, is_lost: false })
            }
            LeaseState::Closed if top_up > 0 => Some(LeaseProblem::Closed { block: top_up }),
            _ if !is_admitted || cost == 0 => None,
            LeaseState::Sufficient => None,
            LeaseState::Insufficient => Some(LeaseProblem::Insufficient),
            LeaseState::Closed => Some(LeaseProblem::Closed { block: top_up }),
            LeaseState::AccountExhausted => {
                let is_outdated =
                    self.has_large_account() || hint.is_top_up_older_than(EXHAUSTED_TTL_MS, now());
                is_outdated.then_some(LeaseProblem::Insufficient)
            }
        }
    }
}

/// What a request does after the account was asked for a top-up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AfterTopUp {
    /// The key is not metered any more.
    ConsumeWithoutAccount,
    /// Debit the account itself. `closes_lease`: after closing the lease, because the credits in it cannot be reached
    /// otherwise.
    DebitAccount { closes_lease: bool },
    /// Consume from the lease of this number, with the top-up, after a pause.
    Consume { lease_number: i64, top_up: TopUp, pause: Option<Duration> },
}

/// The top-ups of one request.
#[derive(Debug, Default)]
pub struct TopUpAttempts {
    attempt_count: u8,
}

impl TopUpAttempts {
    /// Returns whether there were too many, so that the account itself is debited.
    pub fn are_exhausted(&self) -> bool {
        self.attempt_count >= TOP_UP_ATTEMPTS_MAX
    }

    /// Decides what follows from the result of a top-up.
    pub fn apply_top_up(&self, result: TopUpResult) -> AfterTopUp {
        match result {
            TopUpResult::Unmetered => AfterTopUp::ConsumeWithoutAccount,
            TopUpResult::Withheld => AfterTopUp::DebitAccount { closes_lease: false },
            TopUpResult::TopUpsInFlight(..) if self.attempt_count >= IN_FLIGHT_RETRIES_MAX => {
                AfterTopUp::DebitAccount { closes_lease: true }
            }
            TopUpResult::TopUpsInFlight(lease_number, top_up) => {
                AfterTopUp::Consume { lease_number, top_up, pause: Some(IN_FLIGHT_PAUSE) }
            }
            TopUpResult::Lease(lease_number, top_up) => {
                AfterTopUp::Consume { lease_number, top_up, pause: None }
            }
        }
    }

    /// Records that the request has found `problem` after the top-up. Returns how long to wait before the next one.
    pub fn record_problem(
        &mut self,
        problem: &mut LeaseProblem,
        state: LeaseState,
    ) -> Option<Duration> {
        let attempt = self.attempt_count;
        self.attempt_count += 1;
        match problem {
            LeaseProblem::TopUpRejected { is_lost, .. } if state == LeaseState::NotFound => {
                // Another replica may have opened the lease just now, and its top-up is in flight.
                *is_lost = attempt >= IN_FLIGHT_RETRIES_MAX;
                Some(IN_FLIGHT_PAUSE)
            }
            LeaseProblem::TopUpRejected { .. }
            | LeaseProblem::Closed { .. }
            | LeaseProblem::Insufficient => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use foundation::clock::Timestamp;
    use limiter::{GroupChange, WindowCount};

    use super::*;

    const TOP_UP: TopUp = TopUp {
        redis_generation: 7,
        creates_lease: false,
        granted_before: 0,
        top_up: 100,
        account_balance: 900,
        refill_at: Timestamp(i64::MAX),
    };

    fn attempt(state: LeaseState, top_up: Option<TopUp>, is_trusted: bool) -> Attempt {
        let status = LeaseStatus {
            state,
            units: 0,
            account_balance: Some(900),
            spent_units: 0,
            redis_generation: 7,
        };
        let windows = vec![WindowCount { effective_count: 5, window_number: 1 }];
        let group_change = GroupChange::None;
        let reply = ConsumeReply {
            is_admitted: false,
            windows,
            lease: Some(status),
            group_change,
            regional: None,
        };
        Attempt::new(reply, status, top_up, is_trusted)
    }

    fn find_problem(attempt: &Attempt, limit: i64, cost: i64) -> Option<LeaseProblem> {
        let windows = [Window::new("a", limit, 1_000, 1)];
        attempt.find_problem(&windows, cost, &LeaseHint::default(), Monotonic::default)
    }

    #[test]
    fn top_up_that_was_not_added_returns_whatever_else_the_reply_says() {
        let rejected = Some(LeaseProblem::TopUpRejected { block: 100, is_lost: false });
        for state in [LeaseState::WrongGeneration, LeaseState::NotFound] {
            let attempt = attempt(state, Some(TOP_UP), true);
            assert_eq!(find_problem(&attempt, 9, 1), rejected);
            assert_eq!(find_problem(&attempt, 5, 1), rejected, "a window rejects the request");
            assert_eq!(find_problem(&attempt, 9, 0), rejected, "a peek");
        }
        let closed = attempt(LeaseState::Closed, Some(TOP_UP), true);
        assert_eq!(find_problem(&closed, 5, 1), Some(LeaseProblem::Closed { block: 100 }));
        let closed = attempt(LeaseState::Closed, None, true);
        assert_eq!(find_problem(&closed, 9, 1), Some(LeaseProblem::Closed { block: 0 }));
        assert_eq!(find_problem(&closed, 5, 1), None, "nothing is missing but the window");
        assert_eq!(find_problem(&closed, 9, 0), None, "a peek needs no credits");
    }

    #[test]
    fn reply_is_void_when_the_lease_was_reported_meanwhile() {
        let late = attempt(LeaseState::Sufficient, Some(TOP_UP), false);

        assert_eq!(late.not_added, 0, "the top-up is in the lost lease, where others may spend it");
        assert_eq!(find_problem(&late, 9, 1), Some(LeaseProblem::Closed { block: 0 }));
        let in_time = attempt(LeaseState::Sufficient, Some(TOP_UP), true);
        assert_eq!(find_problem(&in_time, 9, 1), None);
    }

    #[test]
    fn exhausted_account_is_asked_again_a_second_after_the_last_top_up() {
        let (hint, windows) = (LeaseHint::default(), [Window::new("a", 9, 1_000, 1)]);
        let exhausted = attempt(LeaseState::AccountExhausted, None, true);
        let problem =
            |ms| exhausted.find_problem(&windows, 1, &hint, || Monotonic::from_ms(ms)).is_some();
        assert!(problem(0), "it was never asked");

        hint.record_top_up(1, 0, Monotonic::from_ms(5_000));

        assert!(!problem(6_000) && problem(6_001));
        hint.mark_balance_stale();
        assert!(problem(5_000));
    }

    #[test]
    fn account_is_asked_at_once_when_it_may_hold_more_than_a_lease_reports() {
        let (hint, windows) = (LeaseHint::default(), [Window::new("a", 9, 1_000, 1)]);
        hint.record_top_up(1, 0, Monotonic::from_ms(5_000));
        let mut exhausted = attempt(LeaseState::AccountExhausted, None, true);
        for (balance, expected) in [(SCRIPT_BALANCE_MAX - 1, false), (SCRIPT_BALANCE_MAX, true)] {
            exhausted.lease_status.account_balance = Some(balance);
            let now = || Monotonic::from_ms(5_000);
            let problem = exhausted.find_problem(&windows, i64::MAX, &hint, now);
            assert_eq!(problem.is_some(), expected, "{balance}");
        }
    }

    #[test]
    fn lease_counts_as_lost_when_it_was_not_found_five_times() {
        let mut attempts = TopUpAttempts::default();
        let mut lost = Vec::new();
        for _ in 0..6 {
            let mut problem = LeaseProblem::TopUpRejected { block: 1, is_lost: false };
            let pause = attempts.record_problem(&mut problem, LeaseState::NotFound);
            assert_eq!(pause, Some(IN_FLIGHT_PAUSE));
            lost.push(problem == LeaseProblem::TopUpRejected { block: 1, is_lost: true });
        }
        assert_eq!(lost, [false, false, false, false, true, true]);

        let mut other = LeaseProblem::TopUpRejected { block: 1, is_lost: false };
        assert_eq!(attempts.record_problem(&mut other, LeaseState::WrongGeneration), None);
        assert_eq!(other, LeaseProblem::TopUpRejected { block: 1, is_lost: false });
    }

    #[test]
    fn account_is_debited_when_top_ups_of_others_stay_in_flight_or_drain() {
        let mut attempts = TopUpAttempts::default();
        let in_flight = TopUpResult::TopUpsInFlight(3, TOP_UP);
        for _ in 0..4 {
            let after = attempts.apply_top_up(in_flight);
            let pause = Some(IN_FLIGHT_PAUSE);
            assert_eq!(after, AfterTopUp::Consume { lease_number: 3, top_up: TOP_UP, pause });
            attempts.record_problem(&mut LeaseProblem::Insufficient, LeaseState::Insufficient);
        }
        let debit = AfterTopUp::DebitAccount { closes_lease: true };
        assert_eq!(attempts.apply_top_up(in_flight), debit);
        let after = attempts.apply_top_up(TopUpResult::Lease(3, TOP_UP));
        assert_eq!(after, AfterTopUp::Consume { lease_number: 3, top_up: TOP_UP, pause: None });
        for _ in 0..4 {
            assert!(!attempts.are_exhausted());
            attempts.record_problem(&mut LeaseProblem::Insufficient, LeaseState::Insufficient);
        }
        assert!(attempts.are_exhausted());
    }
}

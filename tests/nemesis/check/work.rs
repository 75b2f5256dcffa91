//! Checks that a run did enough work to mean something: a fleet that answers nothing violates no other guarantee.

use std::time::Duration;

use super::Finding;
use crate::record::{Action, Call, Run};
use crate::schedule::REPLICAS;

/// The minimum numbers per second of load, about a third of what two busy cores reach.
const ANSWERS_MIN: f64 = 100.0;
const VALID_MIN: f64 = 30.0;
const REVOCATIONS_MIN: f64 = 0.4;
/// The same for a scenario, in which most replicas may be down or cut off for most of the time.
const SCENARIO_ANSWERS_MIN: f64 = 20.0;
const SCENARIO_VALID_MIN: f64 = 5.0;
/// The maximum part of the requests that are refused or not answered. Faults cause at most 11 % on two busy cores.
const FAILED_MAX: f64 = 0.2;
/// The minimum part of the answers that each replica gives.
const REPLICA_MIN: f64 = 0.15;

/// Checks a run whose load took this long.
pub fn check(run: &Run, length: Duration) -> Finding {
    let mut finding = Finding::new("work");
    let is_ok = |call: &&Call| call.has_status(200);
    let answered = run.calls.iter().filter(is_ok).count();
    let revoked = run
        .calls
        .iter()
        .filter(is_ok)
        .filter(|call| matches!(call.action, Action::Disable { .. } | Action::Delete { .. }));
    require_rates(run, length, (ANSWERS_MIN, VALID_MIN), &mut finding);
    require_rate("keys were revoked", revoked.count(), (REVOCATIONS_MIN, length), &mut finding);
    let failed = run.calls.len() - answered;
    finding.require(count(failed) <= FAILED_MAX * count(run.calls.len()), || {
        format!("{failed} of {} requests failed", run.calls.len())
    });
    for replica in 0..REPLICAS {
        let by_replica = run.calls.iter().filter(is_ok).filter(|call| call.replica == replica);
        let by_replica = by_replica.count();
        finding.require(count(by_replica) >= REPLICA_MIN * count(answered), || {
            format!("replica {replica} gave {by_replica} of {answered} answers")
        });
    }
    finding
}

/// Checks a scenario that took this long: it need not reach every replica, and not make every kind of change.
pub fn check_scenario(run: &Run, length: Duration) -> Finding {
    let mut finding = Finding::new("work");
    let rates = (SCENARIO_ANSWERS_MIN, SCENARIO_VALID_MIN);
    require_rates(run, length, rates, &mut finding);
    finding
}

/// Requires this many responses, and verifications that are VALID, per second.
fn require_rates(
    run: &Run,
    length: Duration,
    (answers_min, valid_min): (f64, f64),
    finding: &mut Finding,
) {
    let answered = run.calls.iter().filter(|call| call.has_status(200)).count();
    let valid = run
        .calls
        .iter()
        .filter(|call| matches!(call.action, Action::Verify { .. }) && call.is_valid());
    require_rate("requests were answered with 200", answered, (answers_min, length), finding);
    require_rate("verifications were VALID", valid.count(), (valid_min, length), finding);
}

fn require_rate(what: &str, number: usize, (min, length): (f64, Duration), finding: &mut Finding) {
    let seconds = length.as_secs_f64();
    finding.require(count(number) >= min * seconds, || {
        format!("{number} {what} in {seconds} s: fewer than {min} per second")
    });
}

#[expect(clippy::cast_precision_loss, reason = "a number of requests")]
fn count(number: usize) -> f64 {
    number as f64
}

#[cfg(test)]
mod tests {
    use super::super::fixtures::{call, finds, finds_nothing, reply, run, verify};
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    /// Returns the calls of a second of load, as many as required.
    fn sufficient() -> Vec<Call> {
        let revocation = call(0, Action::Disable { key: 0 }, Some(reply(200, "")));
        let verification =
            |number: usize| Call { replica: number % REPLICAS, ..verify(0, 0, "VALID") };
        (0..99).map(verification).chain([revocation]).collect()
    }

    #[test]
    fn check_accepts_sufficient_work() {
        finds_nothing(&check(&run(sufficient()), SECOND));
    }

    #[test]
    fn check_reports_too_little_work() {
        let only = |keep: fn(&Call) -> bool| {
            check(&run(sufficient().into_iter().filter(keep).collect()), SECOND)
        };

        finds(&only(Call::is_valid), "99 requests were answered with 200 in 1 s");
        finds(&only(Call::is_valid), "0 keys were revoked");
        finds(&only(|call| !call.is_valid()), "0 verifications were VALID");
        finds(&only(|call| call.replica != 1), "replica 1 gave 0 of 67 answers");
    }

    #[test]
    fn check_of_scenario_accepts_less_work_and_reports_too_little() {
        let some = |number| {
            let calls = (0..number).map(|_| verify(0, 0, "VALID"));
            let others = (0..15).map(|_| verify(0, 0, "DISABLED"));
            check_scenario(&run(calls.chain(others).collect()), SECOND)
        };

        finds_nothing(&some(5));
        finds(&some(4), "19 requests were answered with 200 in 1 s");
        finds(&some(4), "4 verifications were VALID in 1 s");
    }

    #[test]
    fn check_reports_too_many_failures() {
        let with_failures = |number| {
            let failed = (0..number).map(|_| Call { answer: None, ..verify(0, 0, "") });
            check(&run(sufficient().into_iter().chain(failed).collect()), SECOND)
        };

        finds_nothing(&with_failures(25));
        finds(&with_failures(26), "26 of 126 requests failed");
    }
}

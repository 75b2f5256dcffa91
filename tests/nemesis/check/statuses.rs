//! Checks that every reply is 200, or 503 if a fault explains it, and that only a replica that is down gives none.

use std::collections::BTreeMap;
use std::time::Duration;

use super::outage::Busy;
use super::{Finding, SLACK, describe};
use crate::record::{Action, Call, Change, Run};
use crate::schedule::FaultKind;

/// Postgres recovers within two seconds, Redis within one.
const RECOVERY: Duration = Duration::from_secs(2);
/// How long a replica that is paused, or lost Postgres silently, keeps an account that it has locked: to spend from it,
/// and to change it.
const SPEND_LOCK_MAX: Duration = Duration::from_secs(1);
const CHANGE_LOCK_MAX: Duration = Duration::from_secs(5);
/// How long the reports of a withheld lease take at most while no replica has a fault.
const REPORTS: Duration = Duration::from_secs(2);

pub fn check(run: &Run) -> Finding {
    let mut finding = Finding::new("statuses");
    let mut statuses: BTreeMap<String, usize> = BTreeMap::new();
    let busy = Busy::of(run);
    for call in &run.calls {
        let status = call.answer.as_ref().map(|answer| answer.status);
        let answer = match status {
            None => "none".to_owned(),
            Some(status) => status.to_string(),
        };
        *statuses.entry(answer).or_default() += 1;
        let r = call.replica;
        let has_fault = |after: Duration| {
            run.has_fault(call.sent, call.received, after + SLACK, |injected| {
                let kind = injected.fault.kind;
                kind.stops_replica(r) || kind.affects_redis(r) || kind.affects_postgres(r)
            })
        };
        let is_right = match status {
            Some(200) => true,
            // A deleted key cannot be changed or revoked again.
            Some(404) => is_missing_key(run, call),
            Some(503) => {
                has_fault(RECOVERY)
                    || (may_miss_lease_deadline(run, call) && busy.was_during(call))
                    || waits_for_reports(run, call)
                    || waits_for_a_lock(run, call)
            }
            Some(_) => false,
            None => run.has_fault(call.sent, call.received, RECOVERY, |injected| {
                injected.fault.kind.stops_replica(r)
            }),
        };
        finding.require(is_right, || format!("unexplained reply: {}", describe(call)));
    }
    let statuses: Vec<_> = statuses.iter().map(|(status, n)| format!("{status}: {n}")).collect();
    finding.notes.push(format!("{} answers, by status {}", run.calls.len(), statuses.join(", ")));
    let valid = run
        .calls
        .iter()
        .filter(|call| matches!(call.action, Action::Verify { .. }) && call.is_valid());
    finding.notes.push(format!("{} verifications were VALID", valid.count()));
    finding
}

/// Whether a call has a deadline of milliseconds because of a lease. Setting a balance and re-rolling a key require
/// that the lease is closed in Redis. A spend uses the lease; if that takes more than 40 ms, it is debited directly
/// within the remaining 10 ms.
fn may_miss_lease_deadline(run: &Run, call: &Call) -> bool {
    match call.action {
        Action::Credits { .. } | Action::Reroll { .. } => true,
        Action::Verify { key, .. } => run.keys[key].credits.is_some(),
        _ => false,
    }
}

/// Whether a replica that was stopped by a fault may have locked the account of the key.
fn waits_for_a_lock(run: &Run, call: &Call) -> bool {
    let (Action::Verify { key, .. } | Action::Credits { key, .. } | Action::Reroll { key, .. }) =
        call.action
    else {
        return false;
    };
    run.keys[key].credits.is_some()
        && run.faults.iter().any(|injected| {
            let Some(other) = injected.fault.kind.replica() else { return false };
            let was_changed = run.calls.iter().any(|call| {
                call.replica == other
                    && call.action.changes_account_of() == Some(key)
                    && (call.sent..=call.received + SLACK).contains(&injected.began)
            });
            let kept = if was_changed { CHANGE_LOCK_MAX } else { SPEND_LOCK_MAX };
            injected.began <= call.received && call.sent <= injected.began + kept + SLACK
        })
}

/// Whether the balance may have waited for reports of a lease that was lost with its Redis: the reports of replicas
/// without a fault, which come within [`REPORTS`], the report of a replica that had a fault, or of one that was killed
/// and never reports.
fn waits_for_reports(run: &Run, call: &Call) -> bool {
    let Some(key) = needs_closed_leases(call) else { return false };
    let had_fault = |sort: fn(&FaultKind) -> bool| {
        run.faults
            .iter()
            .any(|injected| sort(&injected.fault.kind) && injected.began <= call.received)
    };
    let has_fault = run.has_fault(call.sent, call.received, RECOVERY + SLACK, |injected| {
        injected.fault.kind.replica().is_some()
    });
    let was_killed = had_fault(|kind| matches!(kind, FaultKind::KillReplica(_)));
    had_fault(FaultKind::loses_counters)
        && (has_fault || was_killed || waits_since_a_moment(run, call, key))
}

/// Returns the key of a call that requires that its leases are closed.
fn needs_closed_leases(call: &Call) -> Option<usize> {
    match call.action {
        Action::Credits { key, change: Change::Set(_) | Change::Decrement(_) }
        | Action::Reroll { key, .. } => Some(key),
        _ => None,
    }
}

/// Whether the first change of the key that was refused since counters were last lost, which withholds its lease, was
/// answered less than [`REPORTS`] before the call was sent.
fn waits_since_a_moment(run: &Run, call: &Call, key: usize) -> bool {
    let losses = run.faults.iter().filter(|injected| injected.fault.kind.loses_counters());
    let last = losses.map(|injected| injected.began).filter(|began| *began <= call.sent).max();
    let refused = |other: &&Call| {
        needs_closed_leases(other) == Some(key)
            && other.answer.as_ref().is_some_and(|answer| answer.status == 503)
            && last.is_some_and(|last| last <= other.sent)
    };
    let first = run.calls.iter().filter(refused).map(|other| other.received).min();
    first.is_some_and(|first| call.sent <= first + REPORTS + SLACK)
}

fn is_missing_key(run: &Run, call: &Call) -> bool {
    let Action::Delete { key } = call.action else { return false };
    run.calls.iter().any(|other| other.action == Action::Delete { key } && other.sent < call.sent)
}

#[cfg(test)]
mod tests {
    use super::super::fixtures::{at, call, fault, finds, finds_nothing, key, reply, run, verify};
    use super::*;
    use crate::record::Stall;

    fn refused(sent_ms: u64, status: u16) -> Call {
        call(sent_ms, Action::Verify { key: 0, cost: 0 }, Some(reply(status, "")))
    }

    #[test]
    fn check_accepts_503_when_a_fault_explains_it() {
        let faults = vec![fault(FaultKind::KillPostgres, 1_000, 2_000)];
        let calls = vec![verify(0, 0, "VALID"), refused(1_500, 503), refused(3_900, 503)];

        finds_nothing(&check(&Run { faults, ..run(calls) }));
    }

    #[test]
    fn check_accepts_503_when_balance_waits_for_killed_replica() {
        let set = |change| call(9_000, Action::Credits { key: 0, change }, Some(reply(503, "")));
        let faults = vec![
            fault(FaultKind::KillReplica(1), 0, 100),
            fault(FaultKind::WipeRedis, 1_000, 2_000),
        ];
        let refused = |change, faults| check(&Run { faults, ..run(vec![set(change)]) });

        finds_nothing(&refused(Change::Set(1), faults.clone()));
        finds(&refused(Change::Increment(1), faults.clone()), "unexplained reply");
        finds(&refused(Change::Set(1), faults[..1].to_vec()), "unexplained reply");
    }

    #[test]
    fn check_accepts_503_for_a_while_when_lease_was_lost() {
        let set = |sent_ms| {
            let action = Action::Credits { key: 0, change: Change::Set(1) };
            call(sent_ms, action, Some(reply(503, "")))
        };
        let lost = vec![fault(FaultKind::WipeRedis, 1_000, 2_000)];
        let refused = |faults, times: &[u64]| {
            check(&Run { faults, ..run(times.iter().map(|at| set(*at)).collect()) })
        };

        finds_nothing(&refused(lost.clone(), &[9_000, 11_250]));
        finds(&refused(lost, &[9_000, 11_260]), "at 11.260 s");
        finds(&refused(vec![], &[9_000]), "unexplained reply");
    }

    #[test]
    fn check_accepts_503_for_a_while_when_paused_replica_holds_the_account() {
        let metered = |calls| Run {
            faults: vec![fault(FaultKind::StopReplica(1), 1_000, 8_000)],
            keys: vec![key(Some(10))],
            ..run(calls)
        };
        let change = Call {
            replica: 1,
            answer: None,
            ..call(998, Action::Credits { key: 0, change: Change::Set(1) }, None)
        };

        finds_nothing(&check(&metered(vec![refused(2_200, 503)])));
        finds(&check(&metered(vec![refused(2_300, 503)])), "unexplained reply");
        finds_nothing(&check(&metered(vec![change.clone(), refused(6_200, 503)])));
        finds(&check(&metered(vec![change, refused(6_300, 503)])), "unexplained reply");
    }

    #[test]
    fn check_accepts_503_for_credits_when_redis_stalled() {
        let stalled = |replica, credits| Run {
            stalls: vec![Stall { replica, began: at(1_000), ended: at(1_050) }],
            keys: vec![key(credits)],
            ..run(vec![refused(1_300, 503)])
        };

        finds_nothing(&check(&stalled(0, Some(10))));
        finds(&check(&stalled(1, Some(10))), "unexplained reply");
        finds(&check(&stalled(0, None)), "unexplained reply");
        let later = Run { calls: vec![refused(1_310, 503)], ..stalled(0, Some(10)) };
        finds(&check(&later), "unexplained reply");
    }

    #[test]
    fn check_reports_other_statuses() {
        let faults = vec![fault(FaultKind::KillPostgres, 1_000, 2_000)];
        let found =
            |call| finds(&check(&Run { faults: faults.clone(), ..run(vec![call]) }), "unexplained");

        found(refused(1_500, 500));
        found(refused(500, 503));
        found(refused(1_500, 404));
        found(Call { answer: None, ..refused(1_500, 0) });
    }
}

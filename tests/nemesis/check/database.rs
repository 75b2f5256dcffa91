//! Checks that without Postgres cached keys verify, an unknown key is not reported as `NOT_FOUND`, and recovery takes at
//! most two seconds.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use super::{Finding, SLACK, describe};
use crate::record::{Action, Call, KeyIndex, LoadTime, Run, Withdrawal};
use crate::schedule::{FaultKind, REPLICAS};

const RECOVERY: Duration = Duration::from_secs(2);
/// How long a replica that is cut off from both servers trusts what it has read.
const TRUST: Duration = Duration::from_secs(5);

pub fn check(run: &Run) -> Finding {
    let mut finding = Finding::new("Postgres outages");
    check_known(run, &mut finding);
    check_cached(run, &mut finding);
    check_recovery(run, &mut finding);
    finding
}

/// Checks that no existing key was reported as `NOT_FOUND`.
fn check_known(run: &Run, finding: &mut Finding) {
    let deleted = |key: KeyIndex| {
        let ends = |call: &&Call| match call.action {
            Action::Delete { key: ended }
            | Action::Withdraw { key: ended, what: Withdrawal::Reroll }
            | Action::Reroll { key: ended, grace_ms: 0, .. } => ended == key,
            _ => false,
        };
        run.calls.iter().find(ends).map(|call| call.sent)
    };
    let (mut uncached, mut known) = (0, HashSet::new());
    for call in &run.calls {
        let Action::Verify { key, .. } = call.action else { continue };
        let Some(answer) = &call.answer else { continue };
        if is_unreachable(run, call.replica, call.sent, call.received)
            && !known.contains(&(call.replica, key))
        {
            uncached += 1;
        }
        if answer.status == 200 {
            known.insert((call.replica, key));
        }
        let is_unknown = answer.code == "NOT_FOUND";
        finding
            .require(!is_unknown || deleted(key).is_some_and(|sent| sent < call.received), || {
                format!("an existing key was reported as NOT_FOUND: {}", describe(call))
            });
    }
    finding.notes.push(format!("{uncached} verifications of uncached keys during outages"));
}

fn is_unreachable(run: &Run, replica: usize, from: LoadTime, to: LoadTime) -> bool {
    run.has_fault(from, to, Duration::ZERO, |injected| {
        injected.fault.kind.affects_postgres(replica)
    })
}

/// Checks that a cached key that needs nothing else verifies, whatever happens to Postgres.
fn check_cached(run: &Run, finding: &mut Finding) {
    let mut known: HashSet<(usize, KeyIndex)> = HashSet::new();
    let mut changed: HashSet<KeyIndex> = HashSet::new();
    let (mut held, mut refused, mut blind) = (0, 0, 0);
    for call in &run.calls {
        match call.action {
            Action::Rename { key, .. }
            | Action::SetLimit { key, .. }
            | Action::Disable { key }
            | Action::Delete { key }
            | Action::Withdraw { key, .. } => {
                changed.insert(key);
            }
            Action::Verify { key, .. } => {
                let info = &run.keys[key];
                if !info.is_plain() || changed.contains(&key) {
                    continue;
                }
                if call.answer.is_none() {
                    continue;
                }
                if call.is_valid() {
                    known.insert((call.replica, key));
                }
                if is_blind(run, call) {
                    blind += 1;
                    finding.require(call.has_status(503), || {
                        format!("a key was trusted without both servers: {}", describe(call))
                    });
                }
                let is_known = known.contains(&(call.replica, key)) && !was_cut_off(run, call);
                if !is_known || !is_unreachable(run, call.replica, call.sent, call.received) {
                    continue;
                }
                match grace(run, call) {
                    Grace::Within => {
                        held += 1;
                        finding.require(call.is_valid(), || {
                            format!(
                                "a cached key did not verify without Postgres: {}",
                                describe(call)
                            )
                        });
                    }
                    Grace::Over => {
                        refused += 1;
                        finding.require(call.has_status(503), || {
                            format!(
                                "a cached key outlived its grace period without Postgres: {}",
                                describe(call)
                            )
                        });
                    }
                    Grace::Ends => {}
                }
            }
            _ => {}
        }
    }
    finding.notes.push(format!(
        "{held} verifications of cached keys during outages, {refused} rejected after their grace period, and {blind} for \
        lack of proof"
    ));
}

/// Whether the replica had neither server for longer than it may trust what it has read, while it was not stopped.
fn is_blind(run: &Run, call: &Call) -> bool {
    let r = call.replica;
    run.faults.iter().any(|injected| {
        matches!(injected.fault.kind, FaultKind::Isolate(isolated) if isolated == r)
            && injected.began + TRUST + SLACK < call.sent
            && call.received <= injected.ended
            && !run.has_fault(injected.began, call.received, RECOVERY, |other| {
                other.fault.kind.stops_replica(r)
            })
    })
}

/// The duration of an outage compared with the grace period of cached keys.
enum Grace {
    Within,
    /// It ends at this moment, so both replies are correct.
    Ends,
    Over,
}

fn grace(run: &Run, call: &Call) -> Grace {
    let outages = run.faults.iter().filter(|injected| {
        injected.fault.kind.affects_postgres(call.replica)
            && injected.began <= call.sent
            && call.sent <= injected.ended
    });
    let lasted =
        outages.map(|injected| call.sent.saturating_sub(injected.began)).max().unwrap_or_default();
    // A request at the end of the outage may be answered by a Postgres that is back.
    let is_whole = run.faults.iter().any(|injected| {
        injected.fault.kind.affects_postgres(call.replica)
            && injected.began <= call.sent
            && call.received <= injected.ended
    });
    match run.database_grace {
        Some(grace) if lasted > grace + RECOVERY && is_whole => Grace::Over,
        Some(grace) if lasted + RECOVERY > grace => Grace::Ends,
        Some(_) | None => Grace::Within,
    }
}

/// Whether the replica was started recently, had neither server, or may have missed announcements, which only Postgres
/// can make up for.
fn was_cut_off(run: &Run, call: &Call) -> bool {
    let r = call.replica;
    let outage = |injected: &&crate::record::InjectedFault| {
        injected.fault.kind.affects_postgres(r)
            && injected.began <= call.received
            && call.sent <= injected.ended + RECOVERY
    };
    let since = run.faults.iter().filter(outage).map(|injected| injected.began).min();
    run.has_fault(since.unwrap_or(call.sent).min(call.sent), call.received, RECOVERY, |injected| {
        injected.fault.kind.stops_replica(r) || injected.fault.kind.affects_redis(r)
    }) || run.faults.iter().any(|injected| {
        matches!(injected.fault.kind, FaultKind::KillReplica(killed) if killed == r)
            && injected.ended <= call.sent
            && !run.calls.iter().any(|other| {
                other.replica == r
                    && other.action == call.action
                    && other.sent > injected.ended
                    && other.received < call.sent
                    && other.is_valid()
            })
    })
}

/// Checks how long after the return of Postgres each replica read from it again.
fn check_recovery(run: &Run, finding: &mut Finding) {
    let mut slowest = (Duration::ZERO, String::new());
    let mut verification_counts: HashMap<KeyIndex, usize> = HashMap::new();
    for call in &run.calls {
        if let Action::Verify { key, .. } = call.action {
            *verification_counts.entry(key).or_default() += 1;
        }
    }
    for injected in &run.faults {
        for replica in
            (0..REPLICAS).filter(|replica| injected.fault.kind.affects_postgres(*replica))
        {
            let until = injected.ended + RECOVERY + SLACK;
            let is_disturbed = run.faults.iter().any(|other| {
                let kind = other.fault.kind;
                let is_other = other.began != injected.began || kind != injected.fault.kind;
                is_other
                    && other.began <= until
                    && injected.ended <= other.ended + RECOVERY
                    && (kind.affects_postgres(replica) || kind.stops_replica(replica))
            });
            let action = run
                .calls
                .iter()
                .filter(|call| call.replica == replica && call.received > injected.ended)
                .filter(|call| needs_postgres(call, &verification_counts));
            if is_disturbed || action.clone().next().is_none() {
                continue;
            }
            let first = action.filter(|call| call.has_status(200)).map(|call| call.received).min();
            let took = first.map(|first| first.saturating_sub(injected.ended));
            finding.require(took.is_some_and(|took| took <= RECOVERY + SLACK), || {
                format!(
                    "replica {replica} used Postgres {took:?} after {} ended at {:.3?}",
                    injected.fault.kind, injected.ended
                )
            });
            if took.is_some_and(|took| took > slowest.0) {
                slowest = (took.unwrap_or_default(), format!("{}", injected.fault.kind));
            }
        }
    }
    finding.notes.push(format!(
        "slowest recovery: {} ms after {}",
        slowest.0.as_millis(),
        slowest.1
    ));
}

/// Whether a call changes something or verifies a key that was verified only once.
fn needs_postgres(call: &Call, verification_counts: &HashMap<KeyIndex, usize>) -> bool {
    match call.action {
        Action::Control | Action::Limit { .. } => false,
        Action::Verify { key, .. } => verification_counts[&key] == 1,
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use super::super::fixtures::{call, fault, finds, finds_nothing, reply, run, verify};
    use super::*;

    fn outage(calls: Vec<Call>) -> Run {
        Run { faults: vec![fault(FaultKind::KillPostgres, 1_000, 2_000)], ..run(calls) }
    }

    fn create(sent_ms: u64, replica: usize, status: u16) -> Call {
        let created = call(sent_ms, Action::Create { key: None }, Some(reply(status, "")));
        Call { replica, ..created }
    }

    fn recovered(mut calls: Vec<Call>, at_ms: u64) -> Vec<Call> {
        calls.extend((0..REPLICAS).map(|replica| create(at_ms, replica, 200)));
        calls
    }

    #[test]
    fn check_accepts_verified_cached_key_and_recovery_within_two_seconds() {
        let calls = vec![verify(500, 0, "VALID"), verify(1_500, 0, "VALID"), create(1_600, 0, 503)];

        finds_nothing(&check(&outage(recovered(calls, 3_900))));
    }

    #[test]
    fn check_reports_existing_key_that_was_not_found() {
        let calls = recovered(vec![verify(1_500, 0, "NOT_FOUND")], 3_000);

        finds(&check(&outage(calls)), "was reported as NOT_FOUND");
    }

    #[test]
    fn check_reports_rejected_cached_key() {
        let refused = call(1_500, Action::Verify { key: 0, cost: 0 }, Some(reply(503, "")));
        let calls = recovered(vec![verify(500, 0, "VALID"), refused], 3_000);

        finds(&check(&outage(calls)), "a cached key did not verify");
    }

    #[test]
    fn check_reports_cached_key_that_outlives_its_grace_period() {
        let calls = |code| vec![verify(500, 0, "VALID"), verify(9_500, 0, code)];
        let outage = |calls| Run {
            faults: vec![fault(FaultKind::CutPostgres(0), 1_000, 10_000)],
            database_grace: Some(Duration::from_secs(4)),
            ..run(calls)
        };

        finds(&check(&outage(calls("VALID"))), "outlived its grace");
        let mut refused = calls("");
        refused[1].answer = Some(reply(503, ""));
        let finding = check(&outage(refused));
        assert!(!finding.violations.iter().any(|it| it.contains("grace")), "{finding:?}");
    }

    #[test]
    fn check_reports_key_that_is_trusted_without_both_servers() {
        let outage = |sent_ms, status| {
            let action = Action::Verify { key: 0, cost: 0 };
            let last = call(sent_ms, action, Some(reply(status, "VALID")));
            let calls = recovered(vec![verify(500, 0, "VALID"), last], 11_000);
            let faults = vec![fault(FaultKind::Isolate(0), 1_000, 10_000)];
            check(&Run { faults, ..run(calls) })
        };

        finds_nothing(&outage(6_250, 200));
        finds(&outage(6_251, 200), "was trusted without both servers");
        finds_nothing(&outage(6_251, 503));
    }

    #[test]
    fn check_reports_slow_recovery() {
        finds(&check(&outage(recovered(Vec::new(), 4_500))), "used Postgres Some(2.505s)");
    }
}

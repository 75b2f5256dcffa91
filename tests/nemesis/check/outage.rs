//! Checks that without Redis limits are decided at once, and that all calls are normal within a second of its return.

use std::time::Duration;

use super::{Finding, SLACK, describe, percentile};
use crate::record::{Action, Call, LoadTime, Run, Stall};
use crate::schedule::{FaultKind, REPLICAS};

const AT_ONCE: Duration = Duration::from_millis(50);
/// Of fewer replies, a single one from a process that did not get the processor would be the 99th percentile.
const FEW: usize = 100;
const RECOVERY: Duration = Duration::from_secs(1);
/// If a request that does not need Redis took this long, the machine was too busy for a deadline of milliseconds.
const BUSY: Duration = Duration::from_millis(15);
/// How much longer a debit may take for its caller: its replica gives up after exactly [`AT_ONCE`].
const DEBIT_EXCESS: Duration = Duration::from_millis(10);

pub fn check(run: &Run) -> Finding {
    let mut finding = Finding::new("Redis outages");
    check_latency(run, &mut finding);
    check_recovery(run, &mut finding);
    check_strays(run, &mut finding);
    finding
}

/// Whether the call is decided by windows, including calls for keys with credits.
fn has_windows(run: &Run, call: &Call) -> bool {
    match call.action {
        Action::Limit { .. } => true,
        Action::Verify { key, .. } => !run.keys[key].limits.is_empty(),
        _ => false,
    }
}

/// Whether the call also spends credits. Without Redis they are debited directly within the same time, or the call gets
/// 503.
fn has_credits(run: &Run, call: &Call) -> bool {
    matches!(call.action, Action::Verify { key, .. } if run.keys[key].credits.is_some())
}

/// Whether the call needs no Redis and its replica had no fault: `/livez`, or the verification of a key without
/// counters.
fn needs_no_redis(run: &Run, call: &Call) -> bool {
    match call.action {
        Action::Control => true,
        Action::Verify { key, .. } => {
            run.keys[key].is_plain()
                && !run.has_fault(call.sent, call.received, RECOVERY + SLACK, |injected| {
                    injected.fault.kind.stops_replica(call.replica)
                        || injected.fault.kind.affects_postgres(call.replica)
                })
        }
        _ => false,
    }
}

fn is_unreachable(kind: FaultKind, replica: usize) -> bool {
    use FaultKind::{DemoteRedis, FailOver, SlowRedis, SplitRedis};
    let may_answer = matches!(kind, SlowRedis(_) | FailOver | DemoteRedis | SplitRedis(_));
    kind.affects_redis(replica) && !may_answer
}

/// Whether a call was made during an outage of Redis while its replica had no other fault.
fn is_within(run: &Run, call: &Call) -> bool {
    let r = call.replica;
    run.faults.iter().any(|injected| {
        is_unreachable(injected.fault.kind, r)
            && injected.began <= call.sent
            && call.sent <= injected.ended
    }) && !run.has_fault(call.sent, call.received, 2 * RECOVERY + SLACK, |injected| {
        injected.fault.kind.stops_replica(r) || injected.fault.kind.affects_postgres(r)
    })
}

fn check_latency(run: &Run, finding: &mut Finding) {
    let busy = Busy::of(run);
    let (mut within, mut control, mut healthy) = (Vec::new(), Vec::new(), Vec::new());
    let mut excused = 0;
    for call in &run.calls {
        match call.action {
            Action::Control if is_within(run, call) => control.push(call.took()),
            _ if has_windows(run, call) && is_within(run, call) => {
                if call.took() > AT_ONCE && is_excused(run, &busy, call) {
                    excused += 1;
                } else {
                    within.push(call.took());
                }
                let is_decided = call.answer.as_ref().is_none_or(|answer| {
                    answer.status == 200 || (answer.status == 503 && has_credits(run, call))
                });
                finding.require(is_decided, || {
                    format!("not decided without Redis: {}", describe(call))
                });
            }
            _ if has_windows(run, call) && !has_fault(run, call) => healthy.push(call.took()),
            _ => {}
        }
    }
    let (p50, p99) = (percentile(&mut within, 0.5), percentile(&mut within, 0.99));
    let beside = percentile(&mut control, 0.99);
    finding.notes.push(format!(
        "{} answers during outages: median {p50:.1?}, p99 {p99:.1?}, beside a p99 of {beside:.1?} of /livez, and \
        {excused} slow ones while the machine was too busy; healthy: median {:.1?}, p99 {:.1?}",
        within.len(),
        percentile(&mut healthy, 0.5),
        percentile(&mut healthy, 0.99)
    ));
    let at_once = if within.len() < FEW { 2 * AT_ONCE } else { AT_ONCE };
    finding.require(p99 <= at_once, || format!("during outages of Redis, p99 was {p99:.1?}"));
}

/// Whether a busy machine explains that a call took longer than its replica may. A stall of Redis does not explain more than
/// a delay that goes unnoticed: a replica waits no longer for Redis, and during an outage it stalls all the time.
fn is_excused(run: &Run, busy: &Busy, call: &Call) -> bool {
    let debit = if has_credits(run, call) { DEBIT_EXCESS } else { Duration::ZERO };
    match call.took() > AT_ONCE + BUSY + debit {
        true => busy.was_slow_during(call),
        false => busy.was_during(call),
    }
}

/// Whether a call's replica had a fault, or had one recently.
fn has_fault(run: &Run, call: &Call) -> bool {
    run.has_fault(call.sent, call.received, RECOVERY + SLACK, |injected| {
        let kind = injected.fault.kind;
        kind.stops_replica(call.replica)
            || kind.affects_redis(call.replica)
            || kind.affects_postgres(call.replica)
    })
}

/// Checks how long after the return of Redis each replica counted in it again.
fn check_recovery(run: &Run, finding: &mut Finding) {
    let mut slowest = (Duration::ZERO, String::new());
    for injected in &run.faults {
        for replica in (0..REPLICAS).filter(|replica| injected.fault.kind.affects_redis(*replica)) {
            let until = injected.ended + RECOVERY + SLACK;
            let is_disturbed = run.faults.iter().any(|other| {
                let kind = other.fault.kind;
                let is_other = other.began != injected.began || kind != injected.fault.kind;
                is_other
                    && other.began <= until
                    && injected.ended <= other.ended + RECOVERY
                    && (kind.affects_redis(replica) || kind.stops_replica(replica))
            });
            let is_relevant = |call: &&Call| {
                call.replica == replica && call.received > injected.ended && has_windows(run, call)
            };
            let counted = |call: &&Call| {
                is_relevant(call)
                    && call
                        .answer
                        .as_ref()
                        .is_some_and(|answer| answer.status == 200 && !answer.degraded)
            };
            if is_disturbed || !run.calls.iter().any(|call| is_relevant(&call)) {
                continue;
            }
            let first: Option<LoadTime> =
                run.calls.iter().filter(counted).map(|call| call.received).min();
            let took = first.map(|first| first.saturating_sub(injected.ended));
            finding.require(took.is_some_and(|took| took <= RECOVERY + SLACK), || {
                let ended = injected.ended;
                format!(
                    "replica {replica} counted in Redis {took:?} after {} ended at {ended:.3?}",
                    injected.fault.kind
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

/// The times at which the machine was too busy for a deadline of milliseconds: a request without Redis was slow, or Redis
/// did not reply to the replica, after which the circuit breaker may stay open for a moment.
pub struct Busy {
    slow: Vec<(LoadTime, LoadTime)>,
    stalls: Vec<Stall>,
}

impl Busy {
    pub fn of(run: &Run) -> Self {
        let slow = run.calls.iter().filter(|call| call.took() >= BUSY && needs_no_redis(run, call));
        let slow = slow.map(|call| (call.sent, call.received + 2 * SLACK)).collect();
        Self { slow, stalls: run.stalls.clone() }
    }

    /// Whether the machine was busy during this call.
    pub fn was_during(&self, call: &Call) -> bool {
        self.was_slow_during(call)
            || self.stalls.iter().any(|stall| {
                stall.replica == call.replica && is_during(call, stall.began, stall.ended + SLACK)
            })
    }

    /// Whether a request without Redis was slow during this call.
    pub fn was_slow_during(&self, call: &Call) -> bool {
        self.slow.iter().any(|(from, to)| is_during(call, *from, *to))
    }
}

fn is_during(call: &Call, from: LoadTime, to: LoadTime) -> bool {
    from <= call.received && call.sent <= to
}

/// Checks that no call is decided without Redis once it has been reachable for a second. A deadline of milliseconds is
/// missed occasionally on a machine where all processes run at the same time: one reply in a thousand may be, and more
/// while it is busy.
fn check_strays(run: &Run, finding: &mut Finding) {
    let busy = Busy::of(run);
    let (mut strays, mut excused, mut counted) = (Vec::new(), 0, 0);
    for call in run.calls.iter().filter(|call| !has_fault(run, call)) {
        match call.answer.as_ref().is_some_and(|answer| answer.degraded) {
            false => counted += usize::from(has_windows(run, call)),
            true if busy.was_during(call) => {
                excused += 1;
            }
            true => strays
                .push(format!("decided without Redis, which was reachable: {}", describe(call))),
        }
    }
    finding.notes.push(format!(
        "of {counted} answers while Redis was reachable, {} were decided without it, and {excused} more while the machine was \
        too busy",
        strays.len()
    ));
    if strays.len() > counted / 1_000 {
        finding.violations.append(&mut strays);
    }
}

#[cfg(test)]
mod tests {
    use super::super::fixtures::{at, fault, finds, finds_nothing, limit, run};
    use super::*;

    fn degraded(sent_ms: u64, took_ms: u64) -> Call {
        let mut call = limit(sent_ms, 0, "VALID", 10);
        call.received = at(sent_ms + took_ms);
        call.answer.as_mut().expect("an answer").degraded = true;
        call
    }

    fn outage(calls: Vec<Call>) -> Run {
        let faults = vec![fault(FaultKind::CutRedis(0), 1_000, 2_000)];
        Run { faults, ..run(calls) }
    }

    #[test]
    fn check_accepts_immediate_replies_and_recovery_within_a_second() {
        let calls = vec![degraded(1_500, 40), degraded(2_500, 2), limit(2_900, 1, "VALID", 9)];

        finds_nothing(&check(&outage(calls)));
    }

    #[test]
    fn check_reports_slow_reply() {
        let slow = |few: u64, took_ms| {
            let calls = (0..few).map(|number| degraded(1_500 + number, took_ms));
            check(&outage(calls.chain([limit(2_900, 1, "VALID", 9)]).collect()))
        };

        finds_nothing(&slow(100, 50));
        finds(&slow(100, 51), "p99 was 51.0ms");
        finds_nothing(&slow(99, 100));
        finds(&slow(99, 101), "p99 was 101.0ms");
    }

    #[test]
    fn check_reports_slow_reply_beside_stalls_of_redis() {
        let slow = |took_ms, credits| {
            let action = Action::Verify { key: 0, cost: 1 };
            let calls = (0..100)
                .map(|number| Call { action: action.clone(), ..degraded(1_500 + number, took_ms) });
            let mut run = outage(calls.chain([limit(2_900, 1, "VALID", 9)]).collect());
            run.keys[0].limits = vec![("second".to_owned(), 10, 1_000)];
            run.keys[0].credits = credits;
            run.stalls = vec![Stall { replica: 0, began: at(1_000), ended: at(2_000) }];
            check(&run)
        };

        finds_nothing(&slow(65, None));
        finds(&slow(66, None), "p99 was 66.0ms");
        finds_nothing(&slow(75, Some(10)));
        finds(&slow(76, Some(10)), "p99 was 76.0ms");
    }

    #[test]
    fn check_reports_503() {
        let mut refused = limit(1_500, 1, "", 0);
        refused.answer.as_mut().expect("an answer").status = 503;

        finds(
            &check(&outage(vec![refused, limit(2_500, 1, "VALID", 9)])),
            "not decided without Redis",
        );
    }

    #[test]
    fn check_accepts_503_for_key_with_credits_unless_slow() {
        let outage = |took_ms| {
            let (mut refused, action) =
                (degraded(1_500, took_ms), Action::Verify { key: 0, cost: 1 });
            refused.answer.as_mut().expect("an answer").status = 503;
            let mut run = outage(vec![Call { action, ..refused }, limit(2_900, 1, "VALID", 9)]);
            run.keys[0].limits = vec![("second".to_owned(), 10, 1_000)];
            run.keys[0].credits = Some(10);
            run
        };

        finds_nothing(&check(&outage(50)));
        finds(&check(&outage(110)), "p99 was 110.0ms");
        let mut unlimited = outage(50);
        unlimited.keys[0].credits = None;
        finds(&check(&unlimited), "not decided without Redis");
    }

    #[test]
    fn check_reports_slow_recovery() {
        let calls = vec![degraded(1_500, 2), degraded(3_400, 2), limit(3_500, 1, "VALID", 9)];

        let finding = check(&outage(calls));

        finds(&finding, "counted in Redis Some(1.505s) after");
        finds(&finding, "decided without Redis, which was reachable");
    }
}

//! P4: without Redis, limits are decided at once, and all is normal within a second of its return.

use std::time::Duration;

use super::{Finding, SLACK, name, percentile};
use crate::record::{Act, Asked, At, Run};
use crate::schedule::{Kind, REPLICAS};

const AT_ONCE: Duration = Duration::from_millis(50);
const FEW: usize = 1_000;
const RECOVERY: Duration = Duration::from_secs(1);
/// The machine was too busy for a deadline of milliseconds, when what needs no Redis took so long.
const BUSY: Duration = Duration::from_millis(15);

pub fn check(run: &Run) -> Finding {
    let mut finding = Finding::of("P4 outages of Redis");
    check_latency(run, &mut finding);
    check_recovery(run, &mut finding);
    check_strays(run, &mut finding);
    finding
}

/// Whether it is decided by windows, of a key with credits too.
fn has_windows(run: &Run, act: &Act) -> bool {
    match act.asked {
        Asked::Limit { .. } => true,
        Asked::Verify { key, .. } => !run.keys[key].limits.is_empty(),
        _ => false,
    }
}

/// Whether it spends credits as well. Without Redis these are debited directly within the same time, or refused with 503.
fn has_credits(run: &Run, act: &Act) -> bool {
    matches!(act.asked, Asked::Verify { key, .. } if run.keys[key].credits.is_some())
}

/// Whether it is answered without Redis, by a replica to which nothing has been done: `/livez`, or the verification of a
/// key of which nothing is counted.
fn needs_no_redis(run: &Run, act: &Act) -> bool {
    match act.asked {
        Asked::Control => true,
        Asked::Verify { key, .. } => {
            run.keys[key].is_plain()
                && !run.is_troubled(act.sent, act.received, RECOVERY + SLACK, |done| {
                    done.fault.kind.halts(act.replica)
                        || done.fault.kind.troubles_postgres(act.replica)
                })
        }
        _ => false,
    }
}

fn is_away(kind: Kind, replica: usize) -> bool {
    use Kind::{DemoteRedis, FailOver, SlowRedis, SplitRedis};
    let may_answer = matches!(kind, SlowRedis(_) | FailOver | DemoteRedis | SplitRedis(_));
    kind.troubles_redis(replica) && !may_answer
}

/// Whether an act fell into an outage of Redis while nothing else was wrong with its replica.
fn is_within(run: &Run, act: &Act) -> bool {
    let r = act.replica;
    run.faults
        .iter()
        .any(|done| is_away(done.fault.kind, r) && done.began <= act.sent && act.sent <= done.ended)
        && !run.is_troubled(act.sent, act.received, 2 * RECOVERY + SLACK, |done| {
            done.fault.kind.halts(r) || done.fault.kind.troubles_postgres(r)
        })
}

fn check_latency(run: &Run, finding: &mut Finding) {
    let busy = Busy::of(run);
    let (mut within, mut control, mut healthy) = (Vec::new(), Vec::new(), Vec::new());
    let mut excused = 0;
    for act in &run.acts {
        match act.asked {
            Asked::Control if is_within(run, act) => control.push(act.took()),
            _ if has_windows(run, act) && is_within(run, act) => {
                if act.took() > AT_ONCE && busy.beside(act) {
                    excused += 1;
                } else {
                    within.push(act.took());
                }
                let is_decided = act.answer.as_ref().is_none_or(|told| {
                    told.status == 200 || (told.status == 503 && has_credits(run, act))
                });
                finding.hold(is_decided, || format!("not decided without Redis: {}", name(act)));
            }
            _ if has_windows(run, act) && !is_troubled(run, act) => healthy.push(act.took()),
            _ => {}
        }
    }
    let (p50, p99) = (percentile(&mut within, 0.5), percentile(&mut within, 0.99));
    let beside = percentile(&mut control, 0.99);
    finding.told.push(format!(
        "{} answers during outages: median {p50:.1?}, p99 {p99:.1?}, beside a p99 of {beside:.1?} of /livez, and \
        {excused} slow ones while the machine was too busy; healthy: median {:.1?}, p99 {:.1?}",
        within.len(),
        percentile(&mut healthy, 0.5),
        percentile(&mut healthy, 0.99)
    ));
    // Of a few answers one may have met a process that did not get the processor.
    let at_once = if within.len() < FEW { 2 * AT_ONCE } else { AT_ONCE };
    finding.hold(p99 <= at_once + beside, || {
        format!("during outages of Redis, p99 was {p99:.1?}, and that of /livez {beside:.1?}")
    });
}

/// Whether anything was wrong with an act's replica, or had just been.
fn is_troubled(run: &Run, act: &Act) -> bool {
    run.is_troubled(act.sent, act.received, RECOVERY + SLACK, |done| {
        let kind = done.fault.kind;
        kind.halts(act.replica)
            || kind.troubles_redis(act.replica)
            || kind.troubles_postgres(act.replica)
    })
}

/// How long after Redis' return each replica counted in it again.
fn check_recovery(run: &Run, finding: &mut Finding) {
    let mut slowest = (Duration::ZERO, String::new());
    for done in &run.faults {
        for replica in (0..REPLICAS).filter(|replica| done.fault.kind.troubles_redis(*replica)) {
            let until = done.ended + RECOVERY + SLACK;
            let is_disturbed = run.faults.iter().any(|other| {
                let kind = other.fault.kind;
                let is_other = other.began != done.began || kind != done.fault.kind;
                is_other
                    && other.began <= until
                    && done.ended <= other.ended + RECOVERY
                    && (kind.troubles_redis(replica) || kind.halts(replica))
            });
            let asked = |act: &&Act| {
                act.replica == replica && act.received > done.ended && has_windows(run, act)
            };
            let counted = |act: &&Act| {
                asked(act)
                    && act.answer.as_ref().is_some_and(|told| told.status == 200 && !told.degraded)
            };
            if is_disturbed || !run.acts.iter().any(|act| asked(&act)) {
                continue;
            }
            let first: Option<At> = run.acts.iter().filter(counted).map(|act| act.received).min();
            let took = first.map(|first| first.saturating_sub(done.ended));
            finding.hold(took.is_some_and(|took| took <= RECOVERY + SLACK), || {
                let ended = done.ended;
                format!(
                    "replica {replica} counted in Redis {took:?} after {} ended at {ended:.3?}",
                    done.fault.kind
                )
            });
            if took.is_some_and(|took| took > slowest.0) {
                slowest = (took.unwrap_or_default(), format!("{}", done.fault.kind));
            }
        }
    }
    finding.told.push(format!(
        "slowest recovery: {} ms after {}",
        slowest.0.as_millis(),
        slowest.1
    ));
}

/// When the machine was too busy for a deadline of milliseconds.
pub struct Busy(Vec<(At, At)>);

impl Busy {
    pub fn of(run: &Run) -> Self {
        let slow = run.acts.iter().filter(|act| act.took() >= BUSY && needs_no_redis(run, act));
        Self(slow.map(|act| (act.sent, act.received + 2 * SLACK)).collect())
    }

    /// Whether it was while this was asked.
    pub fn beside(&self, act: &Act) -> bool {
        self.0.iter().any(|(from, to)| *from <= act.received && act.sent <= *to)
    }
}

/// Nobody decides without Redis when it has been there for a second. A deadline of milliseconds is missed now and then
/// on a machine where all this runs beside each other: one answer in a thousand may be, and more while it is busy.
fn check_strays(run: &Run, finding: &mut Finding) {
    let busy = Busy::of(run);
    let (mut strays, mut excused, mut counted) = (Vec::new(), 0, 0);
    for act in run.acts.iter().filter(|act| !is_troubled(run, act)) {
        match act.answer.as_ref().is_some_and(|told| told.degraded) {
            false => counted += usize::from(has_windows(run, act)),
            true if busy.beside(act) => {
                excused += 1;
            }
            true => strays.push(format!("decided without Redis, which was there: {}", name(act))),
        }
    }
    finding.told.push(format!(
        "of {counted} answers while Redis was there, {} were decided without it, and {excused} more while the machine was \
        too busy",
        strays.len()
    ));
    if strays.len() > counted / 1_000 {
        finding.violations.append(&mut strays);
    }
}

#[cfg(test)]
mod tests {
    use super::super::by_hand::{at, fault, finds, finds_nothing, limit, run};
    use super::*;

    fn degraded(sent_ms: u64, took_ms: u64) -> Act {
        let mut act = limit(sent_ms, 0, "VALID", 10);
        act.received = at(sent_ms + took_ms);
        act.answer.as_mut().expect("an answer").degraded = true;
        act
    }

    fn outage(acts: Vec<Act>) -> Run {
        let faults = vec![fault(Kind::CutRedis(0), 1_000, 2_000)];
        Run { faults, ..run(acts) }
    }

    #[test]
    fn answers_at_once_and_a_recovery_within_a_second_are_right() {
        let acts = vec![degraded(1_500, 40), degraded(2_500, 2), limit(2_900, 1, "VALID", 9)];

        finds_nothing(&check(&outage(acts)));
    }

    #[test]
    fn a_slow_answer_is_found() {
        let acts = vec![degraded(1_500, 110), limit(2_900, 1, "VALID", 9)];

        finds(&check(&outage(acts)), "p99 was 110.0ms");
    }

    #[test]
    fn a_refusal_by_503_is_found() {
        let mut refused = limit(1_500, 1, "", 0);
        refused.answer.as_mut().expect("an answer").status = 503;

        finds(
            &check(&outage(vec![refused, limit(2_500, 1, "VALID", 9)])),
            "not decided without Redis",
        );
    }

    #[test]
    fn key_with_credits_may_be_refused_and_is_found_when_slow() {
        let outage = |took_ms| {
            let (mut refused, asked) =
                (degraded(1_500, took_ms), Asked::Verify { key: 0, cost: 1 });
            refused.answer.as_mut().expect("an answer").status = 503;
            let mut run = outage(vec![Act { asked, ..refused }, limit(2_900, 1, "VALID", 9)]);
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
    fn a_slow_recovery_is_found() {
        let acts = vec![degraded(1_500, 2), degraded(3_400, 2), limit(3_500, 1, "VALID", 9)];

        let finding = check(&outage(acts));

        finds(&finding, "counted in Redis Some(1.505s) after");
        finds(&finding, "decided without Redis, which was there");
    }
}

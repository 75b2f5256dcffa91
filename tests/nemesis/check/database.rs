//! P5: without Postgres, cached keys verify, an unknown one is not called unknown, and recovery takes two seconds.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use super::{Finding, SLACK, name};
use crate::record::{Act, Asked, At, KeyNo, Run, Withdrawal};
use crate::schedule::{Kind, REPLICAS};

const RECOVERY: Duration = Duration::from_secs(2);

pub fn check(run: &Run) -> Finding {
    let mut finding = Finding::of("P5 outages of Postgres");
    check_known(run, &mut finding);
    check_cached(run, &mut finding);
    check_recovery(run, &mut finding);
    finding
}

/// No key that there is was ever called unknown.
fn check_known(run: &Run, finding: &mut Finding) {
    let deleted = |key: KeyNo| {
        let ends = |act: &&Act| match act.asked {
            Asked::Delete { key: ended }
            | Asked::Withdraw { key: ended, what: Withdrawal::Reroll }
            | Asked::Reroll { key: ended, grace_ms: 0, .. } => ended == key,
            _ => false,
        };
        run.acts.iter().find(ends).map(|act| act.sent)
    };
    let (mut uncached, mut known) = (0, HashSet::new());
    for act in &run.acts {
        let Asked::Verify { key, .. } = act.asked else { continue };
        let Some(answer) = &act.answer else { continue };
        if is_away(run, act.replica, act.sent, act.received) && !known.contains(&(act.replica, key))
        {
            uncached += 1;
        }
        if answer.status == 200 {
            known.insert((act.replica, key));
        }
        let is_unknown = answer.code == "NOT_FOUND";
        finding.hold(!is_unknown || deleted(key).is_some_and(|sent| sent < act.received), || {
            format!("a key that there is was called unknown: {}", name(act))
        });
    }
    finding.told.push(format!("{uncached} verifications of uncached keys during outages"));
}

fn is_away(run: &Run, replica: usize, from: At, to: At) -> bool {
    run.is_troubled(from, to, Duration::ZERO, |done| done.fault.kind.troubles_postgres(replica))
}

/// A key that a replica knows verifies, whatever Postgres does, when it needs nothing else.
fn check_cached(run: &Run, finding: &mut Finding) {
    let mut known: HashSet<(usize, KeyNo)> = HashSet::new();
    let mut changed: HashSet<KeyNo> = HashSet::new();
    let (mut held, mut refused) = (0, 0);
    for act in &run.acts {
        match act.asked {
            Asked::Rename { key, .. }
            | Asked::Disable { key }
            | Asked::Delete { key }
            | Asked::Withdraw { key, .. } => {
                changed.insert(key);
            }
            Asked::Verify { key, .. } => {
                let facts = &run.keys[key];
                if !facts.is_plain() || changed.contains(&key) {
                    continue;
                }
                if act.answer.is_none() {
                    continue;
                }
                if act.is_valid() {
                    known.insert((act.replica, key));
                }
                let is_known = known.contains(&(act.replica, key)) && !was_cut_off(run, act);
                if !is_known || !is_away(run, act.replica, act.sent, act.received) {
                    continue;
                }
                match grace(run, act) {
                    Grace::Within => {
                        held += 1;
                        finding.hold(act.is_valid(), || {
                            format!("a cached key did not verify without Postgres: {}", name(act))
                        });
                    }
                    Grace::Over => {
                        refused += 1;
                        finding.hold(act.has(503), || {
                            format!(
                                "a cached key outlived its grace without Postgres: {}",
                                name(act)
                            )
                        });
                    }
                    Grace::Ends => {}
                }
            }
            _ => {}
        }
    }
    finding.told.push(format!(
        "{held} verifications of cached keys during outages, {refused} refused after their grace"
    ));
}

/// How long an outage has lasted, beside the grace of cached keys.
enum Grace {
    Within,
    /// Just now, so that either answer is right.
    Ends,
    Over,
}

fn grace(run: &Run, act: &Act) -> Grace {
    let away = run.faults.iter().filter(|done| {
        done.fault.kind.troubles_postgres(act.replica)
            && done.began <= act.sent
            && act.sent <= done.ended
    });
    let lasted = away.map(|done| act.sent.saturating_sub(done.began)).max().unwrap_or_default();
    // Who asks at its end may be answered by a Postgres that is back.
    let is_whole = run.faults.iter().any(|done| {
        done.fault.kind.troubles_postgres(act.replica)
            && done.began <= act.sent
            && act.received <= done.ended
    });
    match run.database_grace {
        Some(grace) if lasted > grace + RECOVERY && is_whole => Grace::Over,
        Some(grace) if lasted + RECOVERY > grace => Grace::Ends,
        Some(_) | None => Grace::Within,
    }
}

/// Whether the replica was started lately, or had neither server, or may have missed announcements, which only Postgres
/// can make good.
fn was_cut_off(run: &Run, act: &Act) -> bool {
    let r = act.replica;
    let outage = |done: &&crate::record::Done| {
        done.fault.kind.troubles_postgres(r)
            && done.began <= act.received
            && act.sent <= done.ended + RECOVERY
    };
    let since = run.faults.iter().filter(outage).map(|done| done.began).min();
    run.is_troubled(since.unwrap_or(act.sent).min(act.sent), act.received, RECOVERY, |done| {
        done.fault.kind.halts(r) || done.fault.kind.troubles_redis(r)
    }) || run.faults.iter().any(|done| {
        matches!(done.fault.kind, Kind::KillReplica(killed) if killed == r)
            && done.ended <= act.sent
            && !run.acts.iter().any(|other| {
                other.replica == r
                    && other.asked == act.asked
                    && other.sent > done.ended
                    && other.received < act.sent
                    && other.is_valid()
            })
    })
}

/// How long after Postgres' return each replica read from it again.
fn check_recovery(run: &Run, finding: &mut Finding) {
    let mut slowest = (Duration::ZERO, String::new());
    let mut asked_for: HashMap<KeyNo, usize> = HashMap::new();
    for act in &run.acts {
        if let Asked::Verify { key, .. } = act.asked {
            *asked_for.entry(key).or_default() += 1;
        }
    }
    for done in &run.faults {
        for replica in (0..REPLICAS).filter(|replica| done.fault.kind.troubles_postgres(*replica)) {
            let until = done.ended + RECOVERY + SLACK;
            let is_disturbed = run.faults.iter().any(|other| {
                let kind = other.fault.kind;
                let is_other = other.began != done.began || kind != done.fault.kind;
                is_other
                    && other.began <= until
                    && done.ended <= other.ended + RECOVERY
                    && (kind.troubles_postgres(replica) || kind.halts(replica))
            });
            let asked = run
                .acts
                .iter()
                .filter(|act| act.replica == replica && act.received > done.ended)
                .filter(|act| needs_postgres(act, &asked_for));
            if is_disturbed || asked.clone().next().is_none() {
                continue;
            }
            let first = asked.filter(|act| act.has(200)).map(|act| act.received).min();
            let took = first.map(|first| first.saturating_sub(done.ended));
            finding.hold(took.is_some_and(|took| took <= RECOVERY + SLACK), || {
                format!(
                    "replica {replica} used Postgres {took:?} after {} ended at {:.3?}",
                    done.fault.kind, done.ended
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

/// A change, or a key that was asked for only once.
fn needs_postgres(act: &Act, asked_for: &HashMap<KeyNo, usize>) -> bool {
    match act.asked {
        Asked::Control | Asked::Limit { .. } => false,
        Asked::Verify { key, .. } => asked_for[&key] == 1,
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use super::super::by_hand::{act, fault, finds, finds_nothing, run, told, verify};
    use super::*;

    fn outage(acts: Vec<Act>) -> Run {
        Run { faults: vec![fault(Kind::KillPostgres, 1_000, 2_000)], ..run(acts) }
    }

    fn create(sent_ms: u64, replica: usize, status: u16) -> Act {
        let created = act(sent_ms, Asked::Create { key: None }, Some(told(status, "")));
        Act { replica, ..created }
    }

    fn recovered(mut acts: Vec<Act>, at_ms: u64) -> Vec<Act> {
        acts.extend((0..REPLICAS).map(|replica| create(at_ms, replica, 200)));
        acts
    }

    #[test]
    fn a_cached_key_that_verifies_and_a_recovery_within_two_seconds_are_right() {
        let acts = vec![verify(500, 0, "VALID"), verify(1_500, 0, "VALID"), create(1_600, 0, 503)];

        finds_nothing(&check(&outage(recovered(acts, 3_900))));
    }

    #[test]
    fn a_key_that_is_called_unknown_is_found() {
        let acts = recovered(vec![verify(1_500, 0, "NOT_FOUND")], 3_000);

        finds(&check(&outage(acts)), "was called unknown");
    }

    #[test]
    fn a_cached_key_that_is_refused_is_found() {
        let refused = act(1_500, Asked::Verify { key: 0, cost: 0 }, Some(told(503, "")));
        let acts = recovered(vec![verify(500, 0, "VALID"), refused], 3_000);

        finds(&check(&outage(acts)), "a cached key did not verify");
    }

    #[test]
    fn a_cached_key_that_outlives_its_grace_is_found() {
        let acts = |code| vec![verify(500, 0, "VALID"), verify(9_500, 0, code)];
        let outage = |acts| Run {
            faults: vec![fault(Kind::CutPostgres(0), 1_000, 10_000)],
            database_grace: Some(Duration::from_secs(4)),
            ..run(acts)
        };

        finds(&check(&outage(acts("VALID"))), "outlived its grace");
        let mut refused = acts("");
        refused[1].answer = Some(told(503, ""));
        let finding = check(&outage(refused));
        assert!(!finding.violations.iter().any(|it| it.contains("grace")), "{finding:?}");
    }

    #[test]
    fn a_slow_recovery_is_found() {
        finds(&check(&outage(recovered(Vec::new(), 4_500))), "used Postgres Some(2.505s)");
    }
}

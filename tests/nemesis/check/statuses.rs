//! P10: every answer is 200, but for 503 while a fault explains it; only a replica that is down gives none.

use std::collections::BTreeMap;
use std::time::Duration;

use super::outage::Busy;
use super::{Finding, SLACK, name};
use crate::record::{Act, Asked, Change, Run};
use crate::schedule::Kind;

/// Postgres is back after two seconds at most, Redis after one.
const RECOVERY: Duration = Duration::from_secs(2);
/// How long a replica that stands still, or has lost Postgres without a word, keeps an account that it has locked to spend
/// from it, and to change it.
const KEPT_TO_SPEND: Duration = Duration::from_secs(1);
const KEPT_TO_CHANGE: Duration = Duration::from_secs(5);

pub fn check(run: &Run) -> Finding {
    let mut finding = Finding::of("P10 answers");
    let mut statuses: BTreeMap<String, usize> = BTreeMap::new();
    let busy = Busy::of(run);
    for act in &run.acts {
        let status = act.answer.as_ref().map(|told| told.status);
        let told = match status {
            None => "none".to_owned(),
            Some(status) => status.to_string(),
        };
        *statuses.entry(told).or_default() += 1;
        let r = act.replica;
        let is_troubled = |after: Duration| {
            run.is_troubled(act.sent, act.received, after + SLACK, |done| {
                let kind = done.fault.kind;
                kind.halts(r) || kind.troubles_redis(r) || kind.troubles_postgres(r)
            })
        };
        let is_right = match status {
            Some(200) => true,
            // A key that is gone cannot be changed or ended again.
            Some(404) => is_of_a_gone_key(run, act),
            Some(503) => {
                is_troubled(RECOVERY)
                    || (spends_or_closes_a_lease(run, act) && busy.beside(act))
                    || waits_for_reports(run, act)
                    || waits_for_a_lock(run, act)
            }
            Some(_) => false,
            None => {
                run.is_troubled(act.sent, act.received, RECOVERY, |done| done.fault.kind.halts(r))
            }
        };
        finding.hold(is_right, || format!("not to be explained: {}", name(act)));
    }
    let statuses: Vec<_> = statuses.iter().map(|(status, n)| format!("{status}: {n}")).collect();
    finding.told.push(format!("{} answers, by status {}", run.acts.len(), statuses.join(", ")));
    let valid =
        run.acts.iter().filter(|act| matches!(act.asked, Asked::Verify { .. }) && act.is_valid());
    finding.told.push(format!("{} verifications were VALID", valid.count()));
    finding
}

/// A balance is set, and a key re-rolled, once its lease is closed in Redis, and a credit is spent from one there, or where that takes more than
/// 40 ms debited within the 10 that are left: a deadline of milliseconds.
fn spends_or_closes_a_lease(run: &Run, act: &Act) -> bool {
    match act.asked {
        Asked::Credits { .. } | Asked::Reroll { .. } => true,
        Asked::Verify { key, .. } => run.keys[key].credits.is_some(),
        _ => false,
    }
}

/// Whether the account of the key may have been locked by a replica that got no further.
fn waits_for_a_lock(run: &Run, act: &Act) -> bool {
    let (Asked::Verify { key, .. } | Asked::Credits { key, .. } | Asked::Reroll { key, .. }) =
        act.asked
    else {
        return false;
    };
    run.keys[key].credits.is_some()
        && run.faults.iter().any(|done| {
            let Some(other) = done.fault.kind.replica() else { return false };
            let was_changed = run.acts.iter().any(|act| {
                act.replica == other
                    && act.asked.changes_account_of() == Some(key)
                    && (act.sent..=act.received + SLACK).contains(&done.began)
            });
            let kept = if was_changed { KEPT_TO_CHANGE } else { KEPT_TO_SPEND };
            done.began <= act.received && act.sent <= done.began + kept + SLACK
        })
}

/// Whether the balance may have waited for reports of a lease that was lost with its Redis: of a replica that was in
/// trouble, or of one that was killed and never reports.
fn waits_for_reports(run: &Run, act: &Act) -> bool {
    let (Asked::Credits { change: Change::Set(_) | Change::Decrement(_), .. }
    | Asked::Reroll { .. }) = act.asked
    else {
        return false;
    };
    let was_there = |sort: fn(&Kind) -> bool| {
        run.faults.iter().any(|done| sort(&done.fault.kind) && done.began <= act.received)
    };
    let is_troubled = run.is_troubled(act.sent, act.received, RECOVERY + SLACK, |done| {
        done.fault.kind.replica().is_some()
    });
    let was_killed = was_there(|kind| matches!(kind, Kind::KillReplica(_)));
    was_there(Kind::loses_counters) && (is_troubled || was_killed)
}

fn is_of_a_gone_key(run: &Run, act: &Act) -> bool {
    let Asked::Delete { key } = act.asked else { return false };
    run.acts.iter().any(|other| other.asked == Asked::Delete { key } && other.sent < act.sent)
}

#[cfg(test)]
mod tests {
    use super::super::by_hand::{act, fault, finds, finds_nothing, key, run, told, verify};
    use super::*;

    fn refused(sent_ms: u64, status: u16) -> Act {
        act(sent_ms, Asked::Verify { key: 0, cost: 0 }, Some(told(status, "")))
    }

    #[test]
    fn a_503_that_a_fault_explains_is_right() {
        let faults = vec![fault(Kind::KillPostgres, 1_000, 2_000)];
        let acts = vec![verify(0, 0, "VALID"), refused(1_500, 503), refused(3_900, 503)];

        finds_nothing(&check(&Run { faults, ..run(acts) }));
    }

    #[test]
    fn a_balance_that_waits_for_a_killed_replica_is_right() {
        let set = |change| act(9_000, Asked::Credits { key: 0, change }, Some(told(503, "")));
        let faults =
            vec![fault(Kind::KillReplica(1), 0, 100), fault(Kind::WipeRedis, 1_000, 2_000)];
        let refused = |change, faults| check(&Run { faults, ..run(vec![set(change)]) });

        finds_nothing(&refused(Change::Set(1), faults.clone()));
        finds(&refused(Change::Increment(1), faults.clone()), "not to be explained");
        finds(&refused(Change::Set(1), faults[..1].to_vec()), "not to be explained");
    }

    #[test]
    fn a_key_whose_account_a_stopped_replica_keeps_is_refused_for_a_while() {
        let metered = |acts| Run {
            faults: vec![fault(Kind::StopReplica(1), 1_000, 8_000)],
            keys: vec![key(Some(10))],
            ..run(acts)
        };
        let change = Act {
            replica: 1,
            answer: None,
            ..act(998, Asked::Credits { key: 0, change: Change::Set(1) }, None)
        };

        finds_nothing(&check(&metered(vec![refused(2_200, 503)])));
        finds(&check(&metered(vec![refused(2_300, 503)])), "not to be explained");
        finds_nothing(&check(&metered(vec![change.clone(), refused(6_200, 503)])));
        finds(&check(&metered(vec![change, refused(6_300, 503)])), "not to be explained");
    }

    #[test]
    fn any_other_answer_is_found() {
        let faults = vec![fault(Kind::KillPostgres, 1_000, 2_000)];
        let found =
            |act| finds(&check(&Run { faults: faults.clone(), ..run(vec![act]) }), "not to be");

        found(refused(1_500, 500));
        found(refused(500, 503));
        found(refused(1_500, 404));
        found(Act { answer: None, ..refused(1_500, 0) });
    }
}

//! Checks that credits are never over-granted, and that no credits vanish except those whose spend is unknown.

mod sets;
mod totals;

use self::totals::{CreditTotals, origin, sum_credits};
use super::{Finding, describe};
use crate::record::{Action, Call, InjectedFault, KeyFinalState, KeyIndex, Run};
use crate::schedule::FaultKind;

pub fn check(run: &Run) -> Finding {
    let mut finding = Finding::new("credits");
    let mut sum = CreditTotals::default();
    let (mut left, mut withheld, mut over) = (0, 0, 0);
    let (mut rerolled, mut doubled) = (0, 0);
    for (key, info) in run.keys.iter().enumerate() {
        if info.credits.is_none() {
            continue;
        }
        if sets::list_sets(run, key).next().is_some() {
            sets::check(run, key, &mut finding);
            continue;
        }
        match origin(run, key) {
            // Counted together with the key that it replaces.
            Some((_, 0)) => {
                rerolled += 1;
                continue;
            }
            Some(_) => doubled += 1,
            None => {}
        }
        let keys = with_replacement(run, key);
        let totals = sum_credits(run, &keys);
        finding.require(totals.spent <= totals.granted_max, || {
            let last = valid(run, &keys).last().map(|(call, _)| describe(call)).unwrap_or_default();
            format!(
                "key {}: {} credits were spent and at most {} granted; the last: {last}",
                info.id, totals.spent, totals.granted_max
            )
        });
        let final_state = final_state(run, &keys);
        if let Some(final_state) = final_state {
            over += check_final_state(run, &totals, &final_state, &mut finding);
            left += final_state.credits.unwrap_or(0);
            withheld += final_state.withheld;
        }
        sum.granted_max += totals.granted_max;
        sum.spent += totals.spent;
        sum.unsure += totals.unsure;
    }
    finding.notes.push(format!(
        "granted {}, spent {}, left {left}, withheld {withheld} (of it at most {over} spent by replicas that were \
        killed), unknown {}",
        sum.granted_max, sum.spent, sum.unsure
    ));
    finding.notes.push(format!(
        "{rerolled} keys were re-rolled, and {doubled} with a grace period, in which both keys have the balance"
    ));
    finding
}

/// Returns a key and the one that replaced it without a grace period: both have one balance.
fn with_replacement(run: &Run, key: KeyIndex) -> Vec<KeyIndex> {
    let new = run.calls.iter().filter_map(|call| match call.action {
        Action::Reroll { key: old, grace_ms: 0, new } if old == key => new,
        _ => None,
    });
    std::iter::once(key).chain(new).collect()
}

/// Returns the VALID replies for keys, with their costs.
fn valid<'run, 'keys>(
    run: &'run Run,
    keys: &'keys [KeyIndex],
) -> impl Iterator<Item = (&'run Call, i64)> + use<'run, 'keys> {
    run.calls.iter().filter_map(move |call| match call.action {
        Action::Verify { key, cost } if keys.contains(&key) => {
            call.is_valid().then_some((call, cost))
        }
        _ => None,
    })
}

fn was_killed(run: &Run) -> bool {
    run.faults.iter().any(|injected| matches!(injected.fault.kind, FaultKind::KillReplica(_)))
}

/// Returns the combined final state of keys.
fn final_state(run: &Run, keys: &[KeyIndex]) -> Option<KeyFinalState> {
    let final_states: Vec<_> =
        run.final_states.iter().filter(|it| keys.contains(&it.key)).collect();
    let sum = |of: fn(&KeyFinalState) -> Option<i64>| final_states.iter().map(|it| of(it)).sum();
    let final_state = KeyFinalState {
        key: keys[0],
        credits: sum(|final_state| final_state.credits),
        withheld: final_states.iter().map(|final_state| final_state.withheld).sum(),
        below_zero: final_states.iter().map(|final_state| final_state.below_zero).sum(),
        credits_reported: sum(|final_state| final_state.credits_reported),
        credits_released: sum(|final_state| final_state.credits_released),
        drained: sum(|final_state| final_state.drained),
        audit: final_states
            .first()
            .map(|final_state| final_state.audit.clone())
            .unwrap_or_default(),
        ..KeyFinalState::default()
    };
    (!final_states.is_empty()).then_some(final_state)
}

/// Returns how many withheld credits a replica that was killed may have spent without reporting it.
fn check_final_state(
    run: &Run,
    totals: &CreditTotals,
    final_state: &KeyFinalState,
    finding: &mut Finding,
) -> i64 {
    let key = &run.keys[final_state.key].id;
    let Some(balance) = final_state.credits else {
        finding.violations.push(format!("key {key} reports no credits at the end"));
        return 0;
    };
    let most = totals.granted_max - totals.spent;
    finding.require(balance <= most, || {
        format!("key {key} has {balance} credits left, of at most {most} that were not spent")
    });
    let over = (balance + final_state.withheld - most).max(0);
    finding.require(over == 0 || (was_killed(run) && over <= final_state.withheld), || {
        format!(
            "key {key}: {balance} credits are left and {} withheld, {over} more than were not spent",
            final_state.withheld
        )
    });
    // Each region may lease as much.
    let regions = i64::try_from(run.regions()).unwrap_or(i64::MAX);
    let most_leased = regions * (totals.granted_max / 10).max(greatest_cost(run, final_state.key));
    finding.require(final_state.withheld <= most_leased, || {
        format!(
            "key {key}: {} credits are withheld, and at most {most_leased} may be leased",
            final_state.withheld
        )
    });
    let vanished = totals.granted_min - totals.spent - balance - final_state.withheld;
    // Credits that a second master had leased may be counted as spent there by a reply that is no longer trusted.
    let is_split =
        |injected: &&InjectedFault| matches!(injected.fault.kind, FaultKind::SplitRedis(_));
    let splits = i64::try_from(run.faults.iter().filter(is_split).count()).unwrap_or(i64::MAX);
    let unreported = totals.unsure.saturating_add(splits.saturating_mul(most_leased));
    finding.require(vanished <= unreported || was_rerolled_without_reply(run, final_state), || {
        format!(
            "key {key}: {vanished} credits vanished, {unreported} of which may have been spent without a report"
        )
    });
    if let Some(released) = final_state.credits_released {
        finding.require(released == balance + final_state.withheld, || {
            format!(
                "key {key} had {balance} credits and {} withheld, and {released} once they were released",
                final_state.withheld
            )
        });
        finding.require(final_state.credits_reported == final_state.credits_released, || {
            format!(
                "key {key}: keys.getKey reported {:?} credits, and a spend found {released}",
                final_state.credits_reported
            )
        });
        finding.require(final_state.below_zero == 0, || {
            format!("key {key}: the sum of negative withheld credits is {}", final_state.below_zero)
        });
        finding.require(final_state.drained.is_none_or(|drained| drained == released), || {
            format!(
                "key {key} reported {released} credits, and {:?} could be spent",
                final_state.drained
            )
        });
    }
    over
}

/// Whether a key was re-rolled more often than was acknowledged, so that it is unknown which key has its credits.
fn was_rerolled_without_reply(run: &Run, final_state: &KeyFinalState) -> bool {
    let is_of = |call: &&Call| match call.action {
        Action::Reroll { key, new, .. } => key == final_state.key || new == Some(final_state.key),
        _ => false,
    };
    let answered = run.calls.iter().filter(is_of).filter(|call| call.has_status(200)).count();
    final_state.audit.iter().filter(|event| *event == "key.reroll").count() > answered
}

fn greatest_cost(run: &Run, key: KeyIndex) -> i64 {
    let cost = |call: &Call| match call.action {
        Action::Verify { key: verified, cost } if verified == key => cost,
        _ => 0,
    };
    run.calls.iter().map(cost).max().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::super::fixtures::{call, fault, finds, finds_nothing, key, reply, run, verify};
    use super::*;
    use crate::record::Change;

    pub(super) fn metered(credits: i64, calls: Vec<Call>, final_states: Vec<KeyFinalState>) -> Run {
        Run { keys: vec![key(Some(credits))], final_states, ..run(calls) }
    }

    fn left(credits: i64, withheld: i64) -> Vec<KeyFinalState> {
        let (credits_reported, credits_released) =
            (Some(credits + withheld), Some(credits + withheld));
        let credits = Some(credits);
        vec![KeyFinalState {
            status: 200,
            credits,
            withheld,
            credits_reported,
            credits_released,
            ..KeyFinalState::default()
        }]
    }

    pub(super) fn changed(sent_ms: u64, change: Change, left: i64) -> Call {
        let credits = Some(left);
        let answer = crate::record::Answer { credits, ..reply(200, "") };
        call(sent_ms, Action::Credits { key: 0, change }, Some(answer))
    }

    #[test]
    fn check_accepts_credits_that_add_up() {
        let calls = vec![
            verify(0, 4, "VALID"),
            changed(10, Change::Increment(5), 11),
            verify(20, 7, "VALID"),
            verify(30, 7, "USAGE_EXCEEDED"),
            changed(40, Change::Decrement(1), 3),
        ];

        finds_nothing(&check(&metered(10, calls, left(2, 1))));
    }

    #[test]
    fn check_reports_overspent_credit() {
        let calls = vec![verify(0, 6, "VALID"), verify(10, 5, "VALID")];

        finds(
            &check(&metered(10, calls, Vec::new())),
            "11 credits were spent and at most 10 granted",
        );
    }

    #[test]
    fn check_reports_balance_that_is_too_high() {
        let calls = vec![verify(0, 6, "VALID")];

        finds(&check(&metered(10, calls.clone(), left(5, 0))), "has 5 credits left, of at most 4");
        finds(&check(&metered(10, calls, left(3, 2))), "1 more than were not spent");
    }

    #[test]
    fn check_reports_vanished_credits_unless_their_spend_is_unknown() {
        let unreported = call(10, Action::Verify { key: 0, cost: 2 }, None);
        let calls = vec![verify(0, 6, "VALID"), unreported];

        finds_nothing(&check(&metered(10, calls.clone(), left(2, 0))));
        finds(&check(&metered(10, calls, left(1, 0))), "3 credits vanished, 2 of which");
    }

    #[test]
    fn check_reports_vanished_credits_with_second_master_when_more_than_leased() {
        let calls = vec![verify(0, 6, "VALID")];
        let split = |left| {
            let faults = vec![fault(FaultKind::SplitRedis(1), 0, 100)];
            check(&Run { faults, ..metered(100, calls.clone(), left) })
        };

        finds_nothing(&split(left(84, 0)));
        finds(&split(left(83, 0)), "11 credits vanished, 10 of which");
    }

    #[test]
    fn check_reports_more_withheld_than_may_be_leased() {
        let calls = vec![verify(0, 6, "VALID")];

        finds_nothing(&check(&metered(100, calls.clone(), left(84, 10))));
        finds(
            &check(&metered(100, calls, left(83, 11))),
            "11 credits are withheld, and at most 10 may be leased",
        );
    }

    #[test]
    fn check_reports_released_credits_that_are_missing() {
        let mut final_states = left(4, 2);
        (final_states[0].credits_reported, final_states[0].credits_released) = (Some(4), Some(5));

        let finding = check(&metered(6, Vec::new(), final_states));

        finds(&finding, "and 5 once they were released");
        finds(&finding, "reported Some(4) credits, and a spend found 5");
    }
}

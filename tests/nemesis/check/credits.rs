//! Checks that credits are never over-granted, and that no credits vanish except those whose spend is unknown.

use super::{Finding, SLACK, changes, describe};
use crate::record::{Action, Call, Change, InjectedFault, KeyFinalState, KeyIndex, Run};
use crate::schedule::FaultKind;

const DAY_MS: i64 = 24 * 60 * 60 * 1000;

/// The totals of a key's credits.
#[derive(Default)]
struct CreditTotals {
    /// The upper and the lower bound.
    granted_max: i64,
    granted_min: i64,
    /// The costs of all VALID replies.
    spent: i64,
    /// The costs of requests with an unknown outcome: those without a reply, and those that were decided while Redis
    /// was unreachable, which may have counted them.
    unsure: i64,
}

pub fn check(run: &Run) -> Finding {
    let mut finding = Finding::new("credits");
    let mut sum = CreditTotals::default();
    let (mut left, mut withheld, mut over) = (0, 0, 0);
    let (mut rerolled, mut doubled) = (0, 0);
    for (key, info) in run.keys.iter().enumerate() {
        if info.credits.is_none() {
            continue;
        }
        if sets(run, key).next().is_some() {
            check_sets(run, key, &mut finding);
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
        let totals = totals(run, &keys);
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

/// Returns the re-roll that issued a key, and its grace period. Returns `None` if the key was created.
fn origin(run: &Run, key: KeyIndex) -> Option<(&Call, i64)> {
    run.calls.iter().find_map(|call| match call.action {
        Action::Reroll { new, grace_ms, .. } if new == Some(key) => Some((call, grace_ms)),
        _ => None,
    })
}

/// Returns a key and the one that replaced it without a grace period: both have one balance.
fn with_replacement(run: &Run, key: KeyIndex) -> Vec<KeyIndex> {
    let new = run.calls.iter().filter_map(|call| match call.action {
        Action::Reroll { key: old, grace_ms: 0, new } if old == key => new,
        _ => None,
    });
    std::iter::once(key).chain(new).collect()
}

/// Returns the upper and lower bound of what a key was granted. A key that was issued with a grace period starts with
/// the rest of the old one.
fn granted(run: &Run, key: KeyIndex) -> (i64, i64) {
    let granted = run.keys[key].credits.unwrap_or(0);
    let Some((reroll, _)) = origin(run, key) else { return (granted, granted) };
    let Action::Reroll { key: old, .. } = reroll.action else { return (granted, granted) };
    let is_before = |(call, _): &(&Call, i64)| call.received < reroll.sent;
    let before: i64 = valid(run, &[old]).filter(is_before).map(|(_, cost)| cost).sum();
    let may_be_before = |call: &&Call| {
        let is_valid_later = call.is_valid() && call.received >= reroll.sent;
        let is_degraded = call.answer.as_ref().is_some_and(|answer| answer.degraded);
        call.sent < reroll.received && (is_valid_later || call.is_uncertain() || is_degraded)
    };
    let perhaps = run.calls.iter().filter(may_be_before).filter_map(|call| match call.action {
        Action::Verify { key, cost } if key == old => Some(cost),
        _ => None,
    });
    (granted - before, granted - before - perhaps.sum::<i64>())
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

/// Returns the totals of a key and of the key that replaced it.
fn totals(run: &Run, keys: &[KeyIndex]) -> CreditTotals {
    let (granted_max, granted_min) = granted(run, keys[0]);
    let mut totals = CreditTotals { granted_max, granted_min, ..CreditTotals::default() };
    totals.granted_max += run.keys[keys[0]].refill.unwrap_or(0) * midnights(run);
    for call in &run.calls {
        let answer = call.answer.as_ref();
        let (is_done, is_unsure) = (call.has_status(200), call.is_uncertain());
        match call.action {
            Action::Verify { key, cost } if keys.contains(&key) => {
                if call.is_valid() {
                    totals.spent += cost;
                }
                if is_unsure || answer.is_some_and(|answer| answer.degraded) {
                    totals.unsure += cost;
                }
            }
            Action::Credits { key, change } if key == keys[0] => match change {
                Change::Increment(value) => {
                    totals.granted_max += if is_done || is_unsure { value } else { 0 };
                    totals.granted_min += if is_done { value } else { 0 };
                }
                Change::Decrement(value) => {
                    // A decrement that ends at 0 may have taken less.
                    let is_whole =
                        answer.and_then(|answer| answer.credits).is_some_and(|left| left > 0);
                    totals.granted_max -= if is_done && is_whole { value } else { 0 };
                    totals.granted_min -= if is_done || is_unsure { value } else { 0 };
                }
                Change::Set(_) | Change::Unlimit => {}
            },
            _ => {}
        }
    }
    totals
}

/// Returns how many days started during the run, by any clock that is wrong by at most ten minutes.
fn midnights(run: &Run) -> i64 {
    let wrong = 10 * 60 * 1000;
    let end = run.calls.iter().map(|call| call.received).max().unwrap_or_default();
    let day = |ms: i64| ms.div_euclid(DAY_MS);
    run.days + day(run.unix_ms(end) + wrong) - day(run.began_unix_ms - wrong)
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
    let most_leased = (totals.granted_max / 10).max(greatest_cost(run, final_state.key));
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

/// Whether the replica had learned of the change, or should have: until then it treats the key as unlimited, which it
/// may have been.
fn must_know(run: &Run, set: &Call, call: &Call) -> bool {
    let is_unlimited = call.answer.as_ref().is_some_and(|answer| answer.credits.is_none());
    let delay_max = changes::delay_max(run, call, set.received) + SLACK;
    !is_unlimited || call.replica == set.replica || call.sent > set.received + delay_max
}

/// Returns the balances that were set, in order. `None` means unlimited.
fn sets(run: &Run, key: KeyIndex) -> impl Iterator<Item = (&Call, Option<i64>)> {
    run.calls.iter().filter_map(move |call| match call.action {
        Action::Credits { key: changed, change } if changed == key => match change {
            Change::Set(value) => Some((call, Some(value))),
            Change::Unlimit => Some((call, None)),
            Change::Increment(_) | Change::Decrement(_) => None,
        },
        _ => None,
    })
}

/// Checks that no more than the balance that was set is spent until the next one is set.
fn check_sets(run: &Run, key: KeyIndex, finding: &mut Finding) {
    let sets: Vec<_> = sets(run, key).collect();
    let mut held = 0;
    for (at, (set, value)) in sets.iter().enumerate() {
        let Some(value) = value.filter(|_| set.has_status(200)) else { continue };
        let until = sets.get(at + 1).map(|(next, _)| next.sent);
        let within = |call: &Call| {
            call.sent > set.received && until.is_none_or(|until| call.received < until)
        };
        let spends: Vec<_> = valid(run, &[key])
            .filter(|(call, cost)| *cost > 0 && within(call) && must_know(run, set, call))
            .collect();
        let spent: i64 = spends.iter().map(|(_, cost)| cost).sum();
        held += 1;
        finding.require(spent <= value, || {
            format!(
                "key {}: {spent} credits were spent of {value}, set {}; spent: {:?}",
                run.keys[key].id,
                describe(set),
                spends.iter().map(|(call, _)| describe(call)).collect::<Vec<_>>()
            )
        });
    }
    finding.notes.push(format!("{held} balances that were set held until the next one"));
}

#[cfg(test)]
mod tests {
    use super::super::fixtures::{call, fault, finds, finds_nothing, key, reply, run, verify};
    use super::*;

    fn metered(credits: i64, calls: Vec<Call>, final_states: Vec<KeyFinalState>) -> Run {
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

    fn changed(sent_ms: u64, change: Change, left: i64) -> Call {
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

    fn rerolled(grace_ms: i64, calls: Vec<Call>, left: [i64; 2]) -> Run {
        let action = Action::Reroll { key: 0, grace_ms, new: Some(1) };
        let reroll = call(100, action, Some(reply(200, "")));
        let final_state = |key, credits| KeyFinalState {
            key,
            status: 200,
            credits: Some(credits),
            credits_reported: Some(credits),
            credits_released: Some(credits),
            drained: Some(credits),
            ..KeyFinalState::default()
        };
        let calls = [vec![reroll], calls].concat();
        let final_states = vec![final_state(0, left[0]), final_state(1, left[1])];
        Run { keys: vec![key(Some(10)), key(Some(10))], final_states, ..run(calls) }
    }

    fn spend(sent_ms: u64, key: KeyIndex, cost: i64) -> Call {
        call(sent_ms, Action::Verify { key, cost }, Some(reply(200, "VALID")))
    }

    #[test]
    fn check_expects_one_balance_when_rerolled_without_grace_period() {
        let calls = vec![spend(0, 0, 4), spend(200, 1, 5)];

        finds_nothing(&check(&rerolled(0, calls.clone(), [0, 1])));
        finds(&check(&rerolled(0, calls.clone(), [6, 1])), "has 7 credits left, of at most 1");
        let twice = [calls, vec![spend(300, 0, 2)]].concat();
        finds(&check(&rerolled(0, twice, [0, 0])), "11 credits were spent and at most 10");
    }

    #[test]
    fn check_expects_balance_on_both_keys_when_rerolled_with_grace_period() {
        let calls = vec![spend(0, 0, 4), spend(200, 0, 6), spend(200, 1, 5)];

        finds_nothing(&check(&rerolled(60_000, calls.clone(), [0, 1])));
        finds(&check(&rerolled(60_000, calls.clone(), [0, 2])), "has 2 credits left, of at most 1");
        let more = [calls, vec![spend(300, 1, 2)]].concat();
        finds(&check(&rerolled(60_000, more, [0, 0])), "7 credits were spent and at most 6");
    }

    #[test]
    fn check_reports_spend_above_set_balance_until_next_set() {
        let set = |sent, value| changed(sent, Change::Set(value), value);
        let spent =
            |cost| vec![verify(0, 50, "VALID"), set(10, 3), verify(20, cost, "VALID"), set(30, 9)];

        finds_nothing(&check(&metered(60, spent(3), Vec::new())));
        finds(&check(&metered(60, spent(4), Vec::new())), "4 credits were spent of 3");
    }

    #[test]
    fn check_ignores_spend_of_unlimited_keys() {
        let set = |sent, value| changed(sent, Change::Set(value), value);
        let calls = vec![
            set(0, 3),
            changed(10, Change::Unlimit, 0),
            verify(20, 50, "VALID"),
            set(30, 3),
            verify(40, 4, "VALID"),
        ];

        finds_nothing(&check(&metered(60, calls[..4].to_vec(), Vec::new())));
        finds(&check(&metered(60, calls, Vec::new())), "4 credits were spent of 3");
    }
}

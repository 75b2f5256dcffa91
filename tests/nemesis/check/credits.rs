//! P1: credits are never over-granted, and nothing vanishes but what nobody can know of.

use super::{Finding, SLACK, changes, name};
use crate::record::{Act, Asked, Change, Done, Ending, KeyNo, Run};
use crate::schedule::Kind;

const DAY_MS: i64 = 24 * 60 * 60 * 1000;

/// What became of a key's credits.
#[derive(Default)]
struct Account {
    /// At most, and at least.
    granted_max: i64,
    granted_min: i64,
    /// The costs of all VALID answers.
    spent: i64,
    /// The costs of requests that nobody can be sure of: without an answer, or decided while Redis was away, which
    /// may have counted them nevertheless.
    unsure: i64,
}

pub fn check(run: &Run) -> Finding {
    let mut finding = Finding::of("P1 credits");
    let mut sum = Account::default();
    let (mut left, mut withheld, mut over) = (0, 0, 0);
    let (mut rerolled, mut doubled) = (0, 0);
    for (key, facts) in run.keys.iter().enumerate() {
        if facts.credits.is_none() {
            continue;
        }
        if sets(run, key).next().is_some() {
            check_sets(run, key, &mut finding);
            continue;
        }
        match origin(run, key) {
            // Together with the key of which it has taken the place.
            Some((_, 0)) => {
                rerolled += 1;
                continue;
            }
            Some(_) => doubled += 1,
            None => {}
        }
        let keys = with_new_key(run, key);
        let account = account(run, &keys);
        finding.hold(account.spent <= account.granted_max, || {
            let last = valid(run, &keys).last().map(|(act, _)| name(act)).unwrap_or_default();
            format!(
                "key {}: {} credits were spent and at most {} granted; the last: {last}",
                facts.id, account.spent, account.granted_max
            )
        });
        let ending = ending(run, &keys);
        if let Some(ending) = ending {
            over += check_ending(run, &account, &ending, &mut finding);
            left += ending.credits.unwrap_or(0);
            withheld += ending.withheld;
        }
        sum.granted_max += account.granted_max;
        sum.spent += account.spent;
        sum.unsure += account.unsure;
    }
    finding.told.push(format!(
        "granted {}, spent {}, left {left}, withheld {withheld} (of it at most {over} spent by replicas that were \
        killed), not known of {}",
        sum.granted_max, sum.spent, sum.unsure
    ));
    finding.told.push(format!(
        "{rerolled} keys were re-rolled, and {doubled} with a grace period, in which both keys have the balance"
    ));
    finding
}

/// The re-roll by which a key was issued, and its grace period; none where it was created.
fn origin(run: &Run, key: KeyNo) -> Option<(&Act, i64)> {
    run.acts.iter().find_map(|act| match act.asked {
        Asked::Reroll { new, grace_ms, .. } if new == Some(key) => Some((act, grace_ms)),
        _ => None,
    })
}

/// A key, and the one that has taken its place without a grace period: both have one balance.
fn with_new_key(run: &Run, key: KeyNo) -> Vec<KeyNo> {
    let new = run.acts.iter().filter_map(|act| match act.asked {
        Asked::Reroll { key: old, grace_ms: 0, new } if old == key => new,
        _ => None,
    });
    std::iter::once(key).chain(new).collect()
}

/// What a key was given, at most and at least. One that was issued with a grace period has what was left of the old one.
fn granted(run: &Run, key: KeyNo) -> (i64, i64) {
    let granted = run.keys[key].credits.unwrap_or(0);
    let Some((reroll, _)) = origin(run, key) else { return (granted, granted) };
    let Asked::Reroll { key: old, .. } = reroll.asked else { return (granted, granted) };
    let is_before = |(act, _): &(&Act, i64)| act.received < reroll.sent;
    let before: i64 = valid(run, &[old]).filter(is_before).map(|(_, cost)| cost).sum();
    let may_be_before = |act: &&Act| {
        let is_valid_later = act.is_valid() && act.received >= reroll.sent;
        let is_degraded = act.answer.as_ref().is_some_and(|told| told.degraded);
        act.sent < reroll.received && (is_valid_later || act.is_unsure() || is_degraded)
    };
    let perhaps = run.acts.iter().filter(may_be_before).filter_map(|act| match act.asked {
        Asked::Verify { key, cost } if key == old => Some(cost),
        _ => None,
    });
    (granted - before, granted - before - perhaps.sum::<i64>())
}

/// The VALID answers of keys, with their costs.
fn valid<'run, 'keys>(
    run: &'run Run,
    keys: &'keys [KeyNo],
) -> impl Iterator<Item = (&'run Act, i64)> + use<'run, 'keys> {
    run.acts.iter().filter_map(move |act| match act.asked {
        Asked::Verify { key, cost } if keys.contains(&key) => act.is_valid().then_some((act, cost)),
        _ => None,
    })
}

/// What became of the credits of a key, and of the one that has taken its place.
fn account(run: &Run, keys: &[KeyNo]) -> Account {
    let (granted_max, granted_min) = granted(run, keys[0]);
    let mut account = Account { granted_max, granted_min, ..Account::default() };
    account.granted_max += run.keys[keys[0]].refill.unwrap_or(0) * midnights(run);
    for act in &run.acts {
        let answer = act.answer.as_ref();
        let (is_done, is_unsure) = (act.has(200), act.is_unsure());
        match act.asked {
            Asked::Verify { key, cost } if keys.contains(&key) => {
                if act.is_valid() {
                    account.spent += cost;
                }
                if is_unsure || answer.is_some_and(|told| told.degraded) {
                    account.unsure += cost;
                }
            }
            Asked::Credits { key, change } if key == keys[0] => match change {
                Change::Increment(value) => {
                    account.granted_max += if is_done || is_unsure { value } else { 0 };
                    account.granted_min += if is_done { value } else { 0 };
                }
                Change::Decrement(value) => {
                    // Down to 0 it may have taken less.
                    let is_whole =
                        answer.and_then(|told| told.credits).is_some_and(|left| left > 0);
                    account.granted_max -= if is_done && is_whole { value } else { 0 };
                    account.granted_min -= if is_done || is_unsure { value } else { 0 };
                }
                Change::Set(_) | Change::Unlimit => {}
            },
            _ => {}
        }
    }
    account
}

/// How many days began during the run, by any clock that is at most ten minutes wrong.
fn midnights(run: &Run) -> i64 {
    let wrong = 10 * 60 * 1000;
    let end = run.acts.iter().map(|act| act.received).max().unwrap_or_default();
    let day = |ms: i64| ms.div_euclid(DAY_MS);
    run.days + day(run.unix_ms(end) + wrong) - day(run.began_unix_ms - wrong)
}

fn was_killed(run: &Run) -> bool {
    run.faults.iter().any(|done| matches!(done.fault.kind, Kind::KillReplica(_)))
}

/// What there is of keys together at the end.
fn ending(run: &Run, keys: &[KeyNo]) -> Option<Ending> {
    let endings: Vec<_> = run.endings.iter().filter(|it| keys.contains(&it.key)).collect();
    let sum = |of: fn(&Ending) -> Option<i64>| endings.iter().map(|it| of(it)).sum();
    let ending = Ending {
        key: keys[0],
        credits: sum(|ending| ending.credits),
        withheld: endings.iter().map(|ending| ending.withheld).sum(),
        below_zero: endings.iter().map(|ending| ending.below_zero).sum(),
        told: sum(|ending| ending.told),
        released: sum(|ending| ending.released),
        drained: sum(|ending| ending.drained),
        audit: endings.first().map(|ending| ending.audit.clone()).unwrap_or_default(),
        ..Ending::default()
    };
    (!endings.is_empty()).then_some(ending)
}

/// How many withheld credits may have been spent before, by a replica that was killed and could not say so.
fn check_ending(run: &Run, account: &Account, ending: &Ending, finding: &mut Finding) -> i64 {
    let key = &run.keys[ending.key].id;
    let Some(balance) = ending.credits else {
        finding.violations.push(format!("key {key} tells no credits at the end"));
        return 0;
    };
    let most = account.granted_max - account.spent;
    finding.hold(balance <= most, || {
        format!("key {key} has {balance} credits left, of at most {most} that were not spent")
    });
    let over = (balance + ending.withheld - most).max(0);
    finding.hold(over == 0 || (was_killed(run) && over <= ending.withheld), || {
        format!(
            "key {key}: {balance} credits are left and {} withheld, {over} more than were not spent",
            ending.withheld
        )
    });
    let most_leased = (account.granted_max / 10).max(greatest_cost(run, ending.key));
    finding.hold(ending.withheld <= most_leased, || {
        format!(
            "key {key}: {} credits are withheld, and at most {most_leased} may be leased",
            ending.withheld
        )
    });
    let vanished = account.granted_min - account.spent - balance - ending.withheld;
    // What a second master had leased may be counted as spent there by an answer that is not trusted any more.
    let is_split = |done: &&Done| matches!(done.fault.kind, Kind::SplitRedis(_));
    let splits = i64::try_from(run.faults.iter().filter(is_split).count()).unwrap_or(i64::MAX);
    let unheard = account.unsure.saturating_add(splits.saturating_mul(most_leased));
    finding.hold(vanished <= unheard || was_moved_unheard(run, ending), || {
        format!(
            "key {key}: {vanished} credits vanished, {unheard} of which may have been spent unheard"
        )
    });
    if let Some(released) = ending.released {
        finding.hold(released == balance + ending.withheld, || {
            format!(
                "key {key} had {balance} credits and {} withheld, and {released} once they were released",
                ending.withheld
            )
        });
        finding.hold(ending.told == ending.released, || {
            format!(
                "key {key}: keys.getKey told {:?} credits, and who spent one found {released}",
                ending.told
            )
        });
        finding.hold(ending.below_zero == 0, || {
            format!("key {key}: the ledger withholds {} credits", ending.below_zero)
        });
        finding.hold(ending.drained.is_none_or(|drained| drained == released), || {
            format!("key {key} told {released} credits, and {:?} could be spent", ending.drained)
        });
    }
    over
}

/// Whether a key was re-rolled more often than was answered, so that nobody knows which key has its credits.
fn was_moved_unheard(run: &Run, ending: &Ending) -> bool {
    let is_of = |act: &&Act| match act.asked {
        Asked::Reroll { key, new, .. } => key == ending.key || new == Some(ending.key),
        _ => false,
    };
    let answered = run.acts.iter().filter(is_of).filter(|act| act.has(200)).count();
    ending.audit.iter().filter(|event| *event == "key.reroll").count() > answered
}

fn greatest_cost(run: &Run, key: KeyNo) -> i64 {
    let cost = |act: &Act| match act.asked {
        Asked::Verify { key: asked, cost } if asked == key => cost,
        _ => 0,
    };
    run.acts.iter().map(cost).max().unwrap_or(0)
}

/// Whether an answer was given by a replica that had heard of the change, or should have: until then it takes the key for
/// an unlimited one, which it may have been.
fn knows(run: &Run, set: &Act, act: &Act) -> bool {
    let is_unlimited = act.answer.as_ref().is_some_and(|told| told.credits.is_none());
    let may_take = changes::may_take(run, act, set.received) + SLACK;
    !is_unlimited || act.replica == set.replica || act.sent > set.received + may_take
}

/// The balances that were set, in their order; none where there is no bound.
fn sets(run: &Run, key: KeyNo) -> impl Iterator<Item = (&Act, Option<i64>)> {
    run.acts.iter().filter_map(move |act| match act.asked {
        Asked::Credits { key: asked, change } if asked == key => match change {
            Change::Set(value) => Some((act, Some(value))),
            Change::Unlimit => Some((act, None)),
            Change::Increment(_) | Change::Decrement(_) => None,
        },
        _ => None,
    })
}

/// Between a balance that was set and the next one, no more is spent than was set.
fn check_sets(run: &Run, key: KeyNo, finding: &mut Finding) {
    let sets: Vec<_> = sets(run, key).collect();
    let mut held = 0;
    for (at, (set, value)) in sets.iter().enumerate() {
        let Some(value) = value.filter(|_| set.has(200)) else { continue };
        let until = sets.get(at + 1).map(|(next, _)| next.sent);
        let within =
            |act: &Act| act.sent > set.received && until.is_none_or(|until| act.received < until);
        let spends: Vec<_> = valid(run, &[key])
            .filter(|(act, cost)| *cost > 0 && within(act) && knows(run, set, act))
            .collect();
        let spent: i64 = spends.iter().map(|(_, cost)| cost).sum();
        held += 1;
        finding.hold(spent <= value, || {
            format!(
                "key {}: {spent} credits were spent of {value}, set {}; spent: {:?}",
                run.keys[key].id,
                name(set),
                spends.iter().map(|(act, _)| name(act)).collect::<Vec<_>>()
            )
        });
    }
    finding.told.push(format!("{held} balances that were set held until the next one"));
}

#[cfg(test)]
mod tests {
    use super::super::by_hand::{act, fault, finds, finds_nothing, key, run, told, verify};
    use super::*;

    fn metered(credits: i64, acts: Vec<Act>, endings: Vec<Ending>) -> Run {
        Run { keys: vec![key(Some(credits))], endings, ..run(acts) }
    }

    fn left(credits: i64, withheld: i64) -> Vec<Ending> {
        let (told, released) = (Some(credits + withheld), Some(credits + withheld));
        let credits = Some(credits);
        vec![Ending { status: 200, credits, withheld, told, released, ..Ending::default() }]
    }

    fn changed(sent_ms: u64, change: Change, left: i64) -> Act {
        let credits = Some(left);
        let answer = crate::record::Answer { credits, ..told(200, "") };
        act(sent_ms, Asked::Credits { key: 0, change }, Some(answer))
    }

    #[test]
    fn what_adds_up_is_right() {
        let acts = vec![
            verify(0, 4, "VALID"),
            changed(10, Change::Increment(5), 11),
            verify(20, 7, "VALID"),
            verify(30, 7, "USAGE_EXCEEDED"),
            changed(40, Change::Decrement(1), 3),
        ];

        finds_nothing(&check(&metered(10, acts, left(2, 1))));
    }

    #[test]
    fn a_credit_too_many_is_found() {
        let acts = vec![verify(0, 6, "VALID"), verify(10, 5, "VALID")];

        finds(
            &check(&metered(10, acts, Vec::new())),
            "11 credits were spent and at most 10 granted",
        );
    }

    #[test]
    fn a_balance_that_is_too_high_is_found() {
        let acts = vec![verify(0, 6, "VALID")];

        finds(&check(&metered(10, acts.clone(), left(5, 0))), "has 5 credits left, of at most 4");
        finds(&check(&metered(10, acts, left(3, 2))), "1 more than were not spent");
    }

    #[test]
    fn credits_that_vanish_are_found_unless_nobody_can_know_of_them() {
        let unheard = act(10, Asked::Verify { key: 0, cost: 2 }, None);
        let acts = vec![verify(0, 6, "VALID"), unheard];

        finds_nothing(&check(&metered(10, acts.clone(), left(2, 0))));
        finds(&check(&metered(10, acts, left(1, 0))), "3 credits vanished, 2 of which");
    }

    #[test]
    fn credits_that_vanish_beside_a_second_master_are_found_when_more_than_was_leased() {
        let acts = vec![verify(0, 6, "VALID")];
        let split = |left| {
            let faults = vec![fault(Kind::SplitRedis(1), 0, 100)];
            check(&Run { faults, ..metered(100, acts.clone(), left) })
        };

        finds_nothing(&split(left(84, 0)));
        finds(&split(left(83, 0)), "11 credits vanished, 10 of which");
    }

    #[test]
    fn more_withheld_than_may_be_leased_is_found() {
        let acts = vec![verify(0, 6, "VALID")];

        finds_nothing(&check(&metered(100, acts.clone(), left(84, 10))));
        finds(
            &check(&metered(100, acts, left(83, 11))),
            "11 credits are withheld, and at most 10 may be leased",
        );
    }

    #[test]
    fn what_was_released_must_be_there() {
        let mut endings = left(4, 2);
        (endings[0].told, endings[0].released) = (Some(4), Some(5));

        let finding = check(&metered(6, Vec::new(), endings));

        finds(&finding, "and 5 once they were released");
        finds(&finding, "told Some(4) credits, and who spent one found 5");
    }

    fn rerolled(grace_ms: i64, acts: Vec<Act>, left: [i64; 2]) -> Run {
        let asked = Asked::Reroll { key: 0, grace_ms, new: Some(1) };
        let reroll = act(100, asked, Some(told(200, "")));
        let ending = |key, credits| Ending {
            key,
            status: 200,
            credits: Some(credits),
            told: Some(credits),
            released: Some(credits),
            drained: Some(credits),
            ..Ending::default()
        };
        let acts = [vec![reroll], acts].concat();
        let endings = vec![ending(0, left[0]), ending(1, left[1])];
        Run { keys: vec![key(Some(10)), key(Some(10))], endings, ..run(acts) }
    }

    fn spend(sent_ms: u64, key: KeyNo, cost: i64) -> Act {
        act(sent_ms, Asked::Verify { key, cost }, Some(told(200, "VALID")))
    }

    #[test]
    fn balance_of_a_re_rolled_key_is_there_once_without_a_grace_period() {
        let acts = vec![spend(0, 0, 4), spend(200, 1, 5)];

        finds_nothing(&check(&rerolled(0, acts.clone(), [0, 1])));
        finds(&check(&rerolled(0, acts.clone(), [6, 1])), "has 7 credits left, of at most 1");
        let twice = [acts, vec![spend(300, 0, 2)]].concat();
        finds(&check(&rerolled(0, twice, [0, 0])), "11 credits were spent and at most 10");
    }

    #[test]
    fn both_keys_have_the_balance_of_a_re_rolled_key_when_there_is_a_grace_period() {
        let acts = vec![spend(0, 0, 4), spend(200, 0, 6), spend(200, 1, 5)];

        finds_nothing(&check(&rerolled(60_000, acts.clone(), [0, 1])));
        finds(&check(&rerolled(60_000, acts.clone(), [0, 2])), "has 2 credits left, of at most 1");
        let more = [acts, vec![spend(300, 1, 2)]].concat();
        finds(&check(&rerolled(60_000, more, [0, 0])), "7 credits were spent and at most 6");
    }

    #[test]
    fn more_than_was_set_is_found_until_the_next_is_set() {
        let set = |sent, value| changed(sent, Change::Set(value), value);
        let spent =
            |cost| vec![verify(0, 50, "VALID"), set(10, 3), verify(20, cost, "VALID"), set(30, 9)];

        finds_nothing(&check(&metered(60, spent(3), Vec::new())));
        finds(&check(&metered(60, spent(4), Vec::new())), "4 credits were spent of 3");
    }

    #[test]
    fn what_is_spent_without_a_bound_is_held_against_no_balance() {
        let set = |sent, value| changed(sent, Change::Set(value), value);
        let acts = vec![
            set(0, 3),
            changed(10, Change::Unlimit, 0),
            verify(20, 50, "VALID"),
            set(30, 3),
            verify(40, 4, "VALID"),
        ];

        finds_nothing(&check(&metered(60, acts[..4].to_vec(), Vec::new())));
        finds(&check(&metered(60, acts, Vec::new())), "4 credits were spent of 3");
    }
}

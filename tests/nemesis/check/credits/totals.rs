//! What a key was granted during a run, and what was spent of it.

use super::valid;
use crate::record::{Action, Call, Change, KeyIndex, Run};

const DAY_MS: i64 = 24 * 60 * 60 * 1000;

/// The totals of a key's credits.
#[derive(Default)]
pub struct CreditTotals {
    /// The upper and the lower bound.
    pub granted_max: i64,
    pub granted_min: i64,
    /// The costs of all VALID replies.
    pub spent: i64,
    /// The costs of requests with an unknown outcome: those without a reply, and those that were decided while Redis
    /// was unreachable, which may have counted them.
    pub unsure: i64,
}

/// Returns the totals of a key and of the key that replaced it.
pub fn sum_credits(run: &Run, keys: &[KeyIndex]) -> CreditTotals {
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

/// Returns the re-roll that issued a key, and its grace period. Returns `None` if the key was created.
pub fn origin(run: &Run, key: KeyIndex) -> Option<(&Call, i64)> {
    run.calls.iter().find_map(|call| match call.action {
        Action::Reroll { new, grace_ms, .. } if new == Some(key) => Some((call, grace_ms)),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::super::super::fixtures::{call, finds, finds_nothing, key, reply, run};
    use super::super::check;
    use super::*;
    use crate::record::KeyFinalState;

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
}

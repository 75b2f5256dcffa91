//! Checks keys whose balance was set: no more than the balance is spent until the next one is set.

use super::super::{Finding, SLACK, changes, describe};
use super::valid;
use crate::record::{Action, Call, Change, KeyIndex, Run};

/// Whether the replica had learned of the change, or should have: until then it treats the key as unlimited, which it
/// may have been.
fn must_know(run: &Run, set: &Call, call: &Call) -> bool {
    let is_unlimited = call.answer.as_ref().is_some_and(|answer| answer.credits.is_none());
    let delay_max = changes::delay_max(run, call, set.received) + SLACK;
    !is_unlimited || call.replica == set.replica || call.sent > set.received + delay_max
}

/// Returns the balances that were set, in order. `None` means unlimited.
pub fn list_sets(run: &Run, key: KeyIndex) -> impl Iterator<Item = (&Call, Option<i64>)> {
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
pub fn check(run: &Run, key: KeyIndex, finding: &mut Finding) {
    let sets: Vec<_> = list_sets(run, key).collect();
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
    use super::super::super::fixtures::{finds, finds_nothing, verify};
    use super::super::check;
    use super::super::tests::{changed, metered};
    use super::*;

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

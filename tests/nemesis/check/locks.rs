//! P4: an account that is locked delays its own key only.

use std::time::Duration;

use super::{Finding, name};
use crate::record::{AccountLock, Act, Asked, Run};

pub fn check(run: &Run) -> Finding {
    let mut finding = Finding::of("P4 locked accounts");
    for lock in &run.locks {
        check_lock(run, lock, &mut finding);
    }
    finding
}

/// Of the verifications of other keys with credits, at most half are refused. A few may be: a direct debit has a deadline
/// of milliseconds.
fn check_lock(run: &Run, lock: &AccountLock, finding: &mut Finding) {
    let others: Vec<_> = run.acts.iter().filter(|act| is_of_another(run, lock, act)).collect();
    let refused: Vec<_> = others.iter().filter(|act| !act.has(200)).collect();
    let (all, slowest) = (others.len(), others.iter().map(|act| act.took()).max());
    finding.told.push(format!(
        "of {all} verifications beside a locked account {} were refused; the slowest took {:.0?}",
        refused.len(),
        slowest.unwrap_or(Duration::ZERO)
    ));
    finding.hold(2 * refused.len() <= all, || {
        format!(
            "of {all} verifications of other keys, {} were refused while the account of key {} was locked; the last: {}",
            refused.len(),
            run.keys[lock.key].id,
            refused.last().map(|act| name(act)).unwrap_or_default()
        )
    });
}

fn is_of_another(run: &Run, lock: &AccountLock, act: &Act) -> bool {
    let Asked::Verify { key, .. } = act.asked else { return false };
    let is_beside = (lock.began..=lock.ended).contains(&act.sent);
    is_beside && key != lock.key && run.keys[key].credits.is_some()
}

#[cfg(test)]
mod tests {
    use super::super::by_hand::{act, at, finds, finds_nothing, key, run, told};
    use super::*;

    fn locked(statuses: &[u16]) -> Run {
        let asked = Asked::Verify { key: 1, cost: 1 };
        let acts = (1..).zip(statuses);
        let acts = acts.map(|(ms, status)| act(ms, asked.clone(), Some(told(*status, ""))));
        let locks = vec![AccountLock { key: 0, began: at(0), ended: at(100) }];
        Run { locks, keys: vec![key(Some(10)), key(Some(10))], ..run(acts.collect()) }
    }

    #[test]
    fn refusals_of_the_locked_key_and_few_of_others_are_right() {
        let mut run = locked(&[200, 503, 200]);
        let refused = Asked::Verify { key: 0, cost: 1 };
        run.acts.extend((10..20).map(|ms| act(ms, refused.clone(), Some(told(503, "")))));

        finds_nothing(&check(&run));
    }

    #[test]
    fn refusals_of_most_others_are_found() {
        finds(
            &check(&locked(&[200, 503, 503])),
            "of 3 verifications of other keys, 2 were refused",
        );
    }
}

//! Checks that a locked account delays only its own key.

use std::time::Duration;

use super::{Finding, describe};
use crate::record::{AccountLock, Action, Call, Run};

pub fn check(run: &Run) -> Finding {
    let mut finding = Finding::new("locked accounts");
    for lock in &run.locks {
        check_lock(run, lock, &mut finding);
    }
    finding
}

/// Checks that at most half of the verifications of other keys with credits were rejected. A few may be: a direct debit
/// has a deadline of milliseconds.
fn check_lock(run: &Run, lock: &AccountLock, finding: &mut Finding) {
    let others: Vec<_> = run.calls.iter().filter(|call| is_of_other_key(run, lock, call)).collect();
    let refused: Vec<_> = others.iter().filter(|call| !call.has_status(200)).collect();
    let (all, slowest) = (others.len(), others.iter().map(|call| call.took()).max());
    finding.notes.push(format!(
        "of {all} verifications during an account lock {} were rejected; the slowest took {:.0?}",
        refused.len(),
        slowest.unwrap_or(Duration::ZERO)
    ));
    finding.require(2 * refused.len() <= all, || {
        format!(
            "of {all} verifications of other keys, {} were rejected while the account of key {} was locked; the last: {}",
            refused.len(),
            run.keys[lock.key].id,
            refused.last().map(|call| describe(call)).unwrap_or_default()
        )
    });
}

fn is_of_other_key(run: &Run, lock: &AccountLock, call: &Call) -> bool {
    let Action::Verify { key, .. } = call.action else { return false };
    let is_beside = (lock.began..=lock.ended).contains(&call.sent);
    is_beside && key != lock.key && run.keys[key].credits.is_some()
}

#[cfg(test)]
mod tests {
    use super::super::fixtures::{at, call, finds, finds_nothing, key, reply, run};
    use super::*;

    fn locked(statuses: &[u16]) -> Run {
        let action = Action::Verify { key: 1, cost: 1 };
        let calls = (1..).zip(statuses);
        let calls = calls.map(|(ms, status)| call(ms, action.clone(), Some(reply(*status, ""))));
        let locks = vec![AccountLock { key: 0, began: at(0), ended: at(100) }];
        Run { locks, keys: vec![key(Some(10)), key(Some(10))], ..run(calls.collect()) }
    }

    #[test]
    fn check_accepts_rejections_of_locked_key_and_few_others() {
        let mut run = locked(&[200, 503, 200]);
        let refused = Action::Verify { key: 0, cost: 1 };
        run.calls.extend((10..20).map(|ms| call(ms, refused.clone(), Some(reply(503, "")))));

        finds_nothing(&check(&run));
    }

    #[test]
    fn check_reports_rejections_of_most_other_keys() {
        finds(
            &check(&locked(&[200, 503, 503])),
            "of 3 verifications of other keys, 2 were rejected",
        );
    }
}

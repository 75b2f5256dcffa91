//! Checks that what was withdrawn from a key or a counter is known on every replica after one second, or after five on
//! a replica that receives no changes.

use std::time::Duration;

use super::{Finding, SLACK, describe};
use crate::record::{Action, Call, LoadTime, Run, Withdrawal};
use crate::schedule::FaultKind;

const SEEN_BY_ALL: Duration = Duration::from_secs(1);
const SEEN_AT_LAST: Duration = Duration::from_secs(5);

pub fn check(run: &Run) -> Finding {
    let mut finding = Finding::new("revocations");
    let (mut ended, mut checked, mut slowest) = (0, 0, Duration::ZERO);
    for end in &run.calls {
        let Some(aware) = first_aware_reply(run, end) else { continue };
        ended += 1;
        for call in later_calls(run, end, aware.received) {
            checked += 1;
            if !is_stale(end, call) || uses_wrong_clock(run, end, call) {
                continue;
            }
            let late = call.sent.saturating_sub(aware.received);
            let may = delay_max(run, call, aware.received);
            if may == SEEN_BY_ALL {
                slowest = slowest.max(late);
            }
            finding.require(late <= may + SLACK && call.replica != aware.replica, || {
                format!(
                    "{} was revoked ({}) and VALID {late:.0?} later: {}",
                    target_name(run, &end.action),
                    describe(aware),
                    describe(call)
                )
            });
        }
    }
    finding.notes.push(format!(
        "{ended} keys and counters were revoked and checked {checked} times afterwards; the latest VALID on a healthy replica came \
        {slowest:.0?} after"
    ));
    finding
}

/// Returns the first reply after which the change must be known: its own. If the writer could not reply, the first
/// verification that shows that the key was disabled or deleted: a replica learns of that from the database, and it is
/// final.
fn first_aware_reply<'a>(run: &'a Run, end: &'a Call) -> Option<&'a Call> {
    if !is_end(&end.action) {
        return None;
    }
    if end.has_status(200) {
        return Some(end);
    }
    let (ended, code) = match end.action {
        Action::Disable { key } if end.is_uncertain() => (key, "DISABLED"),
        Action::Delete { key } if end.is_uncertain() => (key, "NOT_FOUND"),
        _ => return None,
    };
    let shows = |call: &&Call| {
        matches!(call.action, Action::Verify { key, .. } if key == ended)
            && call.received > end.sent
            && call.answer.as_ref().is_some_and(|answer| answer.code == code)
    };
    run.calls.iter().filter(shows).min_by_key(|call| call.received)
}

fn is_end(action: &Action) -> bool {
    action.revoked_key().is_some() || matches!(action, Action::Override { .. })
}

fn target_name(run: &Run, action: &Action) -> String {
    match action {
        Action::Override { counter } => format!("counter {counter}"),
        _ => {
            action.revoked_key().map(|key| format!("key {}", run.keys[key].id)).unwrap_or_default()
        }
    }
}

fn later_calls<'a>(run: &'a Run, end: &'a Call, aware: LoadTime) -> impl Iterator<Item = &'a Call> {
    let is_about = |action: &Action| match (action, &end.action) {
        (Action::Limit { counter, .. }, Action::Override { counter: ended }) => counter == ended,
        (Action::Verify { key, .. }, action) => action.revoked_key() == Some(*key),
        _ => false,
    };
    run.calls.iter().filter(move |call| call.sent > aware && is_about(&call.action))
}

/// A re-rolled key expires at once, and expiry depends on the clocks of the replicas.
fn uses_wrong_clock(run: &Run, end: &Call, call: &Call) -> bool {
    let is_reroll = matches!(
        end.action,
        Action::Withdraw { what: Withdrawal::Reroll, .. } | Action::Reroll { .. }
    );
    is_reroll && run.skewed.is_some_and(|skewed| skewed == end.replica || skewed == call.replica)
}

/// Whether a reply was given without knowledge of the change.
fn is_stale(end: &Call, call: &Call) -> bool {
    let Action::Withdraw { what: Withdrawal::IdentityLimit, .. } = end.action else {
        return call.is_valid();
    };
    let limits = call.answer.iter().flat_map(|answer| &answer.limits);
    limits.into_iter().any(|limit| limit.limit == Withdrawal::LIMIT)
}

/// Returns how long a replica may take to learn of a change. A replica that was paused, or lost both of its servers,
/// learns late. A replica that lost only the change feed reads the change log.
pub fn delay_max(run: &Run, call: &Call, ended: LoadTime) -> Duration {
    let r = call.replica;
    let stood = |sort: &dyn Fn(&crate::record::InjectedFault) -> bool| {
        run.has_fault(ended, call.received, SEEN_BY_ALL, sort)
    };
    let is_cut_off = stood(&|injected| injected.fault.kind.stops_replica(r))
        || (stood(&|injected| injected.fault.kind.affects_redis(r))
            && stood(&|injected| injected.fault.kind.affects_postgres(r)))
        || (stood(&|injected| injected.fault.kind == FaultKind::CutFeed(r))
            && stood(&|injected| injected.fault.kind.hides_change_log(r)));
    if is_cut_off { SEEN_AT_LAST } else { SEEN_BY_ALL }
}

#[cfg(test)]
mod tests {
    use super::super::fixtures::{call, fault, finds, finds_nothing, limit, reply, run, verify};
    use super::*;
    use crate::record::LimitStatus;

    fn ended(valid_at_ms: u64) -> Run {
        let ended = call(0, Action::Disable { key: 0 }, Some(reply(200, "")));
        run(vec![ended, Call { replica: 1, ..verify(valid_at_ms, 0, "VALID") }])
    }

    #[test]
    fn check_accepts_key_that_is_valid_for_another_second() {
        finds_nothing(&check(&ended(1_000)));
    }

    #[test]
    fn check_reports_key_that_is_valid_for_longer() {
        finds(&check(&ended(1_300)), "VALID 1s later");
    }

    #[test]
    fn check_reports_stale_permission_override_and_identity_limit() {
        let withdraw = |what| Action::Withdraw { key: 0, what };
        let lost = call(0, withdraw(Withdrawal::Permission), Some(reply(200, "")));
        let late = Call { replica: 1, ..verify(1_300, 0, "VALID") };
        finds(&check(&run(vec![lost, late])), "VALID 1s later");

        let shut = call(0, Action::Override { counter: "n/i".into() }, Some(reply(200, "")));
        let late = Call { replica: 1, ..limit(1_300, 1, "VALID", 9) };
        finds(&check(&run(vec![shut, late])), "counter n/i was revoked");

        let lowered = call(0, withdraw(Withdrawal::IdentityLimit), Some(reply(200, "")));
        let mut late = Call { replica: 1, ..verify(1_300, 0, "VALID") };
        for (limit, is_found) in [(Withdrawal::LIMIT, true), (Withdrawal::LIMIT_AFTER, false)] {
            let told_limit = LimitStatus {
                name: "all".into(),
                limit,
                duration_ms: 60_000,
                remaining: 1,
                reset_ms: 60_000,
                exceeded: false,
            };
            late.answer.as_mut().expect("an answer").limits = vec![told_limit];
            let finding = check(&run(vec![lowered.clone(), late.clone()]));
            assert_eq!(!finding.violations.is_empty(), is_found, "{limit}");
        }
    }

    #[test]
    fn check_reports_stale_reply_of_the_replica_that_made_the_change() {
        let mut run = ended(100);
        run.calls[1].replica = 0;

        finds(&check(&run), "VALID 95ms later");
    }

    #[test]
    fn check_allows_five_seconds_when_replica_receives_no_changes() {
        let faults = vec![fault(FaultKind::Isolate(1), 0, 6_000)];

        finds_nothing(&check(&Run { faults: faults.clone(), ..ended(5_200) }));
        finds(&check(&Run { faults, ..ended(5_300) }), "VALID 5s later");
    }

    #[test]
    fn check_allows_five_seconds_without_feed_only_when_change_log_is_unreadable() {
        let faults = |kind| vec![fault(FaultKind::CutFeed(1), 0, 6_000), fault(kind, 0, 6_000)];

        let blind = faults(FaultKind::KillPostgres);
        finds_nothing(&check(&Run { faults: blind, ..ended(1_300) }));
        let slow = faults(FaultKind::LockPostgres);
        finds(&check(&Run { faults: slow, ..ended(1_300) }), "VALID 1s later");
    }

    #[test]
    fn check_counts_unacknowledged_change_from_the_reply_that_shows_it() {
        let mut run = ended(1_600);
        run.calls[0].answer = None;
        finds_nothing(&check(&run));

        run.calls.push(Call { replica: 2, ..verify(200, 0, "DISABLED") });
        finds(&check(&run), "VALID 1s later");
        run.calls[1].sent = Duration::from_millis(1_400);
        finds_nothing(&check(&run));
    }
}

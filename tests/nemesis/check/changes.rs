//! P6: what was taken from a key, or from a counter, is known a second later, or five on a replica that hears nothing.

use std::time::Duration;

use super::{Finding, SLACK, name};
use crate::record::{Act, Asked, At, Run, Withdrawal};
use crate::schedule::Kind;

const SEEN_BY_ALL: Duration = Duration::from_secs(1);
const SEEN_AT_LAST: Duration = Duration::from_secs(5);

pub fn check(run: &Run) -> Finding {
    let mut finding = Finding::of("P6 revocations");
    let (mut ended, mut asked, mut slowest) = (0, 0, Duration::ZERO);
    for end in &run.acts {
        let Some(told) = first_told(run, end) else { continue };
        ended += 1;
        for act in later(run, end, told.received) {
            asked += 1;
            if !is_stale(end, act) || goes_by_a_wrong_clock(run, end, act) {
                continue;
            }
            let late = act.sent.saturating_sub(told.received);
            let may = may_take(run, act, told.received);
            if may == SEEN_BY_ALL {
                slowest = slowest.max(late);
            }
            finding.hold(late <= may + SLACK && act.replica != told.replica, || {
                format!(
                    "{} was ended ({}) and VALID {late:.0?} later: {}",
                    subject(run, &end.asked),
                    name(told),
                    name(act)
                )
            });
        }
    }
    finding.told.push(format!(
        "{ended} keys and counters were ended and asked for {asked} times afterwards; the latest VALID on a healthy replica came \
        {slowest:.0?} after"
    ));
    finding
}

/// The first answer from which the end counts: its own. Where the writer could not give one, that of a verification which
/// shows that the key was disabled or deleted; what is known of an end comes from the database, and stays true.
fn first_told<'a>(run: &'a Run, end: &'a Act) -> Option<&'a Act> {
    if !is_end(&end.asked) {
        return None;
    }
    if end.has(200) {
        return Some(end);
    }
    let (ended, code) = match end.asked {
        Asked::Disable { key } if end.is_unsure() => (key, "DISABLED"),
        Asked::Delete { key } if end.is_unsure() => (key, "NOT_FOUND"),
        _ => return None,
    };
    let shows = |act: &&Act| {
        matches!(act.asked, Asked::Verify { key, .. } if key == ended)
            && act.received > end.sent
            && act.answer.as_ref().is_some_and(|answer| answer.code == code)
    };
    run.acts.iter().filter(shows).min_by_key(|act| act.received)
}

fn is_end(asked: &Asked) -> bool {
    asked.ended().is_some() || matches!(asked, Asked::Override { .. })
}

fn subject(run: &Run, asked: &Asked) -> String {
    match asked {
        Asked::Override { counter } => format!("counter {counter}"),
        _ => asked.ended().map(|key| format!("key {}", run.keys[key].id)).unwrap_or_default(),
    }
}

fn later<'a>(run: &'a Run, end: &'a Act, told: At) -> impl Iterator<Item = &'a Act> {
    let is_about = |asked: &Asked| match (asked, &end.asked) {
        (Asked::Limit { counter, .. }, Asked::Override { counter: ended }) => counter == ended,
        (Asked::Verify { key, .. }, asked) => asked.ended() == Some(*key),
        _ => false,
    };
    run.acts.iter().filter(move |act| act.sent > told && is_about(&act.asked))
}

/// A key that is re-rolled expires at once, and expiry goes by the clocks of replicas.
fn goes_by_a_wrong_clock(run: &Run, end: &Act, act: &Act) -> bool {
    let is_reroll = matches!(
        end.asked,
        Asked::Withdraw { what: Withdrawal::Reroll, .. } | Asked::Reroll { .. }
    );
    is_reroll && run.skewed.is_some_and(|skewed| skewed == end.replica || skewed == act.replica)
}

/// Whether an answer does not know of what was done.
fn is_stale(end: &Act, act: &Act) -> bool {
    let Asked::Withdraw { what: Withdrawal::IdentityLimit, .. } = end.asked else {
        return act.is_valid();
    };
    let limits = act.answer.iter().flat_map(|answer| &answer.limits);
    limits.into_iter().any(|told| told.limit == Withdrawal::LIMIT)
}

/// A replica that stood still, or lost both of its servers, hears late. Without the feed alone it reads the change log.
pub fn may_take(run: &Run, act: &Act, ended: At) -> Duration {
    let r = act.replica;
    let stood = |sort: &dyn Fn(&crate::record::Done) -> bool| {
        run.is_troubled(ended, act.received, SEEN_BY_ALL, sort)
    };
    let is_deaf = stood(&|done| done.fault.kind.halts(r))
        || (stood(&|done| done.fault.kind.troubles_redis(r))
            && stood(&|done| done.fault.kind.troubles_postgres(r)))
        || (stood(&|done| done.fault.kind == Kind::CutFeed(r))
            && stood(&|done| done.fault.kind.hides_changes(r)));
    if is_deaf { SEEN_AT_LAST } else { SEEN_BY_ALL }
}

#[cfg(test)]
mod tests {
    use super::super::by_hand::{act, fault, finds, finds_nothing, limit, run, told, verify};
    use super::*;
    use crate::record::ToldLimit;

    fn ended(valid_at_ms: u64) -> Run {
        let ended = act(0, Asked::Disable { key: 0 }, Some(told(200, "")));
        run(vec![ended, Act { replica: 1, ..verify(valid_at_ms, 0, "VALID") }])
    }

    #[test]
    fn a_key_that_is_valid_for_another_second_is_right() {
        finds_nothing(&check(&ended(1_000)));
    }

    #[test]
    fn a_key_that_is_valid_for_longer_is_found() {
        finds(&check(&ended(1_300)), "VALID 1s later");
    }

    #[test]
    fn stale_permission_override_and_identity_limit_are_found() {
        let withdraw = |what| Asked::Withdraw { key: 0, what };
        let lost = act(0, withdraw(Withdrawal::Permission), Some(told(200, "")));
        let late = Act { replica: 1, ..verify(1_300, 0, "VALID") };
        finds(&check(&run(vec![lost, late])), "VALID 1s later");

        let shut = act(0, Asked::Override { counter: "n/i".into() }, Some(told(200, "")));
        let late = Act { replica: 1, ..limit(1_300, 1, "VALID", 9) };
        finds(&check(&run(vec![shut, late])), "counter n/i was ended");

        let lowered = act(0, withdraw(Withdrawal::IdentityLimit), Some(told(200, "")));
        let mut late = Act { replica: 1, ..verify(1_300, 0, "VALID") };
        for (limit, is_found) in [(Withdrawal::LIMIT, true), (Withdrawal::LIMIT_AFTER, false)] {
            let told_limit = ToldLimit {
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
    fn the_replica_that_ended_it_knows_at_once() {
        let mut run = ended(100);
        run.acts[1].replica = 0;

        finds(&check(&run), "VALID 95ms later");
    }

    #[test]
    fn a_replica_that_hears_nothing_has_five_seconds() {
        let faults = vec![fault(Kind::Isolate(1), 0, 6_000)];

        finds_nothing(&check(&Run { faults: faults.clone(), ..ended(5_200) }));
        finds(&check(&Run { faults, ..ended(5_300) }), "VALID 5s later");
    }

    #[test]
    fn replica_without_the_feed_has_five_seconds_only_when_it_cannot_read_the_change_log() {
        let faults = |kind| vec![fault(Kind::CutFeed(1), 0, 6_000), fault(kind, 0, 6_000)];

        let blind = faults(Kind::KillPostgres);
        finds_nothing(&check(&Run { faults: blind, ..ended(1_300) }));
        let slow = faults(Kind::LockPostgres);
        finds(&check(&Run { faults: slow, ..ended(1_300) }), "VALID 1s later");
    }

    #[test]
    fn end_that_was_not_acknowledged_counts_from_the_answer_that_shows_it() {
        let mut run = ended(1_600);
        run.acts[0].answer = None;
        finds_nothing(&check(&run));

        run.acts.push(Act { replica: 2, ..verify(200, 0, "DISABLED") });
        finds(&check(&run), "VALID 1s later");
        run.acts[1].sent = Duration::from_millis(1_400);
        finds_nothing(&check(&run));
    }
}

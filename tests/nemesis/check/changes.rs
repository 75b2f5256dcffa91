//! P6: a key that was ended is not VALID a second later, or five on a replica that hears nothing.

use std::time::Duration;

use super::{Finding, SLACK, name};
use crate::record::{Act, Asked, At, KeyNo, Run};

const SEEN_BY_ALL: Duration = Duration::from_secs(1);
const SEEN_AT_LAST: Duration = Duration::from_secs(5);

pub fn check(run: &Run) -> Finding {
    let mut finding = Finding::of("P6 revocations");
    let (mut ended, mut asked, mut slowest) = (0, 0, Duration::ZERO);
    for end in &run.acts {
        let (Asked::Disable { key } | Asked::Delete { key }) = end.asked else { continue };
        if !end.has(200) {
            continue;
        }
        ended += 1;
        for act in later(run, key, end.received) {
            asked += 1;
            if !act.is_valid() {
                continue;
            }
            let late = act.sent.saturating_sub(end.received);
            let may = may_take(run, act, end.received);
            if may == SEEN_BY_ALL {
                slowest = slowest.max(late);
            }
            finding.hold(late <= may + SLACK && act.replica != end.replica, || {
                format!(
                    "key {} was ended ({}) and VALID {late:.0?} later: {}",
                    run.keys[key].id,
                    name(end),
                    name(act)
                )
            });
        }
    }
    finding.told.push(format!(
        "{ended} keys were ended and asked for {asked} times afterwards; the latest VALID on a healthy replica came \
        {slowest:.0?} after"
    ));
    finding
}

fn later(run: &Run, key: KeyNo, after: At) -> impl Iterator<Item = &Act> {
    run.acts.iter().filter(move |act| {
        act.sent > after && matches!(act.asked, Asked::Verify { key: asked, .. } if asked == key)
    })
}

/// A replica that stood still, or lost both of its servers, hears late.
fn may_take(run: &Run, act: &Act, ended: At) -> Duration {
    let r = act.replica;
    let stood = |sort: &dyn Fn(&crate::record::Done) -> bool| {
        run.is_troubled(ended, act.received, SEEN_BY_ALL, sort)
    };
    let is_deaf = stood(&|done| done.fault.kind.halts(r))
        || (stood(&|done| done.fault.kind.troubles_redis(r))
            && stood(&|done| done.fault.kind.troubles_postgres(r)));
    if is_deaf { SEEN_AT_LAST } else { SEEN_BY_ALL }
}

#[cfg(test)]
mod tests {
    use super::super::by_hand::{act, fault, finds, finds_nothing, run, told, verify};
    use super::*;
    use crate::schedule::Kind;

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
}

//! P4: without Redis, a replica admits no more than its share.

use std::collections::BTreeMap;
use std::time::Duration;

use super::windows::{Came, Request, number};
use super::{Finding, name};
use crate::record::{At, Run};
use crate::schedule::Kind;

/// Without Redis, each replica admits its share of a window, anew in each outage.
pub fn check(run: &Run, counter: &str, requests: &[Request], finding: &mut Finding) {
    let mut admitted: BTreeMap<(usize, i64), (i64, &Request)> = BTreeMap::new();
    for request in requests {
        if let Came::Degraded { told: Some(told), admitted: true } = request.came {
            let window = admitted.entry((request.act.replica, number(told)));
            let window = window.or_insert((0, request));
            *window = (window.0 + request.cost, request);
        }
    }
    for ((replica, number), (sum, last)) in admitted {
        let Request { act, limit, duration_ms, .. } = *last;
        let length = Duration::from_millis(duration_ms.unsigned_abs());
        let (from, to) = (act.sent.saturating_sub(length), act.received + length);
        let stood = |sort: &dyn Fn(&Kind) -> bool| {
            run.faults
                .iter()
                .filter(|done| {
                    sort(&done.fault.kind)
                        && done.began <= to
                        && from <= done.ended + Duration::from_secs(1)
                })
                .count()
        };
        let stalls = 10 * stood(&|kind| *kind == Kind::StallRedis);
        // A share counts anew once Redis has what was admitted before. Within the second after an outage a reply may be late.
        let outages = 2 * stood(&|kind| kind.troubles_redis(replica));
        let anew = (outages + stood(&|kind| kind.halts(replica))).max(1) + stalls;
        let share = limit.unsigned_abs().div_ceil(alive(run, replica, from, to) as u64);
        let most = share * anew as u64;
        finding.hold(sum.unsigned_abs() <= most, || {
            format!(
                "P4 {counter}: without Redis, replica {replica} admitted {sum} of {limit} in window {number}, and its share \
                is {share}: {}",
                name(act)
            )
        });
    }
}

/// How many replicas one of them knew of, at least.
fn alive(run: &Run, replica: usize, from: At, to: At) -> usize {
    let forgotten = Duration::from_secs(15);
    let is_gone = |other: &usize| {
        *other != replica
            && run.is_troubled(from, to, forgotten, |done| {
                done.fault.kind.halts(*other) || done.fault.kind.troubles_postgres(*other)
            })
    };
    let replicas = run.acts.iter().map(|act| act.replica + 1).max().unwrap_or(1);
    replicas - (0..replicas).filter(is_gone).count()
}

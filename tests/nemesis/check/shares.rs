//! Checks that without Redis a replica admits no more than its share.

use std::collections::BTreeMap;
use std::time::Duration;

use super::windows::{Outcome, Request, number};
use super::{Finding, describe};
use crate::record::{LoadTime, Run};
use crate::schedule::FaultKind;

/// Checks that each replica admits at most its share of a window without Redis, in each outage anew.
pub fn check(run: &Run, counter: &str, requests: &[Request], finding: &mut Finding) {
    let mut admitted: BTreeMap<(usize, i64), (i64, &Request)> = BTreeMap::new();
    for request in requests {
        if let Outcome::Degraded { status: Some(status), admitted: true } = request.outcome {
            let window = admitted.entry((request.call.replica, number(status)));
            let window = window.or_insert((0, request));
            *window = (window.0 + request.cost, request);
        }
    }
    for ((replica, number), (sum, last)) in admitted {
        let Request { call, limit, duration_ms, .. } = *last;
        let length = Duration::from_millis(duration_ms.unsigned_abs());
        let (from, to) = (call.sent.saturating_sub(length), call.received + length);
        let stood = |sort: &dyn Fn(&FaultKind) -> bool| {
            run.faults
                .iter()
                .filter(|injected| {
                    sort(&injected.fault.kind)
                        && injected.began <= to
                        && from <= injected.ended + Duration::from_secs(1)
                })
                .count()
        };
        let stalls = 10 * stood(&|kind| *kind == FaultKind::StallRedis);
        // A share starts anew once the earlier admissions are consumed in Redis. A reply may arrive up to a second
        // after an outage.
        let outages = 2 * stood(&|kind| kind.affects_redis(replica));
        let anew = (outages + stood(&|kind| kind.stops_replica(replica))).max(1) + stalls;
        let share = limit.unsigned_abs().div_ceil(known_replicas(run, replica, from, to) as u64);
        let most = share * anew as u64;
        finding.require(sum.unsigned_abs() <= most, || {
            format!(
                "{counter}: without Redis, replica {replica} admitted {sum} of {limit} in window {number}, and its share \
                is {share}: {}",
                describe(call)
            )
        });
    }
}

/// Returns the minimum number of replicas that one of them knew.
fn known_replicas(run: &Run, replica: usize, from: LoadTime, to: LoadTime) -> usize {
    let forgotten = Duration::from_secs(15);
    let is_forgotten = |other: &usize| {
        *other != replica
            && run.has_fault(from, to, forgotten, |injected| {
                injected.fault.kind.stops_replica(*other)
                    || injected.fault.kind.affects_postgres(*other)
            })
    };
    let replicas = run.calls.iter().map(|call| call.replica + 1).max().unwrap_or(1);
    replicas - (0..replicas).filter(is_forgotten).count()
}

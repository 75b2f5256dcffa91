//! Checks that all regions together admit no more than the limit of a window, that they decide without its home only
//! while that cannot be reached, and that nothing of a limit is lost.

use std::collections::BTreeMap;
use std::time::Duration;

use super::load::{LAST, LAST_LIMIT};
use crate::check::outage::Busy;
use crate::check::windows::{CLOCK_MS, Outcome, Request, by_counter, number, troubles};
use crate::check::{Finding, SLACK, describe, shares};
use crate::fleet::REGION_NAMES;
use crate::record::{Action, Call, LoadTime, Run};
use crate::schedule::{FaultKind, REGIONS};

/// How long after the end of a fault a region may still decide without a home.
const RECOVERY: Duration = Duration::from_secs(1);
/// The maximum part of the units of a limit that nobody gets although all regions ask: one in this many.
const UNUSED_ONE_IN: i64 = 20;

/// Returns the regions that are the home of a counter at some time.
fn homes(counter: &str) -> Vec<usize> {
    match counter.split_once('/') {
        // Keys belong to an API of the first region.
        None => vec![0],
        Some((namespace, _)) => match REGION_NAMES.iter().position(|name| *name == namespace) {
            Some(region) => vec![region],
            None => (0..REGIONS).collect(),
        },
    }
}

/// The admissions of a window: when each was sent and answered, with its cost.
#[derive(Default)]
struct Window {
    admissions: Vec<(LoadTime, LoadTime, i64)>,
    sum: i64,
    /// The greatest limit that was in force.
    limit: i64,
}

impl Window {
    /// Returns what was certainly admitted before this moment.
    fn admitted_before(&self, at: LoadTime) -> i64 {
        let before = self.admissions.iter().filter(|(_, received, _)| *received <= at);
        before.map(|(.., cost)| cost).sum()
    }
}

/// Returns the windows of a counter by their numbers.
fn windows(requests: &[Request]) -> BTreeMap<i64, Window> {
    let mut windows: BTreeMap<i64, Window> = BTreeMap::new();
    for request in requests {
        let (Outcome::Admitted(status) | Outcome::Refused(status)) = request.outcome else {
            continue;
        };
        let window = windows.entry(number(status)).or_default();
        window.limit = window.limit.max(status.limit);
        if let Outcome::Admitted(_) = request.outcome {
            window.sum += request.cost;
            window.admissions.push((request.call.sent, request.call.received, request.cost));
        }
    }
    windows
}

/// Checks that all regions together admit no more than the limit of each window, and by the sliding rule.
pub fn check_windows(run: &Run) -> Finding {
    let mut finding = Finding::new("windows of all regions");
    let (mut count, mut full) = (0, 0);
    for (counter, requests) in by_counter(run) {
        let Some(Request { duration_ms, .. }) = requests.first() else { continue };
        let homes = homes(&counter);
        let is_loss = |kind: &FaultKind| {
            kind.loses_counters() && kind.region().is_some_and(|region| homes.contains(&region))
        };
        let lost = |first, last| {
            i64::try_from(troubles(run, first, last, *duration_ms, is_loss)).unwrap_or(i64::MAX)
        };
        let windows = windows(&requests);
        for (number, window) in &windows {
            let Window { sum, limit, .. } = window;
            (count, full) = (count + 1, full + usize::from(sum == limit));
            let times = 1 + lost(*number, *number);
            finding.require(*sum <= limit * times, || {
                format!(
                    "{counter}: window {number} admitted {sum} of {limit} in all regions, while its home lost its data \
                    {} times",
                    times - 1
                )
            });
            let Some(last) = windows.get(&(number - 1)) else { continue };
            if lost(number - 1, *number) == 0 {
                check_sliding_rule(
                    run,
                    &counter,
                    (*number, *duration_ms),
                    [last, window],
                    &mut finding,
                );
            }
        }
        shares::check(run, &counter, &requests, &mut finding);
    }
    finding.notes.push(format!("{count} windows, {full} of them used up"));
    finding
}

/// Checks each admission of a window against what had certainly been admitted in it and in the one before.
fn check_sliding_rule(
    run: &Run,
    counter: &str,
    (number, duration_ms): (i64, i64),
    [last, window]: [&Window; 2],
    finding: &mut Finding,
) {
    let limit = last.limit.max(window.limit);
    for (sent, received, cost) in &window.admissions {
        let left = (number + 1) * duration_ms - run.unix_ms(*received) - CLOCK_MS;
        let earlier = last.admitted_before(*sent) * left.clamp(0, duration_ms) / duration_ms;
        let effective = window.admitted_before(*sent) + cost + earlier;
        finding.require(effective <= limit, || {
            format!(
                "{counter}: window {number} admitted {effective} of {limit} by the sliding rule at {received:.3?} in all regions"
            )
        });
    }
}

/// Checks that the run means something: that enough was decided away from home, and that limits were reached.
pub fn check_work(run: &Run) -> Finding {
    let mut finding = Finding::new("work");
    let (mut away, mut exact, mut full) = (0, 0, 0);
    for (counter, requests) in by_counter(run) {
        let homes = homes(&counter);
        let is_exact = |request: &&Request| {
            matches!(request.outcome, Outcome::Admitted(_) | Outcome::Refused(_))
        };
        for request in requests.iter().filter(is_exact) {
            exact += 1;
            away += usize::from(!homes.contains(&run.region_of[request.call.replica]));
        }
        full += windows(&requests).values().filter(|window| window.sum == window.limit).count();
    }
    finding.require(exact > 1_000 && away > exact / 5 && full > 5, || {
        format!(
            "{exact} exact answers, {away} of them away from home, {full} windows used up: too few"
        )
    });
    finding.notes.push(format!("{exact} exact answers, {away} of them away from home"));
    finding
}

/// Returns the counters of a call.
fn counters(run: &Run, call: &Call) -> Vec<String> {
    match &call.action {
        Action::Limit { counter, .. } => vec![counter.clone()],
        Action::Verify { key, .. } if !run.keys[*key].limits.is_empty() => {
            vec![run.keys[*key].id.clone()]
        }
        _ => Vec::new(),
    }
}

/// Checks that calls are decided without the home of their counters only while a fault keeps the region from it.
pub fn check_outages(run: &Run) -> Finding {
    let mut finding = Finding::new("outages of regions");
    let busy = Busy::of(run);
    let (mut strays, mut degraded, mut excused, mut exact) = (Vec::new(), 0, 0, 0);
    for call in &run.calls {
        let (counters, r) = (counters(run, call), call.replica);
        let Some(answer) = call.answer.as_ref().filter(|_| !counters.is_empty()) else { continue };
        if !answer.degraded {
            exact += 1;
            continue;
        }
        degraded += 1;
        let mut regions: Vec<_> = counters.iter().flat_map(|counter| homes(counter)).collect();
        regions.push(run.region_of[r]);
        let has_fault = run.has_fault(call.sent, call.received, RECOVERY + SLACK, |injected| {
            let kind = injected.fault.kind;
            match kind.region() {
                Some(region) => regions.contains(&region),
                None => kind.affects_redis(r) || kind.stops_replica(r) || kind.affects_postgres(r),
            }
        });
        match (has_fault, busy.was_during(call)) {
            (true, _) => {}
            (false, true) => excused += 1,
            (false, false) => {
                strays
                    .push(format!("decided without a home that was reachable: {}", describe(call)));
            }
        }
    }
    finding.notes.push(format!(
        "{exact} exact answers and {degraded} without a home; of these {} while it was reachable, and {excused} more while \
        the machine was too busy",
        strays.len()
    ));
    if strays.len() > exact / 500 {
        finding.violations.append(&mut strays);
    }
    finding
}

/// Checks that the counters that were used up at the end had nothing left, and that Redis decided all of it.
pub fn check_use(run: &Run) -> Finding {
    let mut finding = Finding::new("use of limits");
    let busy = Busy::of(run);
    for (counter, requests) in by_counter(run) {
        if !counter.ends_with(LAST) {
            continue;
        }
        let (mut exact, mut degraded) = (0, 0);
        for request in &requests {
            match request.outcome {
                Outcome::Admitted(_) => exact += request.cost,
                Outcome::Refused(_) => {}
                Outcome::Degraded { admitted, .. } => {
                    degraded += if admitted { request.cost } else { 0 };
                    finding.require(busy.was_during(request.call), || {
                        format!("not exact long after the last fault: {}", describe(request.call))
                    });
                }
                Outcome::Unsure => finding.violations.push(format!(
                    "no answer long after the last fault: {}",
                    describe(request.call)
                )),
            }
        }
        let admitted = exact + degraded;
        finding.require(admitted >= LAST_LIMIT - LAST_LIMIT / UNUSED_ONE_IN, || {
            format!("{counter}: {admitted} of {LAST_LIMIT} were admitted in all regions")
        });
        finding.notes.push(format!("{counter}: {admitted} of {LAST_LIMIT}"));
    }
    finding
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::fixtures::{fault, finds, finds_nothing, limit, run};
    use crate::schedule::RegionFault;

    /// Returns a run of three regions with one replica each.
    fn in_regions(calls: Vec<Call>) -> Run {
        Run { region_of: vec![0, 1, 2], ..run(calls) }
    }

    fn without_home(mut call: Call) -> Call {
        call.answer.as_mut().expect("an answer").degraded = true;
        Call { replica: 1, ..call }
    }

    #[test]
    fn check_windows_reports_what_regions_admit_together_beyond_the_limit() {
        let admitted = |cost| Call { replica: 1, ..limit(100, cost, "VALID", 0) };

        finds_nothing(&check_windows(&in_regions(vec![limit(50, 6, "VALID", 4), admitted(4)])));
        let over = in_regions(vec![limit(50, 6, "VALID", 4), admitted(5)]);
        finds(&check_windows(&over), "admitted 11 of 10 in all regions");
    }

    #[test]
    fn check_windows_reports_what_exceeds_the_sliding_rule() {
        let used_up = limit(900, 10, "VALID", 0);

        finds_nothing(&check_windows(&in_regions(vec![
            used_up.clone(),
            limit(1_500, 5, "VALID", 0),
        ])));
        let over = in_regions(vec![used_up, limit(1_100, 5, "VALID", 0)]);
        finds(&check_windows(&over), "of 10 by the sliding rule");
    }

    #[test]
    fn check_outages_reports_degraded_answers_that_no_fault_explains() {
        let stray = || in_regions(vec![without_home(limit(100, 1, "VALID", 0))]);

        finds(&check_outages(&stray()), "decided without a home that was reachable");
        let cut = FaultKind::InRegion(1, RegionFault::CutOff);
        finds_nothing(&check_outages(&Run { faults: vec![fault(cut, 0, 50)], ..stray() }));
    }

    #[test]
    fn check_use_reports_units_that_nobody_got() {
        let use_up = |cost| {
            let mut call = limit(100, cost, "VALID", 0);
            let answer = call.answer.as_mut().expect("an answer");
            let counter = format!("eu/{LAST}");
            answer.limits[0].name.clone_from(&counter);
            call.action = Action::Limit { counter, limit: LAST_LIMIT, duration_ms: 1_000, cost };
            in_regions(vec![call])
        };

        finds_nothing(&check_use(&use_up(95)));
        finds(&check_use(&use_up(94)), "94 of 100 were admitted");
    }
}

//! Checks that no window admits more than its limit and that a rejection changes nothing; and that without Redis a
//! replica admits no more than its share.

use std::collections::BTreeMap;
use std::time::Duration;

use super::outage::Busy;
use super::{Finding, describe, shares};
use crate::load::OVERRIDE_PREFIX;
use crate::record::{Action, Call, LimitStatus, LoadTime, Run};
use crate::schedule::{FaultKind, REPLICAS};

/// The maximum difference between the clock of the machine and that of a request.
pub const CLOCK_MS: i64 = 3;

/// How many requests for one counter may be in flight when Redis stalls: the admissions by Redis and those by replicas
/// instead of it may exceed the limit by this number, or by two percent.
const IN_FLIGHT: i64 = 9;

/// One request for one counter.
pub struct Request<'a> {
    pub call: &'a Call,
    pub limit: i64,
    pub duration_ms: i64,
    pub cost: i64,
    pub outcome: Outcome<'a>,
}

pub enum Outcome<'a> {
    /// Counted, or rejected, in Redis.
    Admitted(&'a LimitStatus),
    Refused(&'a LimitStatus),
    /// Decided without Redis, which may have counted the request nevertheless.
    Degraded {
        status: Option<&'a LimitStatus>,
        admitted: bool,
    },
    /// The outcome is unknown.
    Unsure,
}

/// The admissions of one window by reply time and by send time, each with the running total of costs.
#[derive(Default)]
struct Window {
    answered: Vec<(LoadTime, i64)>,
    /// Requests that may have been counted.
    sent: Vec<(LoadTime, i64)>,
    admitted: i64,
    /// Admitted by Redis, or without it while the machine was not too busy for its deadline.
    granted: i64,
    possible: i64,
}

#[derive(Default)]
struct Counts {
    windows: usize,
    admitted: usize,
    refused: usize,
    degraded: usize,
    fullest: (i64, i64),
}

pub fn check(run: &Run) -> Finding {
    let mut finding = Finding::new("windows");
    let (mut counts, busy) = (Counts::default(), Busy::of(run));
    for (counter, requests) in by_counter(run) {
        check_counter(run, &busy, (&counter, &requests), &mut counts, &mut finding);
        shares::check(run, &counter, &requests, &mut finding);
    }
    let Counts { windows, admitted, refused, degraded, fullest } = counts;
    finding.notes.push(format!(
        "{windows} windows: {admitted} admissions and {refused} rejections by Redis, {degraded} answers without it; the \
        fullest window admitted {} of {}",
        fullest.0, fullest.1
    ));
    finding
}

/// Returns the requests for each counter, except those with overrides that block.
pub fn by_counter(run: &Run) -> BTreeMap<String, Vec<Request<'_>>> {
    let mut counters: BTreeMap<String, Vec<Request>> = BTreeMap::new();
    for call in &run.calls {
        match &call.action {
            // A counter with overrides does not have the requested limit.
            Action::Limit { counter, .. } if counter.starts_with(OVERRIDE_PREFIX) => {}
            Action::Limit { counter, limit, duration_ms, cost } => {
                let request = request(call, counter, *limit, *duration_ms, *cost);
                counters.entry(counter.clone()).or_default().push(request);
            }
            Action::Verify { key, .. } => {
                for (name, limit, duration_ms) in &run.keys[*key].limits {
                    let counter = format!("{} of key {}", name, run.keys[*key].id);
                    let request = request(call, name, *limit, *duration_ms, 1);
                    counters.entry(counter).or_default().push(request);
                }
            }
            _ => {}
        }
    }
    counters
}

fn request<'a>(call: &'a Call, name: &str, limit: i64, duration_ms: i64, cost: i64) -> Request<'a> {
    let outcome = match &call.answer {
        Some(answer) if answer.status == 200 => {
            let status = answer.limits.iter().find(|status| status.name == name);
            match (status, answer.degraded) {
                (status, true) => Outcome::Degraded { status, admitted: answer.is_valid() },
                (Some(status), false) if answer.is_valid() => Outcome::Admitted(status),
                (Some(status), false) => Outcome::Refused(status),
                (None, false) => Outcome::Unsure,
            }
        }
        _ => Outcome::Unsure,
    };
    Request { call, limit, duration_ms, cost, outcome }
}

/// Returns the number of the window that a reply refers to.
pub fn number(status: &LimitStatus) -> i64 {
    status.reset_ms / status.duration_ms - 1
}

fn check_counter(
    run: &Run,
    busy: &Busy,
    (counter, requests): (&str, &[Request]),
    counts: &mut Counts,
    finding: &mut Finding,
) {
    let windows = windows(run, busy, requests);
    let Some(Request { limit, duration_ms, .. }) = requests.first() else { return };
    for (number, window) in &windows {
        let lost = troubles(run, *number, *number, *duration_ms, FaultKind::loses_counters);
        let most = limit * (1 + i64::try_from(lost).unwrap_or(i64::MAX));
        counts.windows += 1;
        if lost == 0 && window.admitted * counts.fullest.1.max(1) >= counts.fullest.0 * limit {
            counts.fullest = (window.admitted, *limit);
        }
        finding.require(window.admitted <= most, || {
            format!(
                "{counter}: window {number} admitted {} of {limit}, while Redis lost its data {lost} times",
                window.admitted
            )
        });
        check_granted(run, counter, (*number, window.granted), (*limit, *duration_ms), finding);
    }
    for request in requests {
        match request.outcome {
            Outcome::Admitted(status) => {
                counts.admitted += 1;
                check_status(run, counter, request, status, true, &windows, finding);
            }
            Outcome::Refused(status) => {
                counts.refused += 1;
                check_status(run, counter, request, status, false, &windows, finding);
            }
            Outcome::Degraded { .. } => counts.degraded += 1,
            Outcome::Unsure => {}
        }
    }
}

fn windows(run: &Run, busy: &Busy, requests: &[Request]) -> BTreeMap<i64, Window> {
    let mut windows: BTreeMap<i64, Window> = BTreeMap::new();
    for request in requests.iter().filter(|request| request.cost > 0) {
        let (call, cost) = (request.call, request.cost);
        match request.outcome {
            Outcome::Admitted(status) => {
                let window = windows.entry(number(status)).or_default();
                window.answered.push((call.received, cost));
                window.sent.push((call.sent, cost));
                window.admitted += cost;
                window.granted += cost;
                window.possible += cost;
            }
            Outcome::Degraded { .. } | Outcome::Unsure => {
                if let Outcome::Degraded { status: Some(status), admitted: true } = request.outcome
                    && !busy.was_during(call)
                {
                    windows.entry(number(status)).or_default().granted += cost;
                }
                let until = call.received + Duration::from_secs(2);
                let first = run.unix_ms(call.sent) / request.duration_ms;
                let last = run.unix_ms(until) / request.duration_ms;
                for number in first..=last {
                    let window = windows.entry(number).or_default();
                    window.sent.push((call.sent, cost));
                    window.possible += cost;
                }
            }
            Outcome::Refused(_) => {}
        }
    }
    for window in windows.values_mut() {
        for list in [&mut window.answered, &mut window.sent] {
            list.sort_unstable();
            let mut sum = 0;
            for (_, cost) in list {
                sum += *cost;
                *cost = sum;
            }
        }
    }
    windows
}

/// Checks the total of admissions with and without Redis, for windows in which Redis replied or stalled only for
/// moments. The check of outages covers how often calls may be admitted without Redis while it replies.
fn check_granted(
    run: &Run,
    counter: &str,
    (number, granted): (i64, i64),
    (limit, duration_ms): (i64, i64),
    finding: &mut Finding,
) {
    let any = |kind: &FaultKind| (0..REPLICAS).any(|replica| kind.affects_redis(replica));
    let stalls = troubles(run, number, number, duration_ms, |kind| *kind == FaultKind::StallRedis);
    if troubles(run, number, number, duration_ms, any) > stalls {
        return;
    }
    let most = limit + IN_FLIGHT.max(limit / 50);
    finding.require(granted <= most, || {
        format!("{counter}: window {number} admitted {granted} of {limit} with and without Redis, which stalled {stalls} times")
    });
}

/// Returns the total cost up to a moment.
fn until(list: &[(LoadTime, i64)], at: LoadTime) -> i64 {
    let place = list.partition_point(|(moment, _)| *moment <= at);
    place.checked_sub(1).map_or(0, |place| list[place].1)
}

/// Counts the faults of this kind between the start of one window and the end of another.
pub fn troubles(
    run: &Run,
    first: i64,
    last: i64,
    duration_ms: i64,
    sort: impl Fn(&FaultKind) -> bool,
) -> usize {
    let (from, to) = (first * duration_ms - CLOCK_MS, (last + 1) * duration_ms + CLOCK_MS);
    let stood = |injected: &&crate::record::InjectedFault| {
        run.unix_ms(injected.began) <= to
            && from <= run.unix_ms(injected.ended + Duration::from_secs(1))
    };
    run.faults.iter().filter(|injected| sort(&injected.fault.kind)).filter(stood).count()
}

/// Checks one reply against everything that was certainly counted before it was sent, and everything that may have been
/// counted before it was received.
fn check_status(
    run: &Run,
    counter: &str,
    request: &Request,
    status: &LimitStatus,
    is_admitted: bool,
    windows: &BTreeMap<i64, Window>,
    finding: &mut Finding,
) {
    let Request { call, limit, duration_ms, cost, .. } = *request;
    let number = number(status);
    if troubles(run, number - 1, number, duration_ms, FaultKind::loses_counters) > 0 {
        return;
    }
    let none = Window::default();
    let this = windows.get(&number).unwrap_or(&none);
    let before = windows.get(&(number - 1)).unwrap_or(&none);
    let left = |at: LoadTime, wrong: i64| {
        ((number + 1) * duration_ms - run.unix_ms(at) + wrong).clamp(0, duration_ms)
    };
    let own = if is_admitted { cost } else { 0 };
    let least = until(&this.answered, call.sent)
        + before.admitted * left(call.received, -CLOCK_MS) / duration_ms;
    if is_admitted {
        finding.require(least + cost <= limit && status.remaining <= limit - least - cost, || {
            format!(
                "{counter}: of {limit}, {least} had been consumed when {cost} more were admitted and {} reported as remaining: {}",
                status.remaining,
                describe(call)
            )
        });
    }
    let any = |kind: &FaultKind| (0..REPLICAS).any(|replica| kind.affects_redis(replica));
    if troubles(run, number - 1, number, duration_ms, any) > 0 {
        return;
    }
    let most = until(&this.sent, call.received) - own
        + (before.possible * left(call.sent, CLOCK_MS) + duration_ms - 1) / duration_ms;
    match status.exceeded {
        true => finding.require(most + cost > limit, || {
            format!(
                "{counter}: {cost} were rejected when at most {most} of {limit} were consumed: {}",
                describe(call)
            )
        }),
        false => finding.require(status.remaining >= (limit - most - own).min(limit).max(0), || {
            format!(
                "{counter}: {} were reported as remaining when at most {most} of {limit} were consumed: {}",
                status.remaining,
                describe(call)
            )
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::super::fixtures::{fault, finds, finds_nothing, limit, run};
    use super::*;

    #[test]
    fn check_accepts_window_filled_to_its_limit() {
        let calls = vec![
            limit(10, 6, "VALID", 4),
            limit(20, 5, "RATE_LIMITED", 0),
            limit(30, 4, "VALID", 0),
            // Half of the previous window still counts.
            limit(1_500, 5, "VALID", 0),
        ];

        finds_nothing(&check(&run(calls)));
    }

    #[test]
    fn check_reports_window_above_its_limit() {
        let calls = vec![limit(10, 6, "VALID", 4), limit(10, 5, "VALID", 0)];

        finds(&check(&run(calls)), "admitted 11 of 10");
    }

    #[test]
    fn check_accepts_reset_window_after_data_loss() {
        let calls = vec![limit(10, 6, "VALID", 4), limit(400, 5, "VALID", 5)];
        let faults = vec![fault(FaultKind::WipeRedis, 100, 300)];

        finds_nothing(&check(&Run { faults, ..run(calls) }));
    }

    #[test]
    fn check_reports_too_many_with_previous_window() {
        let calls = vec![limit(10, 10, "VALID", 0), limit(1_400, 6, "VALID", 0)];

        finds(&check(&run(calls)), "5 had been consumed when 6 more were admitted");
    }

    #[test]
    fn check_reports_rejection_that_consumed() {
        let refused = vec![limit(10, 11, "RATE_LIMITED", 0), limit(20, 1, "RATE_LIMITED", 0)];
        let status = vec![limit(10, 11, "RATE_LIMITED", 0), limit(20, 1, "VALID", 0)];

        finds(&check(&run(refused)), "1 were rejected when at most 0 of 10 were consumed");
        finds(&check(&run(status)), "0 were reported as remaining when at most 0 of 10");
    }

    #[test]
    fn check_reports_total_above_limit_with_and_without_redis() {
        let mut calls = vec![limit(10, 10, "VALID", 0), limit(20, 9, "VALID", 0)];
        calls[1].answer.as_mut().expect("an answer").degraded = true;
        let stalled =
            |calls| Run { faults: vec![fault(FaultKind::StallRedis, 5, 15)], ..run(calls) };

        finds_nothing(&check(&stalled(calls.clone())));
        calls[1].action = limit(20, 10, "VALID", 0).action;
        finds(&check(&stalled(calls)), "admitted 20 of 10 with and without Redis");
    }

    #[test]
    fn check_reports_share_exceeded_without_redis() {
        let mut calls = vec![limit(10, 5, "VALID", 0), limit(20, 1, "VALID", 0)];
        for call in &mut calls {
            call.answer.as_mut().expect("an answer").degraded = true;
        }
        calls.push(Call { replica: 1, ..limit(30, 1, "VALID", 9) });

        finds(&check(&run(calls.clone())), "replica 0 admitted 6 of 10");
        calls.remove(1);
        finds_nothing(&check(&run(calls)));
    }
}

//! P2: no window admits more than its limit, and a refusal changes nothing. P4: without Redis, a replica admits
//! no more than its share.

use std::collections::BTreeMap;
use std::time::Duration;

use super::{Finding, name, shares};
use crate::load::OVERRIDDEN;
use crate::record::{Act, Asked, At, Run, ToldLimit};
use crate::schedule::{Kind, REPLICAS};

/// The clock of the machine and that of a request may be read so far apart.
const CLOCK_MS: i64 = 3;

/// How many requests of one counter may be on their way when Redis stalls: what it admits of them and what replicas admit
/// instead may be more than the limit together. Two in a hundred may too.
const IN_FLIGHT: i64 = 9;

/// One request at one counter.
pub struct Request<'a> {
    pub act: &'a Act,
    pub limit: i64,
    pub duration_ms: i64,
    pub cost: i64,
    pub came: Came<'a>,
}

pub enum Came<'a> {
    /// Counted, or refused, in Redis.
    Admitted(&'a ToldLimit),
    Refused(&'a ToldLimit),
    /// Decided without Redis, which may have counted it nevertheless.
    Degraded {
        told: Option<&'a ToldLimit>,
        admitted: bool,
    },
    /// Nobody knows.
    Unsure,
}

/// The admissions of one window, by when they were answered and when they were sent, each with all costs up to it.
#[derive(Default)]
struct Window {
    answered: Vec<(At, i64)>,
    /// Of requests that may have been counted.
    sent: Vec<(At, i64)>,
    admitted: i64,
    /// By Redis and without it.
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
    let mut finding = Finding::of("P2 windows");
    let mut counts = Counts::default();
    for (counter, requests) in by_counter(run) {
        check_counter(run, &counter, &requests, &mut counts, &mut finding);
        shares::check(run, &counter, &requests, &mut finding);
    }
    let Counts { windows, admitted, refused, degraded, fullest } = counts;
    finding.told.push(format!(
        "{windows} windows: {admitted} admissions and {refused} refusals by Redis, {degraded} answers without it; the \
        fullest window admitted {} of {}",
        fullest.0, fullest.1
    ));
    finding
}

fn by_counter(run: &Run) -> BTreeMap<String, Vec<Request<'_>>> {
    let mut counters: BTreeMap<String, Vec<Request>> = BTreeMap::new();
    for act in &run.acts {
        match &act.asked {
            // One that has overrides has another limit than is asked for.
            Asked::Limit { counter, .. } if counter.starts_with(OVERRIDDEN) => {}
            Asked::Limit { counter, limit, duration_ms, cost } => {
                let request = request(act, counter, *limit, *duration_ms, *cost);
                counters.entry(counter.clone()).or_default().push(request);
            }
            Asked::Verify { key, .. } => {
                for (name, limit, duration_ms) in &run.keys[*key].limits {
                    let counter = format!("{} of key {}", name, run.keys[*key].id);
                    let request = request(act, name, *limit, *duration_ms, 1);
                    counters.entry(counter).or_default().push(request);
                }
            }
            _ => {}
        }
    }
    counters
}

fn request<'a>(act: &'a Act, name: &str, limit: i64, duration_ms: i64, cost: i64) -> Request<'a> {
    let came = match &act.answer {
        Some(answer) if answer.status == 200 => {
            let told = answer.limits.iter().find(|told| told.name == name);
            match (told, answer.degraded) {
                (told, true) => Came::Degraded { told, admitted: answer.is_valid() },
                (Some(told), false) if answer.is_valid() => Came::Admitted(told),
                (Some(told), false) => Came::Refused(told),
                (None, false) => Came::Unsure,
            }
        }
        _ => Came::Unsure,
    };
    Request { act, limit, duration_ms, cost, came }
}

/// The number of the window that an answer tells of.
pub fn number(told: &ToldLimit) -> i64 {
    told.reset_ms / told.duration_ms - 1
}

fn check_counter(
    run: &Run,
    counter: &str,
    requests: &[Request],
    counts: &mut Counts,
    finding: &mut Finding,
) {
    let windows = windows(run, requests);
    let Some(Request { limit, duration_ms, .. }) = requests.first() else { return };
    for (number, window) in &windows {
        let lost = troubles(run, *number, *number, *duration_ms, Kind::loses_counters);
        let most = limit * (1 + i64::try_from(lost).unwrap_or(i64::MAX));
        counts.windows += 1;
        if lost == 0 && window.admitted * counts.fullest.1.max(1) >= counts.fullest.0 * limit {
            counts.fullest = (window.admitted, *limit);
        }
        finding.hold(window.admitted <= most, || {
            format!(
                "{counter}: window {number} admitted {} of {limit}, while Redis lost its data {lost} times",
                window.admitted
            )
        });
        check_granted(run, counter, (*number, window.granted), (*limit, *duration_ms), finding);
    }
    for request in requests {
        match request.came {
            Came::Admitted(told) => {
                counts.admitted += 1;
                check_told(run, counter, request, told, true, &windows, finding);
            }
            Came::Refused(told) => {
                counts.refused += 1;
                check_told(run, counter, request, told, false, &windows, finding);
            }
            Came::Degraded { .. } => counts.degraded += 1,
            Came::Unsure => {}
        }
    }
}

fn windows(run: &Run, requests: &[Request]) -> BTreeMap<i64, Window> {
    let mut windows: BTreeMap<i64, Window> = BTreeMap::new();
    for request in requests.iter().filter(|request| request.cost > 0) {
        let (act, cost) = (request.act, request.cost);
        match request.came {
            Came::Admitted(told) => {
                let window = windows.entry(number(told)).or_default();
                window.answered.push((act.received, cost));
                window.sent.push((act.sent, cost));
                window.admitted += cost;
                window.granted += cost;
                window.possible += cost;
            }
            Came::Degraded { .. } | Came::Unsure => {
                if let Came::Degraded { told: Some(told), admitted: true } = request.came {
                    windows.entry(number(told)).or_default().granted += cost;
                }
                let until = act.received + Duration::from_secs(2);
                let first = run.unix_ms(act.sent) / request.duration_ms;
                let last = run.unix_ms(until) / request.duration_ms;
                for number in first..=last {
                    let window = windows.entry(number).or_default();
                    window.sent.push((act.sent, cost));
                    window.possible += cost;
                }
            }
            Came::Refused(_) => {}
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

/// Where Redis replies, or stalls for moments only, what is admitted without it counts as well. How often that may be while
/// it replies is for the check of outages to say.
fn check_granted(
    run: &Run,
    counter: &str,
    (number, granted): (i64, i64),
    (limit, duration_ms): (i64, i64),
    finding: &mut Finding,
) {
    let any = |kind: &Kind| (0..REPLICAS).any(|replica| kind.troubles_redis(replica));
    let stalls = troubles(run, number, number, duration_ms, |kind| *kind == Kind::StallRedis);
    if troubles(run, number, number, duration_ms, any) > stalls {
        return;
    }
    let most = limit + IN_FLIGHT.max(limit / 50);
    finding.hold(granted <= most, || {
        format!("{counter}: window {number} admitted {granted} of {limit} with and without Redis, which stalled {stalls} times")
    });
}

/// The costs up to a moment.
fn until(list: &[(At, i64)], at: At) -> i64 {
    let place = list.partition_point(|(moment, _)| *moment <= at);
    place.checked_sub(1).map_or(0, |place| list[place].1)
}

/// How many faults of this sort stood between the beginning of one window and the end of another.
fn troubles(
    run: &Run,
    first: i64,
    last: i64,
    duration_ms: i64,
    sort: impl Fn(&Kind) -> bool,
) -> usize {
    let (from, to) = (first * duration_ms - CLOCK_MS, (last + 1) * duration_ms + CLOCK_MS);
    let stood = |done: &&crate::record::Done| {
        run.unix_ms(done.began) <= to && from <= run.unix_ms(done.ended + Duration::from_secs(1))
    };
    run.faults.iter().filter(|done| sort(&done.fault.kind)).filter(stood).count()
}

/// Holds one answer against all that was surely counted before it was sent, and all that may have been counted
/// before it was received.
fn check_told(
    run: &Run,
    counter: &str,
    request: &Request,
    told: &ToldLimit,
    is_taken: bool,
    windows: &BTreeMap<i64, Window>,
    finding: &mut Finding,
) {
    let Request { act, limit, duration_ms, cost, .. } = *request;
    let number = number(told);
    if troubles(run, number - 1, number, duration_ms, Kind::loses_counters) > 0 {
        return;
    }
    let none = Window::default();
    let this = windows.get(&number).unwrap_or(&none);
    let before = windows.get(&(number - 1)).unwrap_or(&none);
    let left = |at: At, wrong: i64| {
        ((number + 1) * duration_ms - run.unix_ms(at) + wrong).clamp(0, duration_ms)
    };
    let own = if is_taken { cost } else { 0 };
    let least = until(&this.answered, act.sent)
        + before.admitted * left(act.received, -CLOCK_MS) / duration_ms;
    if is_taken {
        finding.hold(least + cost <= limit && told.remaining <= limit - least - cost, || {
            format!(
                "{counter}: of {limit}, {least} had been taken when {cost} more were admitted and {} told to remain: {}",
                told.remaining,
                name(act)
            )
        });
    }
    let any = |kind: &Kind| (0..REPLICAS).any(|replica| kind.troubles_redis(replica));
    if troubles(run, number - 1, number, duration_ms, any) > 0 {
        return;
    }
    let most = until(&this.sent, act.received) - own
        + (before.possible * left(act.sent, CLOCK_MS) + duration_ms - 1) / duration_ms;
    match told.exceeded {
        true => finding.hold(most + cost > limit, || {
            format!(
                "{counter}: {cost} were refused when at most {most} of {limit} were taken: {}",
                name(act)
            )
        }),
        false => finding.hold(told.remaining >= (limit - most - own).min(limit).max(0), || {
            format!(
                "{counter}: {} were told to remain when at most {most} of {limit} were taken: {}",
                told.remaining,
                name(act)
            )
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::super::by_hand::{fault, finds, finds_nothing, limit, run};
    use super::*;

    #[test]
    fn a_window_that_is_filled_to_its_limit_is_right() {
        let acts = vec![
            limit(10, 6, "VALID", 4),
            limit(20, 5, "RATE_LIMITED", 0),
            limit(30, 4, "VALID", 0),
            // Half of the window before still counts.
            limit(1_500, 5, "VALID", 0),
        ];

        finds_nothing(&check(&run(acts)));
    }

    #[test]
    fn one_too_many_in_a_window_is_found() {
        let acts = vec![limit(10, 6, "VALID", 4), limit(10, 5, "VALID", 0)];

        finds(&check(&run(acts)), "admitted 11 of 10");
    }

    #[test]
    fn after_a_loss_a_window_may_begin_anew() {
        let acts = vec![limit(10, 6, "VALID", 4), limit(400, 5, "VALID", 5)];
        let faults = vec![fault(Kind::WipeRedis, 100, 300)];

        finds_nothing(&check(&Run { faults, ..run(acts) }));
    }

    #[test]
    fn one_too_many_beside_the_window_before_is_found() {
        let acts = vec![limit(10, 10, "VALID", 0), limit(1_400, 6, "VALID", 0)];

        finds(&check(&run(acts)), "5 had been taken when 6 more were admitted");
    }

    #[test]
    fn a_refusal_that_changed_something_is_found() {
        let refused = vec![limit(10, 11, "RATE_LIMITED", 0), limit(20, 1, "RATE_LIMITED", 0)];
        let told = vec![limit(10, 11, "RATE_LIMITED", 0), limit(20, 1, "VALID", 0)];

        finds(&check(&run(refused)), "1 were refused when at most 0 of 10 were taken");
        finds(&check(&run(told)), "0 were told to remain when at most 0 of 10");
    }

    #[test]
    fn more_than_the_limit_with_and_without_redis_is_found() {
        let mut acts = vec![limit(10, 10, "VALID", 0), limit(20, 9, "VALID", 0)];
        acts[1].answer.as_mut().expect("an answer").degraded = true;
        let stalled = |acts| Run { faults: vec![fault(Kind::StallRedis, 5, 15)], ..run(acts) };

        finds_nothing(&check(&stalled(acts.clone())));
        acts[1].asked = limit(20, 10, "VALID", 0).asked;
        finds(&check(&stalled(acts)), "admitted 20 of 10 with and without Redis");
    }

    #[test]
    fn more_than_the_share_without_redis_is_found() {
        let mut acts = vec![limit(10, 5, "VALID", 0), limit(20, 1, "VALID", 0)];
        for act in &mut acts {
            act.answer.as_mut().expect("an answer").degraded = true;
        }
        acts.push(Act { replica: 1, ..limit(30, 1, "VALID", 9) });

        finds(&check(&run(acts.clone())), "replica 0 admitted 6 of 10");
        acts.remove(1);
        finds_nothing(&check(&run(acts)));
    }
}

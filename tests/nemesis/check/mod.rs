//! Checks the guarantees against the recorded replies. Each check is a function of the record alone.

pub mod changes;
pub mod credits;
pub mod database;
pub mod locks;
pub mod management;
pub mod outage;
pub mod shares;
pub mod statuses;
pub mod windows;
pub mod work;

use std::time::Duration;

use crate::record::{Call, Run};

/// The result of one check.
#[derive(Debug, Default)]
pub struct Finding {
    pub guarantee: &'static str,
    pub notes: Vec<String>,
    pub violations: Vec<String>,
}

impl Finding {
    pub fn new(guarantee: &'static str) -> Self {
        Self { guarantee, ..Self::default() }
    }

    pub fn require(&mut self, is_kept: bool, otherwise: impl FnOnce() -> String) {
        if !is_kept {
            self.violations.push(otherwise());
        }
    }
}

/// The tolerance of time measurements on a machine where all processes run at the same time.
pub const SLACK: Duration = Duration::from_millis(250);

pub fn all(run: &Run) -> Vec<Finding> {
    vec![
        credits::check(run),
        windows::check(run),
        outage::check(run),
        database::check(run),
        locks::check(run),
        changes::check(run),
        management::check(run),
        statuses::check(run),
    ]
}

/// Describes a call as evidence.
pub fn describe(call: &Call) -> String {
    let at = call.sent.as_secs_f64();
    let took = call.took().as_secs_f64() * 1e3;
    let answer = match &call.answer {
        None => "no answer".to_owned(),
        Some(answer) => format!("{} {} {}", answer.status, answer.code, answer.request_id),
    };
    format!(
        "at {at:.3} s, replica {}, {:?}: {answer} after {took:.0} ms",
        call.replica, call.action
    )
}

/// Returns the value below which this part of all values lies.
pub fn percentile(values: &mut [Duration], part: f64) -> Duration {
    values.sort_unstable();
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_precision_loss,
        clippy::cast_sign_loss,
        reason = "a place in a list"
    )]
    let place = (values.len() as f64 * part) as usize;
    values.get(place.min(values.len().saturating_sub(1))).copied().unwrap_or_default()
}

/// Hand-made records with faults that the checks must find.
#[cfg(test)]
pub mod fixtures {
    use super::*;
    use crate::record::{Action, Answer, InjectedFault, KeyInfo, LimitStatus, LoadTime};
    use crate::schedule::{Fault, FaultKind};

    pub fn at(ms: u64) -> LoadTime {
        Duration::from_millis(ms)
    }

    pub fn key(credits: Option<i64>) -> KeyInfo {
        KeyInfo { id: "key_1".into(), key: "k".into(), credits, ..KeyInfo::default() }
    }

    pub fn reply(status: u16, code: &str) -> Answer {
        Answer { status, code: code.into(), request_id: "req_1".into(), ..Answer::default() }
    }

    /// Returns a call that was sent at this time and answered 5 ms later.
    pub fn call(sent_ms: u64, action: Action, answer: Option<Answer>) -> Call {
        Call { replica: 0, action, sent: at(sent_ms), received: at(sent_ms + 5), answer }
    }

    pub fn verify(sent_ms: u64, cost: i64, code: &str) -> Call {
        call(sent_ms, Action::Verify { key: 0, cost }, Some(reply(200, code)))
    }

    /// Returns a `ratelimit.limit` call with a limit of 10 per second; the clock starts at 0.
    pub fn limit(sent_ms: u64, cost: i64, code: &str, remaining: i64) -> Call {
        let counter = "n/i".to_owned();
        let action =
            Action::Limit { counter: counter.clone(), limit: 10, duration_ms: 1_000, cost };
        let limits = vec![LimitStatus {
            name: counter,
            limit: 10,
            duration_ms: 1_000,
            remaining,
            reset_ms: (i64::try_from(sent_ms).expect("a time") / 1_000 + 1) * 1_000,
            exceeded: code != "VALID",
        }];
        call(sent_ms, action, Some(Answer { limits, ..reply(200, code) }))
    }

    pub fn fault(kind: FaultKind, began_ms: u64, ended_ms: u64) -> InjectedFault {
        let fault = Fault { at: at(began_ms), duration: at(ended_ms - began_ms), kind };
        InjectedFault { fault, began: at(began_ms), ended: at(ended_ms) }
    }

    pub fn run(calls: Vec<Call>) -> Run {
        Run { calls, keys: vec![key(None)], ..Run::default() }
    }

    #[track_caller]
    pub fn finds(finding: &Finding, what: &str) {
        assert!(finding.violations.iter().any(|it| it.contains(what)), "{what}: {finding:?}");
    }

    #[track_caller]
    pub fn finds_nothing(finding: &Finding) {
        assert!(finding.violations.is_empty(), "{finding:?}");
    }
}

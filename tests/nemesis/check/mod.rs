//! The promises, held against what was answered. Each check is a function of the record alone.

pub mod changes;
pub mod credits;
pub mod database;
pub mod locks;
pub mod management;
pub mod outage;
pub mod shares;
pub mod statuses;
pub mod windows;

use std::time::Duration;

use crate::record::{Act, Run};

/// What a check looked at, and what it found.
#[derive(Debug, Default)]
pub struct Finding {
    pub promise: &'static str,
    pub told: Vec<String>,
    pub violations: Vec<String>,
}

impl Finding {
    pub fn of(promise: &'static str) -> Self {
        Self { promise, ..Self::default() }
    }

    pub fn hold(&mut self, is_kept: bool, otherwise: impl FnOnce() -> String) {
        if !is_kept {
            self.violations.push(otherwise());
        }
    }
}

/// What a moment may be measured too late by, on a machine where all this runs beside each other.
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

/// How an act is named as evidence.
pub fn name(act: &Act) -> String {
    let at = act.sent.as_secs_f64();
    let took = act.took().as_secs_f64() * 1e3;
    let answer = match &act.answer {
        None => "no answer".to_owned(),
        Some(told) => format!("{} {} {}", told.status, told.code, told.request_id),
    };
    format!("at {at:.3} s, replica {}, {:?}: {answer} after {took:.0} ms", act.replica, act.asked)
}

/// The value below which this part of all values are.
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

/// Hand-made records, of which the checks must find what is wrong.
#[cfg(test)]
pub mod by_hand {
    use super::*;
    use crate::record::{Answer, Asked, At, Done, KeyFacts, ToldLimit};
    use crate::schedule::{Fault, Kind};

    pub fn at(ms: u64) -> At {
        Duration::from_millis(ms)
    }

    pub fn key(credits: Option<i64>) -> KeyFacts {
        KeyFacts { id: "key_1".into(), key: "k".into(), credits, ..KeyFacts::default() }
    }

    pub fn told(status: u16, code: &str) -> Answer {
        Answer { status, code: code.into(), request_id: "req_1".into(), ..Answer::default() }
    }

    /// Sent at a moment, answered 5 ms later.
    pub fn act(sent_ms: u64, asked: Asked, answer: Option<Answer>) -> Act {
        Act { replica: 0, asked, sent: at(sent_ms), received: at(sent_ms + 5), answer }
    }

    pub fn verify(sent_ms: u64, cost: i64, code: &str) -> Act {
        act(sent_ms, Asked::Verify { key: 0, cost }, Some(told(200, code)))
    }

    /// `ratelimit.limit` of 10 for each second; the clock begins at 0.
    pub fn limit(sent_ms: u64, cost: i64, code: &str, remaining: i64) -> Act {
        let counter = "n/i".to_owned();
        let asked = Asked::Limit { counter: counter.clone(), limit: 10, duration_ms: 1_000, cost };
        let limits = vec![ToldLimit {
            name: counter,
            limit: 10,
            duration_ms: 1_000,
            remaining,
            reset_ms: (i64::try_from(sent_ms).expect("a time") / 1_000 + 1) * 1_000,
            exceeded: code != "VALID",
        }];
        act(sent_ms, asked, Some(Answer { limits, ..told(200, code) }))
    }

    pub fn fault(kind: Kind, began_ms: u64, ended_ms: u64) -> Done {
        let fault = Fault { at: at(began_ms), lasts: at(ended_ms - began_ms), kind };
        Done { fault, began: at(began_ms), ended: at(ended_ms) }
    }

    pub fn run(acts: Vec<Act>) -> Run {
        Run { acts, keys: vec![key(None)], ..Run::default() }
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

//! What is drawn: outcomes by time, and how long answers took.

use std::collections::BTreeMap;

use foundation::clock::Timestamp;
use foundation::error::Result;
use foundation::model::EventKind;

use super::super::charts::{Bars, Series};
use super::super::format::{grouped, latency};
use super::super::page_request::WorkspaceRequest;
use super::Range;
use crate::domain::analytics::rollup_query::Group;
use crate::domain::analytics::traffic::{self, Traffic, TrafficFilter};

/// An outcome as it is drawn.
pub struct Outcome {
    pub kind: EventKind,
    /// As events have it.
    pub value: &'static str,
    name: &'static str,
    /// The class with its colour.
    class: &'static str,
}

const fn outcome(
    kind: EventKind,
    value: &'static str,
    name: &'static str,
    class: &'static str,
) -> Outcome {
    Outcome { kind, value, name, class }
}

/// From the bottom of a bar up.
pub const OUTCOMES: [Outcome; 9] = [
    outcome(EventKind::Verifications, "VALID", "valid", "c-good"),
    outcome(EventKind::Verifications, "RATE_LIMITED", "rate limited", "c-limited"),
    outcome(EventKind::Verifications, "USAGE_EXCEEDED", "no credits left", "c-spent"),
    outcome(
        EventKind::Verifications,
        "INSUFFICIENT_PERMISSIONS",
        "permission missing",
        "c-missing",
    ),
    outcome(EventKind::Verifications, "FORBIDDEN", "forbidden", "c-forbidden"),
    outcome(EventKind::Verifications, "DISABLED", "disabled", "c-off"),
    outcome(EventKind::Verifications, "EXPIRED", "expired", "c-over"),
    outcome(EventKind::Ratelimits, "true", "passed", "c-good"),
    outcome(EventKind::Ratelimits, "false", "refused", "c-limited"),
];

/// An outcome as people call it.
pub fn outcome_name(value: &str) -> &'static str {
    OUTCOMES.iter().find(|outcome| outcome.value == value).map_or("unknown", |found| found.name)
}

/// What came of requests, by time.
pub struct Told {
    slices: Vec<(Timestamp, Traffic)>,
    /// Whether it is known how long answers took.
    has_latency: bool,
}

impl Told {
    /// From the totals of all APIs or namespaces, or of one.
    pub async fn of_totals(
        asked: &WorkspaceRequest,
        kind: EventKind,
        only: Option<&str>,
        range: &Range,
    ) -> Result<Self> {
        let wanted =
            TrafficFilter { kind, only, unit: range.unit, from: range.from, until: range.until };
        let slices = traffic::by_time(&asked.visit.app, &asked.caller, &wanted).await?;
        Ok(Self { slices, has_latency: true })
    }

    /// From the sums of some keys.
    pub fn of_groups(groups: Vec<Group>) -> Self {
        let mut slices: BTreeMap<Timestamp, Traffic> = BTreeMap::new();
        for group in groups {
            let counts = group.counts;
            let outcomes = [
                ("VALID", counts.valid),
                ("RATE_LIMITED", counts.rate_limited),
                ("USAGE_EXCEEDED", counts.usage_exceeded),
                ("INSUFFICIENT_PERMISSIONS", counts.insufficient_permissions),
                ("FORBIDDEN", counts.forbidden),
                ("DISABLED", counts.disabled),
                ("EXPIRED", counts.expired),
            ];
            let slice = slices.entry(group.time).or_default();
            for (outcome, count) in outcomes {
                *slice.outcomes.entry(outcome.to_owned()).or_default() += count;
            }
        }
        Self { slices: slices.into_iter().collect(), has_latency: false }
    }

    /// All of it.
    fn sum(&self) -> Traffic {
        let mut sum = Traffic::default();
        for (_, slice) in &self.slices {
            sum.join(slice);
        }
        sum
    }

    /// The numbers above the charts.
    pub fn figures(&self, kind: EventKind) -> Vec<(&'static str, String)> {
        let sum = self.sum();
        let good = if kind == EventKind::Verifications { "VALID" } else { "true" };
        let all = sum.count();
        let refused = all - sum.outcomes.get(good).copied().unwrap_or(0);
        let what = match kind {
            EventKind::Verifications => "Verifications",
            EventKind::Ratelimits => "Limit checks",
        };
        let mut figures = vec![(what, grouped(all)), ("Refused", share(refused, all))];
        if self.has_latency {
            let told = |us: Option<i64>| us.map_or_else(|| "–".into(), latency);
            let beyond = || if all == 0 { "–".into() } else { "over 100 ms".to_owned() };
            let within =
                |us: Option<i64>| us.map_or_else(beyond, |us| format!("≤ {}", latency(us)));
            figures.push(("Mean latency", told(sum.latencies.mean_us())));
            figures.push(("99 of 100 within", within(sum.latencies.percentile_us(99))));
        }
        figures
    }
}

/// A share in percent; one that is small is never told as none.
fn share(part: i64, all: i64) -> String {
    if all == 0 {
        return "–".into();
    }
    let permille = i128::from(part) * 1_000 / i128::from(all);
    match permille {
        0 if part > 0 => "< 0.1 %".into(),
        _ => format!("{}.{} %", permille / 10, permille % 10),
    }
}

/// The chart of outcomes, all or only one of them, and that of latencies where they are known.
pub fn charts(told: &Told, range: &Range, kind: EventKind, only: &str) -> (Bars, Option<Bars>) {
    let labels: Vec<_> = told.slices.iter().map(|(at, _)| range.label(*at)).collect();
    let shown =
        |outcome: &&Outcome| outcome.kind == kind && (only.is_empty() || outcome.value == only);
    let values = |outcome: &Outcome| -> Vec<i64> {
        let count = |traffic: &Traffic| traffic.outcomes.get(outcome.value).copied().unwrap_or(0);
        told.slices.iter().map(|(_, traffic)| count(traffic)).collect()
    };
    let series: Vec<_> = OUTCOMES
        .iter()
        .filter(shown)
        .map(|outcome| Series {
            name: outcome.name.to_owned(),
            class: outcome.class,
            values: values(outcome),
        })
        // What never happened is left out, but for the one that is looked for and what is hoped for.
        .filter(|series| {
            !only.is_empty()
                || series.class == "c-good"
                || series.values.iter().any(|count| *count > 0)
        })
        .collect();
    let what = match kind {
        EventKind::Verifications => "Verifications",
        EventKind::Ratelimits => "Limit checks",
    };
    let title = format!("{what} per {}, by outcome (UTC)", range.unit.as_str());
    let requests = Bars::new(title, "Time", &labels, &series, "requests", grouped);
    let latency = told.has_latency.then(|| {
        let mean = |traffic: &Traffic| traffic.latencies.mean_us().unwrap_or(0);
        let values = told.slices.iter().map(|(_, traffic)| mean(traffic)).collect();
        let series = [Series { name: "mean".into(), class: "c-plain", values }];
        let title = format!("Mean latency per {} (UTC)", range.unit.as_str());
        let mut chart = Bars::new(title, "Time", &labels, &series, "", latency);
        // Means do not add up.
        for part in &mut chart.parts {
            part.sum = String::new();
        }
        chart
    });
    (requests, latency)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_is_told_to_a_tenth_of_a_percent() {
        let told = [share(0, 0), share(0, 9), share(1, 3), share(9, 9), share(1, 10_000)];

        assert_eq!(told, ["–", "0.0 %", "33.3 %", "100.0 %", "< 0.1 %"]);
    }
}

//! The data of traffic charts: outcomes and latency over time.

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

/// The label and color of an outcome in charts.
pub struct Outcome {
    pub kind: EventKind,
    /// The outcome's value in events.
    pub value: &'static str,
    name: &'static str,
    /// The CSS class that sets the color.
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

/// The outcomes, from the bottom of a bar up.
pub const OUTCOMES: [Outcome; 9] = [
    outcome(EventKind::Verifications, "VALID", "Valid", "c-good"),
    outcome(EventKind::Verifications, "RATE_LIMITED", "Rate limited", "c-limited"),
    outcome(EventKind::Verifications, "USAGE_EXCEEDED", "Credits exhausted", "c-spent"),
    outcome(
        EventKind::Verifications,
        "INSUFFICIENT_PERMISSIONS",
        "Insufficient permissions",
        "c-missing",
    ),
    outcome(EventKind::Verifications, "FORBIDDEN", "Forbidden", "c-forbidden"),
    outcome(EventKind::Verifications, "DISABLED", "Disabled", "c-off"),
    outcome(EventKind::Verifications, "EXPIRED", "Expired", "c-over"),
    outcome(EventKind::Ratelimits, "true", "Allowed", "c-good"),
    outcome(EventKind::Ratelimits, "false", "Rejected", "c-limited"),
];

/// Returns the label of an outcome.
pub fn outcome_name(value: &str) -> &'static str {
    OUTCOMES.iter().find(|outcome| outcome.value == value).map_or("Unknown", |found| found.name)
}

/// Outcomes and latency over time.
pub struct Told {
    slices: Vec<(Timestamp, Traffic)>,
    /// Whether latency is known. Rollups per key do not contain it.
    has_latency: bool,
}

impl Told {
    /// Loads the totals of one or all APIs or namespaces.
    pub async fn of_totals(
        request: &WorkspaceRequest,
        kind: EventKind,
        only: Option<&str>,
        range: &Range,
    ) -> Result<Self> {
        let filter =
            TrafficFilter { kind, only, unit: range.unit, from: range.from, until: range.until };
        let slices = traffic::by_time(&request.visit.app, &request.caller, &filter).await?;
        Ok(Self { slices, has_latency: true })
    }

    /// Converts rollups per key.
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

    /// Returns the sum over the whole range.
    fn sum(&self) -> Traffic {
        let mut sum = Traffic::default();
        for (_, slice) in &self.slices {
            sum.join(slice);
        }
        sum
    }

    /// Returns the key figures above the charts.
    pub fn figures(&self, kind: EventKind) -> Vec<(&'static str, String)> {
        let sum = self.sum();
        let good = if kind == EventKind::Verifications { "VALID" } else { "true" };
        let all = sum.count();
        let refused = all - sum.outcomes.get(good).copied().unwrap_or(0);
        let what = match kind {
            EventKind::Verifications => "Verifications",
            EventKind::Ratelimits => "Limit checks",
        };
        let mut figures = vec![(what, grouped(all)), ("Rejected", share(refused, all))];
        if self.has_latency {
            let mean = |us: Option<i64>| us.map_or_else(|| "–".into(), latency);
            let beyond = || if all == 0 { "–".into() } else { "over 100 ms".to_owned() };
            let within =
                |us: Option<i64>| us.map_or_else(beyond, |us| format!("≤ {}", latency(us)));
            figures.push(("Mean latency", mean(sum.latencies.mean_us())));
            figures.push(("p99 latency", within(sum.latencies.percentile_us(99))));
        }
        figures
    }
}

/// Formats a share in percent. A small positive share is never shown as zero.
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

/// Creates the chart of outcomes (all, or only one) and the chart of latency, if latency is known.
pub fn charts(traffic: &Told, range: &Range, kind: EventKind, only: &str) -> (Bars, Option<Bars>) {
    let labels: Vec<_> = traffic.slices.iter().map(|(at, _)| range.label(*at)).collect();
    let shown =
        |outcome: &&Outcome| outcome.kind == kind && (only.is_empty() || outcome.value == only);
    let values = |outcome: &Outcome| -> Vec<i64> {
        let count = |slice: &Traffic| slice.outcomes.get(outcome.value).copied().unwrap_or(0);
        traffic.slices.iter().map(|(_, slice)| count(slice)).collect()
    };
    let series: Vec<_> = OUTCOMES
        .iter()
        .filter(shown)
        .map(|outcome| Series {
            name: outcome.name.to_owned(),
            class: outcome.class,
            values: values(outcome),
        })
        // Omits outcomes without events, except the selected one and the good one.
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
    let latency = traffic.has_latency.then(|| {
        let mean = |slice: &Traffic| slice.latencies.mean_us().unwrap_or(0);
        let values = traffic.slices.iter().map(|(_, slice)| mean(slice)).collect();
        let series = [Series { name: "Mean".into(), class: "c-plain", values }];
        let title = format!("Mean latency per {} (UTC)", range.unit.as_str());
        let mut chart = Bars::new(title, "Time", &labels, &series, "", latency);
        // The sum of means is meaningless, so the legend shows none.
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
    fn share_has_one_decimal() {
        let shares = [share(0, 0), share(0, 9), share(1, 3), share(9, 9), share(1, 10_000)];

        assert_eq!(shares, ["–", "0.0 %", "33.3 %", "100.0 %", "< 0.1 %"]);
    }
}

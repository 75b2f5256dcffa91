//! The data of traffic charts: outcomes and latency over time.

use std::collections::BTreeMap;

use domain::analytics_access::{self, RollupGroup, Traffic, TrafficFilter};
use domain::keys::VerificationCode;
use foundation::clock::Timestamp;
use foundation::error::Result;
use foundation::model::EventKind;

use super::super::charts::{BarChart, ChartSeries};
use super::super::format::{format_grouped, format_latency};
use super::super::page_request::WorkspaceRequest;
use super::TimeRange;

/// The label and color of an outcome in charts.
pub struct OutcomeStyle {
    pub kind: EventKind,
    /// The outcome's value in events.
    pub value: &'static str,
    pub label: &'static str,
    /// The CSS class that sets the color.
    class: &'static str,
}

const fn verification_style(code: VerificationCode, class: &'static str) -> OutcomeStyle {
    let (value, label) = (code.as_str(), code.label());
    OutcomeStyle { kind: EventKind::Verifications, value, label, class }
}

const fn check_style(
    value: &'static str,
    label: &'static str,
    class: &'static str,
) -> OutcomeStyle {
    OutcomeStyle { kind: EventKind::Ratelimits, value, label, class }
}

/// The outcomes, from the bottom of a bar up.
pub const OUTCOMES: [OutcomeStyle; 9] = [
    verification_style(VerificationCode::Valid, "c-good"),
    verification_style(VerificationCode::RateLimited, "c-limited"),
    verification_style(VerificationCode::UsageExceeded, "c-spent"),
    verification_style(VerificationCode::InsufficientPermissions, "c-missing"),
    verification_style(VerificationCode::Forbidden, "c-forbidden"),
    verification_style(VerificationCode::Disabled, "c-off"),
    verification_style(VerificationCode::Expired, "c-over"),
    check_style("true", "Allowed", "c-good"),
    check_style("false", "Rejected", "c-limited"),
];

/// Outcomes and latency over time.
pub struct TrafficSeries {
    slices: Vec<(Timestamp, Traffic)>,
    /// Whether latency is known. Rollups per key do not contain it.
    has_latency: bool,
}

impl TrafficSeries {
    /// Loads the totals of one or all APIs or namespaces.
    pub async fn load_totals(
        request: &WorkspaceRequest,
        kind: EventKind,
        only: Option<&str>,
        range: &TimeRange,
    ) -> Result<Self> {
        let filter = TrafficFilter {
            kind,
            resource_id: only,
            unit: range.unit,
            from_time: range.from,
            until_time: range.until,
        };
        let slices = analytics_access::list_traffic(
            &request.page_request.app.analytics,
            &request.caller,
            &filter,
        )
        .await?;
        Ok(Self { slices, has_latency: true })
    }

    /// Converts rollups per key.
    pub fn from_groups(groups: Vec<RollupGroup>) -> Self {
        let mut slices: BTreeMap<Timestamp, Traffic> = BTreeMap::new();
        for group in groups {
            let counts = group.counts;
            let outcomes = [
                (VerificationCode::Valid, counts.valid),
                (VerificationCode::RateLimited, counts.rate_limited),
                (VerificationCode::UsageExceeded, counts.usage_exceeded),
                (VerificationCode::InsufficientPermissions, counts.insufficient_permissions),
                (VerificationCode::Forbidden, counts.forbidden),
                (VerificationCode::Disabled, counts.disabled),
                (VerificationCode::Expired, counts.expired),
            ];
            let slice = slices.entry(group.time).or_default();
            for (code, count) in outcomes {
                *slice.outcomes.entry(code.as_str().to_owned()).or_default() += count;
            }
        }
        Self { slices: slices.into_iter().collect(), has_latency: false }
    }

    /// Returns the sum over the whole range.
    fn total(&self) -> Traffic {
        let mut sum = Traffic::default();
        for (_, slice) in &self.slices {
            sum.merge(slice);
        }
        sum
    }

    /// Returns the key figures above the charts.
    pub fn key_figures(&self, kind: EventKind) -> Vec<(&'static str, String)> {
        let sum = self.total();
        let all = sum.total_count();
        let (what, good) = match kind {
            EventKind::Verifications => ("Verifications", VerificationCode::Valid.as_str()),
            EventKind::Ratelimits => ("Limit checks", "true"),
        };
        let refused = all - sum.outcomes.get(good).copied().unwrap_or(0);
        let mut figures =
            vec![(what, format_grouped(all)), ("Rejected", format_share(refused, all))];
        if self.has_latency {
            let mean = |us: Option<i64>| us.map_or_else(|| "–".into(), format_latency);
            let beyond = || if all == 0 { "–".into() } else { "over 100 ms".to_owned() };
            let within =
                |us: Option<i64>| us.map_or_else(beyond, |us| format!("≤ {}", format_latency(us)));
            figures.push(("Mean latency", mean(sum.latencies.mean_us())));
            figures.push(("p99 latency", within(sum.latencies.percentile_us(99))));
        }
        figures
    }
}

/// Formats a share in percent. A small positive share is never shown as zero.
fn format_share(part: i64, all: i64) -> String {
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
pub fn build_charts(
    traffic: &TrafficSeries,
    range: &TimeRange,
    kind: EventKind,
    only: &str,
) -> (BarChart, Option<BarChart>) {
    let labels: Vec<_> = traffic.slices.iter().map(|(at, _)| range.format_label(*at)).collect();
    let shown = |outcome: &&OutcomeStyle| {
        outcome.kind == kind && (only.is_empty() || outcome.value == only)
    };
    let values = |outcome: &OutcomeStyle| -> Vec<i64> {
        let count = |slice: &Traffic| slice.outcomes.get(outcome.value).copied().unwrap_or(0);
        traffic.slices.iter().map(|(_, slice)| count(slice)).collect()
    };
    let series: Vec<_> = OUTCOMES
        .iter()
        .filter(shown)
        .map(|outcome| ChartSeries {
            name: outcome.label.to_owned(),
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
    let requests = BarChart::new(title, "Time", &labels, &series, "requests", format_grouped);
    let latency = traffic.has_latency.then(|| {
        let mean = |slice: &Traffic| slice.latencies.mean_us().unwrap_or(0);
        let values = traffic.slices.iter().map(|(_, slice)| mean(slice)).collect();
        let series = [ChartSeries { name: "Mean".into(), class: "c-plain", values }];
        let title = format!("Mean latency per {} (UTC)", range.unit.as_str());
        let mut chart = BarChart::new(title, "Time", &labels, &series, "", format_latency);
        // The sum of means is meaningless, so the legend shows none.
        for part in &mut chart.legend {
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
    fn format_share_shows_one_decimal() {
        let shares = [
            format_share(0, 0),
            format_share(0, 9),
            format_share(1, 3),
            format_share(9, 9),
            format_share(1, 10_000),
        ];

        assert_eq!(shares, ["–", "0.0 %", "33.3 %", "100.0 %", "< 0.1 %"]);
    }
}

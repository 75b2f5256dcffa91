//! The data of traffic charts: outcomes and latency over time.

use std::collections::BTreeMap;

use domain::analytics_access::Traffic;
use domain::keys::VerificationCode;
use foundation::clock::Timestamp;
use foundation::error::Result;
use foundation::model::EventKind;

use super::super::charts::{BarChart, ChartSeries};
use super::super::format::{format_grouped, format_latency};
use super::super::page_request::WorkspaceRequest;
use super::TimeRange;
use super::selection::Selection;

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

impl OutcomeStyle {
    /// Returns the number of requests with this outcome.
    pub fn count(&self, traffic: &Traffic) -> i64 {
        traffic.outcomes.get(self.value).copied().unwrap_or(0)
    }

    /// Returns the name of a column with the number of these requests.
    pub fn column_name(&self) -> String {
        match self.kind {
            EventKind::Verifications => self.value.to_ascii_lowercase(),
            EventKind::Ratelimits => self.label.to_ascii_lowercase(),
        }
    }

    /// Returns whether requests with this outcome are events. Verifications that found no key are only counted.
    pub fn has_events(&self) -> bool {
        self.value != VerificationCode::NotFound.as_str()
    }

    /// Returns whether the outcome is of a kind of requests, and selected: an empty value selects all.
    pub fn is_selected(&self, kind: EventKind, only: &str) -> bool {
        self.kind == kind && (only.is_empty() || self.value == only)
    }
}

/// The outcomes, from the bottom of a bar up.
pub const OUTCOMES: [OutcomeStyle; 10] = [
    verification_style(VerificationCode::Valid, "c-good"),
    verification_style(VerificationCode::RateLimited, "c-limited"),
    verification_style(VerificationCode::UsageExceeded, "c-spent"),
    verification_style(VerificationCode::InsufficientPermissions, "c-missing"),
    verification_style(VerificationCode::Forbidden, "c-forbidden"),
    verification_style(VerificationCode::Disabled, "c-off"),
    verification_style(VerificationCode::Expired, "c-over"),
    verification_style(VerificationCode::NotFound, "c-unknown"),
    check_style("true", "Allowed", "c-good"),
    check_style("false", "Rejected", "c-limited"),
];

/// A percentile of latency that pages show.
pub struct Percentile {
    percent: i64,
    pub name: &'static str,
    pub label: &'static str,
    /// The CSS class that sets the color.
    class: &'static str,
}

impl Percentile {
    /// Returns the percentile of requests in microseconds; `None` without requests.
    pub fn of(&self, traffic: &Traffic) -> Option<i64> {
        traffic.latencies.percentile_us(self.percent)
    }
}

pub const PERCENTILES: [Percentile; 3] = [
    Percentile { percent: 50, name: "p50", label: "p50 latency", class: "c-p50" },
    Percentile { percent: 95, name: "p95", label: "p95 latency", class: "c-p95" },
    Percentile { percent: 99, name: "p99", label: "p99 latency", class: "c-p99" },
];

/// Outcomes and latency over time.
pub struct TrafficSeries {
    /// Every unit of time of a range.
    slices: Vec<(Timestamp, Traffic)>,
}

impl TrafficSeries {
    /// Adds up the traffic of a range by its unit, including units without requests.
    pub fn new(range: &TimeRange, traffic: &[(Timestamp, Traffic)]) -> Self {
        let first = range.unit.start_of(range.period.from);
        let units = std::iter::successors(Some(first), |at| Some(range.unit.start_of_next(*at)));
        let units = units.take_while(|at| *at < range.period.until);
        let mut slices: BTreeMap<_, _> = units.map(|at| (at, Traffic::default())).collect();
        for (at, added) in traffic {
            slices.entry(range.unit.start_of(*at)).or_default().merge(added);
        }
        Self { slices: slices.into_iter().collect() }
    }

    /// Loads the series of a selection.
    pub async fn load(
        request: &WorkspaceRequest,
        selection: &Selection,
        range: &TimeRange,
    ) -> Result<Self> {
        let unit = range.rollup_unit();
        let traffic = selection.load_traffic(request, range.period, unit).await?;
        Ok(Self::new(range, &traffic))
    }

    pub fn slices(&self) -> &[(Timestamp, Traffic)] {
        &self.slices
    }

    /// Returns the sum over the whole range.
    pub fn total(&self) -> Traffic {
        sum_traffic(&self.slices)
    }
}

/// Adds up traffic over time.
pub fn sum_traffic(slices: &[(Timestamp, Traffic)]) -> Traffic {
    let mut sum = Traffic::default();
    for (_, slice) in slices {
        sum.merge(slice);
    }
    sum
}

/// Creates the chart of outcomes (all, or only one) and the chart of latency.
pub fn build_charts(
    traffic: &TrafficSeries,
    range: &TimeRange,
    kind: EventKind,
    only: &str,
) -> (BarChart, BarChart) {
    let starts: Vec<_> = traffic.slices.iter().map(|(at, _)| *at).collect();
    let labels: Vec<_> = starts.iter().map(|at| range.format_label(*at)).collect();
    let values = |outcome: &OutcomeStyle| -> Vec<i64> {
        traffic.slices.iter().map(|(_, slice)| outcome.count(slice)).collect()
    };
    let series: Vec<_> = OUTCOMES
        .iter()
        .filter(|outcome| outcome.is_selected(kind, only))
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
    let requests = BarChart::new(title, "Time", &labels, &series, "requests", format_grouped)
        .with_times(range.unit, &starts);
    let percentiles = PERCENTILES.map(|percentile| {
        let slices = traffic.slices.iter();
        let values = slices.map(|(_, slice)| percentile.of(slice).unwrap_or(0)).collect();
        ChartSeries { name: percentile.name.to_owned(), class: percentile.class, values }
    });
    let title = format!("Latency per {}, by percentile (UTC)", range.unit.as_str());
    let latency = BarChart::nested(title, "Time", &labels, &percentiles, format_latency)
        .with_times(range.unit, &starts);
    (requests, latency)
}

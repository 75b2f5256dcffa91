//! Aggregates all requests of a workspace, an API or a namespace, for charts.

use std::collections::BTreeMap;

use foundation::clock::{DAY_MS, Timestamp};
use foundation::error::Result;
use foundation::id::WorkspaceId;
use foundation::model::{EventKind, RollupUnit};
use store::events::{LatencyHistogram, NO_API, TotalRow, TotalsFilter};

use crate::Analytics;

/// Selects requests.
#[derive(Debug, Clone, Copy)]
pub struct TrafficFilter<'a> {
    pub kind: EventKind,
    /// Includes only this API or this namespace.
    pub resource_id: Option<&'a str>,
    pub unit: RollupUnit,
    /// The start, rounded down to the start of its unit.
    pub from_time: Timestamp,
    pub until_time: Timestamp,
}

impl<'a> TrafficFilter<'a> {
    fn to_totals(self, workspace: &'a WorkspaceId, is_by_id: bool) -> TotalsFilter<'a> {
        TotalsFilter {
            workspace,
            kind: self.kind,
            resource_id: self.resource_id,
            unit: self.unit,
            from_time: self.unit.start_of(self.from_time),
            until_time: self.until_time,
            is_by_id,
        }
    }
}

/// The number and the latencies of requests, and what they spent.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Traffic {
    /// The number of requests by outcome. For limit checks, `true` and `false` say whether they passed.
    pub outcomes: BTreeMap<String, i64>,
    /// The credits that verifications spent. 0 for limit checks.
    pub spent_credits: i64,
    pub latencies: LatencyStats,
}

impl Traffic {
    pub fn total_count(&self) -> i64 {
        self.outcomes.values().sum()
    }

    pub fn merge(&mut self, other: &Self) {
        for (outcome, count) in &other.outcomes {
            *self.outcomes.entry(outcome.clone()).or_default() += count;
        }
        self.spent_credits = self.spent_credits.saturating_add(other.spent_credits);
        self.latencies.merge(&other.latencies);
    }

    fn add_row(&mut self, row: TotalRow) {
        self.latencies.count += row.count;
        self.latencies.sum_us = self.latencies.sum_us.saturating_add(row.latency_us);
        self.spent_credits = self.spent_credits.saturating_add(row.spent_credits);
        *self.outcomes.entry(row.outcome).or_default() += row.count;
    }
}

/// The latencies of requests.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LatencyStats {
    count: i64,
    sum_us: i64,
    histogram: LatencyHistogram,
}

impl LatencyStats {
    /// The latencies of a number of requests: their sum in microseconds, and how they are spread.
    pub fn new(count: i64, sum_us: i64, histogram: LatencyHistogram) -> Self {
        Self { count, sum_us, histogram }
    }

    fn merge(&mut self, other: &Self) {
        self.count += other.count;
        self.sum_us = self.sum_us.saturating_add(other.sum_us);
        self.histogram.merge(&other.histogram);
    }

    /// Returns the mean in microseconds, or `None` if there are no requests.
    pub fn mean_us(&self) -> Option<i64> {
        self.sum_us.checked_div(self.count)
    }

    /// Returns a percentile in microseconds, within 5 % of the true one. Returns `None` if there are no requests.
    pub fn percentile_us(&self, percent: i64) -> Option<i64> {
        self.histogram.percentile_us(percent)
    }
}

/// Returns the traffic by unit of time, including units without requests.
pub async fn list_by_time(
    analytics: &Analytics,
    workspace: &WorkspaceId,
    filter: &TrafficFilter<'_>,
) -> Result<Vec<(Timestamp, Traffic)>> {
    let mut found: BTreeMap<Timestamp, Traffic> = BTreeMap::new();
    let begin = filter.unit.start_of(filter.from_time);
    let slices = std::iter::successors(Some(begin), |at| Some(filter.unit.start_of_next(*at)));
    for at in slices.take_while(|at| *at < filter.until_time) {
        found.insert(at, Traffic::default());
    }
    for row in load_rows(analytics, workspace, filter, false).await? {
        found.entry(row.time).or_default().add_row(row);
    }
    for (time, histogram) in load_latencies(analytics, workspace, filter).await? {
        found.entry(time).or_default().latencies.histogram.merge(&histogram);
    }
    Ok(found.into_iter().collect())
}

/// Returns the traffic by id of the API or namespace, the one with the most requests first, without percentiles.
/// Verifications that found no key belong to no API.
pub async fn list_by_id(
    analytics: &Analytics,
    workspace: &WorkspaceId,
    filter: &TrafficFilter<'_>,
) -> Result<Vec<(String, Traffic)>> {
    let mut found: BTreeMap<String, Traffic> = BTreeMap::new();
    for row in load_rows(analytics, workspace, filter, true).await? {
        if row.id == NO_API {
            continue;
        }
        found.entry(row.id.clone()).or_default().add_row(row);
    }
    let mut found: Vec<_> = found.into_iter().collect();
    found.sort_by_key(|(_, traffic)| std::cmp::Reverse(traffic.total_count()));
    Ok(found)
}

/// The times for which the requests of a workspace can be counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TrafficCoverage {
    /// The start of the first unit whose rollups are retained. Earlier ones may be deleted.
    pub retained_since: Timestamp,
    /// The start of the first unit, of an hour or longer, that has requests. `None`: no unit has any.
    pub first_at: Option<Timestamp>,
}

/// Returns the times for which requests can be counted by a unit.
pub async fn find_coverage(
    analytics: &Analytics,
    workspace: &WorkspaceId,
    kind: EventKind,
    unit: RollupUnit,
) -> Result<TrafficCoverage> {
    let retained_since = first_retained(analytics, kind, unit);
    let month = RollupUnit::Month;
    let filter = TotalsFilter {
        workspace,
        kind,
        resource_id: None,
        unit: month,
        from_time: Timestamp(0),
        until_time: month.start_of_next(analytics.clock.now()),
        is_by_id: false,
    };
    let mut reader = analytics.event_store.read().await?;
    let Some(first_month) = reader.find_first_total(&filter).await? else {
        return Ok(TrafficCoverage { retained_since, first_at: None });
    };
    // The months are few. The first of the many hours is then found within one month.
    let within_month = TotalsFilter {
        unit: unit.max(RollupUnit::Hour),
        from_time: first_month,
        until_time: month.start_of_next(first_month),
        ..filter
    };
    let first = reader.find_first_total(&within_month).await?.unwrap_or(first_month);
    Ok(TrafficCoverage { retained_since, first_at: Some(first) })
}

/// Returns the start of the first unit whose rollups are retained.
pub fn first_retained(analytics: &Analytics, kind: EventKind, unit: RollupUnit) -> Timestamp {
    let retention = analytics.stored_retention(kind);
    let days = match (analytics.event_store.clickhouse(), unit) {
        (None, _) | (Some(_), RollupUnit::Minute) => retention.rollup_days(unit),
        // ClickHouse has no days and months, which are computed from the hours.
        (Some(_), RollupUnit::Hour | RollupUnit::Day | RollupUnit::Month) => {
            retention.hour_days.max(retention.day_days).max(retention.month_days)
        }
    };
    let deleted_before = analytics.clock.now().plus_ms(-i64::from(days) * DAY_MS);
    unit.start_of_next(deleted_before.plus_ms(-1))
}

async fn load_rows(
    analytics: &Analytics,
    workspace: &WorkspaceId,
    filter: &TrafficFilter<'_>,
    by_id: bool,
) -> Result<Vec<TotalRow>> {
    let totals = filter.to_totals(workspace, by_id);
    let mut rows = analytics.event_store.read().await?.list_totals(&totals).await?;
    if let Some(not_found) = in_own_database(analytics, &totals) {
        rows.extend(analytics.event_store.read_local().await?.list_totals(&not_found).await?);
    }
    Ok(rows)
}

async fn load_latencies(
    analytics: &Analytics,
    workspace: &WorkspaceId,
    filter: &TrafficFilter<'_>,
) -> Result<Vec<(Timestamp, LatencyHistogram)>> {
    let totals = filter.to_totals(workspace, false);
    let mut found = analytics.event_store.read().await?.list_latencies(&totals).await?;
    if let Some(not_found) = in_own_database(analytics, &totals) {
        found.extend(analytics.event_store.read_local().await?.list_latencies(&not_found).await?);
    }
    Ok(found)
}

/// Returns the filter for the selected verifications that are counted in Keyward's own database though events are in
/// ClickHouse: those that found no key.
fn in_own_database<'a>(
    analytics: &Analytics,
    totals: &TotalsFilter<'a>,
) -> Option<TotalsFilter<'a>> {
    let is_elsewhere = analytics.event_store.clickhouse().is_some();
    let has_not_found =
        is_elsewhere && totals.kind == EventKind::Verifications && totals.resource_id.is_none();
    has_not_found.then_some(TotalsFilter { resource_id: Some(NO_API), ..*totals })
}

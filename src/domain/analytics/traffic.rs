//! What came of all requests of a workspace, an API or a namespace, for charts.

use std::collections::BTreeMap;

use foundation::clock::Timestamp;
use foundation::error::Result;
use foundation::model::{EventKind, RollupUnit};
use store::events::{LATENCY_BUCKETS_US, TotalRow, TotalsFilter};

use super::super::caller::Caller;
use super::super::permission::Action;
use crate::app::App;

/// Which requests.
#[derive(Debug, Clone, Copy)]
pub struct TrafficFilter<'a> {
    pub kind: EventKind,
    /// Only those of this API, or of this namespace.
    pub only: Option<&'a str>,
    pub unit: RollupUnit,
    /// Told from the beginning of the unit in which this lies.
    pub from: Timestamp,
    pub until: Timestamp,
}

/// What requests came to.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Traffic {
    /// How many, by outcome; of limit checks `true` and `false` for whether they passed.
    pub outcomes: BTreeMap<String, i64>,
    pub latencies: Latencies,
}

impl Traffic {
    pub fn count(&self) -> i64 {
        self.outcomes.values().sum()
    }

    pub fn join(&mut self, other: &Self) {
        for (outcome, count) in &other.outcomes {
            *self.outcomes.entry(outcome.clone()).or_default() += count;
        }
        self.latencies.join(&other.latencies);
    }

    fn add(&mut self, row: TotalRow) {
        let latencies =
            Latencies { count: row.count, sum_us: row.latency_us, buckets: row.latencies.into() };
        self.latencies.join(&latencies);
        *self.outcomes.entry(row.outcome).or_default() += row.count;
    }
}

/// How long requests took.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Latencies {
    count: i64,
    sum_us: i64,
    buckets: [i64; 6],
}

impl Latencies {
    fn join(&mut self, other: &Self) {
        self.count += other.count;
        self.sum_us = self.sum_us.saturating_add(other.sum_us);
        for (here, there) in self.buckets.iter_mut().zip(other.buckets) {
            *here += there;
        }
    }

    /// The mean, in microseconds. Absent: there were none.
    pub fn mean_us(&self) -> Option<i64> {
        self.sum_us.checked_div(self.count)
    }

    /// Within how many microseconds so many of a hundred were answered: the end of a bucket. Absent: there were none,
    /// or it took longer than the last bucket.
    pub fn percentile_us(&self, percent: i64) -> Option<i64> {
        if self.count == 0 {
            return None;
        }
        let mut within = 0;
        let reached = self.buckets.iter().position(|bucket| {
            within += bucket;
            within.saturating_mul(100) >= self.count.saturating_mul(percent)
        });
        reached.map(|at| LATENCY_BUCKETS_US[at])
    }
}

/// By units of time, those without any requests too.
pub async fn by_time(
    app: &App,
    caller: &Caller,
    asked: &TrafficFilter<'_>,
) -> Result<Vec<(Timestamp, Traffic)>> {
    let mut found: BTreeMap<Timestamp, Traffic> = BTreeMap::new();
    let begin = asked.unit.beginning(asked.from);
    let slices = std::iter::successors(Some(begin), |at| Some(asked.unit.next(*at)));
    for at in slices.take_while(|at| *at < asked.until) {
        found.insert(at, Traffic::default());
    }
    for row in rows(app, caller, asked, false).await? {
        found.entry(row.time).or_default().add(row);
    }
    Ok(found.into_iter().collect())
}

/// By the id of the API, or of the namespace, the one with the most requests first.
pub async fn by_id(
    app: &App,
    caller: &Caller,
    asked: &TrafficFilter<'_>,
) -> Result<Vec<(String, Traffic)>> {
    let mut found: BTreeMap<String, Traffic> = BTreeMap::new();
    for row in rows(app, caller, asked, true).await? {
        found.entry(row.id.clone()).or_default().add(row);
    }
    let mut found: Vec<_> = found.into_iter().collect();
    found.sort_by_key(|(_, traffic)| std::cmp::Reverse(traffic.count()));
    Ok(found)
}

async fn rows(
    app: &App,
    caller: &Caller,
    asked: &TrafficFilter<'_>,
    by_id: bool,
) -> Result<Vec<TotalRow>> {
    let action = match asked.kind {
        EventKind::Verifications => Action::ReadApiAnalytics,
        EventKind::Ratelimits => Action::ReadRatelimitAnalytics,
    };
    match asked.only {
        Some(id) => caller.require_on(action, &id)?,
        None => caller.require(action)?,
    }
    let wanted = TotalsFilter {
        workspace: caller.workspace(),
        kind: asked.kind,
        only: asked.only,
        unit: asked.unit,
        from: asked.unit.beginning(asked.from),
        until: asked.until,
        by_id,
    };
    app.events.read().await?.totals(&wanted).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_percentile_is_the_end_of_the_bucket_that_it_falls_into() {
        let told = |buckets: [i64; 6], count| {
            let latencies = Latencies { count, sum_us: 0, buckets };
            [50, 99, 100].map(|percent| latencies.percentile_us(percent))
        };

        assert_eq!(told([0; 6], 0), [None; 3]);
        assert_eq!(told([99, 1, 0, 0, 0, 0], 100), [Some(100), Some(100), Some(500)]);
        assert_eq!(told([50, 48, 1, 0, 0, 0], 100), [Some(100), Some(1_000), None]);
        assert_eq!(told([0; 6], 7), [None; 3], "all took longer than the last bucket");
    }
}

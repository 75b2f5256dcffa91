//! Adds up events by API or namespace and minute, hour, day and month.

use std::collections::BTreeMap;

use foundation::clock::Timestamp;
use foundation::model::{RollupUnit, VerificationCode};
use hashbrown::HashMap;
use store::events::{Aggregate, NO_API, TotalDelta, TotalKey};

use crate::batch_builder::{namespace_ids, passed_label};
use crate::event::{LimitCheckRecord, VerificationRecord};
use crate::not_found::NotFoundCount;

/// Stores totals of events by minute. The larger units are derived from them.
#[derive(Default)]
pub struct MinuteTotals<'a> {
    verifications: HashMap<(&'a str, &'a str, Timestamp, &'static str), Aggregate>,
    ratelimits: HashMap<(&'a str, &'a str, Timestamp, &'static str), Aggregate>,
}

impl<'a> MinuteTotals<'a> {
    /// Adds a verification to the total of its API.
    pub fn add_verification(&mut self, event: &'a VerificationRecord) {
        let key = &event.resolved_key;
        let (workspace, api) = (key.workspace_id().as_str(), key.api_id().as_str());
        let total_key = (
            workspace,
            api,
            RollupUnit::Minute.start_of(event.occurred_at),
            event.outcome.as_str(),
        );
        let sum = self.verifications.entry(total_key).or_default();
        sum.add_event(event.spent_credits, event.latency_us);
    }

    /// Adds a limit check to the total of its namespace.
    pub fn add_ratelimit(&mut self, event: &'a LimitCheckRecord) {
        let (workspace, namespace) = namespace_ids(event);
        let total_key = (
            workspace,
            namespace,
            RollupUnit::Minute.start_of(event.occurred_at),
            passed_label(event),
        );
        self.ratelimits.entry(total_key).or_default().add_event(event.tokens, event.latency_us);
    }

    /// Returns the totals of every unit, in order: of the verifications, and of the limit checks.
    pub fn into_deltas(self) -> (Vec<TotalDelta>, Vec<TotalDelta>) {
        (expand_totals(self.verifications), expand_totals(self.ratelimits))
    }
}

/// Returns the totals of verifications that found no key.
pub fn build_not_found_totals(counts: &[NotFoundCount]) -> Vec<TotalDelta> {
    let outcome = VerificationCode::NotFound.as_str();
    let mut minutes: HashMap<_, Aggregate> = HashMap::new();
    for NotFoundCount { workspace, minute, aggregate } in counts {
        let total_key = (workspace.as_str(), NO_API, *minute, outcome);
        minutes.entry(total_key).or_default().merge(aggregate);
    }
    expand_totals(minutes)
}

/// Returns the totals of every unit, in order.
fn expand_totals(
    minutes: HashMap<(&str, &str, Timestamp, &'static str), Aggregate>,
) -> Vec<TotalDelta> {
    let mut totals: BTreeMap<TotalKey, Aggregate> = BTreeMap::new();
    for ((workspace, id, minute, outcome), sum) in minutes {
        for unit in RollupUnit::ALL {
            let total_key = TotalKey {
                workspace_id: workspace.to_owned(),
                id: id.to_owned(),
                unit: unit.as_str(),
                time: unit.start_of(minute),
                outcome,
            };
            totals.entry(total_key).or_default().merge(&sum);
        }
    }
    totals.into_iter().map(|(total_key, aggregate)| TotalDelta { total_key, aggregate }).collect()
}

//! Metrics of the regions that share limits and credits.

use std::sync::atomic::AtomicU64;
use std::time::Duration;

use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use super::{Counter, Label, register_counter, register_family};

labelled! {
    /// Counts decisions that consumed units of other regions, by whether one of those was waited for.
    RegionalDecisions: "waited" { local "false", waited "true", }
}

/// What a replica does in other regions. The round trips have a series for each region of the settings.
#[derive(Debug, Clone)]
pub struct RegionMetrics {
    pub decisions: RegionalDecisions,
    /// Requests for units that were sent to other regions.
    pub grants_requested: Counter,
    /// Units that other regions have granted.
    pub units_granted: Counter,
    /// Units that were returned unspent.
    pub units_returned: Counter,
    round_trips: Family<[(&'static str, String); 1], Gauge<f64, AtomicU64>>,
}

impl RegionMetrics {
    pub(super) fn new(registry: &mut Registry) -> Self {
        let round_trips = Family::default();
        let help = "The shortest round trip to the Redis of another region of the last seconds; 0 while there is no reply";
        registry.register("region_round_trip_seconds", help, round_trips.clone());
        let help =
            "Decisions on limits that other regions count, by whether one of those was waited for";
        let decisions = register_family::<1>(registry, "regional_decisions", help);
        Self {
            decisions: RegionalDecisions::of(&decisions, |waited| [waited]),
            grants_requested: register_counter(
                registry,
                "region_grants_requested",
                "Requests for units of limits that were sent to other regions",
            ),
            units_granted: register_counter(
                registry,
                "region_units_granted",
                "Units of limits that other regions have granted",
            ),
            units_returned: register_counter(
                registry,
                "region_units_returned",
                "Units of limits that were returned to other regions unspent",
            ),
            round_trips,
        }
    }

    /// Sets the round trip to the Redis of a region; `None`: it does not reply.
    pub fn set_round_trip(&self, region: &str, round_trip: Option<Duration>) {
        let gauge = self.round_trips.get_or_create_owned(&[("region", region.to_owned())]);
        gauge.set(round_trip.unwrap_or_default().as_secs_f64());
    }
}

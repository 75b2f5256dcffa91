//! Metrics of analytics events.

use prometheus_client::registry::Registry;

use super::{Counter, Family, Gauge, Label, register_family, register_gauge};

/// Counts the events of one kind: verifications, or checks of the standalone limiter.
#[derive(Debug, Clone)]
pub struct EventCounts {
    /// Events that were written to the database.
    pub written_counter: Counter,
    /// Events that were dropped because the buffer was full.
    pub dropped_counter: Counter,
}

/// Metrics of the events of both kinds. A clone counts into the same metrics.
#[derive(Debug, Clone)]
pub struct EventMetrics {
    pub verifications: EventCounts,
    pub ratelimits: EventCounts,
    /// Events of all replicas that have not arrived in ClickHouse, when last measured.
    pub undelivered_events: Gauge,
    /// The age of the oldest of them.
    pub undelivered_seconds: Gauge,
}

impl EventMetrics {
    pub(super) fn new(registry: &mut Registry) -> Self {
        let written = register_family(registry, "events_written", "Events written, by kind");
        let dropped = register_family(
            registry,
            "events_dropped",
            "Events dropped because too many waited or the disk was too full, by kind",
        );
        let counts_of = |kind| {
            let counter = |family: &Family<[Label; 1], Counter>| {
                family.get_or_create_owned(&[("kind", kind)])
            };
            EventCounts { written_counter: counter(&written), dropped_counter: counter(&dropped) }
        };
        Self {
            verifications: counts_of("verification"),
            ratelimits: counts_of("ratelimit"),
            undelivered_events: register_gauge(
                registry,
                "events_undelivered",
                "Events written and not yet delivered to ClickHouse",
            ),
            undelivered_seconds: register_gauge(
                registry,
                "events_undelivered_seconds",
                "Age of the oldest undelivered event",
            ),
        }
    }
}

//! Metrics of the read replica of Postgres.

use std::sync::atomic::AtomicU64;

use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use super::{Counter, Label, register_family};

labelled! {
    /// Counts uncached rows by whether the read replica served them, or why they were read from the primary.
    ReadReplicaLoads: "result" {
        served "served",
        absent "absent",
        stale "stale",
        metered "metered",
        lagging "lagging",
        failed "failed",
        skipped "skipped",
    }
}

/// Metrics of the read replica. Without one, they stay 0.
#[derive(Debug)]
pub struct ReadReplicaMetrics {
    pub loads: ReadReplicaLoads,
    /// The age of the last heartbeat of this replica that the read replica had, when last measured.
    pub lag_seconds: Gauge<f64, AtomicU64>,
}

impl ReadReplicaMetrics {
    pub(super) fn new(registry: &mut Registry) -> Self {
        let help = "Uncached rows, by whether the read replica served them or why the primary did";
        let loads = ReadReplicaLoads::of(
            &register_family(registry, "read_replica_loads", help),
            |result| [result],
        );
        let lag_seconds = Gauge::default();
        let help = "The most that the read replica is behind the primary; 0 without one";
        registry.register("read_replica_lag_seconds", help, lag_seconds.clone());
        Self { loads, lag_seconds }
    }
}

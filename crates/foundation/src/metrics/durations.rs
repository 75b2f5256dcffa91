//! Implements a histogram of durations with atomic numbers: an observation is two additions, without a lock.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use prometheus_client::encoding::{EncodeMetric, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;

/// The upper bounds of the buckets, in microseconds. The last bucket has no bound.
const BOUNDS_US: [u64; 16] = [
    100, 250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000,
    1_000_000, 2_500_000, 5_000_000, 10_000_000,
];

/// A histogram of durations, exported in seconds. Clones share their counts.
#[derive(Debug, Clone, Default)]
pub struct Durations(Arc<BucketCounts>);

#[derive(Debug, Default)]
struct BucketCounts {
    buckets: [AtomicU64; BOUNDS_US.len() + 1],
    sum_us: AtomicU64,
}

impl Durations {
    pub fn observe(&self, took: Duration) {
        self.observe_us(u64::try_from(took.as_micros()).unwrap_or(u64::MAX));
    }

    pub fn observe_us(&self, took_us: u64) {
        let bucket = BOUNDS_US.partition_point(|bound| *bound < took_us);
        self.0.buckets[bucket].fetch_add(1, Ordering::Relaxed);
        self.0.sum_us.fetch_add(took_us, Ordering::Relaxed);
    }
}

#[expect(
    clippy::cast_precision_loss,
    reason = "exact up to 2^53 microseconds: three hundred years"
)]
fn seconds(micros: u64) -> f64 {
    micros as f64 / 1e6
}

impl EncodeMetric for Durations {
    fn encode(&self, mut encoder: MetricEncoder) -> fmt::Result {
        let bounds = BOUNDS_US.iter().map(|bound| seconds(*bound)).chain([f64::INFINITY]);
        let counts = self.0.buckets.iter().map(|count| count.load(Ordering::Relaxed));
        let buckets: Vec<_> = bounds.zip(counts).collect();
        let count = buckets.iter().map(|(_, count)| count).sum();
        let sum = seconds(self.0.sum_us.load(Ordering::Relaxed));
        encoder.encode_histogram::<NoLabelSet>(sum, count, &buckets, None)
    }

    fn metric_type(&self) -> MetricType {
        MetricType::Histogram
    }
}

#[cfg(test)]
mod tests {
    use prometheus_client::encoding::text::encode;
    use prometheus_client::registry::Registry;

    use super::*;

    #[test]
    fn duration_is_counted_in_every_bucket_that_it_fits_into() {
        let durations = Durations::default();
        let mut registry = Registry::default();
        registry.register("took_seconds", "How long", durations.clone());

        for micros in [0, 100, 101, 10_000_000, 10_000_001] {
            durations.observe_us(micros);
        }

        let mut text = String::new();
        encode(&mut text, &registry).expect("a text");
        for line in [
            "took_seconds_bucket{le=\"0.0001\"} 2",
            "took_seconds_bucket{le=\"0.00025\"} 3",
            "took_seconds_bucket{le=\"10.0\"} 4",
            "took_seconds_bucket{le=\"+Inf\"} 5",
            "took_seconds_count 5",
            "took_seconds_sum 20.000202",
        ] {
            assert!(text.lines().any(|found| found == line), "{line} is not in\n{text}");
        }
    }
}

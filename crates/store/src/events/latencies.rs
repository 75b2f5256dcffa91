//! Histograms of latencies, which can be added up and from which percentiles are read.
//!
//! Each bucket is 9 % wider than the one before, as in native histograms of Prometheus (schema 3: eight buckets for each
//! power of two). So a percentile is within 5 % of the true one, whatever it is, and a histogram of a service has some dozens of
//! buckets, of which only those with latencies are stored. There are 193 of them, and a count has at most 19 digits: so a histogram
//! takes at most 5,294 bytes, whatever it counts and however long.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::LazyLock;

use foundation::error::{Error, Result};
use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};

use super::batch::LATENCY_BUCKETS_US;

/// The number of buckets. The last one ends at 16.8 s, longer than any request, and has all longer latencies.
const BUCKETS: usize = 193;
/// 2 to the power of 0/8 to 7/8, in units of 2^-20.
const EIGHTHS: [i64; 8] =
    [1_048_576, 1_143_480, 1_246_974, 1_359_834, 1_482_910, 1_617_125, 1_763_487, 1_923_096];

/// The inclusive ends of the buckets in microseconds: 2 to the power of `index / 8`, rounded down.
static BUCKET_ENDS_US: LazyLock<[i64; BUCKETS]> =
    LazyLock::new(|| std::array::from_fn(|index| (EIGHTHS[index % 8] << (index / 8)) >> 20));

/// The index of a bucket.
pub type Bucket = u8;

/// The number of latencies by bucket.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct LatencyHistogram(BTreeMap<Bucket, i64>);

impl LatencyHistogram {
    /// Reads a histogram as it is stored. Fails if it is none.
    pub fn parse(json: &str) -> Result<Self> {
        serde_json::from_str(json).map_err(|e| Error::Internal(format!("histogram {json}: {e}")))
    }

    /// Adds a histogram as it is stored. Fails if it is none.
    pub fn merge_json<'de, Json: Deserializer<'de>>(
        &mut self,
        json: Json,
    ) -> std::result::Result<(), Json::Error> {
        json.deserialize_map(BucketAdder(self))
    }

    /// Counts a latency in microseconds.
    pub fn add(&mut self, latency_us: i64) {
        self.add_to_bucket(bucket_of(latency_us), 1);
    }

    /// Counts latencies of a bucket.
    pub fn add_to_bucket(&mut self, bucket: Bucket, count: i64) {
        *self.0.entry(bucket).or_default() += count;
    }

    pub fn merge(&mut self, other: &Self) {
        for (bucket, count) in &other.0 {
            self.add_to_bucket(*bucket, *count);
        }
    }

    /// Returns a percentile in microseconds: the middle of its bucket. Returns `None` if there are no latencies.
    pub fn percentile_us(&self, percent: i64) -> Option<i64> {
        let total: i64 = self.0.values().sum();
        let mut within = 0;
        let reached = self.0.iter().find(|(_, count)| {
            within += *count;
            total > 0 && within.saturating_mul(100) >= total.saturating_mul(percent)
        });
        reached.map(|(bucket, _)| middle_of(*bucket))
    }
}

/// Adds the buckets of a stored histogram to another one, as they are read.
struct BucketAdder<'h>(&'h mut LatencyHistogram);

impl<'de> Visitor<'de> for BucketAdder<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the number of latencies by bucket")
    }

    fn visit_map<Fields: MapAccess<'de>>(
        self,
        mut fields: Fields,
    ) -> std::result::Result<(), Fields::Error> {
        while let Some((bucket, count)) = fields.next_entry()? {
            self.0.add_to_bucket(bucket, count);
        }
        Ok(())
    }
}

/// Returns the bucket of a latency in microseconds.
pub fn bucket_of(latency_us: i64) -> Bucket {
    let at = BUCKET_ENDS_US.partition_point(|end| *end < latency_us).min(BUCKETS - 1);
    Bucket::try_from(at).unwrap_or(Bucket::MAX)
}

fn middle_of(bucket: Bucket) -> i64 {
    let end = |at: usize| BUCKET_ENDS_US.get(at).copied().unwrap_or(BUCKET_ENDS_US[BUCKETS - 1]);
    let at = usize::from(bucket);
    let start = at.checked_sub(1).map_or(0, end);
    (start + 1 + end(at)).div_euclid(2)
}

/// Returns the buckets that stand for those of [`LATENCY_BUCKETS_US`], in which older versions counted, and for longer
/// latencies: those with their ends.
pub fn buckets_of_older_versions() -> [Bucket; 7] {
    let longest_us = LATENCY_BUCKETS_US.into_iter().max().unwrap_or_default();
    std::array::from_fn(|at| match LATENCY_BUCKETS_US.get(at) {
        Some(end) => bucket_of(*end),
        None => bucket_of(longest_us) + 1,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn histogram(latencies: impl IntoIterator<Item = i64>) -> LatencyHistogram {
        let mut histogram = LatencyHistogram::default();
        latencies.into_iter().for_each(|latency| histogram.add(latency));
        histogram
    }

    #[test]
    fn bucket_contains_its_latencies() {
        for (latency_us, end) in [(0, 1), (1, 1), (2, 2), (9, 9), (10, 10), (98, 98), (100, 107)] {
            let bucket = usize::from(bucket_of(latency_us));
            assert_eq!(BUCKET_ENDS_US[bucket], end, "{latency_us}");
        }
        assert_eq!(BUCKET_ENDS_US[BUCKETS - 1], 1 << 24);
        for beyond in [1 << 24, (1 << 24) + 1, i64::MAX] {
            assert_eq!(usize::from(bucket_of(beyond)), BUCKETS - 1);
        }
        assert_eq!(bucket_of(-1), 0);
    }

    #[test]
    fn percentile_is_within_five_percent_of_the_true_one() {
        for scale in [20, 100, 3_333, 100_000] {
            let latencies = histogram((1..=100).map(|number| number * scale));
            for percent in [1, 50, 95, 99, 100] {
                let found = latencies.percentile_us(percent).expect("there are latencies");
                let exact = percent * scale;
                assert!(
                    (found - exact).abs() * 100 <= exact * 5,
                    "{percent} % of {scale}: {found}"
                );
            }
        }
        assert_eq!(histogram([]).percentile_us(50), None);
        assert_eq!(histogram([7]).percentile_us(50), Some(7));
    }

    #[test]
    fn merged_histograms_are_that_of_all_latencies() {
        let mut merged = histogram([5, 80]);
        merged.merge(&histogram([80, 9_000]));

        assert_eq!(merged, histogram([5, 80, 80, 9_000]));
        let stored = serde_json::to_string(&merged).expect("JSON");
        assert_eq!(LatencyHistogram::parse(&stored).expect(&stored), merged);
        assert_eq!(LatencyHistogram::parse("{}").expect("empty"), LatencyHistogram::default());
        LatencyHistogram::parse("[]").expect_err("a list");
        let mut sum = histogram([5]);
        let mut json = serde_json::Deserializer::from_str("{\"72\": 1}{}[]");
        sum.merge_json(&mut json).expect("a histogram");
        sum.merge_json(&mut json).expect("an empty one");
        assert_eq!(sum, histogram([5, 500]));
        sum.merge_json(&mut json).expect_err("a list");
    }

    #[test]
    fn histogram_has_a_maximum_size() {
        let mut full = LatencyHistogram::default();
        (0..=bucket_of(i64::MAX)).for_each(|bucket| full.add_to_bucket(bucket, i64::MAX));
        let stored = serde_json::to_string(&full).expect("JSON");
        let as_jsonb = stored.replace(':', ": ").replace(',', ", ");

        assert_eq!((full.0.len(), stored.len(), as_jsonb.len()), (BUCKETS, 4_909, 5_294));
        assert_eq!(LatencyHistogram::parse(&as_jsonb).expect(&as_jsonb), full);
    }

    #[test]
    fn buckets_of_older_versions_are_those_with_their_ends() {
        let ends = buckets_of_older_versions().map(|bucket| BUCKET_ENDS_US[usize::from(bucket)]);

        assert_eq!(ends, [107, 512, 1_024, 5_311, 25_267, 101_070, 110_217]);
    }
}

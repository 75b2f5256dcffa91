//! Defines events as they are written: in batches, with their series and their totals.

use std::array::TryFromSliceError;

use foundation::clock::Timestamp;
use foundation::id::RequestId;
use foundation::model::RollupUnit;
use serde::{Serialize, Serializer};

use super::latencies::LatencyHistogram;

/// The upper bounds of the latency buckets of rollups, in microseconds. Longer latencies are in none.
pub const LATENCY_BUCKETS_US: [i64; 6] = [100, 500, 1_000, 5_000, 25_000, 100_000];

/// The columns of the buckets, in tables of rollups and of totals.
pub const BUCKET_COLUMNS: [&str; 6] = [
    "latency_le_100us",
    "latency_le_500us",
    "latency_le_1ms",
    "latency_le_5ms",
    "latency_le_25ms",
    "latency_le_100ms",
];

/// The id of a series: of the dimensions that many events share.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SeriesId(pub [u8; 16]);

impl TryFrom<Vec<u8>> for SeriesId {
    type Error = TryFromSliceError;

    fn try_from(bytes: Vec<u8>) -> Result<Self, TryFromSliceError> {
        bytes.as_slice().try_into().map(Self)
    }
}

foundation::read_from_column!(SeriesId, Vec<u8>);

impl Serialize for SeriesId {
    /// Serializes the id in hexadecimal.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        const DIGITS: &[u8; 16] = b"0123456789abcdef";
        let mut text = [0; 32];
        for (pair, byte) in text.chunks_exact_mut(2).zip(self.0) {
            pair[0] = DIGITS[usize::from(byte >> 4)];
            pair[1] = DIGITS[usize::from(byte & 15)];
        }
        serializer.serialize_str(std::str::from_utf8(&text).unwrap_or_default())
    }
}

/// The dimensions that many verifications share.
#[derive(Debug, Clone, Serialize)]
pub struct VerificationSeries {
    pub id: SeriesId,
    pub workspace_id: String,
    pub api_id: String,
    pub key_id: String,
    /// Empty if the key has none.
    pub identity_id: String,
    pub external_id: String,
    pub outcome: &'static str,
    /// A JSON list, sorted and without duplicates.
    pub tags: String,
    /// Empty without regions.
    pub region: String,
    /// The start of the day.
    pub seen_at: Timestamp,
}

/// A verification that found a key.
#[derive(Debug)]
pub struct VerificationEvent {
    pub time: Timestamp,
    pub series: SeriesId,
    pub request_id: RequestId,
    pub spent_credits: i64,
    pub latency_us: i64,
    /// Why it was refused; empty if it was not.
    pub reason: String,
}

/// The dimensions that many checks of the standalone limiter share.
#[derive(Debug, Clone, Serialize)]
pub struct RatelimitSeries {
    pub id: SeriesId,
    pub workspace_id: String,
    pub namespace_id: String,
    pub identifier: String,
    pub passed: bool,
    /// The start of the day.
    pub seen_at: Timestamp,
}

/// A check of the standalone limiter.
#[derive(Debug)]
pub struct RatelimitEvent {
    pub time: Timestamp,
    pub series: SeriesId,
    pub request_id: RequestId,
    pub latency_us: i64,
    /// Empty if none applied.
    pub override_id: String,
    pub limit: i64,
    pub remaining: i64,
    pub reset_at: Timestamp,
    pub tokens: i64,
}

/// The aggregate of a set of events.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Aggregate {
    pub count: i64,
    /// Credits spent, or tokens requested.
    pub amount: i64,
    pub latency_us: i64,
    /// The number of latencies in each of [`LATENCY_BUCKETS_US`].
    pub latencies: [i64; 6],
    /// Totals have it in a table of their own. Rollups of limit checks have none.
    #[serde(skip)]
    pub histogram: LatencyHistogram,
}

impl Aggregate {
    pub fn merge(&mut self, other: &Self) {
        self.count += other.count;
        self.amount = self.amount.saturating_add(other.amount);
        self.latency_us = self.latency_us.saturating_add(other.latency_us);
        for (count, added) in self.latencies.iter_mut().zip(other.latencies) {
            *count += added;
        }
        self.histogram.merge(&other.histogram);
    }

    /// Adds an event, also to the histogram.
    pub fn add_event(&mut self, amount: i64, latency_us: i64) {
        self.add_without_histogram(amount, latency_us);
        self.histogram.add(latency_us);
    }

    pub fn add_without_histogram(&mut self, amount: i64, latency_us: i64) {
        self.count += 1;
        self.amount = self.amount.saturating_add(amount);
        self.latency_us = self.latency_us.saturating_add(latency_us);
        if let Some(at) = LATENCY_BUCKETS_US.iter().position(|end| latency_us <= *end) {
            self.latencies[at] += 1;
        }
    }
}

/// The aggregate of a series in a unit of time.
#[derive(Debug, Clone)]
pub struct SeriesRollup {
    pub series: SeriesId,
    /// The start of the unit.
    pub time: Timestamp,
    pub aggregate: Aggregate,
}

impl Serialize for SeriesRollup {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Aggregate { count, amount, latency_us, latencies, histogram } = &self.aggregate;
        (&self.series, self.time, count, amount, latency_us, latencies, histogram)
            .serialize(serializer)
    }
}

/// The id of a batch in the database.
pub type BatchId = i64;

/// The amounts of an event that has been written.
#[derive(Debug, sqlx_macros::FromRow)]
pub struct EventAmounts {
    pub series: SeriesId,
    pub time: Timestamp,
    pub amount: i64,
    pub latency_us: i64,
}

/// The API of verifications that found no key.
pub const NO_API: &str = "";

/// Identifies a total of an API, or of a namespace of the limiter.
#[derive(Debug, Serialize, PartialEq, Eq, PartialOrd, Ord, Clone, Hash)]
pub struct TotalKey {
    pub workspace_id: String,
    /// The id of the API, or of the namespace.
    pub id: String,
    pub unit: &'static str,
    pub time: Timestamp,
    /// The outcome, or whether the checks passed.
    pub outcome: &'static str,
}

/// What is added to a total.
#[derive(Debug, Serialize)]
pub struct TotalDelta {
    #[serde(flatten)]
    pub total_key: TotalKey,
    #[serde(flatten)]
    pub aggregate: Aggregate,
}

/// The events of one replica since its last batch. The lists are sorted, so that replicas that write at once wait for
/// each other instead of deadlocking.
#[derive(Debug, Default)]
pub struct EventBatch {
    /// A unique name. A batch that may have been written keeps its name when it is sent again.
    pub name: String,
    pub region: String,
    pub verifications: Vec<VerificationEvent>,
    /// The series that this process has not written yet on this day.
    pub verification_series: Vec<VerificationSeries>,
    pub verification_totals: Vec<TotalDelta>,
    /// Totals of verifications that found no key, of which there are no events. Their API is [`NO_API`].
    pub not_found_totals: Vec<TotalDelta>,
    pub ratelimits: Vec<RatelimitEvent>,
    pub ratelimit_series: Vec<RatelimitSeries>,
    pub ratelimit_totals: Vec<TotalDelta>,
}

impl EventBatch {
    /// Returns the times of its first and of its last event, or minute of verifications that found no key.
    pub fn time_range(&self) -> (Timestamp, Timestamp) {
        let times = || {
            let verifications = self.verifications.iter().map(|event| event.time);
            let events = verifications.chain(self.ratelimits.iter().map(|event| event.time));
            events.chain(minutes_of_totals(&self.not_found_totals))
        };
        (times().min().unwrap_or(Timestamp(0)), times().max().unwrap_or(Timestamp(0)))
    }
}

/// Returns the minutes of totals, which have every unit.
pub fn minutes_of_totals(totals: &[TotalDelta]) -> impl Iterator<Item = Timestamp> {
    let minute = RollupUnit::Minute.as_str();
    let minutes = totals.iter().map(|total| &total.total_key).filter(move |key| key.unit == minute);
    minutes.map(|key| key.time)
}

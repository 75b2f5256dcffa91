//! What events came to, as it is read.

use foundation::clock::Timestamp;
use foundation::id::{ApiId, KeyId, WorkspaceId};
use foundation::model::{EventKind, RollupUnit};

/// Which sums of verifications are read.
#[derive(Debug)]
pub struct RollupFilter<'a> {
    pub workspace: &'a WorkspaceId,
    /// Only of these.
    pub apis: &'a [ApiId],
    /// Only of the identity of this external id.
    pub external_id: Option<&'a str>,
    /// Only of these keys; empty: of any.
    pub keys: &'a [KeyId],
    /// Only with all of these tags.
    pub tags: &'a [String],
    /// Only those that begin at this moment or later.
    pub from: Timestamp,
    /// Only those that begin at this moment or earlier.
    pub to: Timestamp,
    /// Which sums.
    pub unit: RollupUnit,
    /// Whether each unit of time is told for itself.
    pub by_time: bool,
    pub by: RollupGrouping,
    /// How many rows at most.
    pub max: usize,
}

/// What is told for itself.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RollupGrouping {
    pub key: bool,
    pub identity: bool,
    pub tags: bool,
}

/// Verifications by their outcome.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, sqlx::FromRow)]
pub struct Counts {
    pub valid: i64,
    pub forbidden: i64,
    pub usage_exceeded: i64,
    pub rate_limited: i64,
    pub disabled: i64,
    pub insufficient_permissions: i64,
    pub expired: i64,
    pub total: i64,
}

impl Counts {
    pub fn join(&mut self, other: &Self) {
        self.valid += other.valid;
        self.forbidden += other.forbidden;
        self.usage_exceeded += other.usage_exceeded;
        self.rate_limited += other.rate_limited;
        self.disabled += other.disabled;
        self.insufficient_permissions += other.insufficient_permissions;
        self.expired += other.expired;
        self.total += other.total;
    }
}

/// What was not told for itself is empty, or 0.
#[derive(Debug, sqlx::FromRow)]
pub struct RollupRow {
    pub time: Timestamp,
    pub key_id: String,
    pub identity_id: String,
    pub external_id: String,
    /// A JSON list.
    pub tags: String,
    #[sqlx(flatten)]
    pub counts: Counts,
}

/// Which totals are read.
#[derive(Debug)]
pub struct TotalsFilter<'a> {
    pub workspace: &'a WorkspaceId,
    pub kind: EventKind,
    /// Only those of this API, or of this namespace.
    pub only: Option<&'a str>,
    pub unit: RollupUnit,
    /// Only those that begin at this moment or later.
    pub from: Timestamp,
    /// Only those that begin before this moment.
    pub until: Timestamp,
    /// Whether APIs, or namespaces, are told apart; else units of time are.
    pub by_id: bool,
}

/// What was not told apart is empty, or 0.
#[derive(Debug, sqlx::FromRow)]
pub struct TotalRow {
    pub time: Timestamp,
    /// Of the API, or of the namespace.
    pub id: String,
    /// The outcome, or whether the checks passed.
    pub outcome: String,
    pub count: i64,
    pub latency_us: i64,
    #[sqlx(flatten)]
    pub latencies: Latencies,
}

/// How many latencies fell into each of [`LATENCY_BUCKETS_US`].
#[derive(Debug, Clone, Copy, sqlx::FromRow)]
pub struct Latencies {
    latency_le_100us: i64,
    latency_le_500us: i64,
    latency_le_1ms: i64,
    latency_le_5ms: i64,
    latency_le_25ms: i64,
    latency_le_100ms: i64,
}

impl From<Latencies> for [i64; 6] {
    fn from(l: Latencies) -> Self {
        [
            l.latency_le_100us,
            l.latency_le_500us,
            l.latency_le_1ms,
            l.latency_le_5ms,
            l.latency_le_25ms,
            l.latency_le_100ms,
        ]
    }
}

impl From<[i64; 6]> for Latencies {
    fn from(counts: [i64; 6]) -> Self {
        let [
            latency_le_100us,
            latency_le_500us,
            latency_le_1ms,
            latency_le_5ms,
            latency_le_25ms,
            latency_le_100ms,
        ] = counts;
        Self {
            latency_le_100us,
            latency_le_500us,
            latency_le_1ms,
            latency_le_5ms,
            latency_le_25ms,
            latency_le_100ms,
        }
    }
}

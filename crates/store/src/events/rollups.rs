//! Defines the filters and rows of rollups and totals.

use foundation::clock::Timestamp;
use foundation::error::Error;
use foundation::id::{ApiId, KeyId, WorkspaceId};
use foundation::model::{EventKind, RollupUnit, VerificationCode};

/// Selects rollups of verifications.
#[derive(Debug)]
pub struct RollupFilter<'a> {
    pub workspace: &'a WorkspaceId,
    /// Includes only these APIs. Empty: all APIs, including deleted ones.
    pub api_ids: &'a [ApiId],
    /// Includes only the identity with this external id.
    pub external_id: Option<&'a str>,
    /// Includes only these keys. Empty: all keys.
    pub key_ids: &'a [KeyId],
    /// Includes only verifications with all of these tags.
    pub tags: &'a [String],
    /// Includes only verifications of this region.
    pub region: Option<&'a str>,
    /// Includes only rollups that begin at this time or later.
    pub from_time: Timestamp,
    /// Includes only rollups that begin at this time or earlier.
    pub to_time: Timestamp,
    /// The unit of the rollups.
    pub unit: RollupUnit,
    /// What to add up instead if the result is not grouped by time: spans that together have the same events as the selected
    /// rollups.
    pub spans: Vec<RollupSpan>,
    /// Whether to group by unit of time.
    pub is_by_time: bool,
    pub grouping: RollupGrouping,
    /// The number that the first rows have the most of. `None`: the rows have no order.
    pub top_by: Option<TopMeasure>,
    /// Includes only groups with verifications of this outcome, if the rows have an order.
    pub with_outcome: Option<VerificationCode>,
    /// The maximum number of rows.
    pub rows_max: usize,
}

/// Rollups of a unit within a span of time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RollupSpan {
    pub unit: RollupUnit,
    pub from_time: Timestamp,
    /// The exclusive end.
    pub until_time: Timestamp,
}

/// The maximum number of groups in a result.
pub const GROUPS_MAX: usize = 100_000;

/// The dimensions to group by.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RollupGrouping {
    pub is_by_key: bool,
    pub is_by_identity: bool,
    pub by_tags: TagGrouping,
}

/// How verifications are grouped by their tags.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum TagGrouping {
    /// Not by tags.
    #[default]
    None,
    /// By the set of tags.
    Set,
    /// By each tag: a verification with several tags counts for each of them, and one without tags is in no group.
    Each,
}

/// A number that groups of verifications are compared by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TopMeasure {
    /// The number of verifications.
    Total,
    /// The number of verifications that are not valid.
    Rejected,
    SpentCredits,
}

/// The number of verifications by outcome.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, sqlx_macros::FromRow)]
pub struct OutcomeCounts {
    pub valid: i64,
    pub forbidden: i64,
    pub usage_exceeded: i64,
    pub rate_limited: i64,
    pub disabled: i64,
    pub insufficient_permissions: i64,
    pub expired: i64,
    pub total: i64,
}

impl OutcomeCounts {
    /// Adds verifications of an outcome.
    pub fn add(&mut self, outcome: &str, count: i64) {
        self.total += count;
        let counted = match VerificationCode::parse(outcome) {
            Some(VerificationCode::Valid) => &mut self.valid,
            Some(VerificationCode::Forbidden) => &mut self.forbidden,
            Some(VerificationCode::UsageExceeded) => &mut self.usage_exceeded,
            Some(VerificationCode::RateLimited) => &mut self.rate_limited,
            Some(VerificationCode::Disabled) => &mut self.disabled,
            Some(VerificationCode::InsufficientPermissions) => &mut self.insufficient_permissions,
            Some(VerificationCode::Expired) => &mut self.expired,
            Some(VerificationCode::NotFound) | None => return,
        };
        *counted += count;
    }

    pub fn merge(&mut self, other: &Self) {
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

/// Returns the error of a query whose result is too large.
pub fn too_many_groups() -> Error {
    let message = format!(
        "the result has more than {GROUPS_MAX} rows or too many tags; query a shorter period or fewer groups"
    );
    Error::invalid("groupBy", message)
}

/// A group of rollups. Dimensions that are not grouped by are empty, or 0.
#[derive(Debug, Default, sqlx_macros::FromRow)]
pub struct RollupRow {
    pub time: Timestamp,
    pub key_id: String,
    pub identity_id: String,
    pub external_id: String,
    /// A JSON list; one tag if the rows are grouped by each tag.
    pub tags: String,
    pub spent_credits: i64,
    /// The sum of the latencies, if the rows are read with them.
    #[sqlx(skip)]
    pub latency_us: i64,
    #[sqlx(flatten)]
    pub counts: OutcomeCounts,
}

/// The number of verifications of a region. Empty: no region, or not known.
#[derive(Debug, Clone, PartialEq, Eq, sqlx_macros::FromRow)]
pub struct RegionCount {
    pub region: String,
    pub count: i64,
}

/// Selects totals.
#[derive(Debug, Clone, Copy)]
pub struct TotalsFilter<'a> {
    pub workspace: &'a WorkspaceId,
    pub kind: EventKind,
    /// Includes only this API, or this namespace.
    pub resource_id: Option<&'a str>,
    pub unit: RollupUnit,
    /// Includes only totals that begin at this time or later.
    pub from_time: Timestamp,
    /// Includes only totals that begin before this time.
    pub until_time: Timestamp,
    /// Whether to group by API or namespace. Otherwise totals are grouped by unit of time.
    pub is_by_id: bool,
}

/// A group of totals. Dimensions that are not grouped by are empty, or 0.
#[derive(Debug, sqlx_macros::FromRow)]
pub struct TotalRow {
    pub time: Timestamp,
    /// The id of the API, or of the namespace.
    pub id: String,
    /// The outcome, or whether the checks passed.
    pub outcome: String,
    pub count: i64,
    /// The credits that verifications spent. 0 for limit checks.
    pub spent_credits: i64,
    pub latency_us: i64,
}

/// Selects the identifiers with the most checks of the standalone limiter.
#[derive(Debug)]
pub struct TopIdentifiersFilter<'a> {
    pub workspace: &'a WorkspaceId,
    /// Includes only this namespace.
    pub namespace_id: Option<&'a str>,
    /// The unit of the rollups.
    pub unit: RollupUnit,
    /// Includes only rollups that begin at this time or later.
    pub from_time: Timestamp,
    /// Includes only rollups that begin before this time.
    pub until_time: Timestamp,
    /// What to add up: spans that together have the same events as the selected rollups.
    pub spans: Vec<RollupSpan>,
    pub order: IdentifierOrder,
    /// The maximum number of rows.
    pub rows_max: usize,
}

/// The number that identifiers are sorted by, the largest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IdentifierOrder {
    Requests,
    /// Identifiers without rejected requests are left out.
    Rejected,
}

/// The checks of an identifier in a namespace.
#[derive(Debug, Clone, PartialEq, Eq, sqlx_macros::FromRow)]
pub struct IdentifierRow {
    pub namespace_id: String,
    pub identifier: String,
    pub total: i64,
    pub rejected: i64,
}

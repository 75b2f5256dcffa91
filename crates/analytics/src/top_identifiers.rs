//! Finds the identifiers with the most checks of the standalone limiter.

use foundation::clock::Timestamp;
use foundation::error::Result;
use foundation::id::WorkspaceId;
use foundation::model::{EventKind, RollupUnit};
use store::events::TopIdentifiersFilter;
pub use store::events::{IdentifierOrder, IdentifierRow};

use crate::{Analytics, rollup_spans};

/// Selects limit checks, and how many identifiers to find.
#[derive(Debug, Clone, Copy)]
pub struct IdentifierQuery<'a> {
    /// Includes only this namespace.
    pub namespace_id: Option<&'a str>,
    /// The unit of the rollups that are added up.
    pub unit: RollupUnit,
    /// The start, rounded down to the start of its unit.
    pub from_time: Timestamp,
    pub until_time: Timestamp,
    pub order: IdentifierOrder,
    pub limit: usize,
}

/// Returns the first identifiers in the order of the query. The database finds them among any number of identifiers.
pub async fn list(
    analytics: &Analytics,
    workspace: &WorkspaceId,
    query: &IdentifierQuery<'_>,
) -> Result<Vec<IdentifierRow>> {
    let (unit, kind) = (query.unit, EventKind::Ratelimits);
    let (from_time, until_time) = (unit.start_of(query.from_time), query.until_time);
    let filter = TopIdentifiersFilter {
        workspace,
        namespace_id: query.namespace_id,
        unit,
        from_time,
        until_time,
        spans: rollup_spans::of_period(analytics, kind, unit, from_time, until_time),
        order: query.order,
        rows_max: query.limit,
    };
    analytics.event_store.read().await?.list_top_identifiers(&filter).await
}

//! Queries rollups of verifications by time, key, identity or tag.

use std::cmp::Ordering;
use std::collections::{HashMap, HashSet};

use foundation::clock::Timestamp;
use foundation::error::Result;
use foundation::id::{ApiId, KeyId, WorkspaceId};
pub use foundation::model::RollupUnit;
use foundation::model::{EventKind, VerificationCode};
pub use store::events::{GROUPS_MAX, RegionCount, RollupGrouping, TagGrouping};
use store::events::{OutcomeCounts, RollupFilter, RollupRow, TopMeasure, too_many_groups};

use crate::traffic::LatencyStats;
use crate::{Analytics, rollup_spans};

/// Selects verifications, and how they are grouped.
#[derive(Debug, Default)]
pub struct RollupQuery {
    /// Includes only the identity with this external id.
    pub external_id: Option<String>,
    /// Includes only these keys. Empty: all keys.
    pub key_ids: Vec<KeyId>,
    /// Includes only verifications with all of these tags.
    pub tags: Vec<String>,
    /// Includes only verifications of this region.
    pub region: Option<String>,
    pub from_time: Timestamp,
    pub to_time: Timestamp,
    /// The unit of time to group by. `None`: no grouping by time.
    pub unit: Option<RollupUnit>,
    /// The unit of the rollups that are added up without grouping by time. The finest unit matches
    /// `from_time` and `to_time` most exactly.
    pub grain: RollupUnit,
    pub grouping: RollupGrouping,
    pub order: Option<RollupOrder>,
    /// Includes only groups with verifications of this outcome, if the database sorts them: a descending order by the total, by
    /// rejections or by credits, with a limit.
    pub with_outcome: Option<VerificationCode>,
    pub is_descending: bool,
    pub limit: Option<usize>,
}

/// The value that groups are sorted by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RollupOrder {
    Time,
    Valid,
    /// Always 0: these verifications belong to no key.
    NotFound,
    Forbidden,
    UsageExceeded,
    RateLimited,
    Unauthorized,
    Disabled,
    InsufficientPermissions,
    Expired,
    Total,
    /// All that are not valid.
    Rejected,
    SpentCredits,
}

/// The counts of one group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RollupGroup {
    /// The start of its hour, day or month.
    pub time: Timestamp,
    /// Empty if there is no key, or if the query does not group by key.
    pub key_id: String,
    pub identity_id: String,
    pub external_id: String,
    pub tags: Vec<String>,
    pub spent_credits: i64,
    pub counts: OutcomeCounts,
}

/// Returns the rollups of verifications of these APIs. Empty: of all APIs, including deleted ones.
pub async fn list_groups(
    analytics: &Analytics,
    workspace: &WorkspaceId,
    apis: &[ApiId],
    query: &RollupQuery,
) -> Result<Vec<RollupGroup>> {
    groups_from_rows(list_rows(analytics, workspace, apis, query).await?, query)
}

async fn list_rows(
    analytics: &Analytics,
    workspace: &WorkspaceId,
    apis: &[ApiId],
    query: &RollupQuery,
) -> Result<Vec<RollupRow>> {
    let filter = query.to_filter(analytics, workspace, apis);
    let rows = analytics.event_store.read().await?.list_verification_rollups(&filter).await?;
    match rows.len() <= GROUPS_MAX {
        true => Ok(rows),
        false => Err(too_many_groups()),
    }
}

/// Returns the groups of a query that groups by nothing but time, like [`list_groups`], each with its latencies.
pub async fn list_with_latencies(
    analytics: &Analytics,
    workspace: &WorkspaceId,
    apis: &[ApiId],
    query: RollupQuery,
) -> Result<Vec<(RollupGroup, LatencyStats)>> {
    let filter = query.to_filter(analytics, workspace, apis);
    let found = analytics.event_store.read().await?.list_rollups_with_latencies(&filter).await?;
    if found.len() > GROUPS_MAX {
        return Err(too_many_groups());
    }
    let (mut rows, mut latencies) = (Vec::new(), HashMap::new());
    for (row, histogram) in found {
        let of_row = LatencyStats::new(row.counts.total, row.latency_us, histogram);
        latencies.insert(row.time, of_row);
        rows.push(row);
    }
    let with_latencies = |group: RollupGroup| {
        let latencies = latencies.remove(&group.time).unwrap_or_default();
        (group, latencies)
    };
    Ok(groups_from_rows(rows, &query)?.into_iter().map(with_latencies).collect())
}

/// Returns the number of verifications that the query selects by region, the region with the most first.
pub async fn count_by_region(
    analytics: &Analytics,
    workspace: &WorkspaceId,
    apis: &[ApiId],
    query: &RollupQuery,
) -> Result<Vec<RegionCount>> {
    let filter = query.to_filter(analytics, workspace, apis);
    analytics.event_store.read().await?.count_by_region(&filter).await
}

/// Returns the number of keys with at least one verification that the query selects, of these APIs. Empty: of all APIs.
pub async fn count_keys(
    analytics: &Analytics,
    workspace: &WorkspaceId,
    apis: &[ApiId],
    query: &RollupQuery,
) -> Result<i64> {
    let filter = query.to_filter(analytics, workspace, apis);
    analytics.event_store.read().await?.count_verified_keys(&filter).await
}

impl RollupQuery {
    fn to_filter<'a>(
        &'a self,
        analytics: &Analytics,
        workspace: &'a WorkspaceId,
        apis: &'a [ApiId],
    ) -> RollupFilter<'a> {
        let unit = self.unit.unwrap_or(self.grain);
        let from = match unit {
            RollupUnit::Minute | RollupUnit::Hour => self.from_time,
            RollupUnit::Day | RollupUnit::Month => unit.start_of(self.from_time),
        };
        let top = self.top();
        let kind = EventKind::Verifications;
        let until = self.to_time.plus_ms(1);
        RollupFilter {
            workspace,
            api_ids: apis,
            external_id: self.external_id.as_deref(),
            key_ids: &self.key_ids,
            tags: &self.tags,
            region: self.region.as_deref(),
            from_time: from,
            to_time: self.to_time,
            unit,
            spans: rollup_spans::of_period(analytics, kind, unit, from, until),
            is_by_time: self.unit.is_some(),
            grouping: self.grouping,
            top_by: top.map(|(measure, _)| measure),
            with_outcome: self.with_outcome,
            rows_max: top.map_or(GROUPS_MAX + 1, |(_, max)| max),
        }
    }

    /// Returns what the query selects the most of, and the number of groups: the database finds them among any number of groups.
    fn top(&self) -> Option<(TopMeasure, usize)> {
        let measure = match self.order? {
            RollupOrder::Total => TopMeasure::Total,
            RollupOrder::Rejected => TopMeasure::Rejected,
            RollupOrder::SpentCredits => TopMeasure::SpentCredits,
            _ => return None,
        };
        let is_sorted_by_database = self.is_descending && self.unit.is_none();
        let max = self.limit.filter(|max| is_sorted_by_database && *max <= GROUPS_MAX)?;
        Some((measure, max))
    }
}

/// Returns the rollups of verifications of these keys by day, without the days that have none. `apis` are the APIs of
/// the keys.
pub async fn list_days_of_keys(
    analytics: &Analytics,
    workspace: &WorkspaceId,
    apis: &[ApiId],
    keys: Vec<KeyId>,
    from: Timestamp,
    to: Timestamp,
) -> Result<Vec<RollupGroup>> {
    let query = RollupQuery {
        key_ids: keys,
        from_time: from,
        to_time: to,
        unit: Some(RollupUnit::Day),
        ..RollupQuery::default()
    };
    let rows = list_rows(analytics, workspace, apis, &query).await?;
    let mut days = to_groups(rows, &query);
    sort_groups(&mut days, &query);
    Ok(days)
}

/// Returns the groups of a query, including those without verifications, in its order.
fn groups_from_rows(rows: Vec<RollupRow>, query: &RollupQuery) -> Result<Vec<RollupGroup>> {
    let mut groups = to_groups(rows, query);
    add_empty_groups(&mut groups, query)?;
    sort_groups(&mut groups, query);
    groups.truncate(query.limit.unwrap_or(usize::MAX));
    Ok(groups)
}

fn to_groups(rows: Vec<RollupRow>, query: &RollupQuery) -> Vec<RollupGroup> {
    rows.into_iter()
        .map(|row| RollupGroup {
            time: row.time,
            key_id: row.key_id,
            identity_id: row.identity_id,
            external_id: row.external_id,
            tags: match query.grouping.by_tags {
                TagGrouping::Each => vec![row.tags],
                TagGrouping::None | TagGrouping::Set => {
                    serde_json::from_str(&row.tags).unwrap_or_default()
                }
            },
            spent_credits: row.spent_credits,
            counts: row.counts,
        })
        .collect()
}

/// Adds the groups without verifications: the missing units of time, or the only group of a query without grouping. Of a query
/// with a limit, only those are added that can be among its first groups.
fn add_empty_groups(groups: &mut Vec<RollupGroup>, query: &RollupQuery) -> Result<()> {
    let empty_group = |time| RollupGroup {
        time,
        key_id: String::new(),
        identity_id: String::new(),
        external_id: String::new(),
        tags: Vec::new(),
        spent_credits: 0,
        counts: OutcomeCounts::default(),
    };
    let Some(unit) = query.unit else {
        if groups.is_empty() && query.grouping == RollupGrouping::default() {
            groups.push(empty_group(Timestamp(0)));
        }
        return Ok(());
    };
    let present: HashSet<Timestamp> = groups.iter().map(|group| group.time).collect();
    let mut empty = list_slices(unit, query).filter(|at| !present.contains(at)).map(empty_group);
    if let Some(limit) = query.limit.filter(|limit| *limit <= GROUPS_MAX) {
        groups.extend(empty.take(limit));
        return Ok(());
    }
    let room = GROUPS_MAX - groups.len();
    groups.extend(empty.by_ref().take(room));
    match empty.next() {
        None => Ok(()),
        Some(_) => Err(too_many_groups()),
    }
}

/// Returns the starts of the units of time that are in the result whether they have verifications or not. Those that the query
/// sorts first are first.
fn list_slices(unit: RollupUnit, query: &RollupQuery) -> impl Iterator<Item = Timestamp> {
    let period = unit.start_of(query.from_time)..unit.start_of(query.to_time);
    // Groups of equal counts are in ascending order of time.
    let is_latest_first =
        query.is_descending && query.order.unwrap_or(RollupOrder::Time) == RollupOrder::Time;
    let previous = move |at: Timestamp| unit.start_of(at.plus_ms(-1));
    let first = if is_latest_first { previous(period.end) } else { period.start };
    let slices = std::iter::successors(Some(first), move |at| {
        Some(if is_latest_first { previous(*at) } else { unit.start_of_next(*at) })
    });
    slices.take_while(move |at| period.contains(at))
}

fn sort_groups(groups: &mut [RollupGroup], query: &RollupQuery) {
    let by_name = |a: &RollupGroup, b: &RollupGroup| {
        (a.time, &a.key_id, &a.identity_id, &a.tags).cmp(&(
            b.time,
            &b.key_id,
            &b.identity_id,
            &b.tags,
        ))
    };
    let order = query.order.unwrap_or(RollupOrder::Time);
    groups.sort_by(|a, b| {
        let by_order = match order {
            RollupOrder::Time => a.time.cmp(&b.time),
            _ => count_by_order(order, a).cmp(&count_by_order(order, b)),
        };
        let by_order = if query.is_descending { by_order.reverse() } else { by_order };
        if by_order == Ordering::Equal { by_name(a, b) } else { by_order }
    });
}

fn count_by_order(order: RollupOrder, group: &RollupGroup) -> i64 {
    let counts = &group.counts;
    match order {
        RollupOrder::Time | RollupOrder::NotFound | RollupOrder::Unauthorized => 0,
        RollupOrder::Valid => counts.valid,
        RollupOrder::Forbidden => counts.forbidden,
        RollupOrder::UsageExceeded => counts.usage_exceeded,
        RollupOrder::RateLimited => counts.rate_limited,
        RollupOrder::Disabled => counts.disabled,
        RollupOrder::InsufficientPermissions => counts.insufficient_permissions,
        RollupOrder::Expired => counts.expired,
        RollupOrder::Total => counts.total,
        RollupOrder::Rejected => counts.total - counts.valid,
        RollupOrder::SpentCredits => group.spent_credits,
    }
}

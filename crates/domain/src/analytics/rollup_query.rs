//! Queries rollups of verifications by time, key, identity or tag.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet, HashSet};

use foundation::clock::Timestamp;
use foundation::error::{Error, ResourceRef, Result};
use foundation::id::{ApiId, KeyId};

use crate::analytics::Analytics;
use crate::apis;
use crate::caller::Caller;
use crate::context::Context;
use crate::permission::Action;
pub use foundation::model::RollupUnit;
pub use store::events::RollupGrouping;
use store::events::{OutcomeCounts, RollupFilter};

/// The maximum number of groups in a result.
pub const GROUPS_MAX: usize = 100_000;
/// The maximum number of keys of an owner in a query.
const OWNER_KEYS_MAX: i64 = 10_000;

/// Selects verifications, and how they are grouped.
#[derive(Debug, Default)]
pub struct RollupQuery {
    /// Includes only the identity with this external id.
    pub external_id: Option<String>,
    /// Includes only these keys. Empty: all keys.
    pub key_ids: Vec<KeyId>,
    /// Includes only verifications with all of these tags.
    pub tags: Vec<String>,
    pub from_time: Timestamp,
    pub to_time: Timestamp,
    /// The unit of time to group by. `None`: no grouping by time.
    pub unit: Option<RollupUnit>,
    /// The unit of the rollups that are added up without grouping by time. The finest unit matches
    /// `from_time` and `to_time` most exactly.
    pub grain: RollupUnit,
    pub grouping: RollupGrouping,
    /// Whether a verification with several tags counts for each of them. Requires [`RollupGrouping::is_by_tags`].
    pub is_per_tag: bool,
    pub order: Option<RollupOrder>,
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
    pub counts: OutcomeCounts,
}

/// Returns the rollups of verifications of an API.
pub async fn list_by_api(
    analytics: &Analytics,
    caller: &Caller,
    api: &ApiId,
    query: RollupQuery,
) -> Result<Vec<RollupGroup>> {
    apis::get(&analytics.context, caller, api).await?;
    if let Some(external_id) = &query.external_id {
        // The events of a deleted identity are not available by its external id.
        let identity = analytics
            .context
            .store
            .read()
            .await?
            .find_identity_id(caller.workspace_id(), external_id)
            .await?;
        if identity.is_none() {
            return Err(Error::not_found(ResourceRef::Identity(external_id.clone())));
        }
    }
    load_groups(analytics, caller, std::slice::from_ref(api), query).await
}

/// Returns the rollups of verifications of a workspace, or of one of its APIs.
pub async fn list_by_workspace(
    analytics: &Analytics,
    caller: &Caller,
    api: Option<&ApiId>,
    query: RollupQuery,
) -> Result<Vec<RollupGroup>> {
    match api {
        Some(api) => caller.require_on(Action::ReadApiAnalytics, api)?,
        None => caller.require(Action::ReadApiAnalytics)?,
    }
    let apis = match api {
        Some(api) => vec![api.clone()],
        None => {
            let apis =
                analytics.context.store.read().await?.list_all_apis(caller.workspace_id()).await?;
            apis.into_iter().map(|api| api.id).collect()
        }
    };
    load_groups(analytics, caller, &apis, query).await
}

/// The keys that a query includes.
#[derive(Debug)]
pub enum RollupScope {
    Key(KeyId),
    /// All keys with this owner id, which the customer chooses.
    Owner(String),
}

/// Returns the rollups of verifications of keys by day, without the days that have none. The caller needs permission
/// to read each of the keys.
pub async fn list_by_keys(
    analytics: &Analytics,
    caller: &Caller,
    scope: RollupScope,
    from: Timestamp,
    to: Timestamp,
) -> Result<Vec<RollupGroup>> {
    let keys = list_keys(&analytics.context, caller, scope).await?;
    let apis: BTreeSet<&ApiId> = keys.iter().map(|(_, api)| api).collect();
    for api in &apis {
        caller.require_on(Action::ReadKey, *api)?;
    }
    let apis: Vec<ApiId> = apis.into_iter().cloned().collect();
    let keys = keys.into_iter().map(|(key, _)| key).collect();
    let query = RollupQuery {
        key_ids: keys,
        from_time: from,
        to_time: to,
        unit: Some(RollupUnit::Day),
        ..RollupQuery::default()
    };
    let mut groups = load_groups(analytics, caller, &apis, query).await?;
    groups.retain(|group| group.counts != OutcomeCounts::default());
    Ok(groups)
}

/// Returns the keys, each with its API.
async fn list_keys(
    context: &Context,
    caller: &Caller,
    scope: RollupScope,
) -> Result<Vec<(KeyId, ApiId)>> {
    let mut reader = context.store.read().await?;
    match scope {
        RollupScope::Key(id) => {
            let found = reader.find_key(caller.workspace_id(), &id).await?;
            let found = found.ok_or_else(|| Error::not_found(ResourceRef::Key(id)))?;
            Ok(vec![(found.key.id, found.key.api_id)])
        }
        RollupScope::Owner(owner) => {
            let found = reader
                .list_keys_by_owner(caller.workspace_id(), &owner, OWNER_KEYS_MAX + 1)
                .await?;
            match i64::try_from(found.len()) {
                Ok(0) => Err(Error::not_found(ResourceRef::Identity(owner))),
                Ok(1..=OWNER_KEYS_MAX) => Ok(found),
                _ => Err(Error::invalid(
                    "ownerId",
                    format!("ownerId: has more than {OWNER_KEYS_MAX} keys; query by key or by API"),
                )),
            }
        }
    }
}

async fn load_groups(
    analytics: &Analytics,
    caller: &Caller,
    apis: &[ApiId],
    query: RollupQuery,
) -> Result<Vec<RollupGroup>> {
    let unit = query.unit.unwrap_or(query.grain);
    let from = match unit {
        RollupUnit::Minute | RollupUnit::Hour => query.from_time,
        RollupUnit::Day | RollupUnit::Month => unit.start_of(query.from_time),
    };
    let filter = RollupFilter {
        workspace: caller.workspace_id(),
        api_ids: apis,
        external_id: query.external_id.as_deref(),
        key_ids: &query.key_ids,
        tags: &query.tags,
        from_time: from,
        to_time: query.to_time,
        unit,
        is_by_time: query.unit.is_some(),
        grouping: query.grouping,
        rows_max: GROUPS_MAX + 1,
    };
    let rows = analytics.event_store.read().await?.list_verification_rollups(&filter).await?;
    if rows.len() > GROUPS_MAX {
        return Err(Error::invalid(
            "groupBy",
            format!(
                "the result has more than {GROUPS_MAX} rows; query a shorter period or fewer groups"
            ),
        ));
    }
    let mut groups: Vec<RollupGroup> = rows
        .into_iter()
        .map(|row| RollupGroup {
            time: row.time,
            key_id: row.key_id,
            identity_id: row.identity_id,
            external_id: row.external_id,
            tags: serde_json::from_str(&row.tags).unwrap_or_default(),
            counts: row.counts,
        })
        .collect();
    if query.is_per_tag {
        groups = split_by_tag(groups);
    }
    add_empty_groups(&mut groups, &query);
    sort_groups(&mut groups, &query);
    groups.truncate(query.limit.unwrap_or(usize::MAX));
    Ok(groups)
}

/// Returns one group per tag. Verifications without tags are in no group.
fn split_by_tag(groups: Vec<RollupGroup>) -> Vec<RollupGroup> {
    let mut by_tag: BTreeMap<(Timestamp, String, String, String), RollupGroup> = BTreeMap::new();
    for group in groups {
        for tag in &group.tags {
            let group_key =
                (group.time, tag.clone(), group.key_id.clone(), group.identity_id.clone());
            let empty = || RollupGroup {
                tags: vec![tag.clone()],
                counts: OutcomeCounts::default(),
                ..group.clone()
            };
            by_tag.entry(group_key).or_insert_with(empty).counts.merge(&group.counts);
        }
    }
    by_tag.into_values().collect()
}

/// Adds the groups without verifications: the missing units of time, or the only group of a query without grouping.
fn add_empty_groups(groups: &mut Vec<RollupGroup>, query: &RollupQuery) {
    let empty_group = |time| RollupGroup {
        time,
        key_id: String::new(),
        identity_id: String::new(),
        external_id: String::new(),
        tags: Vec::new(),
        counts: OutcomeCounts::default(),
    };
    let Some(unit) = query.unit else {
        if groups.is_empty() && query.grouping == RollupGrouping::default() {
            groups.push(empty_group(Timestamp(0)));
        }
        return;
    };
    let present: HashSet<Timestamp> = groups.iter().map(|group| group.time).collect();
    let end = unit.start_of(query.to_time);
    let slices = std::iter::successors(Some(unit.start_of(query.from_time)), |at| {
        Some(unit.start_of_next(*at))
    });
    let empty = slices.take_while(|at| *at < end).filter(|at| !present.contains(at));
    let room = GROUPS_MAX.saturating_sub(present.len());
    groups.extend(empty.take(room).map(empty_group));
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
            _ => count_by_order(order, &a.counts).cmp(&count_by_order(order, &b.counts)),
        };
        let by_order = if query.is_descending { by_order.reverse() } else { by_order };
        if by_order == Ordering::Equal { by_name(a, b) } else { by_order }
    });
}

fn count_by_order(order: RollupOrder, counts: &OutcomeCounts) -> i64 {
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
    }
}

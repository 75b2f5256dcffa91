//! Decides which events a caller may read: checks the permission of the caller and resolves what it names, and then
//! reads the events of exactly that.

use std::collections::BTreeSet;

pub use analytics::event_log::{LogCursor, LogPage, LogQuery, VerificationLogFilter};
pub use analytics::recent::{CHECKS_MAX, RecentCheck, RecentVerification, RequestEvents};
pub use analytics::rollup_query::{
    RegionCount, RollupGroup, RollupGrouping, RollupOrder, RollupQuery, RollupUnit, TagGrouping,
};
pub use analytics::sql_query::QUERY_TIMEOUT;
use analytics::sql_query::QueryScope;
pub use analytics::tail::{CheckTailFilter, Tail, TailFilter, TailStep};
pub use analytics::top_identifiers::{IdentifierOrder, IdentifierQuery, IdentifierRow};
pub use analytics::traffic::{LatencyStats, Traffic, TrafficCoverage, TrafficFilter};
use analytics::{Analytics, event_log, recent, rollup_query, sql_query, top_identifiers, traffic};
use foundation::clock::Timestamp;
use foundation::error::{Error, ResourceRef, Result};
use foundation::id::{ApiId, KeyId};
use foundation::model::EventKind;
use serde_json::value::RawValue;

use crate::apis;
use crate::caller::Caller;
use crate::context::Context;
use crate::permission::Action;

/// The maximum number of keys of an owner in a query.
const OWNER_KEYS_MAX: i64 = 10_000;

/// Returns the start of the first minute whose requests can be counted.
pub fn minutes_retained_since(analytics: &Analytics, kind: EventKind) -> Timestamp {
    traffic::first_retained(analytics, kind, RollupUnit::Minute)
}

/// Returns the rollups of verifications of an API.
pub async fn list_rollups_by_api(
    context: &Context,
    analytics: &Analytics,
    caller: &Caller,
    api: &ApiId,
    query: RollupQuery,
) -> Result<Vec<RollupGroup>> {
    apis::get(context, caller, api).await?;
    let workspace = caller.workspace_id();
    if let Some(external_id) = &query.external_id {
        // The events of a deleted identity are not available by its external id.
        let mut reader = context.store.read().await?;
        if reader.find_identity_id(workspace, external_id).await?.is_none() {
            return Err(Error::not_found(ResourceRef::Identity(external_id.clone())));
        }
    }
    rollup_query::list_groups(analytics, workspace, std::slice::from_ref(api), &query).await
}

/// Returns the rollups of verifications of a workspace, including those of deleted APIs, or of one of its APIs.
pub async fn list_rollups_by_workspace(
    analytics: &Analytics,
    caller: &Caller,
    api: Option<&ApiId>,
    query: RollupQuery,
) -> Result<Vec<RollupGroup>> {
    let apis = require_on_api_or_all(caller, api)?;
    rollup_query::list_groups(analytics, caller.workspace_id(), apis, &query).await
}

/// Returns the rollups of a query that groups by nothing but time, like [`list_rollups_by_workspace`], each with its latencies.
pub async fn list_latencies_by_workspace(
    analytics: &Analytics,
    caller: &Caller,
    api: Option<&ApiId>,
    query: RollupQuery,
) -> Result<Vec<(RollupGroup, LatencyStats)>> {
    let apis = require_on_api_or_all(caller, api)?;
    rollup_query::list_with_latencies(analytics, caller.workspace_id(), apis, query).await
}

/// Returns the number of verifications by region, otherwise like [`list_rollups_by_workspace`].
pub async fn count_by_region(
    analytics: &Analytics,
    caller: &Caller,
    api: Option<&ApiId>,
    query: &RollupQuery,
) -> Result<Vec<RegionCount>> {
    let apis = require_on_api_or_all(caller, api)?;
    rollup_query::count_by_region(analytics, caller.workspace_id(), apis, query).await
}

/// Returns the number of keys with at least one verification that the query selects, otherwise like
/// [`list_rollups_by_workspace`].
pub async fn count_keys_by_workspace(
    analytics: &Analytics,
    caller: &Caller,
    api: Option<&ApiId>,
    query: &RollupQuery,
) -> Result<i64> {
    let apis = require_on_api_or_all(caller, api)?;
    rollup_query::count_keys(analytics, caller.workspace_id(), apis, query).await
}

fn require_on_api_or_all<'a>(caller: &Caller, api: Option<&'a ApiId>) -> Result<&'a [ApiId]> {
    require_on_or_all(caller, Action::ReadApiAnalytics, api.map(ApiId::as_str))?;
    Ok(api.map(std::slice::from_ref).unwrap_or_default())
}

/// Checks the permission on one resource, or on all if there is no id.
fn require_on_or_all(caller: &Caller, action: Action, id: Option<&str>) -> Result<()> {
    match id {
        Some(id) => caller.require_on(action, &id),
        None => caller.require(action),
    }
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
pub async fn list_rollups_by_keys(
    context: &Context,
    analytics: &Analytics,
    caller: &Caller,
    scope: RollupScope,
    from: Timestamp,
    to: Timestamp,
) -> Result<Vec<RollupGroup>> {
    let keys = list_keys(context, caller, scope).await?;
    let apis: BTreeSet<&ApiId> = keys.iter().map(|(_, api)| api).collect();
    for api in &apis {
        caller.require_on(Action::ReadKey, *api)?;
    }
    let apis: Vec<ApiId> = apis.into_iter().cloned().collect();
    let keys = keys.into_iter().map(|(key, _)| key).collect();
    rollup_query::list_days_of_keys(analytics, caller.workspace_id(), &apis, keys, from, to).await
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

/// Returns the traffic by unit of time, including units without requests.
pub async fn list_traffic(
    analytics: &Analytics,
    caller: &Caller,
    filter: &TrafficFilter<'_>,
) -> Result<Vec<(Timestamp, Traffic)>> {
    require_on_or_all(caller, read_action(filter.kind), filter.resource_id)?;
    traffic::list_by_time(analytics, caller.workspace_id(), filter).await
}

/// Returns the traffic of a period by id of the API or namespace, the one with the most requests first.
pub async fn list_traffic_by_id(
    analytics: &Analytics,
    caller: &Caller,
    filter: &TrafficFilter<'_>,
) -> Result<Vec<(String, Traffic)>> {
    require_on_or_all(caller, read_action(filter.kind), filter.resource_id)?;
    traffic::list_by_id(analytics, caller.workspace_id(), filter).await
}

/// Returns the identifiers with the most limit checks in a namespace, or in all of them.
pub async fn list_top_identifiers(
    analytics: &Analytics,
    caller: &Caller,
    query: &IdentifierQuery<'_>,
) -> Result<Vec<IdentifierRow>> {
    require_on_or_all(caller, Action::ReadRatelimitAnalytics, query.namespace_id)?;
    top_identifiers::list(analytics, caller.workspace_id(), query).await
}

/// Returns the times for which the requests of the workspace can be counted by a unit.
pub async fn find_coverage(
    analytics: &Analytics,
    caller: &Caller,
    kind: EventKind,
    unit: RollupUnit,
) -> Result<TrafficCoverage> {
    caller.require(read_action(kind))?;
    traffic::find_coverage(analytics, caller.workspace_id(), kind, unit).await
}

/// Returns the latest verifications of a key of an API, newest first.
pub async fn list_recent_by_key(
    analytics: &Analytics,
    caller: &Caller,
    api: &ApiId,
    key: &KeyId,
) -> Result<Vec<RecentVerification>> {
    caller.require_on(Action::ReadApiAnalytics, api)?;
    recent::list_by_key(analytics, caller.workspace_id(), key).await
}

/// Returns a page of the verifications of the workspace or of one API, newest first.
pub async fn list_verification_log(
    analytics: &Analytics,
    caller: &Caller,
    query: &LogQuery,
    verifications: &VerificationLogFilter<'_>,
) -> Result<LogPage<RecentVerification>> {
    let api = Some(&*query.resource_id).filter(|id| !id.is_empty());
    require_on_or_all(caller, Action::ReadApiAnalytics, api)?;
    event_log::list_verifications(analytics, caller.workspace_id(), query, verifications).await
}

/// Returns a page of the limit checks of the workspace or of one namespace, newest first: of an identifier, or of all if it is
/// empty.
pub async fn list_check_log(
    analytics: &Analytics,
    caller: &Caller,
    query: &LogQuery,
    identifier: &str,
) -> Result<LogPage<RecentCheck>> {
    let namespace = Some(&*query.resource_id).filter(|id| !id.is_empty());
    require_on_or_all(caller, Action::ReadRatelimitAnalytics, namespace)?;
    event_log::list_checks(analytics, caller.workspace_id(), query, identifier).await
}

/// Fails if a tail with this filter never has an event, because its API or key does not exist or the key belongs to another API.
/// What is deleted may have events.
pub async fn require_tail_sources(
    context: &Context,
    analytics: &Analytics,
    caller: &Caller,
    filter: &TailFilter,
) -> Result<()> {
    let workspace = caller.workspace_id();
    let mut reader = context.store.read().await?;
    if !filter.api_id.is_empty() {
        let api = ApiId::from(filter.api_id.as_str());
        if reader.find_api(workspace, &api).await?.is_none() {
            return Err(Error::not_found(ResourceRef::Api(api)));
        }
    }
    if filter.key_id.is_empty() {
        return Ok(());
    }
    let key = KeyId::from(filter.key_id.as_str());
    let api_id = match reader.find_key(workspace, &key).await? {
        Some(found) => Some(found.key.api_id),
        None => {
            reader.find_deleted_key(workspace, key.as_str(), "").await?.map(|found| found.api_id)
        }
    };
    drop(reader);
    match api_id {
        Some(api) if !filter.api_id.is_empty() && filter.api_id != api.as_str() => {
            let message = format!("key {key} belongs to API {api}, not to {}", filter.api_id);
            Err(Error::invalid("keyId", message))
        }
        // A key that was deleted permanently has only its events.
        None if recent::list_by_key(analytics, workspace, &key).await?.is_empty() => {
            Err(Error::not_found(ResourceRef::Key(key)))
        }
        Some(_) | None => Ok(()),
    }
}

/// Returns the verifications that have been written since the last step of a tail.
pub async fn step_tail(
    analytics: &Analytics,
    caller: &Caller,
    tail: &mut Tail,
    filter: &TailFilter,
) -> Result<TailStep<RecentVerification>> {
    let api = Some(&*filter.api_id).filter(|id| !id.is_empty());
    require_on_or_all(caller, Action::ReadApiAnalytics, api)?;
    tail.step(analytics, caller.workspace_id(), filter).await
}

/// Returns the limit checks that have been written since the last step of a tail.
pub async fn step_check_tail(
    analytics: &Analytics,
    caller: &Caller,
    tail: &mut Tail,
    filter: &CheckTailFilter,
) -> Result<TailStep<RecentCheck>> {
    let namespace = Some(&*filter.namespace_id).filter(|id| !id.is_empty());
    require_on_or_all(caller, Action::ReadRatelimitAnalytics, namespace)?;
    tail.step(analytics, caller.workspace_id(), filter).await
}

/// Finds the events of a request. Returns `None` if the workspace has none, or has none yet.
pub async fn find_by_request(
    analytics: &Analytics,
    caller: &Caller,
    request: &str,
) -> Result<Option<RequestEvents>> {
    caller.require(Action::ReadApiAnalytics)?;
    caller.require(Action::ReadRatelimitAnalytics)?;
    recent::find_by_request(analytics, caller.workspace_id(), request).await
}

/// Runs an SQL query about verifications of every API or checks of every namespace, or of those that the caller may
/// read.
pub async fn run_query(
    analytics: &Analytics,
    caller: &Caller,
    kind: EventKind,
    text: &str,
) -> Result<Vec<Box<RawValue>>> {
    let scope = QueryScope {
        kind,
        workspace_id: caller.workspace_id().clone(),
        resource_ids: list_allowed_ids(caller, read_action(kind))?,
    };
    sql_query::run(analytics, scope, text).await
}

/// Returns the ids that the caller may query. `None`: all.
fn list_allowed_ids(caller: &Caller, action: Action) -> Result<Option<Vec<String>>> {
    if caller.is_allowed(action) {
        return Ok(None);
    }
    let instances = caller.allowed_ids(action);
    match instances.is_empty() {
        true => Err(Error::Forbidden(action.to_wildcard_tuple())),
        false => Ok(Some(instances)),
    }
}

fn read_action(kind: EventKind) -> Action {
    match kind {
        EventKind::Verifications => Action::ReadApiAnalytics,
        EventKind::Ratelimits => Action::ReadRatelimitAnalytics,
    }
}

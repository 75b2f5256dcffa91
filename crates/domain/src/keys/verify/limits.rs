//! The limits that a verification checks: those that apply automatically, and those of the request.

use std::sync::Arc;

use foundation::error::{Error, Refusal, Result};
use foundation::id::{KeyId, RatelimitId};
use foundation::model::Ratelimit;
use limiter::{CounterGroup, GROUP_LIVE_MAX, Window};

use super::{LimitSource, VerifyRequest};
use crate::context::Context;
use crate::keys::Keys;
use crate::resolved_key::{ResolvedKey, ResolvedLimit};

/// A limit that remains to be checked.
pub struct PlannedCheck {
    pub limit: Arc<ResolvedLimit>,
    pub cost: i64,
    /// The group of the key's ad-hoc counters, if this limit is one of them.
    group: Option<Arc<CounterGroup>>,
}

impl PlannedCheck {
    /// Returns the window to consume from.
    pub fn window(&self, context: &Context) -> Window {
        let window = self.limit.window(context, self.cost);
        match &self.group {
            Some(group) => window.with_group(group.clone()),
            None => window,
        }
    }
}

/// Returns the limits to check, sorted by name: those that apply automatically, and those requested, which replace
/// them.
pub fn select_limits(
    keys: &Keys,
    resolved: &ResolvedKey,
    request: &VerifyRequest,
) -> Result<Vec<PlannedCheck>> {
    let is_applied = |limit: &&Arc<ResolvedLimit>| limit.auto_apply && request.auto_applies_limits;
    let applied = resolved.limits.iter().filter(is_applied);
    let mut planned: Vec<_> =
        applied.map(|limit| PlannedCheck { limit: limit.clone(), cost: 1, group: None }).collect();
    let mut group_of_key = None;
    for requested in &request.ratelimits {
        let mut group = None;
        let limit = match requested.limit {
            LimitSource::AdHoc { limit, duration_ms } => {
                group =
                    Some(group_of_key.get_or_insert_with(|| counter_group(keys, resolved)).clone());
                ad_hoc_limit(&keys.context, resolved, &requested.name, limit, duration_ms)
            }
            LimitSource::IfStored => match resolved.find_limit(&requested.name) {
                Some(limit) => limit.clone(),
                None => continue,
            },
            LimitSource::Stored => resolved
                .find_limit(&requested.name)
                .cloned()
                .ok_or_else(|| unknown_limit_error(resolved, &requested.name))?,
        };
        planned.retain(|known| *known.limit.name != *requested.name);
        planned.push(PlannedCheck { limit, cost: requested.cost, group });
    }
    planned.sort_by(|a, b| a.limit.name.cmp(&b.limit.name));
    Ok(planned)
}

fn unknown_limit_error(resolved: &ResolvedKey, name: &str) -> Error {
    let (name, key) = (name.to_owned(), Some(KeyId::from(resolved.key.id())));
    let identity = resolved.identity().map(|identity| identity.id.clone());
    Error::PreconditionFailed(Refusal::UnknownRatelimit { name, key, identity })
}

/// Returns a limit that is given with the request and counted per key.
fn ad_hoc_limit(
    context: &Context,
    resolved: &ResolvedKey,
    name: &str,
    limit: i64,
    duration_ms: i64,
) -> Arc<ResolvedLimit> {
    let (id, name) = (RatelimitId::from(""), name.to_owned());
    let limit =
        Ratelimit { id, name, limit, duration_ms, auto_apply: false, is_approximate: false };
    ResolvedLimit::new(context, &limit, resolved.to_ratelimit_owner())
}

/// Returns the group that bounds the number of ad-hoc counters of a key.
fn counter_group(keys: &Keys, resolved: &ResolvedKey) -> Arc<CounterGroup> {
    let (key, workspace) = (resolved.key.id(), resolved.key.workspace_id());
    let is_full = keys.admission.is_workspace_full(workspace);
    Arc::new(CounterGroup {
        name: keys.context.keyspace.group(key),
        workspace: workspace.clone(),
        live_max: if is_full { 0 } else { GROUP_LIVE_MAX },
    })
}

/// Records the counters that a request has created.
pub fn record_growth(keys: &Keys, limits: &[PlannedCheck]) {
    let windows: Vec<_> = limits.iter().map(|limit| limit.window(&keys.context)).collect();
    keys.admission.record_group_growth(&windows);
}

/// Returns the error of a request that would create more counters than its key or workspace may have.
pub fn too_many_counters_error(context: &Context, limits: &[PlannedCheck]) -> Error {
    let live_max = limits.iter().find_map(|limit| limit.group.as_ref()).map(|group| group.live_max);
    let (owner, max) = match live_max {
        Some(0) => ("workspace", context.settings.security.ad_hoc_counters_max),
        Some(_) | None => ("key", GROUP_LIVE_MAX.into()),
    };
    Error::invalid(
        "/properties/ratelimits",
        format!(
            "ratelimits would create a counter for an ad-hoc limit, and the {owner} has {max} live \
            ones, the maximum: reuse names and durations, or set the limits on the key"
        ),
    )
}

//! Verification of a key.
//!
//! [`check_preconditions`] is pure: it returns the rejection, or the limits to consume. Then at most one Redis call
//! consumes windows and credits together, all or nothing.

use std::net::IpAddr;
use std::sync::Arc;

use foundation::clock::Stopwatch;
use foundation::config::{OPEN_VERIFICATION, OpenVerification};
use foundation::error::{Error, Refusal, Result};
use foundation::id::{ApiId, MigrationId, RatelimitId};
use foundation::model::Ratelimit;
use foundation::secret::{KeyHash, Plaintext};
use foundation::traces;
use limiter::{CounterGroup, GROUP_LIVE_MAX, GroupChange, Window, WindowStatus};
use store::cache::Cached;

use super::find;
use super::{migrate, open_verification, reason};
use crate::analytics::{self, Event};
use crate::caller::Caller;
use crate::context::Context;
use crate::credits::{self, ConsumeDecision};
use crate::keys::Keys;
use crate::last_used;
use crate::query::PermissionQuery;
use crate::resolved_key::{ResolvedKey, ResolvedLimit};
use crate::verification_code::VerificationCode;

/// A request to verify a key.
#[derive(Debug)]
pub struct VerifyRequest {
    pub key: Plaintext,
    /// The API that the key must belong to. Absent: any.
    pub api: Option<ApiId>,
    /// The permissions that the key must have.
    pub permissions: Option<PermissionQuery>,
    /// The credits to spend. Absent: 1 if the key is metered.
    pub cost: Option<i64>,
    pub ratelimits: Vec<RequestedLimit>,
    /// The address that uses the key. Absent: the address of the request.
    pub address: Option<IpAddr>,
    /// A migration in which the key may be pending.
    pub migration: Option<MigrationId>,
    /// The caller's own labels, for analytics.
    pub tags: Vec<String>,
}

/// A limit to check.
#[derive(Debug)]
pub struct RequestedLimit {
    pub name: String,
    pub cost: i64,
    pub limit: LimitSource,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LimitSource {
    /// As configured for the key or its identity.
    Stored,
    /// Likewise, but ignored if neither has it.
    IfStored,
    /// Given with the request, and counted per key.
    AdHoc { limit: i64, duration_ms: i64 },
}

#[derive(Debug, Default)]
pub struct VerifyResult {
    pub code: VerificationCode,
    /// Absent for [`VerificationCode::NotFound`], which reveals nothing.
    pub resolved: Option<Arc<Cached<ResolvedKey>>>,
    /// The remaining credits, account and lease together. `None` for an unlimited key.
    pub credits: Option<i64>,
    /// The limits that were evaluated.
    pub ratelimits: Vec<EvaluatedLimit>,
    /// Whether it was decided without Redis.
    pub is_degraded: bool,
}

/// A limit that was evaluated, and its status.
#[derive(Debug)]
pub struct EvaluatedLimit {
    pub limit: Arc<ResolvedLimit>,
    pub status: WindowStatus,
}

/// A limit that remains to be checked.
struct PlannedCheck {
    limit: Arc<ResolvedLimit>,
    cost: i64,
    /// The group of the key's ad-hoc counters, if this limit is one of them.
    group: Option<Arc<CounterGroup>>,
}

/// Verifies a key. A key of another workspace, or of an API for which the root key may not verify, is reported as not
/// found, like one that was never issued.
pub async fn verify(keys: &Keys, caller: &Caller, request: VerifyRequest) -> Result<VerifyResult> {
    let watch = Stopwatch::new();
    let verified = find_and_verify(keys, caller, request, watch).await?;
    verified.code.counter(&keys.context.metrics.verifications).inc();
    Ok(verified)
}

/// Verifies a key of any workspace for an unauthenticated caller. A client that sends too many keys that do not exist
/// is rejected without a database call.
pub async fn verify_unauthenticated(
    keys: &Keys,
    caller: &Caller,
    request: VerifyRequest,
) -> Result<VerifyResult> {
    let watch = Stopwatch::new();
    if keys.context.settings.security.open_verification == OpenVerification::Off {
        return Err(Error::OperationDisabled(OPEN_VERIFICATION));
    }
    let found = open_verification::find_limited(
        keys,
        &caller.client,
        KeyHash::compute(request.key.expose()),
    )
    .await?;
    let verified = match found {
        Some(resolved) if !resolved.value.stored().workspace_enabled => {
            Err(Error::WorkspaceDisabled)
        }
        found => evaluate_and_record(keys, caller, found, request, watch).await,
    };
    let verified = verified.map_err(|error| {
        match (error, &keys.context.settings.security.open_verification) {
            (
                Error::PreconditionFailed(Refusal::UnknownRatelimit { name, .. }),
                OpenVerification::Minimal,
            ) => Error::PreconditionFailed(Refusal::UnknownRatelimit {
                name,
                key: None,
                identity: None,
            }),
            (error, _) => error,
        }
    })?;
    verified.code.counter(&keys.context.metrics.verifications).inc();
    Ok(verified)
}

async fn find_and_verify(
    keys: &Keys,
    caller: &Caller,
    request: VerifyRequest,
    watch: Stopwatch,
) -> Result<VerifyResult> {
    let hash = KeyHash::compute(request.key.expose());
    let mut found = find::find_by_hash(keys, hash).await?;
    if let (None, Some(migration)) = (&found, &request.migration)
        && Box::pin(migrate::adopt_pending_key(
            &keys.context,
            caller,
            migration,
            request.key.expose(),
        ))
        .await?
    {
        found = find::find_by_hash(keys, hash).await?;
    }
    let visible = found.filter(|resolved| resolved.value.is_visible_to(&caller.principal.value));
    evaluate_and_record(keys, caller, visible, request, watch).await
}

async fn evaluate_and_record(
    keys: &Keys,
    caller: &Caller,
    found: Option<Arc<Cached<ResolvedKey>>>,
    request: VerifyRequest,
    watch: Stopwatch,
) -> Result<VerifyResult> {
    let verified = evaluate(keys, caller, found, &request).await?;
    let took = watch.elapsed();
    keys.context.metrics.verification_durations.observe(took);
    traces::outcome(verified.code.as_str());
    if let Some(resolved) = &verified.resolved {
        if verified.code == VerificationCode::Valid {
            last_used::record_use(&keys.last_used, resolved);
        }
        let event = analytics::VerificationRecord {
            request_id: caller.request_id,
            occurred_at: keys.context.clock.now(),
            resolved_key: resolved.clone(),
            outcome: verified.code,
            spent_credits: verified.spent_credits(&request),
            reason: reason::refusal_reason(&verified, &request, caller),
            tags: request.tags,
            latency_us: i64::try_from(took.as_micros()).unwrap_or(i64::MAX),
        };
        analytics::record(&keys.analytics, Event::Verification(event));
    }
    Ok(verified)
}

impl VerifyResult {
    fn spent_credits(&self, request: &VerifyRequest) -> i64 {
        let is_metered = self.resolved.as_ref().is_some_and(|resolved| resolved.value.is_metered);
        if self.code == VerificationCode::Valid && is_metered {
            request.cost.unwrap_or(1)
        } else {
            0
        }
    }
}

async fn evaluate(
    keys: &Keys,
    caller: &Caller,
    found: Option<Arc<Cached<ResolvedKey>>>,
    request: &VerifyRequest,
) -> Result<VerifyResult> {
    let Some(resolved) = found else {
        let code = VerificationCode::NotFound;
        return Ok(VerifyResult { code, ..VerifyResult::default() });
    };
    let address = request.address.or(caller.client.address);
    let limits = match check_preconditions(keys, &resolved.value, request, address)? {
        Ok(limits) => limits,
        Err(code) => {
            let credits = Box::pin(credits::get_known_balance(&keys.ledger, &resolved.value)).await;
            return Ok(VerifyResult {
                code,
                resolved: Some(resolved),
                credits,
                ..VerifyResult::default()
            });
        }
    };
    if limits.is_empty() && !resolved.value.is_metered {
        let code = VerificationCode::Valid;
        return Ok(VerifyResult { code, resolved: Some(resolved), ..VerifyResult::default() });
    }
    let windows = limits.iter().map(PlannedCheck::window).collect();
    let cost = request.cost.unwrap_or(1);
    let decision = credits::consume(&keys.ledger, &resolved.value, windows, cost).await?;
    if decision.is_key_deleted {
        return Ok(VerifyResult { code: VerificationCode::NotFound, ..VerifyResult::default() });
    }
    match decision.group_change {
        GroupChange::None => {}
        GroupChange::Grown => record_growth(keys, &limits),
        GroupChange::Full => return Err(too_many_counters_error(&keys.context, &limits)),
    }
    let code = match decision.is_admitted {
        true => VerificationCode::Valid,
        false if decision.window_statuses.iter().any(|status| status.is_exceeded) => {
            VerificationCode::RateLimited
        }
        false => VerificationCode::UsageExceeded,
    };
    let limits = limits.into_iter().map(|planned| planned.limit);
    let evaluated = |(limit, status)| EvaluatedLimit { limit, status };
    let ratelimits = limits.zip(decision.window_statuses.iter().copied()).map(evaluated).collect();
    let ConsumeDecision { credits, is_degraded, .. } = decision;
    Ok(VerifyResult { code, credits, ratelimits, resolved: Some(resolved), is_degraded })
}

/// Runs the checks that need neither Redis nor the database, in order. The first that fails decides.
fn check_preconditions(
    keys: &Keys,
    resolved: &ResolvedKey,
    request: &VerifyRequest,
    address: Option<IpAddr>,
) -> Result<std::result::Result<Vec<PlannedCheck>, VerificationCode>> {
    // An invalid query is an error, whatever the other checks return.
    let required = request.permissions.as_ref();
    let allowed = required
        .map_or(Ok(true), |required| required.is_satisfied(|slug| resolved.has_permission(slug)))?;
    if !resolved.enabled {
        return Ok(Err(VerificationCode::Disabled));
    }
    if request.api.as_ref().is_some_and(|api| *api != resolved.stored().key.api_id) {
        return Ok(Err(VerificationCode::Forbidden));
    }
    if resolved.expires_at.is_some_and(|expires| keys.context.clock.now() > expires) {
        return Ok(Err(VerificationCode::Expired));
    }
    if let Some(networks) = &resolved.stored().allowed_networks
        && !address.is_some_and(|address| networks.contains(address))
    {
        return Ok(Err(VerificationCode::Forbidden));
    }
    if !allowed {
        return Ok(Err(VerificationCode::InsufficientPermissions));
    }
    select_limits(keys, resolved, &request.ratelimits).map(Ok)
}

/// Returns the limits to check, sorted by name: those that apply automatically, and those requested, which replace
/// them.
fn select_limits(
    keys: &Keys,
    resolved: &ResolvedKey,
    requested: &[RequestedLimit],
) -> Result<Vec<PlannedCheck>> {
    let applied = resolved.limits.iter().filter(|limit| limit.auto_apply);
    let mut planned: Vec<_> =
        applied.map(|limit| PlannedCheck { limit: limit.clone(), cost: 1, group: None }).collect();
    let mut group_of_key = None;
    for requested in requested {
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
        planned.retain(|known| known.limit.name != requested.name);
        planned.push(PlannedCheck { limit, cost: requested.cost, group });
    }
    planned.sort_by(|a, b| a.limit.name.cmp(&b.limit.name));
    Ok(planned)
}

fn unknown_limit_error(resolved: &ResolvedKey, name: &str) -> Error {
    let (name, key) = (name.to_owned(), Some(resolved.stored().key.id.clone()));
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
    ResolvedLimit::new(context, &limit, resolved.stored().key.id.as_str())
}

/// Returns the group that bounds the number of ad-hoc counters of a key.
fn counter_group(keys: &Keys, resolved: &ResolvedKey) -> Arc<CounterGroup> {
    let key = &resolved.stored().key;
    let is_full = keys.admission.is_workspace_full(&key.workspace_id);
    Arc::new(CounterGroup {
        name: keys.context.keyspace.group(key.id.as_str()),
        workspace: key.workspace_id.clone(),
        live_max: if is_full { 0 } else { GROUP_LIVE_MAX },
    })
}

fn record_growth(keys: &Keys, limits: &[PlannedCheck]) {
    let windows: Vec<_> = limits.iter().map(PlannedCheck::window).collect();
    keys.admission.record_group_growth(&windows);
}

fn too_many_counters_error(context: &Context, limits: &[PlannedCheck]) -> Error {
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

impl PlannedCheck {
    fn window(&self) -> Window {
        let ResolvedLimit { counter, limit, duration_ms, .. } = &*self.limit;
        let window = Window::new(counter.clone(), *limit, *duration_ms, self.cost);
        match &self.group {
            Some(group) => window.with_group(group.clone()),
            None => window,
        }
    }
}

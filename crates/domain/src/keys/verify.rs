//! Verification of a key.
//!
//! [`check_preconditions`] is pure: it returns the rejection, or the limits to consume. Then at most one Redis call
//! consumes windows and credits together, all or nothing.

mod limits;
mod preview;

pub use preview::{VerifyPreview, preview};

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use analytics::Event;
use foundation::clock::Stopwatch;
use foundation::config::{OPEN_VERIFICATION, OpenVerification};
use foundation::error::{Error, Refusal, Result};
use foundation::id::{ApiId, MigrationId};
use foundation::model::VerificationCode;
use foundation::secret::{KeyHash, Plaintext};
use foundation::traces;
use limiter::{GroupChange, WindowStatus};
use limits::PlannedCheck;
use store::cache::Cached;

use super::find;
use super::{migrate, open_verification, reason};
use crate::admission::ConsumeMode;
use crate::caller::Caller;
use crate::credits::{self, ConsumeDecision};
use crate::keys::Keys;
use crate::last_used;
use crate::query::PermissionQuery;
use crate::resolved_key::{ResolvedKey, ResolvedLimit};

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
    /// Whether the limits that apply automatically are consumed too.
    pub auto_applies_limits: bool,
    /// The address that uses the key. Absent: the address of the request.
    pub address: Option<IpAddr>,
    /// A migration in which the key may be pending.
    pub migration: Option<MigrationId>,
    /// The caller's own labels, for analytics.
    pub tags: Vec<String>,
    /// Whether the gateway policy of the caller has no rule for what the key is used for: then a usable key is forbidden.
    pub is_refused_by_policy: bool,
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
    /// The credits that the request costs, if limits and credits were evaluated.
    pub cost: i64,
    /// Whether it was decided without Redis.
    pub is_degraded: bool,
}

/// A limit that was evaluated, and its status.
#[derive(Debug)]
pub struct EvaluatedLimit {
    pub limit: Arc<ResolvedLimit>,
    /// What the request takes of it.
    pub cost: i64,
    pub status: WindowStatus,
}

/// Verifies a key. A key of another workspace, or of an API for which the root key may not verify, is reported as not
/// found, like one that was never issued.
pub async fn verify(keys: &Keys, caller: &Caller, request: VerifyRequest) -> Result<VerifyResult> {
    let watch = Stopwatch::new();
    let verified = find_and_verify(keys, caller, request, watch).await?;
    verified.code.counter(&keys.context.metrics.verifications).inc();
    Ok(verified)
}

/// Rejects a text that is too long to be a key, without looking it up. It counts like any other key that is not found.
pub fn reject_too_long(keys: &Keys, caller: &Caller) -> VerifyResult {
    let verified = VerifyResult { code: VerificationCode::NotFound, ..VerifyResult::default() };
    keys.context.metrics.verification_durations.observe(Duration::ZERO);
    traces::outcome(verified.code.as_str());
    analytics::record_not_found(&keys.analytics, caller.workspace_id(), 0);
    verified.code.counter(&keys.context.metrics.verifications).inc();
    verified
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
        Some(resolved) if !resolved.value.key.is_workspace_enabled() => {
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
    let mut found = find::find_by_hash(keys, &hash).await?;
    if let (None, Some(migration)) = (&found, &request.migration)
        && Box::pin(migrate::adopt_pending_key(
            &keys.context,
            caller,
            migration,
            request.key.expose(),
        ))
        .await?
    {
        found = find::find_by_hash(keys, &hash).await?;
    }
    let visible = found.filter(|resolved| resolved.value.is_visible_to(&caller.principal.value));
    let verified = evaluate_and_record(keys, caller, visible, request, watch).await?;
    if verified.code == VerificationCode::NotFound {
        let latency_us = to_micros(watch.elapsed());
        analytics::record_not_found(&keys.analytics, caller.workspace_id(), latency_us);
    }
    Ok(verified)
}

fn to_micros(took: Duration) -> i64 {
    i64::try_from(took.as_micros()).unwrap_or(i64::MAX)
}

async fn evaluate_and_record(
    keys: &Keys,
    caller: &Caller,
    found: Option<Arc<Cached<ResolvedKey>>>,
    request: VerifyRequest,
    watch: Stopwatch,
) -> Result<VerifyResult> {
    let verified = evaluate(keys, caller, found, &request, ConsumeMode::Consume).await?;
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
            latency_us: to_micros(took),
        };
        analytics::record(&keys.analytics, Event::Verification(event));
    }
    Ok(verified)
}

impl VerifyResult {
    fn spent_credits(&self, request: &VerifyRequest) -> i64 {
        let is_metered = self.resolved.as_ref().is_some_and(|resolved| resolved.value.is_metered());
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
    mode: ConsumeMode,
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
    if limits.is_empty() && !resolved.value.is_metered() {
        let code = VerificationCode::Valid;
        return Ok(VerifyResult { code, resolved: Some(resolved), ..VerifyResult::default() });
    }
    let windows: Vec<_> = limits.iter().map(|limit| limit.window(&keys.context)).collect();
    let cost = request.cost.unwrap_or(1);
    let decision = match mode {
        ConsumeMode::Consume => {
            credits::consume(&keys.ledger, &resolved.value, windows, cost).await?
        }
        // Boxed, so that the future of a verification stays small.
        ConsumeMode::Peek => {
            Box::pin(credits::preview(&keys.ledger, &resolved.value, &windows, cost)).await?
        }
    };
    if decision.is_key_deleted {
        return Ok(VerifyResult { code: VerificationCode::NotFound, ..VerifyResult::default() });
    }
    match decision.group_change {
        GroupChange::None => {}
        GroupChange::Grown => limits::record_growth(keys, &limits),
        GroupChange::Full => return Err(limits::too_many_counters_error(&keys.context, &limits)),
    }
    let code = match decision.is_admitted {
        true => VerificationCode::Valid,
        false if decision.window_statuses.iter().any(|status| status.is_exceeded) => {
            VerificationCode::RateLimited
        }
        false => VerificationCode::UsageExceeded,
    };
    let evaluated =
        |(PlannedCheck { limit, cost, .. }, status)| EvaluatedLimit { limit, cost, status };
    let statuses = decision.window_statuses.iter().copied();
    let ratelimits = limits.into_iter().zip(statuses).map(evaluated).collect();
    let ConsumeDecision { credits, is_degraded, .. } = decision;
    Ok(VerifyResult { code, credits, ratelimits, cost, resolved: Some(resolved), is_degraded })
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
    if !resolved.key.is_enabled() {
        return Ok(Err(VerificationCode::Disabled));
    }
    if request.api.as_ref().is_some_and(|api| api != resolved.key.api_id()) {
        return Ok(Err(VerificationCode::Forbidden));
    }
    if resolved.key.expires_at().is_some_and(|expires| keys.context.clock.now() > expires) {
        return Ok(Err(VerificationCode::Expired));
    }
    if request.is_refused_by_policy {
        return Ok(Err(VerificationCode::Forbidden));
    }
    if let Some(networks) = resolved.key.allowed_networks()
        && !address.is_some_and(|address| networks.contains(address))
    {
        return Ok(Err(VerificationCode::Forbidden));
    }
    if !allowed {
        return Ok(Err(VerificationCode::InsufficientPermissions));
    }
    limits::select_limits(keys, resolved, request).map(Ok)
}

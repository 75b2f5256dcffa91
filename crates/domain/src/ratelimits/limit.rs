//! Rate-limit checks. A check in a cached namespace calls only Redis.

use std::sync::Arc;
use std::time::Duration;

use analytics::Event;
use foundation::clock::Stopwatch;
use foundation::error::{Error, Result};
use foundation::id::OverrideId;
use foundation::model::OutagePolicy;
use limiter::{Window, WindowStatus};
use store::StoredNamespace;
use store::cache::Cached;

use super::namespaces::{self, NamespaceRef};
use crate::admission::{self, LimitDecision};
use crate::caller::Caller;
use crate::context::Context;
use crate::ratelimits::Ratelimits;

/// A rate-limit check.
#[derive(Debug)]
pub struct LimitCheck {
    /// The id or the name of the namespace.
    pub namespace: String,
    pub identifier: String,
    /// The maximum total cost in one window of `duration_ms`, unless an override applies.
    pub limit: i64,
    pub duration_ms: i64,
    /// The cost to consume; 0 only peeks.
    pub cost: i64,
    /// Whether an approximate answer from process memory is preferred to an exact one.
    pub is_approximate: bool,
}

/// The result of a check.
#[derive(Debug)]
pub struct LimitResult {
    /// The limit that was applied.
    pub limit: i64,
    /// The window length that was applied.
    pub duration_ms: i64,
    pub window_status: WindowStatus,
    /// The override that set the limit.
    pub override_id: Option<OverrideId>,
}

/// A check with its limit and window resolved, ready to be counted.
pub(super) struct PreparedCheck {
    pub(super) window: Window,
    outage_policy: OutagePolicy,
    pub(super) limit: i64,
    pub(super) duration_ms: i64,
    override_id: Option<OverrideId>,
}

/// A check whose limit is known.
pub(super) struct LimitedCheck<'a> {
    pub(super) identifier: &'a str,
    pub(super) limit: i64,
    pub(super) duration_ms: i64,
    pub(super) cost: i64,
    pub(super) override_id: Option<OverrideId>,
}

/// Checks one limit and consumes its cost if it is admitted. A namespace that does not exist is created if the caller
/// has the permission.
///
/// The second value is whether the result was decided without Redis.
pub async fn check_limit(
    ratelimits: &Ratelimits,
    caller: &Caller,
    mut check: LimitCheck,
) -> Result<(LimitResult, bool)> {
    let watch = Stopwatch::new();
    let name = NamespaceRef::new(caller, std::mem::take(&mut check.namespace));
    let namespace = match namespaces::find(ratelimits, &name).await? {
        Some(namespace) => namespaces::require_usable(caller, namespace)?,
        // Boxed to keep the future of a check in an existing namespace small.
        None => Box::pin(namespaces::create_on_first_use(ratelimits, caller, &name)).await?,
    };
    let prepared = PreparedCheck::new(&ratelimits.context, &namespace.value, &check);
    let LimitDecision { statuses: standings, is_degraded: degraded, .. } =
        match check.is_approximate {
            true => {
                let window = prepared.window.clone();
                record_decision_metric(
                    &ratelimits.context,
                    admission::consume_approximate(
                        &ratelimits.admission,
                        window,
                        prepared.outage_policy,
                    )
                    .await?,
                )
            }
            false => consume_checks(&ratelimits.context, std::slice::from_ref(&prepared)).await?,
        };
    let status = standings.into_iter().next();
    let status = status.ok_or_else(|| Error::Internal("the window has no status".into()))?;
    let result = prepared.into_result(status);
    let elapsed = watch.elapsed();
    ratelimits.context.metrics.ratelimit_durations.observe(elapsed);
    if !caller.skips_analytics {
        let LimitCheck { identifier, cost, .. } = check;
        record(ratelimits, caller, namespace, identifier, cost, &result, to_micros(elapsed));
    }
    Ok((result, degraded))
}

/// Checks several limits and consumes the costs of all of them, or of none. The costs of checks of the same counter add
/// up. The results are in the order of the checks. Namespaces that do not exist are created in one transaction, if the
/// caller may use all of them.
pub async fn check_limits(
    ratelimits: &Ratelimits,
    caller: &Caller,
    checks: &[LimitCheck],
) -> Result<(Vec<LimitResult>, bool)> {
    let watch = Stopwatch::new();
    let name = |check: &LimitCheck| NamespaceRef::new(caller, check.namespace.clone());
    let names: Vec<_> = checks.iter().map(name).collect();
    let namespaces = namespaces::find_or_create(ratelimits, caller, &names).await?;
    let found = namespaces.iter().map(|found| &found.value);
    let prepare = |(namespace, check)| PreparedCheck::new(&ratelimits.context, namespace, check);
    let prepared: Vec<_> = found.zip(checks).map(prepare).collect();
    let LimitDecision { statuses: standings, is_degraded: degraded, .. } =
        consume_checks(&ratelimits.context, &prepared).await?;
    let to_result = |(check, status): (PreparedCheck, _)| check.into_result(status);
    let results: Vec<_> = prepared.into_iter().zip(standings).map(to_result).collect();
    let elapsed = watch.elapsed();
    ratelimits.context.metrics.ratelimit_durations.observe(elapsed);
    let each_us = to_micros(elapsed) / i64::try_from(checks.len().max(1)).unwrap_or(1);
    for ((namespace, check), result) in namespaces.into_iter().zip(checks).zip(&results) {
        let identifier = check.identifier.clone();
        record(ratelimits, caller, namespace, identifier, check.cost, result, each_us);
    }
    Ok((results, degraded))
}

pub(super) fn to_micros(duration: Duration) -> i64 {
    i64::try_from(duration.as_micros()).unwrap_or(i64::MAX)
}

pub(super) fn record(
    ratelimits: &Ratelimits,
    caller: &Caller,
    namespace: Arc<Cached<StoredNamespace>>,
    identifier: String,
    tokens: i64,
    result: &LimitResult,
    latency_us: i64,
) {
    let LimitResult { limit, window_status: standing, override_id, duration_ms: _ } = result;
    let event = analytics::LimitCheckRecord {
        request_id: caller.request_id,
        occurred_at: ratelimits.context.clock.now(),
        namespace,
        identifier,
        passed: !standing.is_exceeded,
        latency_us,
        override_id: override_id.clone(),
        limit: *limit,
        remaining: standing.remaining,
        reset_at: standing.reset_at,
        tokens,
    };
    analytics::record(&ratelimits.analytics, Event::Ratelimit(event));
}

/// Consumes the windows exactly. While Redis is unreachable, the strictest outage policy among the namespaces applies
/// to all of them.
pub(super) async fn consume_checks(
    context: &Context,
    checks: &[PreparedCheck],
) -> Result<LimitDecision> {
    let windows = checks.iter().map(|check| check.window.clone()).collect();
    let on_outage = checks.iter().map(|check| check.outage_policy).max().unwrap_or_default();
    Ok(record_decision_metric(
        context,
        admission::consume_exact(context, windows, on_outage).await?,
    ))
}

/// Increments the metric of a decision and returns the decision.
fn record_decision_metric(context: &Context, decision: LimitDecision) -> LimitDecision {
    let checks = &context.metrics.ratelimit_checks;
    if decision.is_admitted {
        checks.passed.inc()
    } else {
        checks.refused.inc()
    };
    decision
}

impl PreparedCheck {
    pub(super) fn new(context: &Context, stored: &StoredNamespace, check: &LimitCheck) -> Self {
        let active = stored.overrides.find_active(&check.identifier, context.clock.now());
        let (limit, duration_ms) = active
            .map_or((check.limit, check.duration_ms), |found| (found.limit, found.duration_ms));
        let override_id = active.map(|found| found.id.clone());
        let check = LimitedCheck {
            identifier: &check.identifier,
            limit,
            duration_ms,
            cost: check.cost,
            override_id,
        };
        Self::with_limit(context, stored, check)
    }

    /// Prepares a check whose limit is known.
    pub(super) fn with_limit(
        context: &Context,
        stored: &StoredNamespace,
        check: LimitedCheck<'_>,
    ) -> Self {
        let LimitedCheck { identifier, limit, duration_ms, cost, override_id } = check;
        let counter = context.keyspace.namespace_window(
            stored.namespace.id.as_str(),
            identifier,
            duration_ms,
        );
        let placement = context.placement(stored.namespace.home.as_ref(), &counter, duration_ms);
        let window = Window::new(counter, limit, duration_ms, cost);
        let window = window.placed(&placement, || context.clock.now());
        let on_outage = stored.namespace.outage_policy;
        Self { window, outage_policy: on_outage, limit, duration_ms, override_id }
    }

    pub(super) fn into_result(self, status: WindowStatus) -> LimitResult {
        LimitResult {
            limit: self.limit,
            duration_ms: self.duration_ms,
            window_status: status,
            override_id: self.override_id,
        }
    }
}

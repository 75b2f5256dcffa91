//! The check itself. Of a namespace that has been used lately it asks nothing but the counters.

use std::sync::Arc;
use std::time::Duration;

use foundation::clock::Stopwatch;
use foundation::error::{Error, Result};
use foundation::id::OverrideId;
use foundation::model::OutagePolicy;
use limiter::{Window, WindowStatus};
use store::StoredNamespace;
use store::cache::Cached;

use super::super::admission::{self, LimitDecision};
use super::super::analytics::{self, Event};
use super::super::caller::Caller;
use super::namespaces::{self, NamespaceName};
use crate::app::App;

/// What is asked.
#[derive(Debug)]
pub struct LimitCheck {
    /// An id or a name.
    pub namespace: String,
    pub identifier: String,
    /// What may be taken in one window of `duration_ms`, unless an override says otherwise.
    pub limit: i64,
    pub duration_ms: i64,
    /// What is taken; 0 only looks.
    pub cost: i64,
    /// Whether a quick answer is preferred to an exact one.
    pub is_quick: bool,
}

/// What came of it.
#[derive(Debug)]
pub struct LimitResult {
    /// The limit that was applied.
    pub limit: i64,
    pub standing: WindowStatus,
    /// The override that it came from.
    pub override_id: Option<OverrideId>,
}

/// A check that has only to be counted.
pub(super) struct PreparedCheck {
    pub(super) window: Window,
    on_outage: OutagePolicy,
    pub(super) limit: i64,
    pub(super) duration_ms: i64,
    override_id: Option<OverrideId>,
}

/// Takes from one window, or nothing. A namespace that does not exist is made, if the caller may.
///
/// The answer says too whether it was decided without Redis.
pub async fn limit(
    app: &App,
    caller: &Caller,
    mut check: LimitCheck,
) -> Result<(LimitResult, bool)> {
    let watch = Stopwatch::new();
    let name = NamespaceName::new(caller, std::mem::take(&mut check.namespace));
    let namespace = match namespaces::find(app, &name).await? {
        Some(namespace) => namespaces::usable(caller, namespace)?,
        // Boxed: a check in a known namespace does not carry it around.
        None => Box::pin(namespaces::create_on_first_use(app, caller, &name)).await?,
    };
    let planned = PreparedCheck::new(app, &namespace.value, &check);
    let LimitDecision { standings, degraded, .. } = match check.is_quick {
        true => {
            let window = planned.window.clone();
            record_decision_metric(
                app,
                admission::consume_approximate(app, window, planned.on_outage).await?,
            )
        }
        false => take(app, std::slice::from_ref(&planned)).await?,
    };
    let standing = standings.into_iter().next();
    let standing = standing.ok_or_else(|| Error::Internal("one window has one standing".into()))?;
    let limited = planned.into_result(standing);
    let took = watch.elapsed();
    app.metrics.ratelimit_durations.observe(took);
    if !caller.is_unrecorded {
        let LimitCheck { identifier, cost, .. } = check;
        record(app, caller, namespace, identifier, cost, &limited, micros(took));
    }
    Ok((limited, degraded))
}

/// Takes from all windows, or nothing; windows of one counter add up. The answers are in the order of
/// the checks. Namespaces that do not exist are made together, if the caller may use all of them.
pub async fn limit_all(
    app: &App,
    caller: &Caller,
    checks: &[LimitCheck],
) -> Result<(Vec<LimitResult>, bool)> {
    let watch = Stopwatch::new();
    let name = |check: &LimitCheck| NamespaceName::new(caller, check.namespace.clone());
    let names: Vec<_> = checks.iter().map(name).collect();
    let namespaces = namespaces::find_or_create(app, caller, &names).await?;
    let found = namespaces.iter().map(|found| &found.value);
    let plan = |(namespace, check)| PreparedCheck::new(app, namespace, check);
    let planned: Vec<_> = found.zip(checks).map(plan).collect();
    let LimitDecision { standings, degraded, .. } = take(app, &planned).await?;
    let told = |(planned, standing): (PreparedCheck, _)| planned.into_result(standing);
    let limited: Vec<_> = planned.into_iter().zip(standings).map(told).collect();
    let took = watch.elapsed();
    app.metrics.ratelimit_durations.observe(took);
    let each_us = micros(took) / i64::try_from(checks.len().max(1)).unwrap_or(1);
    for ((namespace, check), limited) in namespaces.into_iter().zip(checks).zip(&limited) {
        let identifier = check.identifier.clone();
        record(app, caller, namespace, identifier, check.cost, limited, each_us);
    }
    Ok((limited, degraded))
}

fn micros(took: Duration) -> i64 {
    i64::try_from(took.as_micros()).unwrap_or(i64::MAX)
}

fn record(
    app: &App,
    caller: &Caller,
    namespace: Arc<Cached<StoredNamespace>>,
    identifier: String,
    tokens: i64,
    limited: &LimitResult,
    latency_us: i64,
) {
    let LimitResult { limit, standing, override_id } = limited;
    let event = analytics::Ratelimit {
        request: caller.request,
        at: app.clock.now(),
        namespace,
        identifier,
        passed: !standing.exceeded,
        latency_us,
        override_id: override_id.clone(),
        limit: *limit,
        remaining: standing.remaining,
        reset_at: standing.reset,
        tokens,
    };
    analytics::record(app, Event::Ratelimit(event));
}

/// Counts, and says the same of all while Redis is away: what the strictest namespace says.
async fn take(app: &App, planned: &[PreparedCheck]) -> Result<LimitDecision> {
    let windows = planned.iter().map(|planned| planned.window.clone()).collect();
    let on_outage = planned.iter().map(|planned| planned.on_outage).max().unwrap_or_default();
    Ok(record_decision_metric(app, admission::consume_exact(app, windows, on_outage).await?))
}

/// What came of a check, counted among all.
fn record_decision_metric(app: &App, tally: LimitDecision) -> LimitDecision {
    let checks = &app.metrics.ratelimit_checks;
    if tally.taken {
        checks.passed.inc()
    } else {
        checks.refused.inc()
    };
    tally
}

impl PreparedCheck {
    pub(super) fn new(app: &App, stored: &StoredNamespace, check: &LimitCheck) -> Self {
        let applying = stored.overrides.find_active(&check.identifier, app.clock.now());
        let (limit, duration_ms) = applying
            .map_or((check.limit, check.duration_ms), |known| (known.limit, known.duration_ms));
        let counter = app.keyspace.namespace_window(
            stored.namespace.id.as_str(),
            &check.identifier,
            duration_ms,
        );
        let window = Window::new(counter, limit, duration_ms, check.cost);
        let on_outage = stored.namespace.on_outage;
        let override_id = applying.map(|known| known.id.clone());
        Self { window, on_outage, limit, duration_ms, override_id }
    }

    fn into_result(self, standing: WindowStatus) -> LimitResult {
        LimitResult { limit: self.limit, standing, override_id: self.override_id }
    }
}

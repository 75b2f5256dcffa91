//! Checks of the descriptors of a gateway's rate-limit service. They are checks like any other, with a limit that may come
//! from the descriptor, from an override or from the policy of the gateway.

use foundation::clock::Stopwatch;
use foundation::error::{Error, Result};
use foundation::id::OverrideId;
use foundation::model::{DefaultLimit, EnforcementMode};
use limiter::{Window, WindowStatus};
use store::StoredNamespace;

use super::limit::{LimitedCheck, PreparedCheck, consume_checks, record, to_micros};
use super::namespaces::{self, NamespaceRef};
use crate::caller::Caller;
use crate::context::Context;
use crate::ratelimits::{LimitResult, Ratelimits};

/// One descriptor to check.
#[derive(Debug)]
pub struct DescriptorCheck {
    pub identifier: String,
    /// The limit that the descriptor names, which no override replaces.
    pub limit: Option<DefaultLimit>,
    pub hits: Hits,
}

/// What a descriptor does to its counter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hits {
    /// Takes units; 0 only peeks.
    Take(i64),
    /// Gives units back, whatever the limit.
    GiveBack(i64),
}

/// What applies to all descriptors of a namespace.
#[derive(Debug, Clone, Copy, Default)]
pub struct DescriptorRules {
    /// The limit of a descriptor that names none and has no override. Absent: it is not counted.
    pub default_limit: Option<DefaultLimit>,
    pub mode: EnforcementMode,
}

/// The reply to a check of descriptors.
#[derive(Debug)]
pub struct DescriptorReply {
    pub is_admitted: bool,
    /// In the order of the descriptors; `None` for one without a limit.
    pub results: Vec<Option<LimitResult>>,
}

/// A descriptor with a limit.
struct Counted {
    index: usize,
    check: PreparedCheck,
    window: Window,
    hits: Hits,
}

/// Checks descriptors in one namespace and takes the units of all of them, or of none. Units are given back in any case. A
/// namespace that does not exist is created if the caller has the permission.
pub async fn check_descriptors(
    ratelimits: &Ratelimits,
    caller: &Caller,
    namespace: String,
    rules: DescriptorRules,
    descriptors: Vec<DescriptorCheck>,
) -> Result<DescriptorReply> {
    let watch = Stopwatch::new();
    let context = &ratelimits.context;
    let name = NamespaceRef::new(caller, namespace);
    let namespace = match namespaces::find(ratelimits, &name).await? {
        Some(namespace) => namespaces::require_usable(caller, namespace)?,
        None => Box::pin(namespaces::create_on_first_use(ratelimits, caller, &name)).await?,
    };
    let counted: Vec<_> = descriptors
        .iter()
        .enumerate()
        .filter_map(|(index, check)| prepare(context, &namespace.value, rules, index, check))
        .collect();
    let mut results: Vec<_> = descriptors.iter().map(|_| None).collect();
    if counted.is_empty() {
        return Ok(DescriptorReply { is_admitted: true, results });
    }
    let (checks, rest): (Vec<_>, Vec<_>) = counted
        .into_iter()
        .map(|Counted { index, check, window, hits }| (check, (index, window, hits)))
        .unzip();
    let decision = consume_checks(context, &checks).await?;
    let each_us = to_micros(watch.elapsed()) / i64::try_from(checks.len()).unwrap_or(1).max(1);
    ratelimits.context.metrics.ratelimit_durations.observe(watch.elapsed());
    for ((check, status), (index, window, hits)) in
        checks.into_iter().zip(decision.statuses).zip(rest)
    {
        let result = check.into_result(settle(context, &window, status, hits).await);
        let tokens = match hits {
            Hits::Take(units) => units,
            Hits::GiveBack(units) => units.saturating_neg(),
        };
        let identifier = descriptors.get(index).map(|check| check.identifier.clone());
        let identifier =
            identifier.ok_or_else(|| Error::Internal("a descriptor is lost".into()))?;
        record(ratelimits, caller, namespace.clone(), identifier, tokens, &result, each_us);
        if let Some(slot) = results.get_mut(index) {
            *slot = Some(result);
        }
    }
    let is_admitted = decision.is_admitted || rules.mode == EnforcementMode::Shadow;
    Ok(DescriptorReply { is_admitted, results })
}

/// Returns a descriptor with its limit: its own, that of an override, or that of the policy.
fn prepare(
    context: &Context,
    stored: &StoredNamespace,
    rules: DescriptorRules,
    index: usize,
    check: &DescriptorCheck,
) -> Option<Counted> {
    let active = || stored.overrides.find_active(&check.identifier, context.clock.now());
    let (limit, override_id): (DefaultLimit, Option<OverrideId>) = match (check.limit, active()) {
        (Some(own), _) => (own, None),
        (None, Some(found)) => {
            let limit = DefaultLimit { limit: found.limit, duration: found.duration_ms };
            (limit, Some(found.id.clone()))
        }
        (None, None) => (rules.default_limit?, None),
    };
    let cost = match check.hits {
        Hits::Take(units) => units,
        Hits::GiveBack(_) => 0,
    };
    let limited = LimitedCheck {
        identifier: &check.identifier,
        limit: limit.limit,
        duration_ms: limit.duration,
        cost,
        override_id,
    };
    let prepared = PreparedCheck::with_limit(context, stored, limited);
    Some(Counted { index, window: prepared.window.clone(), check: prepared, hits: check.hits })
}

/// Gives units back, and returns the status of the window with them.
async fn settle(
    context: &Context,
    window: &Window,
    status: WindowStatus,
    hits: Hits,
) -> WindowStatus {
    let Hits::GiveBack(units) = hits else { return status };
    let number = status.reset_at.0 / window.duration_ms() - 1;
    match &context.redis {
        Some(redis) => redis.refund(window, number, units).await,
        None => context.local_counters.refund(window.key(), number, units),
    }
    let remaining = status.remaining.saturating_add(units).min(window.limit());
    WindowStatus { remaining, is_exceeded: false, ..status }
}

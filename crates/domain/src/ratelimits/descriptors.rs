//! Checks of the descriptors of a gateway's rate-limit service. They are checks like any other, with a limit that may come
//! from the descriptor, from an override or from the policy of the gateway.

use foundation::clock::Stopwatch;
use foundation::error::Result;
use foundation::model::{DefaultLimit, EnforcementMode};
use limiter::{Refund, Window, WindowStatus};
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
    let prepared: Vec<_> = descriptors
        .iter()
        .map(|descriptor| prepare(context, &namespace.value, rules, descriptor))
        .collect();
    if prepared.iter().all(Option::is_none) {
        return Ok(DescriptorReply {
            is_admitted: true,
            results: prepared.iter().map(|_| None).collect(),
        });
    }
    let (places, checks): (Vec<_>, Vec<_>) =
        prepared.into_iter().enumerate().filter_map(|(at, check)| Some((at, check?))).unzip();
    let decision = consume_checks(context, &checks).await?;
    let mut refunds = Vec::new();
    let mut results: Vec<_> = descriptors.iter().map(|_| None).collect();
    let elapsed = watch.elapsed();
    context.metrics.ratelimit_durations.observe(elapsed);
    let each_us = to_micros(elapsed) / i64::try_from(checks.len()).unwrap_or(1).max(1);
    for ((at, check), status) in places.into_iter().zip(checks).zip(decision.statuses) {
        let (Some(descriptor), Some(slot)) = (descriptors.get(at), results.get_mut(at)) else {
            continue;
        };
        let (status, tokens) = match descriptor.hits {
            Hits::Take(units) => (status, units),
            Hits::GiveBack(units) => {
                let refund = to_refund(&check.window, status, units);
                let status = with_refund(&refund, status);
                refunds.push(refund);
                (status, units.saturating_neg())
            }
        };
        let result = check.into_result(status);
        let identifier = descriptor.identifier.clone();
        record(ratelimits, caller, namespace.clone(), identifier, tokens, &result, each_us);
        *slot = Some(result);
    }
    give_back(context, refunds).await;
    let is_admitted = decision.is_admitted || rules.mode == EnforcementMode::Shadow;
    Ok(DescriptorReply { is_admitted, results })
}

/// Returns the check of a descriptor with its limit: its own, that of an override, or that of the policy. `None`: it has no
/// limit.
fn prepare(
    context: &Context,
    stored: &StoredNamespace,
    rules: DescriptorRules,
    descriptor: &DescriptorCheck,
) -> Option<PreparedCheck> {
    let identifier = &descriptor.identifier;
    let active = match descriptor.limit {
        Some(_) => None,
        None => stored.overrides.find_active(identifier, context.clock.now()),
    };
    let of_override =
        active.map(|found| DefaultLimit { limit: found.limit, duration: found.duration_ms });
    let DefaultLimit { limit, duration } =
        descriptor.limit.or(of_override).or(rules.default_limit)?;
    let cost = match descriptor.hits {
        Hits::Take(units) => units,
        Hits::GiveBack(_) => 0,
    };
    let override_id = active.map(|found| found.id.clone());
    let limited = LimitedCheck { identifier, limit, duration_ms: duration, cost, override_id };
    Some(PreparedCheck::with_limit(context, stored, limited))
}

fn to_refund(window: &Window, status: WindowStatus, units: i64) -> Refund {
    let window_number = status.reset_at.0 / window.duration_ms() - 1;
    Refund { window: window.clone(), window_number, units }
}

/// Returns the status of a window after a refund.
fn with_refund(refund: &Refund, status: WindowStatus) -> WindowStatus {
    let remaining = status.remaining.saturating_add(refund.units).min(refund.window.limit());
    WindowStatus { remaining, is_exceeded: false, ..status }
}

/// Gives units back, all in one step.
async fn give_back(context: &Context, refunds: Vec<Refund>) {
    match &context.redis {
        _ if refunds.is_empty() => {}
        Some(redis) => redis.refund(refunds).await,
        None => {
            for Refund { window, window_number, units } in refunds {
                context.local_counters.refund(window.key(), window_number, units);
            }
        }
    }
}

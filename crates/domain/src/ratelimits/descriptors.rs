//! Checks of the descriptors of a gateway's rate-limit service. They are checks like any other, with a limit that may come
//! from the descriptor, from an override or from the policy of the gateway.

use std::sync::Arc;

use foundation::clock::{Stopwatch, Timestamp};
use foundation::error::Result;
use foundation::model::{DefaultLimit, EnforcementMode};
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use limiter::{Adjustment, Window, WindowStatus};
use store::{StoredNamespace, Uncancelled};

use super::limit::{LimitedCheck, PreparedCheck, consume_checks, record, to_micros};
use super::namespaces::{self, NamespaceRef};
use crate::admission::{self, WindowUsage};
use crate::caller::Caller;
use crate::context::Context;
use crate::ratelimits::{LimitResult, Ratelimits};

/// One descriptor to check.
#[derive(Debug, Clone)]
pub struct DescriptorCheck {
    /// Names the counter.
    pub identifier: String,
    /// The whole identifier, by which overrides are found, if `identifier` is a shorter one.
    pub long_identifier: Option<String>,
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

impl Hits {
    /// Returns whether units are given back.
    pub fn is_give_back(self) -> bool {
        matches!(self, Self::GiveBack(_))
    }
}

/// What applies to all descriptors of a namespace.
#[derive(Debug, Clone, Copy, Default)]
pub struct DescriptorRules {
    /// The limit of a descriptor that names none and has no override. Absent: it is not counted.
    pub default_limit: Option<DefaultLimit>,
    pub mode: EnforcementMode,
    /// Whether the units of a refused call count, too: they were used before it.
    pub counts_refused: bool,
}

/// The reply to a check of descriptors.
#[derive(Debug)]
pub struct DescriptorReply {
    pub is_admitted: bool,
    /// In the order of the descriptors; `None` for one without a limit.
    pub results: Vec<Option<LimitResult>>,
}

/// Checks descriptors in one namespace and takes the units of all of them, or of none, unless the rules count refused calls.
/// Then units are given back, in any case: this neither refuses a call nor changes what is taken. A namespace that does not
/// exist is created if the caller has the permission.
///
/// If the rules count refused calls, the units were used before the call, and units that are given back were taken before it, so
/// a caller that hangs up must not prevent that they count: the check then runs to its end in the background.
pub fn check_descriptors<'a>(
    ratelimits: &'a Arc<Ratelimits>,
    caller: &'a Caller,
    namespace: String,
    rules: DescriptorRules,
    descriptors: &'a [DescriptorCheck],
) -> BoxFuture<'a, Result<DescriptorReply>> {
    let gives_back = descriptors.iter().any(|descriptor| descriptor.hits.is_give_back());
    if !rules.counts_refused && !gives_back {
        return Box::pin(check(ratelimits, caller, namespace, rules, descriptors));
    }
    let (ratelimits, caller) = (ratelimits.clone(), caller.clone());
    let descriptors = descriptors.to_vec();
    let owned = async move { check(&ratelimits, &caller, namespace, rules, &descriptors).await };
    Box::pin(Uncancelled::new(owned.boxed()))
}

async fn check(
    ratelimits: &Ratelimits,
    caller: &Caller,
    namespace: String,
    rules: DescriptorRules,
    descriptors: &[DescriptorCheck],
) -> Result<DescriptorReply> {
    let watch = Stopwatch::new();
    let context = &ratelimits.context;
    let name = NamespaceRef::new(caller, namespace);
    let namespace = match namespaces::find(ratelimits, &name).await? {
        Some(namespace) => namespaces::require_usable(caller, namespace)?,
        None => Box::pin(namespaces::create_on_first_use(ratelimits, caller, &name)).await?,
    };
    let mut takes = Vec::new();
    let mut give_backs = Vec::new();
    for (at, descriptor) in descriptors.iter().enumerate() {
        let Some(check) = prepare(context, &namespace.value, rules, descriptor) else { continue };
        match descriptor.hits {
            Hits::Take(units) => takes.push((at, units, check)),
            Hits::GiveBack(units) => give_backs.push((at, units, check)),
        }
    }
    let mut results: Vec<_> = descriptors.iter().map(|_| None).collect();
    if takes.is_empty() && give_backs.is_empty() {
        return Ok(DescriptorReply { is_admitted: true, results });
    }
    let taken = take(context, rules, takes).await;
    let given_back = give_back(context, give_backs).await;
    let (is_admitted, mut counted) = taken?;
    counted.extend(given_back?);
    let elapsed = watch.elapsed();
    context.metrics.ratelimit_durations.observe(elapsed);
    let each_us = to_micros(elapsed) / i64::try_from(counted.len()).unwrap_or(1).max(1);
    for Counted { at, tokens, result } in counted {
        let (Some(descriptor), Some(slot)) = (descriptors.get(at), results.get_mut(at)) else {
            continue;
        };
        let identifier = descriptor.identifier.clone();
        record(ratelimits, caller, namespace.clone(), identifier, tokens, &result, each_us);
        *slot = Some(result);
    }
    let is_admitted = is_admitted || rules.mode == EnforcementMode::Shadow;
    Ok(DescriptorReply { is_admitted, results })
}

/// A descriptor by its place in the call, its units and its check.
type Planned = (usize, i64, PreparedCheck);

/// The result of a descriptor, and the units that it took; negative if it gave them back.
struct Counted {
    at: usize,
    tokens: i64,
    result: LimitResult,
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
        None => {
            let whole = descriptor.long_identifier.as_deref().unwrap_or(identifier);
            stored.overrides.find_active_by_name(identifier, whole, context.clock.now())
        }
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

/// Takes the units of all descriptors, or of none. Also returns whether it did.
async fn take(
    context: &Context,
    rules: DescriptorRules,
    planned: Vec<Planned>,
) -> Result<(bool, Vec<Counted>)> {
    if planned.is_empty() {
        return Ok((true, Vec::new()));
    }
    let split = |(at, units, check)| ((at, units), check);
    let (places, checks): (Vec<_>, Vec<_>) = planned.into_iter().map(split).unzip();
    let mut decision = consume_checks(context, &checks).await?;
    if rules.counts_refused && !decision.is_admitted {
        count_refused(context, &checks, &mut decision.statuses).await;
    }
    let counted = places.into_iter().zip(checks).zip(decision.statuses);
    let counted = counted.map(|(((at, tokens), check), status)| Counted {
        at,
        tokens,
        result: check.into_result(status),
    });
    Ok((decision.is_admitted, counted.collect()))
}

/// Counts the units of a refused call. Windows then hold more than their limits, and refuse even a look.
async fn count_refused(context: &Context, checks: &[PreparedCheck], statuses: &mut [WindowStatus]) {
    let mut adjustments = Vec::with_capacity(checks.len());
    for (PreparedCheck { window, .. }, status) in checks.iter().zip(statuses) {
        let units = window.cost();
        if units > 0 {
            status.used = status.used.saturating_add(units);
            status.remaining = status.remaining.saturating_sub(units).max(0);
            let window_number = window_number(window, status.reset_at);
            adjustments.push(Adjustment { window: window.clone(), window_number, units });
        }
    }
    adjust(context, adjustments).await;
}

async fn adjust(context: &Context, adjustments: Vec<Adjustment>) {
    match &context.redis {
        Some(redis) => redis.adjust(adjustments).await,
        None => adjustments.iter().for_each(|change| context.local_counters.adjust(change)),
    }
}

/// Returns the number of the window that ends then.
fn window_number(window: &Window, reset_at: Timestamp) -> i64 {
    reset_at.0 / window.duration_ms() - 1
}

/// Gives units back, all in one step. The caller does not say when they were taken: first those of this window are given back, then
/// those of the one before.
async fn give_back(context: &Context, planned: Vec<Planned>) -> Result<Vec<Counted>> {
    if planned.is_empty() {
        return Ok(Vec::new());
    }
    let windows: Vec<_> = planned.iter().map(|(_, _, check)| check.window.clone()).collect();
    let now = context.clock.now();
    let to_adjustment = |(_, units, check): &Planned| Adjustment {
        window: check.window.clone(),
        window_number: now.0.div_euclid(check.window.duration_ms()),
        units: units.saturating_neg(),
    };
    adjust(context, planned.iter().map(to_adjustment).collect()).await;
    let usage = admission::peek(context, windows).await?;
    let mut counted = Vec::with_capacity(planned.len());
    for (index, (at, units, check)) in planned.into_iter().enumerate() {
        let known = usage.as_ref().and_then(|usage| usage.get(index)).copied();
        let status = match known {
            Some(known) => status_after(&check.window, known, 0),
            // While Redis is unreachable, the window counts as full: at least the units given back remain.
            None => status_after(&check.window, full_window(&check.window, now), units),
        };
        counted.push(Counted {
            at,
            tokens: units.saturating_neg(),
            result: check.into_result(status),
        });
    }
    Ok(counted)
}

fn full_window(window: &Window, now: Timestamp) -> WindowUsage {
    let duration_ms = window.duration_ms();
    let window_number = now.0.div_euclid(duration_ms);
    let reset_at = Timestamp(window_number.saturating_add(1).saturating_mul(duration_ms));
    WindowUsage { used: window.limit(), reset_at }
}

/// Returns the status of a window after units were given back, which is never refused.
fn status_after(window: &Window, usage: WindowUsage, units: i64) -> WindowStatus {
    let used = usage.used.saturating_sub(units).max(0);
    let remaining = window.limit().saturating_sub(used).max(0);
    WindowStatus { used, remaining, reset_at: usage.reset_at, is_exceeded: false }
}

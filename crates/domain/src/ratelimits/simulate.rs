//! Simulation of a check, without consuming anything.

use foundation::error::{Error, ResourceRef, Result};
use foundation::model::Override;
use limiter::{EXACT_MAX, WindowStatus};

use super::limit::{LimitCheck, PreparedCheck};
use super::namespaces::{self, NamespaceRef, require_not_deleted};
use crate::admission::{self, LimitDecision};
use crate::caller::Caller;
use crate::permission::Action;
use crate::ratelimits::Ratelimits;

/// The maximum number of matching overrides that a simulation returns.
pub const CANDIDATES_MAX: usize = 50;

/// The result of a simulated check.
#[derive(Debug)]
pub struct SimulationResult {
    /// The first overrides that match the identifier, in the order of precedence.
    pub candidates: Vec<CandidateOverride>,
    /// Whether more overrides match than are returned.
    pub has_more: bool,
    /// The limit that would apply.
    pub limit: i64,
    pub duration_ms: i64,
    /// The status of the window before the check.
    pub window_status: WindowStatus,
    /// Whether the check would be admitted.
    pub is_admitted: bool,
    /// Whether Redis was unreachable and the outage policy decided.
    pub is_degraded: bool,
}

/// An override that matches the identifier.
#[derive(Debug)]
pub struct CandidateOverride {
    pub stored: Override,
    /// Whether it has not expired.
    pub is_live: bool,
    /// Whether this override applies.
    pub is_applied: bool,
}

/// Simulates a check in an existing namespace. It peeks at the window: it consumes nothing, records no event and
/// creates no namespace.
pub async fn simulate(
    ratelimits: &Ratelimits,
    caller: &Caller,
    check: &LimitCheck,
) -> Result<SimulationResult> {
    let named = &check.namespace;
    let found = namespaces::find(ratelimits, &NamespaceRef::new(caller, named.clone())).await?;
    let found = found.ok_or_else(|| Error::not_found(ResourceRef::Namespace(named.clone())))?;
    let stored = &found.value;
    let namespace = require_not_deleted(Some(stored.namespace.clone()), named)?;
    for action in [Action::ReadNamespace, Action::ReadOverride] {
        caller.require_on(action, &namespace.id)?;
    }
    let now = ratelimits.context.clock.now();
    let mut matching = stored.overrides.candidates_for(&check.identifier);
    let mut has_active = false;
    let tried = matching.by_ref().take(CANDIDATES_MAX).map(|candidate| {
        let is_live = candidate.is_active(now);
        let wins = is_live && !has_active;
        has_active |= wins;
        CandidateOverride { stored: candidate.clone(), is_live, is_applied: wins }
    });
    let tried = tried.collect();
    let has_more = matching.next().is_some();
    let peek = LimitCheck {
        identifier: check.identifier.clone(),
        namespace: String::new(),
        cost: 0,
        ..*check
    };
    let prepared = PreparedCheck::new(&ratelimits.context, stored, &peek);
    let LimitDecision { statuses: standings, is_degraded: degraded, .. } =
        admission::consume_exact(
            &ratelimits.context,
            vec![prepared.window.clone()],
            namespace.outage_policy,
        )
        .await?;
    let status = standings.into_iter().next();
    let status = status.ok_or_else(|| Error::Internal("the window has no status".into()))?;
    // Clamped as in a window, which counts only up to the largest exact number.
    let cost = if check.cost > prepared.limit { i64::MAX } else { check.cost.min(EXACT_MAX) };
    Ok(SimulationResult {
        candidates: tried,
        has_more,
        limit: prepared.limit,
        duration_ms: prepared.duration_ms,
        is_admitted: !status.is_exceeded && cost <= status.remaining,
        window_status: status,
        is_degraded: degraded,
    })
}

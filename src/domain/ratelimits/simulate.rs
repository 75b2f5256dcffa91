//! What a check would come to, told without counting it.

use foundation::error::{Error, Result, Subject};
use foundation::model::Override;
use limiter::{EXACT_MAX, WindowStatus};

use super::super::admission::{self, LimitDecision};
use super::super::caller::Caller;
use super::super::permission::Action;
use super::limit::{LimitCheck, PreparedCheck};
use super::namespaces::{self, NamespaceName, live};
use crate::app::App;

/// How many of the overrides that match are told.
pub const TRIED_MAX: usize = 50;

/// What a check would come to.
#[derive(Debug)]
pub struct SimulationResult {
    /// The overrides that match the identifier, in the order in which they are tried; the first ones.
    pub tried: Vec<CandidateOverride>,
    /// Whether more of them match than are told.
    pub has_more: bool,
    /// What would be applied.
    pub limit: i64,
    pub duration_ms: i64,
    /// How the window stands now, before the check.
    pub standing: WindowStatus,
    /// Whether the check would pass.
    pub passes: bool,
    /// Whether the counters could not be asked.
    pub degraded: bool,
}

/// An override that matches.
#[derive(Debug)]
pub struct CandidateOverride {
    pub known: Override,
    /// Whether it has not expired.
    pub is_live: bool,
    /// Whether it is the one that counts.
    pub wins: bool,
}

/// What a check in a namespace that there is would come to now. The window is looked at, which takes nothing from it,
/// leaves no event, and makes nothing.
pub async fn simulate(app: &App, caller: &Caller, check: &LimitCheck) -> Result<SimulationResult> {
    let named = &check.namespace;
    let found = namespaces::find(app, &NamespaceName::new(caller, named.clone())).await?;
    let found = found.ok_or_else(|| Error::not_found(Subject::Namespace(named.clone())))?;
    let stored = &found.value;
    let namespace = live(Some(stored.namespace.clone()), named)?;
    for action in [Action::ReadNamespace, Action::ReadOverride] {
        caller.require_on(action, &namespace.id)?;
    }
    let now = app.clock.now();
    let mut matching = stored.overrides.candidates_for(&check.identifier);
    let mut is_won = false;
    let tried = matching.by_ref().take(TRIED_MAX).map(|known| {
        let is_live = known.is_live(now);
        let wins = is_live && !is_won;
        is_won |= wins;
        CandidateOverride { known: known.clone(), is_live, wins }
    });
    let tried = tried.collect();
    let has_more = matching.next().is_some();
    let looking = LimitCheck {
        identifier: check.identifier.clone(),
        namespace: String::new(),
        cost: 0,
        ..*check
    };
    let planned = PreparedCheck::new(app, stored, &looking);
    let LimitDecision { standings, degraded, .. } =
        admission::consume_exact(app, vec![planned.window.clone()], namespace.on_outage).await?;
    let standing = standings.into_iter().next();
    let standing = standing.ok_or_else(|| Error::Internal("one window has one standing".into()))?;
    // As a window counts it: what is beyond the largest number is taken for it.
    let cost = if check.cost > planned.limit { i64::MAX } else { check.cost.min(EXACT_MAX) };
    Ok(SimulationResult {
        tried,
        has_more,
        limit: planned.limit,
        duration_ms: planned.duration_ms,
        passes: !standing.exceeded && cost <= standing.remaining,
        standing,
        degraded,
    })
}

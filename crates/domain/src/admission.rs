//! Decisions on rate-limit windows: counted in Redis, in process memory on a server without Redis, and by the outage
//! policy while Redis is unreachable.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use foundation::clock::Timestamp;
use foundation::error::{Error, Result};
use foundation::fault_injection::Safeguard;
use foundation::id::WorkspaceId;
use foundation::model::OutagePolicy;
use futures_util::future::join_all;
use limiter::redis::{RedisCounters, UnresolvedRequest};
use limiter::{
    ApproximateDecision, ApproximateWindows, ConsumeReply, ConsumeRequest, GroupChange,
    GroupTotals, ReplicaRank, Window, WindowCount, WindowStatus,
};

use crate::context::Context;

/// Decides windows, some of them from memory.
pub struct Admission {
    pub context: Arc<Context>,
    /// Windows that are decided from memory.
    approximate_windows: ApproximateWindows,
    /// The number of ad-hoc counters per workspace.
    group_totals: GroupTotals,
}

impl Admission {
    /// Creates a service that has decided nothing yet.
    pub fn new(context: Arc<Context>) -> Self {
        Self {
            context,
            approximate_windows: ApproximateWindows::default(),
            group_totals: GroupTotals::default(),
        }
    }

    /// Returns whether a workspace may create no more ad-hoc counters.
    pub fn is_workspace_full(&self, workspace: &WorkspaceId) -> bool {
        self.group_totals.is_full(workspace)
    }

    /// Records the ad-hoc counters that were created for these windows.
    pub fn record_group_growth(&self, windows: &[Window]) {
        self.group_totals.record_growth(windows, self.context.clock.now());
    }
}

/// The result of consuming or peeking at windows.
#[derive(Debug, PartialEq, Eq)]
pub struct LimitDecision {
    pub is_admitted: bool,
    pub statuses: Vec<WindowStatus>,
    /// Whether it was decided without Redis.
    pub is_degraded: bool,
    /// How the group of the windows has changed.
    pub group_change: GroupChange,
}

impl LimitDecision {
    /// Returns the decision that a counter's reply means for these windows.
    pub fn from_reply(reply: &ConsumeReply, windows: &[Window]) -> Self {
        let statuses = reply.window_statuses(windows);
        Self {
            is_admitted: reply.is_admitted,
            statuses,
            is_degraded: false,
            group_change: reply.group_change,
        }
    }
}

/// Whether windows are consumed, or only read for a request that is rejected anyway.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConsumeMode {
    Consume,
    Peek,
}

/// Consumes all windows or none.
pub async fn consume_exact(
    context: &Context,
    windows: Vec<Window>,
    on_outage: OutagePolicy,
) -> Result<LimitDecision> {
    let Some(redis) = &context.redis else {
        return Ok(consume_locally(context, &windows, ConsumeMode::Consume));
    };
    let request = ConsumeRequest::of_windows(windows);
    match redis.consume(&request, context.clock.fixed_time()).await {
        Ok(reply) => Ok(LimitDecision::from_reply(&reply, &request.windows)),
        Err(missed) if missed.cause.is_redis_outage() => Ok(apply_outage_policy(
            context,
            &request.windows,
            on_outage,
            ConsumeMode::Consume,
            missed.unresolved,
        )),
        Err(missed) => Err(missed.cause),
    }
}

/// Consumes a window approximately; see [`limiter::ApproximateWindows`]. A server without Redis is exact and
/// equally fast.
pub async fn consume_approximate(
    admission: &Admission,
    window: Window,
    on_outage: OutagePolicy,
) -> Result<LimitDecision> {
    let Some(redis) = &admission.context.redis else {
        return Ok(consume_locally(&admission.context, &[window], ConsumeMode::Consume));
    };
    if window.is_away() || window.bounds().is_some() {
        // This region's lease answers as fast, and exactly. While the home moves, only Redis knows which side counts.
        return consume_exact(&admission.context, vec![window], on_outage).await;
    }
    loop {
        match admission.approximate_windows.try_consume(&window) {
            ApproximateDecision::Decided { count, is_admitted } => {
                let reply = ConsumeReply {
                    is_admitted,
                    windows: vec![count],
                    lease: None,
                    group_change: GroupChange::None,
                    regional: None,
                };
                return Ok(LimitDecision::from_reply(&reply, &[window]));
            }
            ApproximateDecision::FetchPending(pending) => {
                if !pending.wait().await {
                    return Ok(apply_outage_policy_approximate(admission, window, on_outage, None));
                }
            }
            ApproximateDecision::FetchRequired(refresh) => {
                let request = ConsumeRequest::of_windows(refresh.windows(&window));
                return match redis.consume(&request, admission.context.clock.fixed_time()).await {
                    Ok(reply) => Ok(LimitDecision::from_reply(
                        &refresh.record_exact(&window, &reply),
                        &[window],
                    )),
                    Err(missed) if missed.cause.is_redis_outage() => {
                        refresh.record_timeout();
                        let unsettled = missed.unresolved;
                        Ok(apply_outage_policy_approximate(admission, window, on_outage, unsettled))
                    }
                    Err(missed) => Err(missed.cause),
                };
            }
        }
    }
}

/// Calls [`apply_outage_policy`] with a limit that is reduced by the costs that were consumed in memory and are not
/// sent to Redis yet.
fn apply_outage_policy_approximate(
    admission: &Admission,
    window: Window,
    on_outage: OutagePolicy,
    unsettled: Option<UnresolvedRequest>,
) -> LimitDecision {
    let unsent =
        admission.approximate_windows.unsynced_cost(&window, admission.context.clock.now());
    apply_outage_policy(
        &admission.context,
        &[window.reduce_limit_by(unsent)],
        on_outage,
        ConsumeMode::Consume,
        unsettled,
    )
}

/// The usage of a window, for a caller that does not consume it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WindowUsage {
    /// What counts against the limit: the usage of this window, and the part of the previous one that still counts.
    pub used: i64,
    /// The end of the window.
    pub reset_at: Timestamp,
}

/// Returns the usage of windows without consuming them. `None` while Redis is unreachable, because the usage is
/// unknown.
pub async fn peek(context: &Context, windows: Vec<Window>) -> Result<Option<Vec<WindowUsage>>> {
    let Some(counts) = peek_counts(context, &windows).await? else { return Ok(None) };
    let usage = |(count, window): (WindowCount, &Window)| WindowUsage {
        used: count.effective_count,
        reset_at: count.reset_at(window),
    };
    Ok(Some(counts.into_iter().zip(&windows).map(usage).collect()))
}

/// Returns the decision that [`consume_exact`] would return now, and consumes nothing. `is_otherwise_admitted`: whether
/// everything is admitted that would be consumed together with the windows.
pub async fn preview(
    context: &Context,
    windows: &[Window],
    on_outage: OutagePolicy,
    is_otherwise_admitted: bool,
) -> Result<LimitDecision> {
    let Some(counts) = peek_counts(context, windows).await? else {
        let decision = apply_outage_policy(context, windows, on_outage, ConsumeMode::Peek, None);
        let is_within = decision.statuses.iter().all(|status| !status.is_exceeded);
        return Ok(LimitDecision { is_admitted: is_within && is_otherwise_admitted, ..decision });
    };
    let is_within = counts.iter().zip(windows).all(|(count, window)| count.is_within_limit(window));
    let reply = ConsumeReply {
        is_admitted: is_within && is_otherwise_admitted,
        windows: counts,
        lease: None,
        group_change: GroupChange::None,
        regional: None,
    };
    Ok(LimitDecision::from_reply(&reply, windows))
}

/// Returns the counts of windows without consuming them. `None` while Redis is unreachable.
async fn peek_counts(context: &Context, windows: &[Window]) -> Result<Option<Vec<WindowCount>>> {
    if windows.is_empty() {
        return Ok(Some(Vec::new()));
    }
    let request = ConsumeRequest::of_windows(windows.iter().map(Window::to_peek).collect());
    let reply = match &context.redis {
        None => Ok(context.local_counters.peek_at(&request.windows, context.clock.now())),
        Some(redis) => {
            redis.consume(&request, context.clock.fixed_time()).await.map_err(Error::from)
        }
    };
    match reply {
        Ok(reply) => Ok(Some(reply.windows)),
        Err(cause) if cause.is_redis_outage() => Ok(None),
        Err(cause) => Err(cause),
    }
}

/// The number of windows that are synchronized at the same time.
const SYNC_WINDOWS_MAX: usize = 50;

/// Sends approximate consumption to Redis, and reads what other replicas have consumed.
pub async fn sync_approximate(admission: &Admission) {
    let Some(redis) = &admission.context.redis else { return };
    redis.send_due_charges();
    // Some at a time, so that exact requests run in between.
    for windows in admission.approximate_windows.drain_pending().chunks(SYNC_WINDOWS_MAX) {
        join_all(windows.iter().map(|window| sync_window(admission, redis, window))).await;
    }
}

/// Each window is a request of its own: one that is full, and therefore rejected, affects no other.
async fn sync_window(admission: &Admission, redis: &RedisCounters, window: &Window) {
    let request = ConsumeRequest::of_windows(vec![window.clone()]);
    let reply = redis.consume(&request, admission.context.clock.fixed_time()).await.ok();
    let count = reply.and_then(|reply| reply.windows.first().copied());
    admission.approximate_windows.record_sync(window, count);
}

/// Estimates the number of live ad-hoc counters of each workspace, and thereby which workspaces may create no more.
pub async fn estimate_ad_hoc_counters(admission: &Admission) {
    let max = admission.context.settings.security.ad_hoc_counters_max;
    let before = admission.group_totals.full_workspaces();
    let full: HashSet<_> = match &admission.context.redis {
        None => {
            let local = admission.context.local_counters.count_group_counters().into_iter();
            local.filter(|(_, live)| *live >= max).map(|(id, _)| id).collect()
        }
        Some(redis) => {
            redis.remove_expired_groups();
            estimate_in_redis(admission, redis, &before, max).await
        }
    };
    for workspace in full.difference(&before) {
        tracing::warn!(%workspace, "the workspace reached {max} live ad-hoc counters: new ones are rejected");
    }
    admission.group_totals.set_full(full);
}

async fn estimate_in_redis(
    admission: &Admission,
    redis: &RedisCounters,
    before: &HashSet<WorkspaceId>,
    max: u64,
) -> HashSet<WorkspaceId> {
    let mut workspaces = before.clone();
    for (period, counters) in admission.group_totals.drain() {
        if let Err(e) = redis.record_group_counters(&period, &counters).await {
            tracing::debug!(error = %e, "failed to record ad-hoc counters: {e}");
        }
        workspaces.insert(period.workspace);
    }
    let mut full = HashSet::new();
    for workspace in workspaces {
        let is_full =
            match redis.estimate_group_counters(&workspace, admission.context.clock.now()).await {
                Ok(live) => live >= max,
                Err(_) => before.contains(&workspace),
            };
        if is_full {
            full.insert(workspace);
        }
    }
    full
}

/// Consumes or peeks at the windows of a server without Redis.
pub fn consume_locally(context: &Context, windows: &[Window], mode: ConsumeMode) -> LimitDecision {
    let now = context.clock.now();
    let reply = match mode {
        ConsumeMode::Consume => context.local_counters.consume_at(windows, now),
        ConsumeMode::Peek => context.local_counters.peek_at(windows, now),
    };
    LimitDecision::from_reply(&reply, windows)
}

/// Decides windows by the outage policy, because Redis has not replied in time.
pub fn apply_outage_policy(
    context: &Context,
    windows: &[Window],
    on_outage: OutagePolicy,
    mode: ConsumeMode,
    unsettled: Option<UnresolvedRequest>,
) -> LimitDecision {
    let Some(redis) = &context.redis else { return consume_locally(context, windows, mode) };
    let now = context.clock.now();
    let decision = match on_outage {
        OutagePolicy::Local => {
            let may_consume = mode == ConsumeMode::Consume;
            let (reply, shares) = redis.consume_share(
                windows,
                replica_rank(context),
                may_consume,
                unsettled,
                &context.clock,
            );
            LimitDecision::from_reply(&reply, &shares)
        }
        // Nothing is counted or refunded: what Redis has consumed all the same stays consumed.
        OutagePolicy::Open => LimitDecision {
            is_admitted: mode == ConsumeMode::Consume,
            statuses: windows.iter().map(|window| window.status_if_open(now)).collect(),
            is_degraded: true,
            group_change: GroupChange::None,
        },
        OutagePolicy::Closed => {
            if let Some(unsettled) = unsettled {
                unsettled.resolve(Vec::new());
            }
            let statuses = windows.iter().map(|window| window.status_if_closed(now)).collect();
            LimitDecision {
                // Without a limit, nothing is rejected: credits are exact without Redis.
                is_admitted: windows.is_empty() && mode == ConsumeMode::Consume,
                statuses,
                is_degraded: true,
                group_change: GroupChange::None,
            }
        }
    };
    let answers = &context.metrics.degraded_responses;
    match on_outage {
        OutagePolicy::Local => answers.local.inc(),
        OutagePolicy::Open => answers.open.inc(),
        OutagePolicy::Closed => answers.closed.inc(),
    };
    LimitDecision { is_degraded: true, ..decision }
}

/// Returns the rank by which limits are divided among replicas.
fn replica_rank(context: &Context) -> ReplicaRank {
    match Safeguard::Share.is_disabled() {
        true => ReplicaRank { rank: 0, replica_count: 1 },
        false => ReplicaRank {
            rank: context.replica_rank.load(Ordering::Relaxed),
            replica_count: context.live_replicas.load(Ordering::Relaxed),
        },
    }
}

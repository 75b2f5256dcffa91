//! Decisions on rate-limit windows: counted in Redis, in process memory on a server without Redis, and by the outage
//! policy while Redis is unreachable.

use std::collections::HashSet;
use std::sync::atomic::Ordering;

use foundation::clock::Timestamp;
use foundation::error::{Error, Result};
use foundation::fault_injection::Safeguard;
use foundation::id::WorkspaceId;
use foundation::model::OutagePolicy;
use limiter::redis::{RedisCounters, Unsettled};
use limiter::{
    ConsumeReply, ConsumeRequest, GroupChange, Quickly, ReplicaRank, Window, WindowCount,
    WindowStatus,
};

use crate::app::App;

/// The result of consuming or peeking at windows.
#[derive(Debug, PartialEq, Eq)]
pub struct LimitDecision {
    pub taken: bool,
    pub standings: Vec<WindowStatus>,
    /// Whether it was decided without Redis.
    pub degraded: bool,
    /// How the group of the windows has changed.
    pub group: GroupChange,
}

impl LimitDecision {
    /// Returns the decision that a counter's reply means for these windows.
    pub fn of(reply: &ConsumeReply, windows: &[Window]) -> Self {
        let statuses = reply.standings(windows);
        Self { taken: reply.is_admitted, standings: statuses, degraded: false, group: reply.group }
    }
}

/// Whether windows are consumed, or only read for a request that is rejected anyway.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConsumeMode {
    Take,
    Look,
}

/// Consumes all windows or none.
pub async fn consume_exact(
    app: &App,
    windows: Vec<Window>,
    on_outage: OutagePolicy,
) -> Result<LimitDecision> {
    let Some(redis) = &app.redis else {
        return Ok(consume_locally(app, &windows, ConsumeMode::Take));
    };
    let request = ConsumeRequest { windows, spend: None };
    match redis.consume(&request, app.clock.fixed_time()).await {
        Ok(reply) => Ok(LimitDecision::of(&reply, &request.windows)),
        Err(missed) if missed.cause.is_counters_outage() => Ok(apply_outage_policy(
            app,
            &request.windows,
            on_outage,
            ConsumeMode::Take,
            missed.unsettled,
        )),
        Err(missed) => Err(missed.cause),
    }
}

/// Consumes a window approximately; see [`limiter::ApproximateWindows`]. A server without Redis is exact and
/// equally fast.
pub async fn consume_approximate(
    app: &App,
    window: Window,
    on_outage: OutagePolicy,
) -> Result<LimitDecision> {
    let Some(redis) = &app.redis else {
        return Ok(consume_locally(app, &[window], ConsumeMode::Take));
    };
    loop {
        match app.approximate_windows.try_consume(&window) {
            Quickly::Decided { counted: count, taken: is_admitted } => {
                let reply = ConsumeReply {
                    is_admitted,
                    windows: vec![count],
                    purse: None,
                    group: GroupChange::None,
                };
                return Ok(LimitDecision::of(&reply, &[window]));
            }
            Quickly::Asked(pending) => {
                if !pending.wait().await {
                    return Ok(quickly_without_redis(app, window, on_outage, None));
                }
            }
            Quickly::Unknown(refresh) => {
                let request = ConsumeRequest { windows: refresh.windows(&window), spend: None };
                return match redis.consume(&request, app.clock.fixed_time()).await {
                    Ok(reply) => {
                        Ok(LimitDecision::of(&refresh.record_exact(&window, &reply), &[window]))
                    }
                    Err(missed) if missed.cause.is_counters_outage() => {
                        refresh.miss();
                        let unsettled = missed.unsettled;
                        Ok(quickly_without_redis(app, window, on_outage, unsettled))
                    }
                    Err(missed) => Err(missed.cause),
                };
            }
        }
    }
}

/// Calls [`apply_outage_policy`] with a limit that is reduced by the costs that were consumed in memory and are not
/// sent to Redis yet.
fn quickly_without_redis(
    app: &App,
    window: Window,
    on_outage: OutagePolicy,
    unsettled: Option<Unsettled>,
) -> LimitDecision {
    let unsent = app.approximate_windows.unsent(&window, app.clock.now());
    apply_outage_policy(app, &[window.reduced_by(unsent)], on_outage, ConsumeMode::Take, unsettled)
}

/// The usage of a window, for a caller that does not consume it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WindowUsage {
    /// What counts against the limit: the usage of this window, and the part of the previous one that still counts.
    pub used: i64,
    /// The end of the window.
    pub reset: Timestamp,
}

/// Returns the usage of windows without consuming them. `None` while Redis is unreachable, because the usage is
/// unknown.
pub async fn peek(app: &App, windows: Vec<Window>) -> Result<Option<Vec<WindowUsage>>> {
    if windows.is_empty() {
        return Ok(Some(Vec::new()));
    }
    let request =
        ConsumeRequest { windows: windows.iter().map(Window::to_peek).collect(), spend: None };
    let reply = match &app.redis {
        None => Ok(app.local_counters.peek_at(&request.windows, app.clock.now())),
        Some(redis) => redis.consume(&request, app.clock.fixed_time()).await.map_err(Error::from),
    };
    let counts = match reply {
        Ok(reply) => reply.windows,
        Err(cause) if cause.is_counters_outage() => return Ok(None),
        Err(cause) => return Err(cause),
    };
    let usage = |(count, window): (WindowCount, &Window)| WindowUsage {
        used: count.effective,
        reset: count.reset(window),
    };
    Ok(Some(counts.into_iter().zip(&request.windows).map(usage).collect()))
}

/// The number of windows per synchronization request.
const SENT_TOGETHER: usize = 50;

/// Sends approximate consumption to Redis, and reads what other replicas have consumed.
pub async fn sync_approximate(app: &App) {
    let Some(redis) = &app.redis else { return };
    redis.charge_due();
    // Sequentially, so that exact requests run in between.
    for windows in app.approximate_windows.drain_pending().chunks(SENT_TOGETHER) {
        let request = ConsumeRequest { windows: windows.to_vec(), spend: None };
        let reply = redis.consume(&request, app.clock.fixed_time()).await.ok();
        for (at, window) in windows.iter().enumerate() {
            let count = reply.as_ref().and_then(|reply| reply.windows.get(at));
            app.approximate_windows.record_sync(window, count.copied());
        }
    }
}

/// Estimates the number of live ad-hoc counters of each workspace, and thereby which workspaces may create no more.
pub async fn estimate_groups(app: &App) {
    let max = app.settings.security.ad_hoc_counters_max;
    let before = app.group_totals.full();
    let full: HashSet<_> = match &app.redis {
        None => {
            let local = app.local_counters.count_groups().into_iter();
            local.filter(|(_, live)| *live >= max).map(|(id, _)| id).collect()
        }
        Some(redis) => {
            redis.forget_expired_groups();
            estimate_in_redis(app, redis, &before, max).await
        }
    };
    for workspace in full.difference(&before) {
        tracing::warn!(%workspace, "the workspace reached {max} live ad-hoc counters: new ones are rejected");
    }
    app.group_totals.set_full(full);
}

async fn estimate_in_redis(
    app: &App,
    redis: &RedisCounters,
    before: &HashSet<WorkspaceId>,
    max: u64,
) -> HashSet<WorkspaceId> {
    let mut workspaces = before.clone();
    for (period, counters) in app.group_totals.drain() {
        if let Err(e) = redis.record_groups(&period, &counters).await {
            tracing::debug!(error = %e, "failed to record ad-hoc counters: {e}");
        }
        workspaces.insert(period.workspace);
    }
    let mut full = HashSet::new();
    for workspace in workspaces {
        let is_full = match redis.estimate_groups(&workspace, app.clock.now()).await {
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
pub fn consume_locally(app: &App, windows: &[Window], mode: ConsumeMode) -> LimitDecision {
    let now = app.clock.now();
    let reply = match mode {
        ConsumeMode::Take => app.local_counters.consume_at(windows, now),
        ConsumeMode::Look => app.local_counters.peek_at(windows, now),
    };
    LimitDecision::of(&reply, windows)
}

/// Decides windows by the outage policy, because Redis has not replied in time.
pub fn apply_outage_policy(
    app: &App,
    windows: &[Window],
    on_outage: OutagePolicy,
    mode: ConsumeMode,
    unsettled: Option<Unsettled>,
) -> LimitDecision {
    let Some(redis) = &app.redis else { return consume_locally(app, windows, mode) };
    let now = app.clock.now();
    let decision = match on_outage {
        OutagePolicy::Local => {
            let may_consume = mode == ConsumeMode::Take;
            let (reply, shares) =
                redis.consume_share(windows, rank(app), may_consume, unsettled, &app.clock);
            LimitDecision::of(&reply, &shares)
        }
        // Nothing is counted or refunded: what Redis has consumed all the same stays consumed.
        OutagePolicy::Open => LimitDecision {
            taken: mode == ConsumeMode::Take,
            standings: windows.iter().map(|window| window.status_if_open(now)).collect(),
            degraded: true,
            group: GroupChange::None,
        },
        OutagePolicy::Closed => {
            if let Some(unsettled) = unsettled {
                unsettled.settle(Vec::new());
            }
            let statuses = windows.iter().map(|window| window.status_if_closed(now)).collect();
            LimitDecision {
                taken: false,
                standings: statuses,
                degraded: true,
                group: GroupChange::None,
            }
        }
    };
    let answers = &app.metrics.degraded_answers;
    match on_outage {
        OutagePolicy::Local => answers.local.inc(),
        OutagePolicy::Open => answers.open.inc(),
        OutagePolicy::Closed => answers.closed.inc(),
    };
    LimitDecision { degraded: true, ..decision }
}

/// Returns the rank by which limits are divided among replicas.
fn rank(app: &App) -> ReplicaRank {
    match Safeguard::Share.is_disabled() {
        true => ReplicaRank { rank: 0, replicas: 1 },
        false => ReplicaRank {
            rank: app.rank.load(Ordering::Relaxed),
            replicas: app.live_replicas.load(Ordering::Relaxed),
        },
    }
}

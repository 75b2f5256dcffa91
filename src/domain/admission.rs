//! Windows, wherever they are counted: in Redis, in this process where there is none, and, while Redis is
//! away, as the policy says.

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

/// What came of taking windows.
#[derive(Debug, PartialEq, Eq)]
pub struct LimitDecision {
    pub taken: bool,
    pub standings: Vec<WindowStatus>,
    /// Whether it was decided without Redis.
    pub degraded: bool,
    /// What it did to the group of the windows.
    pub group: GroupChange,
}

impl LimitDecision {
    /// As a counter answered.
    pub fn of(taken: &ConsumeReply, windows: &[Window]) -> Self {
        let standings = taken.standings(windows);
        Self { taken: taken.is_admitted, standings, degraded: false, group: taken.group }
    }
}

/// Whether windows may be taken from, or only looked at for somebody who is refused anyway.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConsumeMode {
    Take,
    Look,
}

/// Takes from all windows or from none.
pub async fn consume_exact(
    app: &App,
    windows: Vec<Window>,
    on_outage: OutagePolicy,
) -> Result<LimitDecision> {
    let Some(redis) = &app.redis else {
        return Ok(consume_locally(app, &windows, ConsumeMode::Take));
    };
    let take = ConsumeRequest { windows, spend: None };
    match redis.consume(&take, app.clock.fixed_time()).await {
        Ok(taken) => Ok(LimitDecision::of(&taken, &take.windows)),
        Err(missed) if missed.cause.is_counters_outage() => Ok(apply_outage_policy(
            app,
            &take.windows,
            on_outage,
            ConsumeMode::Take,
            missed.unsettled,
        )),
        Err(missed) => Err(missed.cause),
    }
}

/// Takes from a window quickly rather than exactly: see [`limiter::Quick`]. A server without Redis is both.
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
            Quickly::Decided { counted, taken } => {
                let taken = ConsumeReply {
                    is_admitted: taken,
                    windows: vec![counted],
                    purse: None,
                    group: GroupChange::None,
                };
                return Ok(LimitDecision::of(&taken, &[window]));
            }
            Quickly::Asked(asked) => {
                if !asked.wait().await {
                    return Ok(quickly_without_redis(app, window, on_outage, None));
                }
            }
            Quickly::Unknown(asking) => {
                let take = ConsumeRequest { windows: asking.windows(&window), spend: None };
                return match redis.consume(&take, app.clock.fixed_time()).await {
                    Ok(taken) => {
                        Ok(LimitDecision::of(&asking.record_exact(&window, &taken), &[window]))
                    }
                    Err(missed) if missed.cause.is_counters_outage() => {
                        asking.miss();
                        let unsettled = missed.unsettled;
                        Ok(quickly_without_redis(app, window, on_outage, unsettled))
                    }
                    Err(missed) => Err(missed.cause),
                };
            }
        }
    }
}

/// As [`without_redis`]: what was taken from memory, and will be counted in Redis when it is back, is part of the limit.
fn quickly_without_redis(
    app: &App,
    window: Window,
    on_outage: OutagePolicy,
    unsettled: Option<Unsettled>,
) -> LimitDecision {
    let unsent = app.approximate_windows.unsent(&window, app.clock.now());
    apply_outage_policy(app, &[window.reduced_by(unsent)], on_outage, ConsumeMode::Take, unsettled)
}

/// How a window stands for somebody who takes nothing from it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WindowUsage {
    /// What counts against the limit: all that was taken in this window, and of the one before what still counts.
    pub used: i64,
    /// The end of the window.
    pub reset: Timestamp,
}

/// How windows stand; nothing is taken. Absent while Redis is away, for then nobody knows.
pub async fn peek(app: &App, windows: Vec<Window>) -> Result<Option<Vec<WindowUsage>>> {
    if windows.is_empty() {
        return Ok(Some(Vec::new()));
    }
    let take =
        ConsumeRequest { windows: windows.iter().map(Window::to_peek).collect(), spend: None };
    let taken = match &app.redis {
        None => Ok(app.local_counters.peek_at(&take.windows, app.clock.now())),
        Some(redis) => redis.consume(&take, app.clock.fixed_time()).await.map_err(Error::from),
    };
    let counted = match taken {
        Ok(taken) => taken.windows,
        Err(cause) if cause.is_counters_outage() => return Ok(None),
        Err(cause) => return Err(cause),
    };
    let seen = |(counted, window): (WindowCount, &Window)| WindowUsage {
        used: counted.effective,
        reset: counted.reset(window),
    };
    Ok(Some(counted.into_iter().zip(&take.windows).map(seen).collect()))
}

/// How many windows are sent together.
const SENT_TOGETHER: usize = 50;

/// Sends what was taken quickly, and hears what the others have taken.
pub async fn sync_approximate(app: &App) {
    let Some(redis) = &app.redis else { return };
    redis.charge_due();
    // One after the other: who waits for an exact answer finds a place between them.
    for windows in app.approximate_windows.drain_pending().chunks(SENT_TOGETHER) {
        let take = ConsumeRequest { windows: windows.to_vec(), spend: None };
        let taken = redis.consume(&take, app.clock.fixed_time()).await.ok();
        for (at, window) in windows.iter().enumerate() {
            let counted = taken.as_ref().and_then(|taken| taken.windows.get(at));
            app.approximate_windows.record_sync(window, counted.copied());
        }
    }
}

/// Estimates how many live ad-hoc counters each workspace has, and thereby which ones may create no more.
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
        tracing::warn!(%workspace, "the workspace has {max} live ad-hoc counters: new ones are refused");
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

/// The windows of a server that has no Redis.
pub fn consume_locally(app: &App, windows: &[Window], act: ConsumeMode) -> LimitDecision {
    let now = app.clock.now();
    let taken = match act {
        ConsumeMode::Take => app.local_counters.consume_at(windows, now),
        ConsumeMode::Look => app.local_counters.peek_at(windows, now),
    };
    LimitDecision::of(&taken, windows)
}

/// Decides windows by the outage policy, where Redis has not replied in time.
pub fn apply_outage_policy(
    app: &App,
    windows: &[Window],
    on_outage: OutagePolicy,
    act: ConsumeMode,
    unsettled: Option<Unsettled>,
) -> LimitDecision {
    let Some(redis) = &app.redis else { return consume_locally(app, windows, act) };
    let now = app.clock.now();
    let tally = match on_outage {
        OutagePolicy::Local => {
            let may_take = act == ConsumeMode::Take;
            let (taken, shares) =
                redis.consume_share(windows, rank(app), may_take, unsettled, &app.clock);
            LimitDecision::of(&taken, &shares)
        }
        // Nobody counts: what Redis has consumed all the same stays so.
        OutagePolicy::Open => LimitDecision {
            taken: act == ConsumeMode::Take,
            standings: windows.iter().map(|window| window.status_if_open(now)).collect(),
            degraded: true,
            group: GroupChange::None,
        },
        OutagePolicy::Closed => {
            if let Some(unsettled) = unsettled {
                unsettled.settle(Vec::new());
            }
            let standings = windows.iter().map(|window| window.status_if_closed(now)).collect();
            LimitDecision { taken: false, standings, degraded: true, group: GroupChange::None }
        }
    };
    let answers = &app.metrics.degraded_answers;
    match on_outage {
        OutagePolicy::Local => answers.local.inc(),
        OutagePolicy::Open => answers.open.inc(),
        OutagePolicy::Closed => answers.closed.inc(),
    };
    LimitDecision { degraded: true, ..tally }
}

/// By which limits are divided.
fn rank(app: &App) -> ReplicaRank {
    match Safeguard::Share.is_disabled() {
        true => ReplicaRank { rank: 0, replicas: 1 },
        false => ReplicaRank {
            rank: app.rank.load(Ordering::Relaxed),
            replicas: app.live_replicas.load(Ordering::Relaxed),
        },
    }
}

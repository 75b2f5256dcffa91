//! Windows, wherever they are counted: in Redis, in this process where there is none, and, while Redis is
//! away, as the policy says.

use std::collections::HashSet;
use std::sync::atomic::Ordering;

use crate::app::App;
use crate::clock::Timestamp;
use crate::error::{Error, Result};
use crate::id::WorkspaceId;
use crate::limiter::redis::{RedisCounters, Unsettled};
use crate::limiter::{Counted, GroupChange, Quickly, ReplicaRank, Standing, Take, Taken, Window};
use crate::model::OnOutage;
use crate::sabotage::Safeguard;

/// What came of taking windows.
#[derive(Debug, PartialEq, Eq)]
pub struct Tally {
    pub taken: bool,
    pub standings: Vec<Standing>,
    /// Whether it was decided without Redis.
    pub degraded: bool,
    /// What it did to the group of the windows.
    pub group: GroupChange,
}

impl Tally {
    /// As a counter answered.
    pub fn of(taken: &Taken, windows: &[Window]) -> Self {
        let standings = taken.standings(windows);
        Self { taken: taken.taken, standings, degraded: false, group: taken.group }
    }
}

/// Whether windows may be taken from, or only looked at for somebody who is refused anyway.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Act {
    Take,
    Look,
}

/// Takes from all windows or from none.
pub async fn count(app: &App, windows: Vec<Window>, on_outage: OnOutage) -> Result<Tally> {
    let Some(redis) = &app.redis else { return Ok(here(app, &windows, Act::Take)) };
    let take = Take { windows, spend: None };
    match redis.take(&take, app.clock.fixed()).await {
        Ok(taken) => Ok(Tally::of(&taken, &take.windows)),
        Err(missed) if missed.cause.is_counters_outage() => {
            Ok(without_redis(app, &take.windows, on_outage, Act::Take, missed.unsettled))
        }
        Err(missed) => Err(missed.cause),
    }
}

/// Takes from a window quickly rather than exactly: see [`crate::limiter::Quick`]. A server without Redis is both.
pub async fn count_quickly(app: &App, window: Window, on_outage: OnOutage) -> Result<Tally> {
    let Some(redis) = &app.redis else { return Ok(here(app, &[window], Act::Take)) };
    loop {
        match app.quick.take(&window) {
            Quickly::Decided { counted, taken } => {
                let taken =
                    Taken { taken, windows: vec![counted], purse: None, group: GroupChange::None };
                return Ok(Tally::of(&taken, &[window]));
            }
            Quickly::Asked(asked) => {
                if !asked.wait().await {
                    return Ok(quickly_without_redis(app, window, on_outage, None));
                }
            }
            Quickly::Unknown(asking) => {
                let take = Take { windows: asking.windows(&window), spend: None };
                return match redis.take(&take, app.clock.fixed()).await {
                    Ok(taken) => Ok(Tally::of(&asking.learn(&window, &taken), &[window])),
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
    on_outage: OnOutage,
    unsettled: Option<Unsettled>,
) -> Tally {
    let unsent = app.quick.unsent(&window, app.clock.now());
    without_redis(app, &[window.reduced_by(unsent)], on_outage, Act::Take, unsettled)
}

/// How a window stands for somebody who takes nothing from it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Seen {
    /// What counts against the limit: all that was taken in this window, and of the one before what still counts.
    pub used: i64,
    /// The end of the window.
    pub reset: Timestamp,
}

/// How windows stand; nothing is taken. Absent while Redis is away, for then nobody knows.
pub async fn look(app: &App, windows: Vec<Window>) -> Result<Option<Vec<Seen>>> {
    if windows.is_empty() {
        return Ok(Some(Vec::new()));
    }
    let take = Take { windows: windows.iter().map(Window::to_look).collect(), spend: None };
    let taken = match &app.redis {
        None => Ok(app.local.look_at(&take.windows, app.clock.now())),
        Some(redis) => redis.take(&take, app.clock.fixed()).await.map_err(Error::from),
    };
    let counted = match taken {
        Ok(taken) => taken.windows,
        Err(cause) if cause.is_counters_outage() => return Ok(None),
        Err(cause) => return Err(cause),
    };
    let seen = |(counted, window): (Counted, &Window)| Seen {
        used: counted.effective,
        reset: counted.reset(window),
    };
    Ok(Some(counted.into_iter().zip(&take.windows).map(seen).collect()))
}

/// How many windows are sent together.
const SENT_TOGETHER: usize = 50;

/// Sends what was taken quickly, and hears what the others have taken.
pub async fn send_quick(app: &App) {
    let Some(redis) = &app.redis else { return };
    redis.charge_due();
    // One after the other: who waits for an exact answer finds a place between them.
    for windows in app.quick.due().chunks(SENT_TOGETHER) {
        let take = Take { windows: windows.to_vec(), spend: None };
        let taken = redis.take(&take, app.clock.fixed()).await.ok();
        for (at, window) in windows.iter().enumerate() {
            let counted = taken.as_ref().and_then(|taken| taken.windows.get(at));
            app.quick.sent(window, counted.copied());
        }
    }
}

/// Estimates how many live ad-hoc counters each workspace has, and thereby which ones may create no more.
pub async fn estimate_groups(app: &App) {
    let max = app.settings.security.ad_hoc_counters_max;
    let before = app.group_totals.full();
    let full: HashSet<_> = match &app.redis {
        None => {
            let local = app.local.count_groups().into_iter();
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
pub fn here(app: &App, windows: &[Window], act: Act) -> Tally {
    let now = app.clock.now();
    let taken = match act {
        Act::Take => app.local.count_at(windows, now),
        Act::Look => app.local.look_at(windows, now),
    };
    Tally::of(&taken, windows)
}

/// Decides windows by the outage policy, where Redis has not replied in time.
pub fn without_redis(
    app: &App,
    windows: &[Window],
    on_outage: OnOutage,
    act: Act,
    unsettled: Option<Unsettled>,
) -> Tally {
    let Some(redis) = &app.redis else { return here(app, windows, act) };
    let now = app.clock.now();
    let tally = match on_outage {
        OnOutage::Local => {
            let may_take = act == Act::Take;
            let (taken, shares) =
                redis.consume_share(windows, rank(app), may_take, unsettled, &app.clock);
            Tally::of(&taken, &shares)
        }
        // Nobody counts: what Redis has consumed all the same stays so.
        OnOutage::Open => Tally {
            taken: act == Act::Take,
            standings: windows.iter().map(|window| window.untouched(now)).collect(),
            degraded: true,
            group: GroupChange::None,
        },
        OnOutage::Closed => {
            if let Some(unsettled) = unsettled {
                unsettled.settle(Vec::new());
            }
            let standings = windows.iter().map(|window| window.shut(now)).collect();
            Tally { taken: false, standings, degraded: true, group: GroupChange::None }
        }
    };
    let answers = &app.metrics.degraded_answers;
    match on_outage {
        OnOutage::Local => answers.local.inc(),
        OnOutage::Open => answers.open.inc(),
        OnOutage::Closed => answers.closed.inc(),
    };
    Tally { degraded: true, ..tally }
}

/// By which limits are divided.
fn rank(app: &App) -> ReplicaRank {
    match Safeguard::Share.is_off() {
        true => ReplicaRank { rank: 0, replicas: 1 },
        false => ReplicaRank {
            rank: app.rank.load(Ordering::Relaxed),
            replicas: app.replicas.load(Ordering::Relaxed),
        },
    }
}

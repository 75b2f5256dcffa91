//! Windows, wherever they are counted: in Redis, in this process where there is none, and, while Redis is
//! away, as the policy says.

use std::sync::atomic::Ordering;

use crate::app::App;
use crate::clock::Timestamp;
use crate::error::Result;
use crate::limiter::{Counted, Standing, Take, Taken, Window};
use crate::model::OnOutage;
use crate::sabotage::Safeguard;

/// What came of taking windows.
#[derive(Debug, PartialEq, Eq)]
pub struct Tally {
    pub taken: bool,
    pub standings: Vec<Standing>,
    /// Whether it was decided without Redis.
    pub degraded: bool,
}

impl Tally {
    /// As a counter answered.
    pub fn of(taken: &Taken, windows: &[Window]) -> Self {
        let standings = taken.standings(windows);
        Self { taken: taken.taken, standings, degraded: false }
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
        Err(cause) if cause.is_counters_outage() => {
            Ok(without_redis(app, &take.windows, on_outage, Act::Take))
        }
        Err(cause) => Err(cause),
    }
}

/// Takes from a window quickly rather than exactly: see [`crate::limiter::Quick`]. A server without Redis is both.
pub async fn count_quickly(app: &App, window: Window, on_outage: OnOutage) -> Result<Tally> {
    let Some(redis) = &app.redis else { return Ok(here(app, &[window], Act::Take)) };
    if let Some((counted, taken)) = app.quick.take(&window) {
        let taken = Taken { taken, windows: vec![counted], purse: None };
        return Ok(Tally::of(&taken, &[window]));
    }
    let take = Take { windows: vec![window], spend: None };
    match redis.take(&take, app.clock.fixed()).await {
        Ok(taken) => {
            for (window, counted) in take.windows.iter().zip(&taken.windows) {
                app.quick.learn(window, *counted, taken.taken);
            }
            Ok(Tally::of(&taken, &take.windows))
        }
        Err(cause) if cause.is_counters_outage() => {
            Ok(without_redis(app, &take.windows, on_outage, Act::Take))
        }
        Err(cause) => Err(cause),
    }
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
        Some(redis) => redis.take(&take, app.clock.fixed()).await,
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

/// The windows of a server that has no Redis.
pub fn here(app: &App, windows: &[Window], act: Act) -> Tally {
    let now = app.clock.now();
    let taken = match act {
        Act::Take => app.local.count_at(windows, now),
        Act::Look => app.local.look_at(windows, now),
    };
    Tally::of(&taken, windows)
}

/// What is said of windows while Redis is away.
pub fn without_redis(app: &App, windows: &[Window], on_outage: OnOutage, act: Act) -> Tally {
    let now = app.clock.now();
    let tally = match on_outage {
        OnOutage::Local => {
            let shares = shares(app, windows);
            here(app, &shares, act)
        }
        OnOutage::Open => Tally {
            taken: act == Act::Take,
            standings: windows.iter().map(|window| window.untouched(now)).collect(),
            degraded: true,
        },
        OnOutage::Closed => Tally {
            taken: false,
            standings: windows.iter().map(|window| window.shut(now)).collect(),
            degraded: true,
        },
    };
    let answers = &app.metrics.degraded_answers;
    match on_outage {
        OnOutage::Local => answers.local.inc(),
        OnOutage::Open => answers.open.inc(),
        OnOutage::Closed => answers.closed.inc(),
    };
    Tally { degraded: true, ..tally }
}

/// Of each limit, what falls to this replica.
fn shares(app: &App, windows: &[Window]) -> Vec<Window> {
    let replicas = match Safeguard::Share.is_off() {
        true => 1,
        false => app.replicas.load(Ordering::Relaxed).max(1),
    };
    windows.iter().map(|window| window.share_of(replicas)).collect()
}

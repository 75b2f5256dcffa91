//! The change feed: how a replica learns what others have changed.
//!
//! Two ways carry the same. The change log in the database holds each change, written in the
//! transaction that made it, and every replica reads it twice a second ([`log`]). Announcements in
//! Redis say within milliseconds what is about to be committed and what has been ([`feed`]); while
//! the database is away they alone must do, so a reader knows when it has missed one.

mod announcements;
mod change_log;

use std::sync::Arc;
use std::time::Duration;

use foundation::clock::Stopwatch;
use foundation::error::{Error, Result};
use store::bounded;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use self::change_log::ChangeLogCursor;
use crate::app::App;
use crate::domain::admission;
use crate::domain::credits;
use crate::domain::last_used;

const POLL_EVERY: Duration = Duration::from_millis(500);
/// As long as something is not settled.
const POLL_SOON: Duration = Duration::from_millis(20);
/// For how long that is expected to be soon over.
const SOON_FOR: Duration = Duration::from_secs(3);
const POLL_TIMEOUT: Duration = Duration::from_secs(5);
/// After how long new connections may again take the place of all: a database that is only slow should not get more of them.
const RECONNECT_AFTER: Duration = Duration::from_secs(30);
/// How long one pass of anything else may take: on a connection that was lost without a word a statement never ends.
const PASS_TIMEOUT: Duration = Duration::from_mins(1);
/// As [`PASS_TIMEOUT`], of what looks after leases, and goes on where it was ended: others wait for its reports.
const LEASES_TIMEOUT: Duration = Duration::from_secs(5);
/// How often purses are looked after.
const SETTLE_EVERY: Duration = Duration::from_millis(500);
/// How often what was taken quickly is sent.
const QUICK_EVERY: Duration = Duration::from_millis(100);
/// How often the ad-hoc counters of workspaces are estimated.
const ESTIMATE_GROUPS_EVERY: Duration = Duration::from_secs(2);
/// How often the credits that are withheld are added up.
const WITHHELD_EVERY: Duration = Duration::from_secs(5);
/// How often a replica says that it is there.
const PRESENCE_EVERY: Duration = Duration::from_millis(500);
const PRUNE_EVERY: Duration = Duration::from_mins(10);
/// How many rows of each table go in one transaction: a statement has five seconds.
const PRUNED_AT_ONCE: i64 = 10_000;

/// Runs until the set is dropped or shut down.
pub fn start(app: &Arc<App>, announcements: mpsc::Receiver<String>) -> JoinSet<()> {
    let mut tasks = JoinSet::new();
    tasks.spawn(poll_change_log(app.clone()));
    tasks.spawn(prune(app.clone()));
    tasks.spawn(flush_last_used(app.clone()));
    tasks.spawn(credits::serve_debits(app.clone()));
    tasks.spawn(estimate_groups(app.clone()));
    if app.redis.is_some() {
        tasks.spawn(send_heartbeats(app.clone()));
        tasks.spawn(close_leases(app.clone()));
        tasks.spawn(update_withheld_gauge(app.clone()));
        tasks.spawn(sync_approximate_windows(app.clone()));
        tasks.spawn(announcements::subscribe_to_changes(app.clone()));
        tasks.spawn(announcements::publish_changes(app.clone(), announcements));
    }
    tasks
}

async fn poll_change_log(app: Arc<App>) {
    let mut log = ChangeLogCursor::new();
    let mut is_silent = false;
    let mut reconnected: Option<Stopwatch> = None;
    let mut unsettled: Option<Stopwatch> = None;
    loop {
        let read = tokio::select! {
            // A database that accepts and never answers must not silence the feed for good.
            read = bounded(POLL_TIMEOUT, read_log(&app, &mut log)) => read,
            () = reconnect(&app), if is_silent => {
                is_silent = false;
                reconnected = Some(Stopwatch::new());
                continue;
            }
        };
        let may_reconnect = reconnected.is_none_or(|since| since.elapsed() >= RECONNECT_AFTER);
        is_silent = read.as_ref().is_err_and(Error::is_silence) && may_reconnect;
        let next = match read {
            Ok(soon) => {
                unsettled = soon.then(|| unsettled.unwrap_or_else(Stopwatch::new));
                match unsettled {
                    Some(unsettled) if unsettled.elapsed() < SOON_FOR => POLL_SOON,
                    _ => POLL_EVERY,
                }
            }
            // Whoever opens it tells why it cannot be.
            Err(Error::StoreNotReady) => POLL_EVERY,
            Err(e) => {
                tracing::warn!(error = %e, "cannot read the change log: {e}");
                POLL_EVERY
            }
        };
        tokio::select! {
            () = tokio::time::sleep(next) => {}
            () = app.feed.changed() => {}
        }
    }
}

/// Has other connections to the database take the place of all, once it lets one in.
async fn reconnect(app: &App) {
    let reconnected = async { app.store.store()?.reconnect().await };
    if let Err(e) = reconnected.await {
        // One that refuses connections has closed the others as well.
        tracing::debug!(error = %e, "cannot connect to the database: {e}");
        return std::future::pending().await;
    }
    app.events.reconnect();
    tracing::warn!("connections to the database were not answered; others have taken their place");
}

/// Reads the change log to its end, and settles what can be settled then. Whether it should be read once more, soon.
async fn read_log(app: &App, log: &mut ChangeLogCursor) -> Result<bool> {
    // All of this before the reading begins, which then proves that nothing of before was missed.
    let (reading, open) = (app.feed.reading(), app.freshness.intents.list());
    let began_ms = app.freshness.now_ms();
    let pass = log.read(app).await?;
    let head = &pass.head;
    // The grace counts from when others think that it does.
    let registered_ms = match (&app.redis, head.seen_at) {
        (Some(_), Some(seen_at)) => began_ms - (head.now - seen_at).max(0),
        (Some(_), None) => 0,
        (None, _) => began_ms,
    };
    app.freshness.proved_by_log(began_ms, registered_ms);
    let soon = announcements::report(app, reading.as_ref(), head, &pass.intents).await?;
    announcements::resolve(app, &open, head).await?;
    Ok(soon)
}

async fn prune(app: Arc<App>) {
    loop {
        tokio::time::sleep(PRUNE_EVERY).await;
        if let Err(e) = bounded(PASS_TIMEOUT, prune_once(&app)).await {
            tracing::warn!(error = %e, "cannot prune the change log: {e}");
        }
    }
}

async fn prune_once(app: &App) -> Result<()> {
    loop {
        let mut tx = app.store.begin().await?;
        let pruned = tx.prune_changes(PRUNED_AT_ONCE).await?;
        let is_end = pruned < PRUNED_AT_ONCE.unsigned_abs();
        if is_end {
            tx.prune_replicas().await?;
        }
        tx.commit().await?;
        if is_end {
            return Ok(());
        }
    }
}

/// Notes which keys have been used.
async fn flush_last_used(app: Arc<App>) {
    loop {
        tokio::time::sleep(last_used::NOTED_EVERY).await;
        if let Err(e) = bounded(PASS_TIMEOUT, last_used::flush(&app)).await {
            tracing::debug!(error = %e, "cannot note which keys were used: {e}");
        }
    }
}

/// Says every few seconds that this replica is there, and counts those that are.
async fn send_heartbeats(app: Arc<App>) {
    loop {
        let registering = async { app.register_replica(app.store.store()?).await };
        if let Err(e) = bounded(POLL_TIMEOUT, registering).await {
            tracing::debug!(error = %e, "cannot count the replicas: {e}");
        }
        tokio::time::sleep(PRESENCE_EVERY).await;
    }
}

/// Sends what was taken quickly.
async fn sync_approximate_windows(app: Arc<App>) {
    loop {
        tokio::time::sleep(QUICK_EVERY).await;
        admission::sync_approximate(&app).await;
    }
}

/// Estimates how many ad-hoc counters each workspace has.
async fn estimate_groups(app: Arc<App>) {
    loop {
        tokio::time::sleep(ESTIMATE_GROUPS_EVERY).await;
        admission::estimate_groups(&app).await;
    }
}

/// Has the credits in purses that rest go back to the bank, and accounts for those in purses that are gone.
async fn close_leases(app: Arc<App>) {
    let idle = Duration::from_secs(app.settings.lease_idle_seconds);
    let mut settled = Stopwatch::new();
    loop {
        tokio::time::sleep(SETTLE_EVERY).await;
        let due = settled.elapsed() >= idle / 4;
        let settling = async {
            credits::report_lost_leases(&app).await?;
            if due {
                credits::settle_idle(&app, idle).await?;
                credits::forget_settled(&app).await?;
            }
            Ok::<_, Error>(())
        };
        if let Err(e) = bounded(LEASES_TIMEOUT, settling).await {
            tracing::debug!(error = %e, "cannot settle purses: {e}");
        }
        if let Err(e) = bounded(LEASES_TIMEOUT, credits::close_outdated(&app)).await {
            tracing::debug!(error = %e, "failed to close leases that are out of date: {e}");
        }
        if due {
            settled = Stopwatch::new();
        }
    }
}

/// Finds out how many credits are withheld.
async fn update_withheld_gauge(app: Arc<App>) {
    loop {
        match bounded(LEASES_TIMEOUT, credits::sum_withheld(&app)).await {
            Ok(units) => {
                app.metrics.credits_withheld.set(units);
            }
            Err(e) => tracing::debug!(error = %e, "cannot add up what is withheld: {e}"),
        }
        if let Err(e) = bounded(LEASES_TIMEOUT, credits::count_out(&app)).await {
            tracing::debug!(error = %e, "cannot count out silent replicas: {e}");
        }
        if let Err(e) = bounded(LEASES_TIMEOUT, credits::account_for_all(&app)).await {
            tracing::debug!(error = %e, "cannot account for what is withheld: {e}");
        }
        tokio::time::sleep(WITHHELD_EVERY).await;
    }
}

//! Runs the change feed, by which a replica learns what others have changed, and other tasks beside the requests.
//!
//! The same changes arrive in two ways. The change log in the database holds each change, written in the transaction
//! that made it, and every replica reads it twice a second ([`change_log`]). Announcements in Redis report within
//! milliseconds what is about to be committed and what has been ([`announcements`]). While the database is unreachable
//! they are the only source, so a reader detects when it has missed one.

mod announcements;
mod change_log;
mod primaries;
mod regions;

use std::sync::Arc;
use std::time::Duration;

use domain::admission;
use domain::app::App;
use domain::context::Context;
use domain::context::change_log::ChangeLogReader;
use domain::context::imported_keys;
use domain::context::poll_schedule::{PollResult, PollSchedule};
use domain::credits;
use domain::form_results;
use domain::last_used;
use foundation::clock::Monotonic;
use foundation::error::{Error, Result};
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use store::with_timeout;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

const POLL_TIMEOUT: Duration = Duration::from_secs(5);
/// The maximum duration of one pass of the other tasks: on a connection that was lost without notice a statement never
/// ends.
const PASS_TIMEOUT: Duration = Duration::from_mins(1);
/// Like [`PASS_TIMEOUT`], for tasks that maintain leases and continue where they stopped: other replicas wait for their
/// reports.
const LEASES_TIMEOUT: Duration = Duration::from_secs(5);
/// How often leases are maintained.
const LEASES_INTERVAL: Duration = Duration::from_millis(500);
/// How often the costs of approximate windows are sent.
const SYNC_INTERVAL: Duration = Duration::from_millis(100);
/// How often the ad-hoc counters of workspaces are estimated.
const ESTIMATE_GROUPS_INTERVAL: Duration = Duration::from_secs(2);
/// How often the withheld credits are summed.
const WITHHELD_INTERVAL: Duration = Duration::from_secs(5);
/// How often it is looked whether so many keys were imported that Postgres must be told.
const STATISTICS_INTERVAL: Duration = Duration::from_secs(1);
/// How often a replica registers as present.
const HEARTBEAT_INTERVAL: Duration = Duration::from_millis(500);
/// How often the read replica is probed, and thus how long requests skip it at least after it has failed.
const PROBE_INTERVAL: Duration = Duration::from_secs(1);
/// How often rows of the change log are deleted that are a day old. The first time is at the start: a server that is
/// restarted more often than this deletes them too.
const PRUNE_INTERVAL: Duration = Duration::from_mins(10);
/// How many rows of each table are deleted in one transaction: a statement has five seconds.
const PRUNE_ROWS_MAX: i64 = 10_000;
/// How often secrets of forms are deleted that were not shown in time.
const PRUNE_FORMS_INTERVAL: Duration = Duration::from_mins(1);

/// Starts the background tasks. They run until the set is dropped or shut down.
pub fn start(app: &Arc<App>, announcements: mpsc::Receiver<String>) -> JoinSet<()> {
    let mut tasks = JoinSet::new();
    // Boxed, so that the task of the runtime is compiled once and not for each of them.
    let mut start = |task: BoxFuture<'static, ()>| drop(tasks.spawn(task));
    start(poll_change_log(app.clone()).boxed());
    start(prune_change_log(app.clone()).boxed());
    start(prune_form_results(app.clone()).boxed());
    start(flush_last_used(app.clone()).boxed());
    start(credits::serve_debits(app.ledger.clone()).boxed());
    start(estimate_groups(app.clone()).boxed());
    if app.context.redis.is_some() {
        start(send_heartbeats(app.clone()).boxed());
        start(report_lost_leases(app.clone()).boxed());
        start(close_idle_leases(app.clone()).boxed());
        start(prune_closed_leases(app.clone()).boxed());
        if app.context.standby.is_some() {
            start(probe_standby(app.context.clone()).boxed());
        }
        start(primaries::follow(app.context.clone()).boxed());
        start(refresh_statistics(app.context.clone()).boxed());
        start(update_withheld_gauge(app.clone()).boxed());
        start(sync_approximate_windows(app.clone()).boxed());
        if app.context.regions.is_some() {
            start(regions::give_back(app.context.clone()).boxed());
            start(regions::watch(app.context.clone()).boxed());
        }
        start(announcements::subscribe_to_changes(app.context.clone()).boxed());
        start(announcements::publish_changes(app.context.clone(), announcements).boxed());
    }
    tasks
}

async fn poll_change_log(app: Arc<App>) {
    let mut log = ChangeLogReader::new(Monotonic::now());
    let mut schedule = PollSchedule::default();
    loop {
        let read = tokio::select! {
            // A database that accepts connections and never replies must not stop the feed permanently.
            read = with_timeout(POLL_TIMEOUT, read_log(&app, &mut log)) => read,
            () = replace_connections(&app), if schedule.should_reconnect() => {
                schedule.record_reconnect(Monotonic::now());
                continue;
            }
        };
        let result = match read {
            Ok(has_pending) => PollResult::Read { has_pending },
            // The startup code logs why the store is not ready.
            Err(Error::StoreNotReady) => PollResult::Failed,
            Err(e) => {
                tracing::warn!(error = %e, "failed to read the change log: {e}");
                if e.has_lost_connection()
                    && let Ok(store) = app.context.store.store()
                {
                    store.record_lost_connection();
                }
                if e.is_database_timeout() { PollResult::TimedOut } else { PollResult::Failed }
            }
        };
        let next = schedule.record_result(result, Monotonic::now());
        tokio::select! {
            () = tokio::time::sleep(next) => {}
            () = app.context.feed_state.wait_for_change() => {}
        }
    }
}

/// Replaces all connections to the database as soon as it accepts a new one. Never returns if it does not.
async fn replace_connections(app: &App) {
    let reconnected = async { app.context.store.store()?.reconnect().await };
    if let Err(e) = reconnected.await {
        // A database that refuses connections has closed the others as well.
        tracing::warn!(error = %e, "failed to connect to the database: {e}");
        return std::future::pending().await;
    }
    app.analytics.event_store().reconnect();
    tracing::warn!("replaced unresponsive database connections");
}

/// Reads the change log to its end, confirms the reading of announcements and resolves open intents. Returns whether it
/// should be read again soon.
async fn read_log(app: &App, log: &mut ChangeLogReader) -> Result<bool> {
    // Both are captured before the read begins, which then proves that no earlier change was missed.
    let (reading, open_intents) =
        (app.context.feed_state.current_reading(), app.context.freshness.intents.list());
    let began = Monotonic::now();
    let pass = change_log::read_to_end(&app.context, log).await?;
    let registered_at = match &app.context.redis {
        Some(_) => pass.registered_at(began),
        None => Some(began),
    };
    app.context.freshness.record_log_read(began, registered_at, Monotonic::now());
    let has_pending =
        announcements::report_feed_state(&app.context, reading.as_ref(), &pass).await?;
    announcements::resolve_intents(&app.context, &open_intents, &pass.head).await?;
    Ok(has_pending)
}

async fn prune_change_log(app: Arc<App>) {
    app.context.store.wait_until_set().await;
    loop {
        if let Err(e) = with_timeout(PASS_TIMEOUT, prune_once(&app)).await {
            tracing::warn!(error = %e, "failed to prune the change log: {e}");
        }
        tokio::time::sleep(PRUNE_INTERVAL).await;
    }
}

async fn prune_once(app: &App) -> Result<()> {
    loop {
        let mut tx = app.context.store.begin().await?;
        let pruned = tx.prune_changes(PRUNE_ROWS_MAX).await?;
        let is_end = pruned < PRUNE_ROWS_MAX.unsigned_abs();
        if is_end {
            tx.prune_replicas().await?;
        }
        tx.commit().await?;
        if is_end {
            return Ok(());
        }
    }
}

async fn prune_form_results(app: Arc<App>) {
    app.context.store.wait_until_set().await;
    loop {
        let pass = form_results::prune(&app.context, PRUNE_ROWS_MAX);
        if let Err(e) = with_timeout(PASS_TIMEOUT, pass).await {
            tracing::warn!(error = %e, "failed to delete old results of forms: {e}");
        }
        tokio::time::sleep(PRUNE_FORMS_INTERVAL).await;
    }
}

/// Records which keys have been used.
async fn flush_last_used(app: Arc<App>) {
    loop {
        tokio::time::sleep(last_used::FLUSH_INTERVAL).await;
        if let Err(e) = with_timeout(PASS_TIMEOUT, last_used::flush(&app.last_used)).await {
            tracing::debug!(error = %e, "failed to record the last use of keys: {e}");
        }
    }
}

/// Registers this replica as present, and counts the present replicas.
async fn send_heartbeats(app: Arc<App>) {
    loop {
        let registering = async { app.context.register_replica(app.context.store.store()?).await };
        if let Err(e) = with_timeout(POLL_TIMEOUT, registering).await {
            tracing::debug!(error = %e, "failed to count the replicas: {e}");
        }
        tokio::time::sleep(HEARTBEAT_INTERVAL).await;
    }
}

/// Decides whether requests use the read replica.
async fn probe_standby(context: Arc<Context>) {
    loop {
        context.probe_standby().await;
        tokio::time::sleep(PROBE_INTERVAL).await;
    }
}

/// Keeps the statistics of Postgres current during imports.
async fn refresh_statistics(context: Arc<Context>) {
    loop {
        tokio::time::sleep(STATISTICS_INTERVAL).await;
        let refreshed = imported_keys::refresh_statistics(&context);
        if let Err(e) = with_timeout(PASS_TIMEOUT, refreshed).await {
            tracing::debug!(error = %e, "failed to analyze the tables of keys: {e}");
        }
    }
}

/// Sends the costs of approximate windows to Redis.
async fn sync_approximate_windows(app: Arc<App>) {
    loop {
        tokio::time::sleep(SYNC_INTERVAL).await;
        admission::sync_approximate(&app.admission).await;
    }
}

/// Estimates how many ad-hoc counters each workspace has.
async fn estimate_groups(app: Arc<App>) {
    loop {
        tokio::time::sleep(ESTIMATE_GROUPS_INTERVAL).await;
        admission::estimate_ad_hoc_counters(&app.admission).await;
    }
}

/// Reports leases that Redis has lost, and closes leases that report stale balances.
async fn report_lost_leases(app: Arc<App>) {
    loop {
        tokio::time::sleep(LEASES_INTERVAL).await;
        let reporting = credits::report_lost_leases(&app.ledger);
        if let Err(e) = with_timeout(LEASES_TIMEOUT, reporting).await {
            tracing::debug!(error = %e, "failed to report lost leases: {e}");
        }
        if let Err(e) = with_timeout(LEASES_TIMEOUT, credits::close_outdated(&app.ledger)).await {
            tracing::debug!(error = %e, "failed to close outdated leases: {e}");
        }
    }
}

/// Closes idle leases, which returns their credits to the account. A pass that does not reach the end is continued soon.
async fn close_idle_leases(app: Arc<App>) {
    let idle = Duration::from_secs(app.context.settings.lease_idle_seconds);
    let mut pause = idle / 4;
    loop {
        tokio::time::sleep(pause.max(LEASES_INTERVAL)).await;
        let closing = credits::close_idle_leases(&app.context, idle);
        pause = match with_timeout(LEASES_TIMEOUT, closing).await {
            Ok(()) => idle / 4,
            Err(e) => {
                tracing::debug!(error = %e, "failed to close idle leases: {e}");
                LEASES_INTERVAL
            }
        };
    }
}

/// Removes what this process knows of closed leases.
async fn prune_closed_leases(app: Arc<App>) {
    let idle = Duration::from_secs(app.context.settings.lease_idle_seconds);
    loop {
        tokio::time::sleep((idle / 4).max(LEASES_INTERVAL)).await;
        if let Err(e) = with_timeout(PASS_TIMEOUT, credits::prune_closed_leases(&app.ledger)).await
        {
            tracing::debug!(error = %e, "failed to remove closed leases from memory: {e}");
        }
    }
}

/// Sums the withheld credits for the metric.
async fn update_withheld_gauge(app: Arc<App>) {
    loop {
        match with_timeout(LEASES_TIMEOUT, credits::sum_withheld(&app.context)).await {
            Ok(units) => {
                app.context.metrics.credits_withheld.set(units);
            }
            Err(e) => tracing::debug!(error = %e, "failed to sum withheld credits: {e}"),
        }
        if let Err(e) =
            with_timeout(LEASES_TIMEOUT, credits::deregister_silent_replicas(&app.context)).await
        {
            tracing::debug!(error = %e, "failed to remove unresponsive replicas: {e}");
        }
        if let Err(e) =
            with_timeout(LEASES_TIMEOUT, credits::report_and_sweep_all(&app.ledger)).await
        {
            tracing::debug!(error = %e, "failed to account for withheld credits: {e}");
        }
        tokio::time::sleep(WITHHELD_INTERVAL).await;
    }
}

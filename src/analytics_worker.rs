//! What runs beside the requests and puts away what happened.
//!
//! It has a thread of its own: to make a batch of thousands of events takes milliseconds, in which a thread that
//! answers would let everybody wait.

use std::io;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use foundation::error::Result;
use store::bounded;
use tokio::sync::watch::{self, Receiver, Sender};
use tokio::time::{sleep, timeout};
use tokio::{join, select};

use crate::app::App;
use crate::domain::analytics::{clickhouse_delivery, event_space, writer};

/// How often what has gathered is written: what a replica that is killed takes with it.
const WRITE_EVERY: Duration = Duration::from_secs(1);
/// How often it is summed up. Until then whoever asks adds the rest.
const SUM_UP_EVERY: Duration = Duration::from_secs(15);
/// How often room is made for what is to come, and what is old is forgotten.
const KEEP_EVERY: Duration = Duration::from_mins(10);

/// How often single events are held against the room that they may take.
const TRIM_EVERY: Duration = Duration::from_mins(1);

/// The longest pause before ClickHouse is tried again.
const RETRY_MAX: Duration = Duration::from_secs(30);
/// How long one pass may take: on a connection that was lost without a word a statement never ends.
const PASS_TIMEOUT: Duration = Duration::from_mins(5);
/// How long a server that stops may take to write its last events.
const LAST_WRITE: Duration = Duration::from_secs(5);
/// How long a server that stops may take to deliver its last events.
const LAST_DELIVERY: Duration = Duration::from_secs(3);

/// What has been started.
pub struct AnalyticsWorker {
    thread: JoinHandle<()>,
    /// Dropped, the thread writes what still waits, and ends.
    stop: Sender<()>,
}

/// Starts it. Fails where the system gives no thread.
pub fn start(app: &Arc<App>) -> io::Result<AnalyticsWorker> {
    let (stop, stopped) = watch::channel(());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let app = app.clone();
    let record = move || runtime.block_on(record(&app, stopped));
    let thread = std::thread::Builder::new().name("recorder".into()).spawn(record)?;
    Ok(AnalyticsWorker { thread, stop })
}

impl AnalyticsWorker {
    /// Writes what still waits, and closes the connections to the database of events.
    pub async fn stop(self) {
        drop(self.stop);
        let joined = tokio::task::spawn_blocking(move || self.thread.join()).await;
        if !matches!(joined, Ok(Ok(()))) {
            tracing::error!("the thread that records events panicked");
        }
    }
}

async fn record(app: &App, stopped: Receiver<()>) {
    select! {
        () = write(app, stopped) => {}
        ((), (), (), ()) = async { join!(roll_up(app), maintain_partitions(app), trim(app), deliver(app)) } => {}
    }
    if let Err(e) = bounded(LAST_WRITE, writer::write(app)).await {
        tracing::warn!(error = %e, "the last events are lost: {e}");
    }
    // What does not arrive in this time is delivered by another replica, or after the next start.
    let _ = timeout(LAST_DELIVERY, clickhouse_delivery::deliver(app)).await;
    // Connections belong to the thread that made them.
    app.events.close().await;
}

/// Ends when it is told to. What may have been written then is written once more under the same name, and counts once.
async fn write(app: &App, mut stopped: Receiver<()>) {
    while timeout(WRITE_EVERY, stopped.changed()).await.is_err() {
        if app.store.store().is_ok() {
            select! {
                written = bounded(PASS_TIMEOUT, writer::write(app)) => log_if_err("write events", written),
                _ = stopped.changed() => return,
            }
        }
    }
}

async fn roll_up(app: &App) {
    loop {
        sleep(SUM_UP_EVERY).await;
        if app.store.store().is_ok() {
            log_if_err("sum up events", bounded(PASS_TIMEOUT, writer::sum_up(app)).await);
        }
    }
}

async fn trim(app: &App) {
    loop {
        sleep(TRIM_EVERY).await;
        if app.store.store().is_ok() {
            log_if_err(
                "delete the oldest events",
                bounded(PASS_TIMEOUT, event_space::trim(app)).await,
            );
        }
    }
}

/// Tries less often while it fails.
async fn deliver(app: &App) {
    let mut pause = WRITE_EVERY;
    loop {
        sleep(pause).await;
        if app.store.store().is_ok() {
            let outcome = bounded(PASS_TIMEOUT, clickhouse_delivery::deliver(app)).await;
            pause = if outcome.is_ok() { WRITE_EVERY } else { (pause * 2).min(RETRY_MAX) };
            log_if_err("deliver events to ClickHouse", outcome);
        }
    }
}

async fn maintain_partitions(app: &App) {
    // Where the database is away there are no tables yet.
    while app.store.store().is_err() {
        sleep(WRITE_EVERY).await;
    }
    loop {
        let granted = bounded(PASS_TIMEOUT, app.events.grant_analytics()).await;
        log_if_err("let the role for analytics queries read events", granted);
        log_if_err("look after the tables of events", writer::keep(app).await);
        sleep(KEEP_EVERY).await;
    }
}

fn log_if_err<T>(what: &str, outcome: Result<T>) {
    if let Err(e) = outcome {
        tracing::warn!(error = %e, "cannot {what}: {e}");
    }
}

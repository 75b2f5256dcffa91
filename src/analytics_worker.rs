//! The thread that writes, rolls up and delivers analytics events.
//!
//! It is separate from the threads that handle requests: building a batch of thousands of events takes milliseconds
//! and would delay every request on the same thread. On Linux it also has a lower priority, as have the threads of the SQLite
//! connections that it opens: while all processors are busy, requests go first.

use std::io;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use analytics::{clickhouse_delivery, event_space, writer};
use domain::app::App;
use foundation::error::Result;
use store::with_timeout;
use tokio::sync::watch::{self, Receiver, Sender};
use tokio::time::{sleep, timeout};
use tokio::{join, select};

/// The maximum interval between writes. A replica that is killed loses the events since the last write.
const WRITE_INTERVAL: Duration = Duration::from_secs(1);
/// The minimum interval between writes, so that a small buffer does not make many small ones.
const EARLY_WRITE_INTERVAL: Duration = Duration::from_millis(250);
/// The interval between rollups. Until then, readers add the events that are not rolled up.
const ROLL_UP_INTERVAL: Duration = Duration::from_secs(15);
/// The interval between maintenance runs, which create partitions and delete data past its retention.
const MAINTENANCE_INTERVAL: Duration = Duration::from_mins(10);

/// The interval between checks of the size limit of raw events.
const TRIM_INTERVAL: Duration = Duration::from_mins(1);

/// The priority of the thread, as `nice` has it. It has a third of a processor even if requests would use all of it: twice what
/// the events of one processor take.
#[cfg(target_os = "linux")]
const NICE: i32 = 3;

/// The maximum pause before ClickHouse is tried again.
const RETRY_PAUSE_MAX: Duration = Duration::from_secs(30);
/// The maximum time of one pass. A statement on a connection that was lost silently never ends.
const PASS_TIMEOUT: Duration = Duration::from_mins(5);
/// The same for a maintenance run, which may delete months of data, and roll up a day in ClickHouse in up to 20 minutes.
const MAINTENANCE_TIMEOUT: Duration = Duration::from_mins(30);
/// The maximum time that a stopping server takes to write and roll up its last events.
const LAST_WRITE_TIMEOUT: Duration = Duration::from_secs(5);
/// The maximum time that a stopping server takes to deliver its last events.
const LAST_DELIVERY_TIMEOUT: Duration = Duration::from_secs(3);

/// A handle to the running thread.
pub struct AnalyticsWorker {
    thread: JoinHandle<()>,
    /// When this is dropped, the thread writes the remaining events and ends.
    stop_sender: Sender<()>,
}

/// Starts the thread. Fails if the operating system cannot create one.
pub fn start(app: &Arc<App>) -> io::Result<AnalyticsWorker> {
    let (stop, stopped) = watch::channel(());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let app = app.clone();
    let worker = move || {
        lower_priority();
        runtime.block_on(run(&app, stopped));
    };
    let thread = std::thread::Builder::new().name("analytics".into()).spawn(worker)?;
    Ok(AnalyticsWorker { thread, stop_sender: stop })
}

/// Lowers the priority of this thread and of the threads that it will start.
#[cfg(target_os = "linux")]
fn lower_priority() {
    if let Err(e) = rustix::process::setpriority_process(None, NICE) {
        tracing::debug!(error = %e, "failed to lower the priority of the analytics worker: {e}");
    }
}

/// Elsewhere, threads have no priority of their own.
#[cfg(not(target_os = "linux"))]
fn lower_priority() {}

impl AnalyticsWorker {
    /// Writes the remaining events, and closes the connections to the event database.
    pub async fn stop(self) {
        drop(self.stop_sender);
        let joined = tokio::task::spawn_blocking(move || self.thread.join()).await;
        if !matches!(joined, Ok(Ok(()))) {
            tracing::error!("the thread of the analytics worker panicked");
        }
    }
}

async fn run(app: &App, stopped: Receiver<()>) {
    select! {
        () = write_events(app, stopped) => {}
        ((), (), (), ()) = async { join!(roll_up(app), maintain_partitions(app), trim_events(app), deliver_events(app)) } => {}
    }
    let last_events = async {
        writer::write_buffered(&app.analytics).await?;
        // No other server may run before these events are past their retention.
        writer::roll_up(&app.analytics).await
    };
    if let Err(e) = with_timeout(LAST_WRITE_TIMEOUT, last_events).await {
        tracing::warn!(error = %e, "failed to write the last events: {e}");
    }
    // Events that are not delivered in this time are delivered by another replica, or after the next start.
    let _ = timeout(LAST_DELIVERY_TIMEOUT, clickhouse_delivery::deliver(&app.analytics)).await;
    // Connections belong to the thread that opened them.
    app.analytics.event_store().close().await;
}

/// Writes events until the server stops, or, while that succeeds, earlier when the buffer is half full. A batch that may
/// have been written by then is written again under the same name, and counts once.
async fn write_events(app: &App, mut stopped: Receiver<()>) {
    let mut is_writing = false;
    loop {
        select! {
            () = sleep(WRITE_INTERVAL) => {}
            () = wait_until_half_full(app), if is_writing => {}
            _ = stopped.changed() => return,
        }
        is_writing = app.context.store.store().is_ok();
        if is_writing {
            select! {
                written = with_timeout(PASS_TIMEOUT, writer::write_buffered(&app.analytics)) => {
                    is_writing = written.is_ok();
                    log_if_err("write events", written);
                }
                _ = stopped.changed() => return,
            }
        }
    }
}

async fn wait_until_half_full(app: &App) {
    sleep(EARLY_WRITE_INTERVAL).await;
    app.analytics.wait_until_half_full().await;
}

async fn roll_up(app: &App) {
    loop {
        sleep(ROLL_UP_INTERVAL).await;
        if app.context.store.store().is_ok() {
            log_if_err(
                "roll up events",
                with_timeout(PASS_TIMEOUT, writer::roll_up(&app.analytics)).await,
            );
        }
    }
}

async fn trim_events(app: &App) {
    loop {
        sleep(TRIM_INTERVAL).await;
        if app.context.store.store().is_ok() {
            log_if_err(
                "delete the oldest events",
                with_timeout(PASS_TIMEOUT, event_space::trim_raw_events(&app.analytics)).await,
            );
        }
    }
}

/// Delivers events, less often while deliveries fail.
async fn deliver_events(app: &App) {
    let mut pause = WRITE_INTERVAL;
    loop {
        sleep(pause).await;
        if app.context.store.store().is_ok() {
            let outcome =
                with_timeout(PASS_TIMEOUT, clickhouse_delivery::deliver(&app.analytics)).await;
            pause = if outcome.is_ok() { WRITE_INTERVAL } else { (pause * 2).min(RETRY_PAUSE_MAX) };
            log_if_err("deliver events to ClickHouse", outcome);
        }
    }
}

async fn maintain_partitions(app: &App) {
    // Without the database there are no tables yet.
    app.context.store.wait_until_set().await;
    loop {
        let granted =
            with_timeout(PASS_TIMEOUT, app.analytics.event_store().grant_analytics_role()).await;
        log_if_err("grant the analytics role access to events", granted);
        let maintained =
            with_timeout(MAINTENANCE_TIMEOUT, writer::maintain_partitions(&app.analytics)).await;
        log_if_err("maintain event partitions", maintained);
        sleep(MAINTENANCE_INTERVAL).await;
    }
}

fn log_if_err<T>(action: &str, result: Result<T>) {
    if let Err(e) = result {
        tracing::warn!(error = %e, "failed to {action}: {e}");
    }
}

//! What runs beside the requests and puts away what happened.

use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;

use crate::app::App;
use crate::domain::analytics::writer;
use crate::error::Result;

/// How often what has gathered is written: what a replica that is killed takes with it.
const WRITE_EVERY: Duration = Duration::from_secs(1);
/// How often it is summed up. Until then whoever asks adds the rest.
const SUM_UP_EVERY: Duration = Duration::from_secs(15);
/// How often room is made for what is to come, and what is old is forgotten.
const KEEP_EVERY: Duration = Duration::from_mins(10);

/// Runs until the set is dropped or shut down.
pub fn start(app: &Arc<App>, tasks: &mut JoinSet<()>) {
    tasks.spawn(keep(app.clone()));
    tasks.spawn(write(app.clone()));
    tasks.spawn(sum_up(app.clone()));
}

async fn write(app: Arc<App>) {
    loop {
        tokio::time::sleep(WRITE_EVERY).await;
        if app.store.store().is_ok() {
            // A server that stops ends this loop, but no batch that is under way.
            let app = app.clone();
            let writing = tokio::spawn(async move { writer::write(&app).await });
            told("write events", writing.await.unwrap_or(Ok(0)));
        }
    }
}

async fn sum_up(app: Arc<App>) {
    loop {
        tokio::time::sleep(SUM_UP_EVERY).await;
        if app.store.store().is_ok() {
            told("sum up events", writer::sum_up(&app).await);
        }
    }
}

async fn keep(app: Arc<App>) {
    // Where the database is away there are no tables yet.
    while app.store.store().is_err() {
        tokio::time::sleep(WRITE_EVERY).await;
    }
    loop {
        told("look after the tables of events", writer::keep(&app).await);
        tokio::time::sleep(KEEP_EVERY).await;
    }
}

fn told<T>(what: &str, outcome: Result<T>) {
    if let Err(e) = outcome {
        tracing::warn!(error = %e, "cannot {what}: {e}");
    }
}

//! The change stream: how a replica hears what others have changed.
//!
//! Two ways carry the same subjects. Redis carries them within milliseconds, as long as it and the
//! writer live. The change log in the database carries all of them, in the transaction that made
//! them, and every replica reads it twice a second; a row that a slow transaction commits late is
//! still seen, because each reading goes back a while. Whichever is heard counts as a sign of life.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::task::JoinSet;

use crate::app::App;
use crate::clock::Stopwatch;
use crate::domain::counting;
use crate::domain::credits;
use crate::domain::uses;
use crate::error::{Error, Result};
use crate::store::Change;

const POLL_EVERY: Duration = Duration::from_millis(500);
const POLL_TIMEOUT: Duration = Duration::from_secs(5);
const BEAT_EVERY: Duration = Duration::from_secs(1);
/// How often purses are looked after.
const SETTLE_EVERY: Duration = Duration::from_millis(500);
/// How often what was taken quickly is sent.
const QUICK_EVERY: Duration = Duration::from_millis(100);
/// How often the credits that are withheld are added up.
const WITHHELD_EVERY: Duration = Duration::from_secs(5);
/// How often a replica says that it is there.
const PRESENCE_EVERY: Duration = Duration::from_millis(500);
const PRUNE_EVERY: Duration = Duration::from_mins(10);
/// A listener that hears no beat for so long connects anew.
const SILENCE: Duration = Duration::from_secs(3);
const RECONNECT_AFTER: Duration = Duration::from_millis(250);
/// How late a row of the change log may appear behind a younger one: longer than any statement or
/// idle transaction is allowed to live.
const LATE_MS: i64 = 15_000;
/// How many rows of the past a replica reads when it starts.
const START_BACK: i64 = 5_000;
/// Rows of the log live for a day; after a gap of this length nothing read before is trusted.
const GAP_MS: i64 = 3_600_000;

/// Runs until the set is dropped or shut down.
pub fn start(app: &Arc<App>, announcements: mpsc::Receiver<String>) -> JoinSet<()> {
    let mut tasks = JoinSet::new();
    tasks.spawn(poll(app.clone()));
    tasks.spawn(prune(app.clone()));
    tasks.spawn(note_uses(app.clone()));
    if app.redis.is_some() {
        tasks.spawn(announce_presence(app.clone()));
        tasks.spawn(settle(app.clone()));
        tasks.spawn(watch_withheld(app.clone()));
        tasks.spawn(send_quick(app.clone()));
        tasks.spawn(listen(app.clone()));
        tasks.spawn(announce(app.clone(), announcements));
    }
    tasks
}

/// How far the change log has been read.
struct Reading {
    /// Every row up to this one has been seen, and no other can appear below it.
    settled: i64,
    /// The rows above it that have been seen.
    seen: HashSet<i64>,
    /// Whether it has caught up with the past, so that what is read from now on is news.
    is_news: bool,
}

impl Reading {
    async fn start(app: &App) -> Result<Self> {
        let (first, last) = app.store.read().await?.changes_range().await?;
        Ok(Self {
            settled: (last - START_BACK).max(first - 1).max(0),
            seen: HashSet::new(),
            is_news: false,
        })
    }

    async fn advance(&mut self, app: &App) -> Result<()> {
        let mut reader = app.store.read().await?;
        let mut rows = Vec::new();
        loop {
            let after = rows.last().map_or(self.settled, |row: &Change| row.seq);
            let page = reader.changes_after(after).await?;
            if page.is_empty() {
                break;
            }
            rows.extend(page);
        }
        for row in &rows {
            if self.seen.insert(row.seq) {
                app.freshness.changed_text(&row.subject);
                if self.is_news {
                    let stood_ms = u64::try_from(row.now - row.at).unwrap_or(0);
                    app.metrics.change_delays.observe(Duration::from_millis(stood_ms));
                }
            }
        }
        self.is_news = true;
        let settled = rows.iter().take_while(|row| row.at < row.now - LATE_MS).last();
        if let Some(settled) = settled {
            self.settled = settled.seq;
            self.seen.retain(|seq| *seq > settled.seq);
        }
        Ok(())
    }
}

async fn poll(app: Arc<App>) {
    let mut reading: Option<Reading> = None;
    let mut since = Stopwatch::new();
    loop {
        // A database that accepts and never answers must not silence the stream for good.
        let read = tokio::time::timeout(POLL_TIMEOUT, read_on(&app, &mut reading)).await;
        match read.unwrap_or(Err(Error::StoreTimeout(POLL_TIMEOUT.as_secs()))) {
            Ok(()) => {
                if since.elapsed_ms() > GAP_MS {
                    app.freshness.everything_changed();
                    reading = None;
                }
                since = Stopwatch::new();
                app.freshness.heard_database();
            }
            // Whoever opens it tells why it cannot be.
            Err(Error::StoreUnopened) => {}
            Err(e) => tracing::warn!(error = %e, "cannot read the change log: {e}"),
        }
        tokio::time::sleep(POLL_EVERY).await;
    }
}

async fn read_on(app: &App, reading: &mut Option<Reading>) -> Result<()> {
    if reading.is_none() {
        *reading = Some(Reading::start(app).await?);
    }
    match reading {
        Some(reading) => reading.advance(app).await,
        None => Ok(()),
    }
}

async fn prune(app: Arc<App>) {
    loop {
        tokio::time::sleep(PRUNE_EVERY).await;
        let pruned = async {
            let mut tx = app.store.begin().await?;
            tx.prune_changes().await?;
            tx.prune_replicas().await?;
            tx.commit().await
        };
        if let Err(e) = pruned.await {
            tracing::warn!(error = %e, "cannot prune the change log: {e}");
        }
    }
}

/// Notes which keys have been used.
async fn note_uses(app: Arc<App>) {
    loop {
        tokio::time::sleep(uses::NOTED_EVERY).await;
        if let Err(e) = uses::note(&app).await {
            tracing::debug!(error = %e, "cannot note which keys were used: {e}");
        }
    }
}

/// Says every few seconds that this replica is there, and counts those that are.
async fn announce_presence(app: Arc<App>) {
    loop {
        let counting = async { app.register(app.store.store()?).await };
        let counted = tokio::time::timeout(POLL_TIMEOUT, counting).await;
        if let Err(e) = counted.unwrap_or(Err(Error::StoreTimeout(POLL_TIMEOUT.as_secs()))) {
            tracing::debug!(error = %e, "cannot count the replicas: {e}");
        }
        tokio::time::sleep(PRESENCE_EVERY).await;
    }
}

/// Sends what was taken quickly.
async fn send_quick(app: Arc<App>) {
    loop {
        tokio::time::sleep(QUICK_EVERY).await;
        counting::send_quick(&app).await;
    }
}

/// Has the credits in purses that rest go back to the bank, and accounts for those in purses that are gone.
async fn settle(app: Arc<App>) {
    let idle = Duration::from_secs(app.settings.purse_idle_seconds);
    let mut settled = Stopwatch::new();
    loop {
        tokio::time::sleep(SETTLE_EVERY).await;
        let due = settled.elapsed() >= idle / 4;
        let settling = async {
            credits::account(&app).await?;
            if due {
                credits::settle_idle(&app, idle).await?;
                credits::forget_settled(&app).await?;
            }
            Ok::<_, Error>(())
        };
        if let Err(e) = settling.await {
            tracing::debug!(error = %e, "cannot settle purses: {e}");
        }
        if due {
            settled = Stopwatch::new();
        }
    }
}

/// Finds out how many credits are withheld.
async fn watch_withheld(app: Arc<App>) {
    loop {
        match credits::units_withheld(&app).await {
            Ok(units) => {
                app.metrics.credits_withheld.set(units);
            }
            Err(e) => tracing::debug!(error = %e, "cannot add up what is withheld: {e}"),
        }
        tokio::time::sleep(WITHHELD_EVERY).await;
    }
}

async fn listen(app: Arc<App>) {
    let Some(redis) = &app.redis else { return };
    loop {
        let heard = |message: &str| {
            for subject in message.lines() {
                app.freshness.changed_text(subject);
            }
            app.freshness.heard();
        };
        if let Err(e) = redis.listen(SILENCE, heard).await {
            tracing::warn!(error = %e, "the change channel broke: {e}");
        }
        tokio::time::sleep(RECONNECT_AFTER).await;
    }
}

/// Sends what is to be announced, and a beat each second, so that silence means something.
async fn announce(app: Arc<App>, mut waiting: mpsc::Receiver<String>) {
    let Some(redis) = &app.redis else { return };
    let mut text = String::new();
    loop {
        let announced = redis.announce(&text).await;
        app.counters_answered.store(announced.is_ok(), Ordering::Relaxed);
        if let Err(e) = announced {
            tracing::warn!(error = %e, "cannot announce changes: {e}");
        }
        text = match tokio::time::timeout(BEAT_EVERY, waiting.recv()).await {
            Ok(Some(text)) => text,
            Ok(None) => return,
            Err(_) => String::new(),
        };
        while let Ok(more) = waiting.try_recv() {
            text.push_str(&more);
        }
    }
}

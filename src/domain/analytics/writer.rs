//! From the buffer into the database: events in batches, their sums, and the end of what is no longer kept.

use super::Waiting;
use crate::app::App;
use crate::error::Result;
use crate::model::EventKind;
use crate::store::events::Batch;

/// How many events one batch has at most: few enough that to make it holds up no request for long.
const BATCH_MAX: usize = 2_000;
/// How many batches are summed up in one transaction: no more than that no sum of theirs is too large for the database,
/// whatever callers asked for.
const SUMMED_MAX: usize = 50;
const DAY_MS: i64 = 86_400_000;

/// Writes what waits; how many events that were. What cannot be written stays for the next time.
pub async fn write(app: &App) -> Result<usize> {
    let mut waiting = app.happened.waiting().await;
    let mut written = 0;
    loop {
        waiting.fill();
        if waiting.events.is_empty() {
            return Ok(written);
        }
        let Waiting { events, gatherer, number, .. } = &mut *waiting;
        let batch = Batch {
            name: format!("{} {number}", app.replica),
            region: app.settings.region.clone(),
            ..gatherer.batch(events)
        };
        let mut tx = app.events.begin().await?;
        tx.insert_batch(&batch, app.clock.now()).await?;
        tx.commit().await?;
        gatherer.wrote(&batch);
        *number += 1;
        let (verifications, ratelimits) = (batch.verifications.len(), batch.ratelimits.len());
        let metrics = &app.metrics.events;
        metrics.verifications.written.inc_by(u64::try_from(verifications).unwrap_or(u64::MAX));
        metrics.ratelimits.written.inc_by(u64::try_from(ratelimits).unwrap_or(u64::MAX));
        written += events.len();
        events.clear();
    }
}

impl Waiting {
    /// Takes what the next batch has. One that may have been written stays as it is.
    fn fill(&mut self) {
        if !self.events.is_empty() {
            return;
        }
        while self.events.len() < BATCH_MAX
            && let Ok(event) = self.receiver.try_recv()
        {
            self.events.push(event);
        }
    }
}

/// Sums up what has been written.
pub async fn sum_up(app: &App) -> Result<()> {
    loop {
        let mut tx = app.events.begin().await?;
        let summed = tx.sum_up(SUMMED_MAX).await?;
        tx.commit().await?;
        if summed < SUMMED_MAX {
            return Ok(());
        }
    }
}

/// Makes room for what is to come, and forgets what is no longer kept.
pub async fn keep(app: &App) -> Result<()> {
    let now = app.clock.now();
    let kept = &app.settings.kept;
    for kind in EventKind::ALL {
        app.events.keep_parts(kind, kept.of(kind), now).await?;
        let mut tx = app.events.begin().await?;
        tx.forget(kind, kept.of(kind), now).await?;
        tx.commit().await?;
    }
    // A series tells the day on which it was last written to by when that began, and may tell the one before.
    let longest = EventKind::ALL.map(|kind| kept.of(kind).longest()).into_iter().max().unwrap_or(0);
    let mut tx = app.events.begin().await?;
    tx.forget_names(now.plus_ms(-DAY_MS), now.plus_ms(-i64::from(longest + 2) * DAY_MS)).await?;
    tx.commit().await
}

//! From the buffer into the database: events in batches, their sums, and the end of what is no longer kept.

use std::mem::take;

use foundation::error::Result;
use foundation::model::EventKind;
use store::events::Batch;

use super::event_space::{self, Shortage};
use super::rollup::roll_up_overdue;
use super::{Waiting, clickhouse_delivery, outbox_encoding};
use crate::app::App;

/// How many events one batch has at most.
const BATCH_MAX: usize = 10_000;
/// How many sums are held in memory, before they are added to those in the database out of turn.
const SUMS_MAX: usize = 100_000;
const DAY_MS: i64 = 86_400_000;

/// Writes what waits; how many events that were. What cannot be written stays for the next time.
pub async fn write(app: &App) -> Result<usize> {
    let mut waiting = app.event_buffer.waiting().await;
    if waiting.leave_out(app, event_space::shortage(&app.settings)) {
        return Ok(0);
    }
    let mut written = 0;
    loop {
        waiting.fill();
        if waiting.events.is_empty() {
            return Ok(written);
        }
        let Waiting { events, gatherer, number, unsummed, .. } = &mut *waiting;
        let (name, region) = (format!("{} {number}", app.replica_id), &app.settings.region);
        let mut tx = app.events.begin().await?;
        if app.events.clickhouse().is_some() {
            let parcel = outbox_encoding::of(name, region, events)?;
            tx.enqueue_batch(&parcel, app.clock.now()).await?;
            tx.commit().await?;
        } else {
            let batch = Batch { name, region: region.clone(), ..gatherer.batch(events) };
            let id = tx.insert_batch(&batch, app.clock.now()).await?;
            tx.commit().await?;
            gatherer.wrote(&batch);
            unsummed.add(id, &batch);
        }
        *number += 1;
        for event in &*events {
            event.counts(app).written.inc();
        }
        written += events.len();
        app.event_buffer.wrote(events);
        events.clear();
        if unsummed.len() >= SUMS_MAX {
            take(unsummed).sum_up(app).await?;
        }
    }
}

impl Waiting {
    /// Drops what waits while the disk has too little room, and tells whether it does.
    fn leave_out(&mut self, app: &App, shortage: Option<Shortage>) -> bool {
        let was_short = std::mem::replace(&mut self.is_short, shortage.is_some());
        let Some(Shortage { free_bytes, reserve_bytes }) = shortage else {
            if was_short {
                tracing::info!("events are written again");
            }
            return false;
        };
        if !was_short {
            tracing::warn!(
                free_bytes,
                reserve_bytes,
                "events are not written: the disk has less free space than KEYWARD_EVENTS_RESERVE_BYTES"
            );
        }
        if !self.events.is_empty() {
            // It may have been written: another batch of this name would be taken for it.
            self.number += 1;
        }
        loop {
            for event in &self.events {
                event.counts(app).dropped.inc();
            }
            app.event_buffer.wrote(&self.events);
            self.events.clear();
            self.fill();
            if self.events.is_empty() {
                return true;
            }
        }
    }

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

/// Sums up what has been written, here or by whoever did not come to it.
pub async fn sum_up(app: &App) -> Result<()> {
    let unsummed = take(&mut app.event_buffer.waiting().await.unsummed);
    unsummed.sum_up(app).await?;
    roll_up_overdue(app).await
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
    tx.commit().await?;
    clickhouse_delivery::keep(app).await
}

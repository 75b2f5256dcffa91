//! Writes events from the buffer to the database in batches, rolls them up, and deletes data past its retention.

use std::mem::take;

use foundation::error::Result;
use foundation::model::EventKind;
use store::events::Batch;

use super::event_space::{self, Shortage};
use super::rollup::roll_up_overdue;
use super::{Waiting, clickhouse_delivery, outbox_encoding};
use crate::app::App;

/// The maximum number of events in a batch.
const BATCH_MAX: usize = 10_000;
/// The maximum number of aggregates in memory. At this number they are rolled up immediately.
const SUMS_MAX: usize = 100_000;
const DAY_MS: i64 = 86_400_000;

/// Writes the buffered events and returns how many it wrote. Events that cannot be written stay for the next call.
pub async fn write(app: &App) -> Result<usize> {
    let mut buffered = app.event_buffer.waiting().await;
    if buffered.leave_out(app, event_space::shortage(&app.settings)) {
        return Ok(0);
    }
    let mut written = 0;
    loop {
        buffered.fill();
        if buffered.events.is_empty() {
            return Ok(written);
        }
        let Waiting { events, gatherer: batch_builder, number, unsummed: pending, .. } =
            &mut *buffered;
        let (name, region) = (format!("{} {number}", app.replica_id), &app.settings.region);
        let mut tx = app.events.begin().await?;
        if app.events.clickhouse().is_some() {
            let outbox_batch = outbox_encoding::of(name, region, events)?;
            tx.enqueue_batch(&outbox_batch, app.clock.now()).await?;
            tx.commit().await?;
        } else {
            let batch = Batch { name, region: region.clone(), ..batch_builder.batch(events) };
            let id = tx.insert_batch(&batch, app.clock.now()).await?;
            tx.commit().await?;
            batch_builder.wrote(&batch);
            pending.add(id, &batch);
        }
        *number += 1;
        for event in &*events {
            event.counts(app).written.inc();
        }
        written += events.len();
        app.event_buffer.wrote(events);
        events.clear();
        if pending.len() >= SUMS_MAX {
            take(pending).sum_up(app).await?;
        }
    }
}

impl Waiting {
    /// Drops the buffered events while the disk has too little free space. Returns whether it has too little.
    fn leave_out(&mut self, app: &App, shortage: Option<Shortage>) -> bool {
        let was_short = std::mem::replace(&mut self.is_short, shortage.is_some());
        let Some(Shortage { free_bytes, reserve_bytes }) = shortage else {
            if was_short {
                tracing::info!("resumed writing events");
            }
            return false;
        };
        if !was_short {
            tracing::warn!(
                free_bytes,
                reserve_bytes,
                "stopped writing events: the disk has less free space than KEYWARD_EVENTS_RESERVE_BYTES"
            );
        }
        if !self.events.is_empty() {
            // The batch may have been written, and another batch with its name would be taken for it.
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

    /// Moves events from the queue into the next batch. A batch that may have been written stays as it is.
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

/// Rolls up the events written here, and the overdue batches of all replicas.
pub async fn sum_up(app: &App) -> Result<()> {
    let pending = take(&mut app.event_buffer.waiting().await.unsummed);
    pending.sum_up(app).await?;
    roll_up_overdue(app).await
}

/// Creates partitions for the coming days, and deletes data past its retention.
pub async fn keep(app: &App) -> Result<()> {
    let now = app.clock.now();
    let retention = &app.settings.kept;
    for kind in EventKind::ALL {
        app.events.keep_parts(kind, retention.of(kind), now).await?;
        let mut tx = app.events.begin().await?;
        tx.forget(kind, retention.of(kind), now).await?;
        tx.commit().await?;
    }
    // A series stores the start of the day on which it was last written to, and may store the day before.
    let longest =
        EventKind::ALL.map(|kind| retention.of(kind).longest()).into_iter().max().unwrap_or(0);
    let mut tx = app.events.begin().await?;
    tx.forget_names(now.plus_ms(-DAY_MS), now.plus_ms(-i64::from(longest + 2) * DAY_MS)).await?;
    tx.commit().await?;
    clickhouse_delivery::keep(app).await
}

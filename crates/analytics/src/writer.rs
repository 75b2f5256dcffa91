//! Writes events from the buffer to the database in batches, rolls them up, and deletes data past its retention.

use std::iter::once;
use std::mem::take;

use foundation::clock::{DAY_MS, Timestamp};
use foundation::error::Result;
use foundation::model::EventKind;
use store::events::{EventBatch, EventExpiry, ExpiredRows};
use tokio::sync::mpsc::Receiver;

use crate::batch_builder::BatchBuilder;
use crate::event::Event;
use crate::event_space::DiskShortage;
use crate::not_found::{NotFoundCount, NotFoundCounters};
use crate::rollup::{PendingRollups, roll_up_overdue};
use crate::totals::build_not_found_totals;
use crate::{Analytics, clickhouse_delivery, outbox_encoding};

/// The maximum number of events in a batch.
const BATCH_EVENTS_MAX: usize = 10_000;
/// The size at which a batch ends, as its events are encoded. Postgres rejects a list of more than 256 MiB, and a batch
/// that it rejects is written again and again. A delivery to ClickHouse has whole batches, too.
const BATCH_BYTES_MAX: usize = 8 * 1024 * 1024;
/// The number of rows that one transaction deletes.
const DELETE_ROWS_MAX: u64 = 10_000;
/// The maximum number of aggregates in memory. At this number they are rolled up immediately.
const PENDING_ROLLUPS_MAX: usize = 100_000;

/// Writes the buffered events and returns how many it wrote. Events that cannot be written stay for the next call.
pub async fn write_buffered(analytics: &Analytics) -> Result<usize> {
    let mut buffered = analytics.pending_events.lock().await;
    if buffered.drop_on_shortage(analytics, analytics.find_disk_shortage()) {
        return Ok(0);
    }
    let mut written = 0;
    loop {
        buffered.fill_batch(&analytics.not_found_counters);
        if buffered.is_batch_empty() {
            return Ok(written);
        }
        let PendingEvents {
            batch_events: events,
            batch_not_found: not_found,
            batch_builder,
            batch_number: number,
            pending_rollups: pending,
            ..
        } = &mut *buffered;
        let (name, region) = (format!("{} {number}", analytics.replica_id), &analytics.region);
        let not_found_totals = build_not_found_totals(not_found);
        let mut tx = analytics.event_store.begin().await?;
        if analytics.event_store.clickhouse().is_some() {
            let outbox_batch =
                outbox_encoding::encode_batch(name, region, events, not_found_totals)?;
            tx.enqueue_batch(&outbox_batch, analytics.clock.now()).await?;
            tx.commit().await?;
        } else {
            let region = region.clone();
            let built = batch_builder.build_batch(events);
            let batch = EventBatch { name, region, not_found_totals, ..built };
            let id = tx.insert_batch(&batch, analytics.clock.now()).await?;
            tx.commit().await?;
            batch_builder.record_written(&batch);
            pending.add(id, &batch);
        }
        *number += 1;
        for event in &*events {
            event.event_counts(&analytics.metrics).written_counter.inc();
        }
        written += events.len();
        analytics.event_buffer.release_bytes(events);
        events.clear();
        not_found.clear();
        if pending.len() >= PENDING_ROLLUPS_MAX {
            take(pending).roll_up(analytics).await?;
        }
    }
}

/// The events to be written, and the state of earlier writes.
pub(crate) struct PendingEvents {
    receiver: Receiver<Event>,
    /// The events of the batch that is being written, or whose write failed.
    batch_events: Vec<Event>,
    /// The verifications of that batch that found no key.
    batch_not_found: Vec<NotFoundCount>,
    /// The number of that batch.
    batch_number: u64,
    batch_builder: BatchBuilder,
    pending_rollups: PendingRollups,
    /// Whether events are dropped because the disk has too little free space.
    is_disk_short: bool,
}

impl PendingEvents {
    /// Creates the state of a process of a region that has written nothing yet.
    pub fn new(receiver: Receiver<Event>, region: &str) -> Self {
        Self {
            receiver,
            batch_events: Vec::new(),
            batch_not_found: Vec::new(),
            batch_number: 1,
            batch_builder: BatchBuilder::new(region),
            pending_rollups: PendingRollups::default(),
            is_disk_short: false,
        }
    }

    /// Drops the buffered events while the disk has too little free space. Returns whether it has too little.
    fn drop_on_shortage(&mut self, analytics: &Analytics, shortage: Option<DiskShortage>) -> bool {
        let was_short = std::mem::replace(&mut self.is_disk_short, shortage.is_some());
        let Some(DiskShortage { free_bytes, reserve_bytes }) = shortage else {
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
        if !self.is_batch_empty() {
            // The batch may have been written, and another batch with its name would be taken for it.
            self.batch_number += 1;
        }
        // Counts that are in no batch wait until there is space.
        for not_found in self.batch_not_found.drain(..) {
            let count = u64::try_from(not_found.aggregate.count).unwrap_or(0);
            analytics.metrics.verifications.dropped_counter.inc_by(count);
        }
        loop {
            for event in &self.batch_events {
                event.event_counts(&analytics.metrics).dropped_counter.inc();
            }
            analytics.event_buffer.release_bytes(&self.batch_events);
            self.batch_events.clear();
            self.take_events();
            if self.batch_events.is_empty() {
                return true;
            }
        }
    }

    fn is_batch_empty(&self) -> bool {
        self.batch_events.is_empty() && self.batch_not_found.is_empty()
    }

    /// Moves events from the queue, and the counts, into the next batch. A batch that may have been written stays as it
    /// is.
    fn fill_batch(&mut self, not_found_counters: &NotFoundCounters) {
        if self.is_batch_empty() {
            self.batch_not_found = not_found_counters.take();
            self.take_events();
        }
    }

    /// Moves events from the queue into the batch, until it is full. The last one may exceed the size of a batch.
    fn take_events(&mut self) {
        let mut encoded_bytes = 0;
        while self.batch_events.len() < BATCH_EVENTS_MAX
            && encoded_bytes < BATCH_BYTES_MAX
            && let Ok(event) = self.receiver.try_recv()
        {
            encoded_bytes += event.encoded_bytes();
            self.batch_events.push(event);
        }
    }
}

/// Rolls up the events written here, and the overdue batches of all replicas.
pub async fn roll_up(analytics: &Analytics) -> Result<()> {
    let pending = take(&mut analytics.pending_events.lock().await.pending_rollups);
    pending.roll_up(analytics).await?;
    roll_up_overdue(analytics).await
}

/// Creates partitions for the coming days, and deletes data past its retention. What fails does not prevent the rest;
/// returns the first error.
pub async fn maintain_partitions(analytics: &Analytics) -> Result<()> {
    let now = analytics.clock.now();
    let retention_time = analytics.load_retention_time().await?;
    // After a long downtime, events may be past their retention before they are rolled up.
    let mut result = roll_up_overdue(analytics).await;
    let first_pending_at = analytics.event_store.begin().await?.find_first_pending_event().await?;
    for kind in EventKind::ALL {
        let retention = *analytics.retention.for_kind(kind);
        let expiry = EventExpiry { kind, retention, time: retention_time, first_pending_at };
        result = result.and(maintain_kind(analytics, &expiry, now).await);
    }
    // A series stores the start of the day on which it was last written to, and may store the day before.
    let longest = EventKind::ALL
        .map(|kind| analytics.retention.for_kind(kind).longest_days())
        .into_iter()
        .max()
        .unwrap_or(0);
    let batches = ExpiredRows::of_batches(retention_time.plus_ms(-DAY_MS));
    let series = ExpiredRows::of_series(retention_time.plus_ms(-i64::from(longest + 2) * DAY_MS));
    for rows in once(batches).chain(series) {
        result = result.and(delete_expired(analytics, &rows).await);
    }
    result.and(clickhouse_delivery::maintain(analytics).await)
}

async fn maintain_kind(analytics: &Analytics, expiry: &EventExpiry, now: Timestamp) -> Result<()> {
    // Rows of a partition that could not be dropped are not deleted one by one: it is tried again in the next run.
    analytics.event_store.maintain_partitions(expiry, now).await?;
    let mut result = Ok(());
    for rows in expiry.rows() {
        result = result.and(delete_expired(analytics, &rows).await);
    }
    result
}

/// Deletes rows in short transactions, between which events are written, until none is left.
async fn delete_expired(analytics: &Analytics, rows: &ExpiredRows) -> Result<()> {
    loop {
        let mut tx = analytics.event_store.begin().await?;
        let deleted = tx.delete_expired(rows, DELETE_ROWS_MAX).await?;
        tx.commit().await?;
        if deleted < DELETE_ROWS_MAX {
            return Ok(());
        }
    }
}

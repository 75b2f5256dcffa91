//! What is on its way to ClickHouse: batches of events until they have arrived, and which deliveries count.
//!
//! Every row in ClickHouse names the delivery that it came with. A delivery is void from when it begins until it is seen
//! to have arrived, and for ever if it is not; its batches are then taken by another one. So what is read there, with
//! the [`Delivered`] of one moment, has each event once and each delivery as a whole.

use async_trait::async_trait;
use foundation::clock::Timestamp;
use foundation::error::Result;
use foundation::model::DeliverySnapshot;

use super::events::BatchId;

/// A batch of events as ClickHouse takes them, but for the delivery.
#[derive(Debug, Default)]
pub struct OutboxBatch {
    /// No two batches have the same. One that may have been put, and is put once more, is called as before.
    pub name: String,
    pub region: String,
    /// The times of the first and of the last event.
    pub first_at: Timestamp,
    pub last_at: Timestamp,
    pub events: usize,
    /// JSON objects, each on a line of its own.
    pub verifications: String,
    pub ratelimits: String,
}

/// A batch that a delivery has taken.
#[derive(Debug, sqlx::FromRow)]
pub struct ClaimedBatch {
    pub batch: BatchId,
    pub events: i64,
    pub verifications: String,
    pub ratelimits: String,
}

/// What waits to be delivered.
#[derive(Debug, Clone, Copy, Default, sqlx::FromRow)]
pub struct Undelivered {
    pub events: i64,
    /// When the oldest of them was written; 0 if there is none.
    pub since: Timestamp,
}

/// A day that is to be summed up.
#[derive(Debug)]
pub struct DayRollup {
    /// When it begins.
    pub day: Timestamp,
    /// How often it had changed.
    pub changes: i64,
    /// The delivery that its sums come with.
    pub delivery: i64,
    /// The events that are summed up.
    pub delivered: DeliverySnapshot,
}

#[async_trait]
pub trait DeliveryReads: Send {
    async fn delivered(&mut self) -> Result<DeliverySnapshot>;
    async fn undelivered(&mut self) -> Result<Undelivered>;
    /// Void deliveries that began before a moment.
    async fn void_before(&mut self, before: Timestamp) -> Result<Vec<i64>>;
}

#[async_trait]
pub trait DeliveryWrites: Send {
    /// Puts a batch with those that wait; nothing, where one of this name was put before.
    async fn enqueue_batch(&mut self, parcel: &OutboxBatch, now: Timestamp) -> Result<()>;
    /// Begins a delivery, which is void. Whoever else begins or ends one waits for this transaction.
    async fn begin_delivery(&mut self, now: Timestamp) -> Result<i64>;
    /// Takes up to `max` of the oldest batches that nobody has in hand, for a delivery.
    async fn claim_batches(
        &mut self,
        delivery: i64,
        now: Timestamp,
        held_until: Timestamp,
        max: usize,
    ) -> Result<Vec<ClaimedBatch>>;
    /// Makes a delivery count that has arrived, and forgets its batches; days that have been summed up without it will
    /// be summed up once more. `false`: another delivery has taken some of them, and the transaction must be undone.
    async fn confirm_delivery(&mut self, delivery: i64, batches: usize) -> Result<bool>;
    /// Gives batches back that a delivery has taken, to be taken again at a moment or later. `certainly`: nothing of it
    /// has arrived or ever will.
    async fn release_batches(
        &mut self,
        delivery: i64,
        held_until: Timestamp,
        certainly: bool,
    ) -> Result<()>;
    /// Takes the next day in hand that is to be summed up: one that has changed, or one that was over before a moment.
    /// Events of before `kept_since` may be incomplete, and are summed up no more.
    async fn claim_day(
        &mut self,
        now: Timestamp,
        over: Timestamp,
        kept_since: Timestamp,
        held_until: Timestamp,
    ) -> Result<Option<DayRollup>>;
    /// The day has been summed up: its sums count, and those that it had no longer.
    async fn complete_day(&mut self, day: &DayRollup, now: Timestamp) -> Result<()>;
    /// Forgets void deliveries of which no row is left.
    async fn forget_deliveries(&mut self, ids: &[i64]) -> Result<()>;
    /// Forgets days that began before a moment.
    async fn forget_days(&mut self, before: Timestamp) -> Result<()>;
}

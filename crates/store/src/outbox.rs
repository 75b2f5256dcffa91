//! The outbox for ClickHouse: batches of events until their delivery is confirmed, and which deliveries count.
//!
//! Every row in ClickHouse contains the delivery that wrote it. A delivery is void from its start until it is
//! confirmed, and forever if it is not; another delivery then claims its batches. So a read with the
//! [`DeliverySnapshot`] of one moment includes each event once, and each delivery as a whole.

use async_trait::async_trait;
use foundation::clock::Timestamp;
use foundation::error::Result;
use foundation::model::DeliverySnapshot;

use super::events::{BatchId, TotalDelta};

/// A batch of events in the format of ClickHouse, without the delivery.
#[derive(Debug, Default)]
pub struct OutboxBatch {
    /// A unique name. A batch that may have been stored keeps its name when it is stored again.
    pub name: String,
    pub region: String,
    /// The times of the first and of the last event, or minute of verifications that found no key.
    pub first_at: Timestamp,
    pub last_at: Timestamp,
    pub events: usize,
    /// JSON objects, each on a line of its own.
    pub verifications: String,
    pub ratelimits: String,
    /// Totals of verifications that found no key. They stay in Keyward's own database.
    pub not_found_totals: Vec<TotalDelta>,
}

/// A batch that a delivery has claimed.
#[derive(Debug, sqlx_macros::FromRow)]
pub struct ClaimedBatch {
    pub batch: BatchId,
    pub events: i64,
    pub verifications: String,
    pub ratelimits: String,
}

/// Counts the events that are not delivered yet.
#[derive(Debug, Clone, Copy, Default, sqlx_macros::FromRow)]
pub struct UndeliveredEvents {
    pub events: i64,
    /// When the oldest of them was written; 0 if there is none.
    pub since: Timestamp,
}

/// What the outbox contains at one moment.
#[derive(Debug, Clone, Copy, Default, sqlx_macros::FromRow)]
pub struct OutboxPosition {
    /// The last batch that has been written; 0 if there is none.
    pub last_batch: BatchId,
    /// The time of the first event that is not delivered, or `None` if all are.
    pub first_undelivered_at: Option<Timestamp>,
}

/// A day to be rolled up.
#[derive(Debug)]
pub struct DayRollup {
    /// The start of the day.
    pub day: Timestamp,
    /// The number of its changes when it was claimed.
    pub change_count: i64,
    /// The delivery that writes its rollups.
    pub delivery: i64,
    /// The events to be rolled up.
    pub delivery_snapshot: DeliverySnapshot,
}

#[async_trait]
pub trait DeliveryReads: Send {
    async fn delivery_snapshot(&mut self) -> Result<DeliverySnapshot>;
    async fn count_undelivered(&mut self) -> Result<UndeliveredEvents>;
    async fn load_outbox_position(&mut self) -> Result<OutboxPosition>;
    /// Returns the time of the first event of the batches after one, delivered or not, or `None` if there are none.
    async fn find_first_event_after(&mut self, batch: BatchId) -> Result<Option<Timestamp>>;
    /// Returns void deliveries that began before a time.
    async fn list_void_deliveries(&mut self, before: Timestamp) -> Result<Vec<i64>>;
    /// Returns the time of the database's clock.
    async fn load_database_time(&mut self) -> Result<Timestamp>;
}

#[async_trait]
pub trait DeliveryWrites: Send {
    /// Stores a batch for delivery, and adds its totals. Does nothing if a batch with this name was stored before.
    async fn enqueue_batch(&mut self, batch: &OutboxBatch, now: Timestamp) -> Result<()>;
    /// Begins a delivery, which is void. Other transactions that begin or end a delivery wait for this one.
    async fn begin_delivery(&mut self, now: Timestamp) -> Result<i64>;
    /// Claims up to `batches_max` of the oldest unclaimed batches, of up to `bytes_max` together, for a delivery. It
    /// claims one of any size.
    async fn claim_batches(
        &mut self,
        delivery: i64,
        now: Timestamp,
        claimed_until: Timestamp,
        batches_max: usize,
        bytes_max: usize,
    ) -> Result<Vec<ClaimedBatch>>;
    /// Confirms a delivery, so that it counts, and deletes its batches. Days that were rolled up without it will be
    /// rolled up again. Returns `false` if another delivery has claimed some of the batches; the transaction must
    /// then be rolled back.
    async fn confirm_delivery(&mut self, delivery: i64, batches: usize) -> Result<bool>;
    /// Releases the batches of a delivery, which can be claimed again at `claimed_until` or later. `is_certain`: none
    /// of it has arrived or ever will.
    async fn release_batches(
        &mut self,
        delivery: i64,
        claimed_until: Timestamp,
        is_certain: bool,
    ) -> Result<()>;
    /// Claims the next day to roll up: one that has changed, or one that ended before `over_before`. Events before
    /// `retained_since` may be incomplete, and are no longer rolled up.
    async fn claim_day(
        &mut self,
        now: Timestamp,
        over_before: Timestamp,
        retained_since: Timestamp,
        claimed_until: Timestamp,
    ) -> Result<Option<DayRollup>>;
    /// Completes a day: its new rollups count, and its previous ones no longer do.
    async fn complete_day(&mut self, day: &DayRollup, now: Timestamp) -> Result<()>;
    /// Deletes void deliveries that have no rows left.
    async fn delete_deliveries(&mut self, ids: &[i64]) -> Result<()>;
    /// Deletes days that began before a time.
    async fn delete_days(&mut self, before: Timestamp) -> Result<()>;
}

//! Reads events as they are written, which is about a second after they happened: from Keyward's own tables, or from
//! ClickHouse if it stores the events.

mod batches;
mod deliveries;

use batches::BatchPosition;
use deliveries::DeliveryPosition;
use foundation::clock::Timestamp;
use foundation::error::Result;
use foundation::id::WorkspaceId;
use foundation::model::EventKind;
use store::clickhouse::{ClickHouseReader, UnreadDeliveries};
use store::events::{BatchId, LocalReader};
use store::recent::WrittenBatch;
pub use store::recent::{CheckTailFilter, TailFilter};

use crate::Analytics;
use crate::recent::{RecentCheck, RecentVerification};

/// How many ids of batches before the last one are read again, because transactions may commit in another order.
const LOOKBACK_IDS: BatchId = 64;
/// The maximum number of events in one step.
const STEP_EVENTS_MAX: usize = 1_000;
/// A moment after every event.
const END_OF_TIME: Timestamp = Timestamp(i64::MAX);

/// A position in the stream of events.
#[derive(Debug)]
pub struct Tail(Position);

#[derive(Debug)]
enum Position {
    Batches(BatchPosition),
    Deliveries(Box<DeliveryPosition>),
}

/// The events of one step, oldest first.
#[derive(Debug)]
pub struct TailStep<E> {
    pub events: Vec<E>,
    /// Whether there were too many events to return all of them.
    pub is_truncated: bool,
}

impl<E> TailStep<E> {
    pub fn map<U>(self, f: impl FnMut(E) -> U) -> TailStep<U> {
        let events = self.events.into_iter().map(f).collect();
        TailStep { events, is_truncated: self.is_truncated }
    }
}

/// A kind of events that can be followed.
pub trait TailEvent: Sized + Send {
    type Filter: Sync;
    const KIND: EventKind;
    /// Returns up to `max` events of a batch, oldest first.
    fn list_of_batch(
        reader: &mut LocalReader,
        workspace: &WorkspaceId,
        batch: &WrittenBatch,
        filter: &Self::Filter,
        max: i64,
    ) -> impl Future<Output = Result<Vec<Self>>> + Send;
    /// Returns up to `max` events of deliveries to ClickHouse, oldest first.
    fn list_of_deliveries(
        reader: &ClickHouseReader,
        workspace: &WorkspaceId,
        deliveries: &UnreadDeliveries,
        filter: &Self::Filter,
        max: usize,
    ) -> impl Future<Output = Result<Vec<Self>>> + Send;
    /// Returns what events are sorted by: their time and the id of their request.
    fn position(&self) -> (Timestamp, &str);
}

impl TailEvent for RecentVerification {
    type Filter = TailFilter;
    const KIND: EventKind = EventKind::Verifications;

    async fn list_of_batch(
        reader: &mut LocalReader,
        workspace: &WorkspaceId,
        batch: &WrittenBatch,
        filter: &TailFilter,
        max: i64,
    ) -> Result<Vec<Self>> {
        let rows = reader.list_verifications_of_batch(workspace, batch, filter, max).await?;
        Ok(rows.into_iter().map(Self::from).collect())
    }

    async fn list_of_deliveries(
        reader: &ClickHouseReader,
        workspace: &WorkspaceId,
        deliveries: &UnreadDeliveries,
        filter: &TailFilter,
        max: usize,
    ) -> Result<Vec<Self>> {
        let rows =
            reader.list_verifications_of_deliveries(workspace, deliveries, filter, max).await?;
        Ok(rows.into_iter().map(Self::from).collect())
    }

    fn position(&self) -> (Timestamp, &str) {
        (self.occurred_at, &self.request_id)
    }
}

impl TailEvent for RecentCheck {
    type Filter = CheckTailFilter;
    const KIND: EventKind = EventKind::Ratelimits;

    async fn list_of_batch(
        reader: &mut LocalReader,
        workspace: &WorkspaceId,
        batch: &WrittenBatch,
        filter: &CheckTailFilter,
        max: i64,
    ) -> Result<Vec<Self>> {
        let rows = reader.list_checks_of_batch(workspace, batch, filter, max).await?;
        Ok(rows.into_iter().map(Self::from).collect())
    }

    async fn list_of_deliveries(
        reader: &ClickHouseReader,
        workspace: &WorkspaceId,
        deliveries: &UnreadDeliveries,
        filter: &CheckTailFilter,
        max: usize,
    ) -> Result<Vec<Self>> {
        let rows = reader.list_checks_of_deliveries(workspace, deliveries, filter, max).await?;
        Ok(rows.into_iter().map(Self::from).collect())
    }

    fn position(&self) -> (Timestamp, &str) {
        (self.occurred_at, &self.request_id)
    }
}

impl Tail {
    /// Starts after the last event, or at the first event since a time. Fails if ClickHouse stores the events and is
    /// unreachable.
    pub async fn start(analytics: &Analytics, since: Option<Timestamp>) -> Result<Self> {
        Ok(Self(match analytics.event_store.clickhouse() {
            None => Position::Batches(BatchPosition::start(analytics, since).await?),
            Some(clickhouse) => {
                let clickhouse = clickhouse.clone();
                let position = DeliveryPosition::start(analytics, clickhouse, since).await?;
                Position::Deliveries(Box::new(position))
            }
        }))
    }

    /// Returns the events of a workspace that have been written since the last step.
    pub async fn step<E: TailEvent>(
        &mut self,
        analytics: &Analytics,
        workspace: &WorkspaceId,
        filter: &E::Filter,
    ) -> Result<TailStep<E>> {
        let mut step = match &mut self.0 {
            Position::Batches(position) => position.step::<E>(analytics, workspace, filter).await?,
            Position::Deliveries(position) => {
                position.step::<E>(analytics, workspace, filter).await?
            }
        };
        step.events.sort_by(|a, b| a.position().cmp(&b.position()));
        Ok(step)
    }
}

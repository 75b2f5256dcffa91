//! Reads events as they are written, which is about a second after they happened.
//!
//! Batches are followed by their ids. Transactions may commit in another order than that of their ids, so some ids are read
//! again, and each batch counts once.

use std::collections::BTreeSet;

use foundation::clock::Timestamp;
use foundation::error::{Error, Result};
use foundation::id::WorkspaceId;
use store::events::{BatchId, LocalReader};
use store::recent::WrittenBatch;
pub use store::recent::{CheckTailFilter, TailFilter};

use crate::Analytics;
use crate::recent::{RecentCheck, RecentVerification};

/// How many ids before the last one are read again.
const LOOKBACK_IDS: BatchId = 64;
/// The maximum number of batches in one step, and of events.
const STEP_BATCHES_MAX: i64 = 256;
const STEP_EVENTS_MAX: usize = 1_000;
/// A moment after every event.
const END_OF_TIME: Timestamp = Timestamp(i64::MAX);

/// A position in the stream of events.
#[derive(Debug)]
pub struct Tail {
    /// All batches up to this one have been read.
    read_up_to: BatchId,
    /// The batches after it that have been read.
    read: BTreeSet<BatchId>,
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
    /// Returns up to `max` events of a batch, oldest first.
    fn list_of_batch(
        reader: &mut LocalReader,
        workspace: &WorkspaceId,
        batch: &WrittenBatch,
        filter: &Self::Filter,
        max: i64,
    ) -> impl Future<Output = Result<Vec<Self>>> + Send;
    /// Returns what events are sorted by: their time and the id of their request.
    fn position(&self) -> (Timestamp, &str);
}

impl TailEvent for RecentVerification {
    type Filter = TailFilter;

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

    fn position(&self) -> (Timestamp, &str) {
        (self.occurred_at, &self.request_id)
    }
}

impl TailEvent for RecentCheck {
    type Filter = CheckTailFilter;

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

    fn position(&self) -> (Timestamp, &str) {
        (self.occurred_at, &self.request_id)
    }
}

impl Tail {
    /// Starts after the last event, or at the first event since a time. Fails if the events are in ClickHouse.
    pub async fn start(analytics: &Analytics, since: Option<Timestamp>) -> Result<Self> {
        if analytics.event_store.clickhouse().is_some() {
            return Err(Error::OperationDisabled("KEYWARD_CLICKHOUSE_URL"));
        }
        let mut reader = analytics.event_store.read_local().await?;
        let last = reader.find_last_batch(since.unwrap_or(END_OF_TIME)).await?;
        let read_up_to = (last - LOOKBACK_IDS).max(0);
        let earlier = reader.list_batches_after(read_up_to, LOOKBACK_IDS).await?;
        let read = earlier.into_iter().map(|batch| batch.id).filter(|id| *id <= last).collect();
        Ok(Self { read_up_to, read })
    }

    /// Returns the events of a workspace that have been written since the last step.
    pub async fn step<E: TailEvent>(
        &mut self,
        analytics: &Analytics,
        workspace: &WorkspaceId,
        filter: &E::Filter,
    ) -> Result<TailStep<E>> {
        let mut reader = analytics.event_store.read_local().await?;
        let batches = reader.list_batches_after(self.read_up_to, STEP_BATCHES_MAX).await?;
        let mut step = TailStep { events: Vec::<E>::new(), is_truncated: false };
        for batch in batches {
            if !self.read.insert(batch.id) || step.is_truncated {
                continue;
            }
            // One more than there is room for tells that there are more.
            let room = STEP_EVENTS_MAX - step.events.len();
            let rows_max = i64::try_from(room + 1).unwrap_or(i64::MAX);
            let events = E::list_of_batch(&mut reader, workspace, &batch, filter, rows_max).await?;
            step.is_truncated = events.len() > room;
            step.events.extend(events.into_iter().take(room));
        }
        step.events.sort_by(|a, b| a.position().cmp(&b.position()));
        if let Some(last) = self.read.last() {
            self.read_up_to = self.read_up_to.max(last - LOOKBACK_IDS);
            let read_up_to = self.read_up_to;
            self.read.retain(|id| *id > read_up_to);
        }
        Ok(step)
    }
}

//! Reads verifications as they are written, which is about a second after they happened.
//!
//! Batches are followed by their ids. Transactions may commit in another order than that of their ids, so some ids are read
//! again, and each batch counts once.

use std::collections::BTreeSet;

use foundation::clock::Timestamp;
use foundation::error::{Error, Result};
use foundation::id::WorkspaceId;
use store::events::BatchId;
pub use store::recent::TailFilter;

use crate::Analytics;
use crate::recent::RecentVerification;

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
pub struct TailStep {
    pub events: Vec<RecentVerification>,
    /// Whether there were too many events to return all of them.
    pub is_truncated: bool,
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
    pub async fn step(
        &mut self,
        analytics: &Analytics,
        workspace: &WorkspaceId,
        filter: &TailFilter,
    ) -> Result<TailStep> {
        let mut reader = analytics.event_store.read_local().await?;
        let batches = reader.list_batches_after(self.read_up_to, STEP_BATCHES_MAX).await?;
        let mut step = TailStep { events: Vec::new(), is_truncated: false };
        for batch in batches {
            if !self.read.insert(batch.id) || step.is_truncated {
                continue;
            }
            // One more than there is room for tells that there are more.
            let room = STEP_EVENTS_MAX - step.events.len();
            let rows_max = i64::try_from(room + 1).unwrap_or(i64::MAX);
            let rows =
                reader.list_verifications_of_batch(workspace, &batch, filter, rows_max).await?;
            step.is_truncated = rows.len() > room;
            step.events.extend(rows.into_iter().take(room).map(RecentVerification::from));
        }
        step.events
            .sort_by(|a, b| (a.occurred_at, &a.request_id).cmp(&(b.occurred_at, &b.request_id)));
        if let Some(last) = self.read.last() {
            self.read_up_to = self.read_up_to.max(last - LOOKBACK_IDS);
            let read_up_to = self.read_up_to;
            self.read.retain(|id| *id > read_up_to);
        }
        Ok(step)
    }
}

//! Follows events in Keyward's own tables by their batches.
//!
//! Transactions may commit in another order than that of their ids, so some ids are read again, and each batch counts once.

use std::collections::BTreeSet;

use foundation::clock::Timestamp;
use foundation::error::Result;
use foundation::id::WorkspaceId;
use store::events::BatchId;

use super::{END_OF_TIME, LOOKBACK_IDS, STEP_EVENTS_MAX, TailEvent, TailStep};
use crate::Analytics;

/// The maximum number of batches in one step.
const STEP_BATCHES_MAX: i64 = 256;

#[derive(Debug)]
pub struct BatchPosition {
    /// All batches up to this one have been read.
    read_up_to: BatchId,
    /// The batches after it that have been read.
    read: BTreeSet<BatchId>,
}

impl BatchPosition {
    pub async fn start(analytics: &Analytics, since: Option<Timestamp>) -> Result<Self> {
        let mut reader = analytics.event_store.read_local().await?;
        let last = reader.find_last_batch(since.unwrap_or(END_OF_TIME)).await?;
        let read_up_to = (last - LOOKBACK_IDS).max(0);
        let earlier = reader.list_batches_after(read_up_to, LOOKBACK_IDS).await?;
        let read = earlier.into_iter().map(|batch| batch.id).filter(|id| *id <= last).collect();
        Ok(Self { read_up_to, read })
    }

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
        if let Some(last) = self.read.last() {
            self.read_up_to = self.read_up_to.max(last - LOOKBACK_IDS);
            let read_up_to = self.read_up_to;
            self.read.retain(|id| *id > read_up_to);
        }
        Ok(step)
    }
}

//! Follows events in ClickHouse by their deliveries.
//!
//! A delivery counts as a whole from the moment it is confirmed, so each event is read once, in whichever order deliveries are
//! confirmed. ClickHouse finds events by their time and not by their delivery: each read is bounded by the time of the
//! first event that may have been delivered since the one before.

use foundation::clock::Timestamp;
use foundation::error::Result;
use foundation::id::WorkspaceId;
use store::clickhouse::{ClickHouse, UnreadDeliveries};
use store::outbox::OutboxPosition;

use super::{END_OF_TIME, LOOKBACK_IDS, STEP_EVENTS_MAX, TailEvent, TailStep};
use crate::Analytics;

/// The maximum number of deliveries in one step.
const STEP_DELIVERIES_MAX: i64 = 256;

#[derive(Debug)]
pub struct DeliveryPosition {
    clickhouse: ClickHouse,
    /// Where the tail starts, until the first step has found the delivery.
    since: Option<Timestamp>,
    /// All deliveries up to this one have been read, except void ones.
    read_up_to: i64,
    /// The void deliveries up to it. Those in progress may be confirmed later.
    void_deliveries: Vec<i64>,
    /// The time of the first event of the deliveries that earlier steps have left out because there were too many.
    first_unread_at: Timestamp,
    /// What the outbox contained before the last step.
    outbox: OutboxPosition,
}

impl DeliveryPosition {
    /// Fails if ClickHouse is unreachable, because no event would arrive.
    pub async fn start(
        analytics: &Analytics,
        clickhouse: ClickHouse,
        since: Option<Timestamp>,
    ) -> Result<Self> {
        // The database may not exist before the first delivery.
        if let Err(error) = clickhouse.fetch_version().await
            && error.is_outage()
        {
            return Err(error.into());
        }
        let mut local = analytics.event_store.read_local().await?;
        let outbox = local.load_outbox_position().await?;
        let snapshot = local.delivery_snapshot().await?;
        Ok(Self {
            clickhouse,
            since,
            read_up_to: snapshot.last_delivery,
            void_deliveries: snapshot.void_deliveries,
            first_unread_at: since.unwrap_or(END_OF_TIME),
            outbox,
        })
    }

    pub async fn step<E: TailEvent>(
        &mut self,
        analytics: &Analytics,
        workspace: &WorkspaceId,
        filter: &E::Filter,
    ) -> Result<TailStep<E>> {
        let mut local = analytics.event_store.read_local().await?;
        // The order matters: what is delivered between two snapshots was in the outbox before the first one, or was written
        // after that and before the second one.
        let outbox = local.load_outbox_position().await?;
        let snapshot = local.delivery_snapshot().await?;
        let written_at =
            local.find_first_event_after(self.outbox.last_batch - LOOKBACK_IDS).await?;
        drop(local);
        let bounds = [self.outbox.first_undelivered_at, written_at];
        self.first_unread_at = bounds.into_iter().flatten().fold(self.first_unread_at, Ord::min);
        self.outbox = outbox;
        let reader = self.clickhouse.reader_at(snapshot.clone());
        if let Some(since) = self.since.take()
            && snapshot.last_delivery > 0
            && let Some(first) = reader.find_first_delivery(E::KIND, workspace, since).await?
        {
            let read_up_to = self.read_up_to.min(first - 1);
            self.read_up_to = read_up_to;
            self.void_deliveries.retain(|id| *id <= read_up_to);
        }

        let until = snapshot.last_delivery.min(self.read_up_to + STEP_DELIVERIES_MAX);
        let counts = |id: &i64| snapshot.void_deliveries.binary_search(id).is_err();
        let deliveries = UnreadDeliveries {
            after: self.read_up_to,
            until,
            confirmed: self.void_deliveries.iter().copied().filter(counts).collect(),
            first_at: self.first_unread_at,
        };
        let mut new = self.read_up_to + 1..=until;
        let mut events = match !deliveries.confirmed.is_empty() || new.any(|id| counts(&id)) {
            // One more than there is room for tells that there are more.
            true => {
                let max = STEP_EVENTS_MAX + 1;
                E::list_of_deliveries(&reader, workspace, &deliveries, filter, max).await?
            }
            false => Vec::new(),
        };
        let is_truncated = events.len() > STEP_EVENTS_MAX;
        events.truncate(STEP_EVENTS_MAX);
        self.read_up_to = until;
        self.void_deliveries = snapshot.void_deliveries;
        self.void_deliveries.retain(|id| *id <= until);
        if until == snapshot.last_delivery {
            self.first_unread_at = END_OF_TIME;
        }
        Ok(TailStep { events, is_truncated })
    }
}

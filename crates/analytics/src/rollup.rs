//! Rolls up written events: per series and minute, hour, day and month.
//!
//! A replica aggregates in memory what it writes, and adds it to the rollups in the database from time to time. If
//! the replica is killed or the database rejects the rollups, the next replica reads the batches back and rolls them
//! up. In both cases the batches are locked, and marked in the transaction that adds them, so each batch counts once.

use foundation::clock::{MINUTE_MS, Timestamp};
use foundation::error::Result;
use foundation::model::{EventKind, RollupUnit};
use hashbrown::HashMap;
use store::events::{Aggregate, BatchId, EventBatch, EventTx, SeriesId, SeriesRollup};

use crate::Analytics;

/// The age at which a batch is overdue: the replica that wrote it no longer rolls it up, or finds it rolled up.
const OVERDUE_MS: i64 = MINUTE_MS;
/// The maximum number of overdue batches that are read back at once.
const OVERDUE_BATCHES_MAX: usize = 10;

/// Aggregates of series by minute. The size of each is bounded: a histogram has few buckets, whatever it counts.
type MinuteAggregates = HashMap<(SeriesId, Timestamp), Aggregate>;

/// The aggregates of batches that are written and not rolled up.
#[derive(Default)]
pub struct PendingRollups {
    batches: Vec<BatchId>,
    verifications: MinuteAggregates,
    ratelimits: MinuteAggregates,
}

impl PendingRollups {
    /// Returns the number of aggregates.
    pub fn len(&self) -> usize {
        self.verifications.len() + self.ratelimits.len()
    }

    /// Adds a batch that has been written.
    pub fn add(&mut self, id: BatchId, batch: &EventBatch) {
        self.batches.push(id);
        for event in &batch.verifications {
            aggregate_of(&mut self.verifications, event.series, event.time)
                .add_event(event.spent_credits, event.latency_us);
        }
        for event in &batch.ratelimits {
            aggregate_of(&mut self.ratelimits, event.series, event.time)
                .add_without_histogram(event.tokens, event.latency_us);
        }
    }

    /// Adds the aggregates to the rollups in the database, unless another replica has rolled up any of the batches.
    /// That replica also rolls up the others.
    pub async fn roll_up(self, analytics: &Analytics) -> Result<()> {
        if self.batches.is_empty() {
            return Ok(());
        }
        let mut tx = analytics.event_store.begin().await?;
        let pending = tx.lock_pending_batches(&self.batches).await?;
        if pending.len() == self.batches.len() {
            self.add_to_database(&mut tx).await?;
        }
        tx.commit().await
    }

    async fn add_to_database(self, tx: &mut EventTx) -> Result<()> {
        let of_kinds = [
            (EventKind::Verifications, self.verifications),
            (EventKind::Ratelimits, self.ratelimits),
        ];
        for (kind, minutes) in of_kinds {
            // Sorted, so that transactions that add to the same rollups wait for each other instead of deadlocking.
            let mut rollups: Vec<_> = minutes
                .into_iter()
                .map(|((series, time), aggregate)| SeriesRollup { series, time, aggregate })
                .collect();
            rollups.sort_unstable_by_key(|sum| (sum.series, sum.time));
            for unit in RollupUnit::ALL {
                merge_to_unit(&mut rollups, unit);
                tx.add_rollups(kind, unit, &rollups).await?;
            }
        }
        tx.mark_rolled_up(&self.batches).await
    }
}

/// Returns the aggregate of a series in the minute of a time.
fn aggregate_of(
    minutes: &mut MinuteAggregates,
    series: SeriesId,
    time: Timestamp,
) -> &mut Aggregate {
    minutes.entry((series, RollupUnit::Minute.start_of(time))).or_default()
}

/// Merges rollups of a smaller unit into those of a larger one. They stay in order.
fn merge_to_unit(rollups: &mut Vec<SeriesRollup>, unit: RollupUnit) {
    for rollup in rollups.iter_mut() {
        rollup.time = unit.start_of(rollup.time);
    }
    rollups.dedup_by(|later, earlier| {
        let is_same = (later.series, later.time) == (earlier.series, earlier.time);
        if is_same {
            earlier.aggregate.merge(&later.aggregate);
        }
        is_same
    });
}

/// Rolls up the overdue batches.
pub async fn roll_up_overdue(analytics: &Analytics) -> Result<()> {
    loop {
        let mut tx = analytics.event_store.begin().await?;
        let overdue = tx
            .lock_overdue_batches(analytics.clock.now().plus_ms(-OVERDUE_MS), OVERDUE_BATCHES_MAX)
            .await?;
        let count = overdue.len();
        let mut rollups = PendingRollups::default();
        for event in tx.list_event_amounts(EventKind::Verifications, &overdue).await? {
            aggregate_of(&mut rollups.verifications, event.series, event.time)
                .add_event(event.amount, event.latency_us);
        }
        for event in tx.list_event_amounts(EventKind::Ratelimits, &overdue).await? {
            aggregate_of(&mut rollups.ratelimits, event.series, event.time)
                .add_without_histogram(event.amount, event.latency_us);
        }
        rollups.batches = overdue;
        rollups.add_to_database(&mut tx).await?;
        tx.commit().await?;
        if count < OVERDUE_BATCHES_MAX {
            return Ok(());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn merge_to_unit_adds_up_rollups_when_unit_is_larger() {
        let sum = |series: u8, time: i64| SeriesRollup {
            series: SeriesId([series; 16]),
            time: Timestamp(time),
            aggregate: {
                let mut aggregate = Aggregate::default();
                aggregate.add_event(2, 3);
                aggregate
            },
        };
        let mut rollups = vec![sum(1, 0), sum(1, 60_000), sum(1, 3_600_000), sum(2, 60_000)];

        merge_to_unit(&mut rollups, RollupUnit::Hour);

        let merged: Vec<_> = rollups
            .iter()
            .map(|s| (s.series.0[0], s.time.0, s.aggregate.count, s.aggregate.amount))
            .collect();
        assert_eq!(merged, [(1, 0, 2, 4), (1, 3_600_000, 1, 2), (2, 0, 1, 2)]);
    }
}

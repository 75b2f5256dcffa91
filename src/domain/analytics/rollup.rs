//! Rolls up written events: per series and minute, hour, day and month.
//!
//! A replica aggregates in memory what it writes, and adds it to the rollups in the database from time to time. If
//! the replica is killed or the database rejects the rollups, the next replica reads the batches back and rolls them
//! up. In both cases the batches are locked, and marked in the transaction that adds them, so each batch counts once.

use std::collections::HashMap;

use foundation::clock::Timestamp;
use foundation::error::Result;
use foundation::model::{EventKind, RollupUnit};
use store::events::{Aggregate, Batch, BatchId, EventTx, SeriesId, SeriesRollup};

use crate::app::App;

/// The age at which a batch is overdue: the replica that wrote it no longer rolls it up, or finds it rolled up.
const LATE_MS: i64 = 60_000;
/// The maximum number of overdue batches that are read back at once.
const LATE_MAX: usize = 10;

/// Aggregates of series by minute.
type Minutes = HashMap<(SeriesId, Timestamp), Aggregate>;

/// The aggregates of batches that are written and not rolled up.
#[derive(Default)]
pub struct PendingRollups {
    batches: Vec<BatchId>,
    verifications: Minutes,
    ratelimits: Minutes,
}

impl PendingRollups {
    /// Returns the number of aggregates.
    pub fn len(&self) -> usize {
        self.verifications.len() + self.ratelimits.len()
    }

    /// Adds a batch that has been written.
    pub fn add(&mut self, id: BatchId, batch: &Batch) {
        self.batches.push(id);
        for event in &batch.verifications {
            let (amount, latency_us) = (event.spent_credits, event.latency_us);
            add(&mut self.verifications, event.series, event.time, amount, latency_us);
        }
        for event in &batch.ratelimits {
            let (amount, latency_us) = (event.tokens, event.latency_us);
            add(&mut self.ratelimits, event.series, event.time, amount, latency_us);
        }
    }

    /// Adds the aggregates to the rollups in the database, unless another replica has rolled up any of the batches.
    /// That replica also rolls up the others.
    pub async fn sum_up(self, app: &App) -> Result<()> {
        if self.batches.is_empty() {
            return Ok(());
        }
        let mut tx = app.events.begin().await?;
        let pending = tx.lock_pending_batches(&self.batches).await?;
        if pending.len() == self.batches.len() {
            self.write(&mut tx).await?;
        }
        tx.commit().await
    }

    async fn write(self, tx: &mut EventTx) -> Result<()> {
        let of_kinds = [
            (EventKind::Verifications, self.verifications),
            (EventKind::Ratelimits, self.ratelimits),
        ];
        for (kind, minutes) in of_kinds {
            // Sorted, so that transactions that add to the same rollups wait for each other instead of deadlocking.
            let mut rollups: Vec<_> = minutes
                .into_iter()
                .map(|((series, time), sum)| SeriesRollup { series, time, sum })
                .collect();
            rollups.sort_unstable_by_key(|sum| (sum.series, sum.time));
            for unit in RollupUnit::ALL {
                widen(&mut rollups, unit);
                tx.add_sums(kind, unit, &rollups).await?;
            }
        }
        tx.mark_rolled_up(&self.batches).await
    }
}

fn add(minutes: &mut Minutes, series: SeriesId, time: Timestamp, amount: i64, latency_us: i64) {
    let minute = RollupUnit::Minute.beginning(time);
    minutes.entry((series, minute)).or_default().add(amount, latency_us);
}

/// Merges rollups of a smaller unit into those of a larger one. They stay in order.
fn widen(rollups: &mut Vec<SeriesRollup>, unit: RollupUnit) {
    for rollup in rollups.iter_mut() {
        rollup.time = unit.beginning(rollup.time);
    }
    rollups.dedup_by(|later, earlier| {
        let is_same = (later.series, later.time) == (earlier.series, earlier.time);
        if is_same {
            earlier.sum.join(&later.sum);
        }
        is_same
    });
}

/// Rolls up the overdue batches.
pub async fn roll_up_overdue(app: &App) -> Result<()> {
    loop {
        let mut tx = app.events.begin().await?;
        let overdue = tx.lock_overdue_batches(app.clock.now().plus_ms(-LATE_MS), LATE_MAX).await?;
        let count = overdue.len();
        let mut rollups = PendingRollups::default();
        for event in tx.events_of(EventKind::Verifications, &overdue).await? {
            let into = &mut rollups.verifications;
            add(into, event.series, event.time, event.amount, event.latency_us);
        }
        for event in tx.events_of(EventKind::Ratelimits, &overdue).await? {
            let into = &mut rollups.ratelimits;
            add(into, event.series, event.time, event.amount, event.latency_us);
        }
        rollups.batches = overdue;
        rollups.write(&mut tx).await?;
        tx.commit().await?;
        if count < LATE_MAX {
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
            sum: Aggregate { count: 1, amount: 2, latency_us: 3, latencies: [1, 0, 0, 0, 0, 0] },
        };
        let mut rollups = vec![sum(1, 0), sum(1, 60_000), sum(1, 3_600_000), sum(2, 60_000)];

        widen(&mut rollups, RollupUnit::Hour);

        let merged: Vec<_> =
            rollups.iter().map(|s| (s.series.0[0], s.time.0, s.sum.count, s.sum.amount)).collect();
        assert_eq!(merged, [(1, 0, 2, 4), (1, 3_600_000, 1, 2), (2, 0, 1, 2)]);
    }
}

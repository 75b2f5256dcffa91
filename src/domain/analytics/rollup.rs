//! What series come to per minute, hour, day and month, made of what has been written.
//!
//! A replica adds up in its memory what it writes, and adds that to the sums in the database now and then. What it
//! leaves behind, because it was killed or the database refused it, is read back and added up by whichever replica
//! comes first. Either way the batches are locked, and marked in the transaction that adds them: each counts once.

use std::collections::HashMap;

use foundation::clock::Timestamp;
use foundation::error::Result;
use foundation::model::{EventKind, RollupUnit};
use store::events::{Aggregate, Batch, BatchId, EventTx, SeriesId, SeriesRollup};

use crate::app::App;

/// When a batch is late: whoever wrote it will not sum it up any more, or finds it done.
const LATE_MS: i64 = 60_000;
/// How many late batches are read back at once.
const LATE_MAX: usize = 10;

/// Sums of series by minute.
type Minutes = HashMap<(SeriesId, Timestamp), Aggregate>;

/// What batches come to that have been written and not been summed up.
#[derive(Default)]
pub struct PendingRollups {
    batches: Vec<BatchId>,
    verifications: Minutes,
    ratelimits: Minutes,
}

impl PendingRollups {
    /// How many sums there are.
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

    /// Adds the sums to those in the database, unless somebody else has summed up any of the batches: who did so does
    /// it with the rest too.
    pub async fn sum_up(self, app: &App) -> Result<()> {
        if self.batches.is_empty() {
            return Ok(());
        }
        let mut tx = app.events.begin().await?;
        let unsummed = tx.lock_pending_batches(&self.batches).await?;
        if unsummed.len() == self.batches.len() {
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
            // In order: who adds to the same sums at once waits instead of holding the other one up.
            let mut sums: Vec<_> = minutes
                .into_iter()
                .map(|((series, time), sum)| SeriesRollup { series, time, sum })
                .collect();
            sums.sort_unstable_by_key(|sum| (sum.series, sum.time));
            for unit in RollupUnit::ALL {
                widen(&mut sums, unit);
                tx.add_sums(kind, unit, &sums).await?;
            }
        }
        tx.mark_rolled_up(&self.batches).await
    }
}

fn add(minutes: &mut Minutes, series: SeriesId, time: Timestamp, amount: i64, latency_us: i64) {
    let minute = RollupUnit::Minute.beginning(time);
    minutes.entry((series, minute)).or_default().add(amount, latency_us);
}

/// Makes sums of a larger unit out of those of a smaller one. They stay in order.
fn widen(sums: &mut Vec<SeriesRollup>, unit: RollupUnit) {
    for sum in sums.iter_mut() {
        sum.time = unit.beginning(sum.time);
    }
    sums.dedup_by(|later, earlier| {
        let is_same = (later.series, later.time) == (earlier.series, earlier.time);
        if is_same {
            earlier.sum.join(&later.sum);
        }
        is_same
    });
}

/// Sums up batches that nobody did in time.
pub async fn roll_up_overdue(app: &App) -> Result<()> {
    loop {
        let mut tx = app.events.begin().await?;
        let late = tx.lock_overdue_batches(app.clock.now().plus_ms(-LATE_MS), LATE_MAX).await?;
        let count = late.len();
        let mut unsummed = PendingRollups::default();
        for event in tx.events_of(EventKind::Verifications, &late).await? {
            let into = &mut unsummed.verifications;
            add(into, event.series, event.time, event.amount, event.latency_us);
        }
        for event in tx.events_of(EventKind::Ratelimits, &late).await? {
            let into = &mut unsummed.ratelimits;
            add(into, event.series, event.time, event.amount, event.latency_us);
        }
        unsummed.batches = late;
        unsummed.write(&mut tx).await?;
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
    fn sums_of_a_larger_unit_are_those_of_the_smaller_one_together() {
        let sum = |series: u8, time: i64| SeriesRollup {
            series: SeriesId([series; 16]),
            time: Timestamp(time),
            sum: Aggregate { count: 1, amount: 2, latency_us: 3, latencies: [1, 0, 0, 0, 0, 0] },
        };
        let mut sums = vec![sum(1, 0), sum(1, 60_000), sum(1, 3_600_000), sum(2, 60_000)];

        widen(&mut sums, RollupUnit::Hour);

        let told: Vec<_> =
            sums.iter().map(|s| (s.series.0[0], s.time.0, s.sum.count, s.sum.amount)).collect();
        assert_eq!(told, [(1, 0, 2, 4), (1, 3_600_000, 1, 2), (2, 0, 1, 2)]);
    }
}

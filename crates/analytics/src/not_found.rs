//! Counts verifications that found no key, between the requests and the [`writer`](crate::writer).
//!
//! They are counted, not stored as events: nothing about the key that was sent is stored, and a flood of guesses takes
//! no more memory or disk than one guess per minute.

use hashbrown::HashMap;
use parking_lot::Mutex;

use foundation::clock::Timestamp;
use foundation::id::WorkspaceId;
use foundation::model::RollupUnit;
use store::events::Aggregate;

/// The maximum number of counts that wait to be written: about 1.5 MB, and up to 3 KB of latencies for each. A workspace has one
/// for each minute, so there are many only while the database is unreachable.
const WAITING_MAX: usize = 10_000;

/// The verifications of a workspace in a minute that found no key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NotFoundCount {
    pub workspace: WorkspaceId,
    /// The start of the minute.
    pub minute: Timestamp,
    pub aggregate: Aggregate,
}

/// The counts that wait to be written.
#[derive(Debug, Default)]
pub struct NotFoundCounters(Mutex<WaitingCounts>);

#[derive(Debug, Default)]
struct WaitingCounts {
    /// The minutes of each workspace, the latest last.
    minutes: HashMap<WorkspaceId, Vec<(Timestamp, Aggregate)>>,
    /// The number of minutes of all workspaces.
    count: usize,
}

impl NotFoundCounters {
    /// Counts a verification, unless too many counts wait. Returns whether it was counted.
    pub fn try_count(&self, workspace: &WorkspaceId, now: Timestamp, latency_us: i64) -> bool {
        let minute = RollupUnit::Minute.start_of(now);
        let WaitingCounts { minutes, count } = &mut *self.0.lock();
        let latest = minutes.get_mut(workspace).and_then(|minutes| minutes.last_mut());
        if let Some((_, aggregate)) = latest.filter(|(latest, _)| *latest == minute) {
            aggregate.add_event(0, latency_us);
            return true;
        }
        if *count >= WAITING_MAX {
            return false;
        }
        let mut aggregate = Aggregate::default();
        aggregate.add_event(0, latency_us);
        minutes.entry(workspace.clone()).or_default().push((minute, aggregate));
        *count += 1;
        true
    }

    /// Removes all counts and returns them.
    pub fn take(&self) -> Vec<NotFoundCount> {
        let WaitingCounts { minutes, .. } = std::mem::take(&mut *self.0.lock());
        let counts = minutes.into_iter().flat_map(|(workspace, minutes)| {
            let count = move |(minute, aggregate)| NotFoundCount {
                workspace: workspace.clone(),
                minute,
                aggregate,
            };
            minutes.into_iter().map(count)
        });
        counts.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE_MS: i64 = 60_000;

    #[test]
    fn verifications_are_counted_by_workspace_and_minute() {
        let counters = NotFoundCounters::default();
        for (workspace, time) in [("a", 0), ("b", 1), ("a", MINUTE_MS - 1), ("a", MINUTE_MS)] {
            assert!(counters.try_count(&workspace.into(), Timestamp(time), 50));
        }

        let mut counts: Vec<_> = counters
            .take()
            .into_iter()
            .map(|found| (found.workspace.to_string(), found.minute.0, found.aggregate.count))
            .collect();

        counts.sort();
        let expected = [("a", 0, 2), ("a", MINUTE_MS, 1), ("b", 0, 1)];
        assert_eq!(counts, expected.map(|(name, at, count)| (name.to_owned(), at, count)));
        assert_eq!(counters.take(), []);
    }

    #[test]
    fn verification_is_not_counted_when_too_many_counts_wait() {
        let counters = NotFoundCounters::default();
        let count = |workspace: usize| {
            counters.try_count(&WorkspaceId::from(format!("ws_{workspace}")), Timestamp(0), 50)
        };
        assert!((0..WAITING_MAX).all(count));

        assert!(!count(WAITING_MAX));
        assert!(count(0), "a count that waits is still added to");
        assert_eq!(counters.take().len(), WAITING_MAX);
        assert!(count(WAITING_MAX));
    }
}

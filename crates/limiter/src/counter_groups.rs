//! Bounds the counters that callers create at will: those of the ad-hoc limits of a key.
//!
//! A group holds the live counters of one key. The script, or [`super::local`], counts them in the same atomic step
//! that would create another one, so that bound is exact. The total of a workspace is estimated in the background by
//! [`GroupTotals`]. A live counter is never evicted.

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasher as _, BuildHasherDefault, DefaultHasher};
use std::sync::Arc;

use arc_swap::ArcSwap;
use foundation::clock::{DAY_MS, Timestamp};
use foundation::id::WorkspaceId;
use parking_lot::Mutex;

use super::Window;

/// The maximum number of live counters in a group.
pub const GROUP_LIVE_MAX: u16 = 1_000;
/// The longest window of a counter in a group.
pub const GROUP_WINDOW_MAX_MS: i64 = 30 * DAY_MS;
/// The maximum number of counters that wait to be estimated. Further counters are left out of the estimate until their
/// next window.
const PENDING_COUNTERS_MAX: usize = 1_000_000;
/// Window lengths fall into classes, each half as long as the previous one; the last one holds windows up to 1.2 s.
const CLASS_COUNT: u32 = 22;
/// The shortest window that is estimated. A counter with a shorter window has expired by the time an estimate, which is
/// made every two seconds, could include it.
const ESTIMATED_WINDOW_MIN_MS: i64 = 1_000;

/// The ad-hoc counters of one key.
#[derive(Debug, PartialEq, Eq)]
pub struct CounterGroup {
    /// The name from [`super::Keyspace::group`].
    pub name: String,
    pub workspace: WorkspaceId,
    /// The maximum number of live counters when one is created: [`GROUP_LIVE_MAX`], or 0 if the workspace has too many.
    pub live_max: u16,
}

/// How a consume request changed a group.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum GroupChange {
    #[default]
    None,
    /// A counter was created, or is live for another window.
    Grown,
    /// Nothing was consumed, because the group would have had too many live counters.
    Full,
}

/// A period of a workspace and a class of window lengths. A counter that was written in one period is live until the
/// end of the second period after it at the latest.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct GroupPeriod {
    pub workspace: WorkspaceId,
    class: u32,
    number: i64,
}

impl GroupPeriod {
    fn length_ms(class: u32) -> i64 {
        GROUP_WINDOW_MAX_MS >> class
    }

    /// Returns the period in which a window of this length is counted.
    fn for_window(workspace: &WorkspaceId, duration_ms: i64, now: Timestamp) -> Self {
        let fits = |class: &u32| Self::length_ms(*class) >= duration_ms;
        let class = (0..CLASS_COUNT).rev().find(fits).unwrap_or(0);
        Self { workspace: workspace.clone(), class, number: now.0 / Self::length_ms(class) }
    }

    /// Returns all periods of a workspace whose counters may be live.
    pub fn list_live(workspace: &WorkspaceId, now: Timestamp) -> impl Iterator<Item = Self> {
        (0..CLASS_COUNT).flat_map(move |class| {
            let last = now.0 / Self::length_ms(class);
            (last - 2..=last).map(move |number| Self {
                workspace: workspace.clone(),
                class,
                number,
            })
        })
    }

    /// Returns how long the period is relevant, from any time within it.
    pub fn lifetime_ms(&self) -> i64 {
        3 * Self::length_ms(self.class)
    }

    /// Returns the part of the name that distinguishes the period from others of its workspace.
    pub fn suffix(&self) -> String {
        format!("{}:{}", self.class, self.number)
    }
}

/// Estimates how many counters the groups of each workspace have in total.
#[derive(Default)]
pub struct GroupTotals {
    full_workspaces: ArcSwap<HashSet<WorkspaceId>>,
    pending: Mutex<PendingGrowth>,
}

/// Hashes of the names of counters that have grown a group since they were last recorded.
#[derive(Default)]
struct PendingGrowth {
    counters: HashMap<GroupPeriod, HashSet<u64>>,
    counter_count: usize,
}

impl GroupTotals {
    /// Returns whether the workspace has reached its maximum of counters.
    pub fn is_full(&self, workspace: &WorkspaceId) -> bool {
        self.full_workspaces.load().contains(workspace)
    }

    /// Replaces the set of workspaces that have reached their maximum of counters.
    pub fn set_full(&self, workspaces: HashSet<WorkspaceId>) {
        self.full_workspaces.store(Arc::new(workspaces));
    }

    /// Returns the workspaces that have reached their maximum of counters.
    pub fn full_workspaces(&self) -> Arc<HashSet<WorkspaceId>> {
        self.full_workspaces.load_full()
    }

    /// Records the windows of a request that has grown a group, except windows that are too short to be estimated.
    pub fn record_growth(&self, windows: &[Window], now: Timestamp) {
        let mut pending = self.pending.lock();
        for window in windows {
            let is_estimated = window.cost > 0 && window.duration_ms >= ESTIMATED_WINDOW_MIN_MS;
            let Some(group) = window.group.as_ref().filter(|_| is_estimated) else { continue };
            if pending.counter_count >= PENDING_COUNTERS_MAX {
                return;
            }
            let period = GroupPeriod::for_window(&group.workspace, window.duration_ms, now);
            let hash = BuildHasherDefault::<DefaultHasher>::default().hash_one(&window.key);
            let is_new = pending.counters.entry(period).or_default().insert(hash);
            pending.counter_count += usize::from(is_new);
        }
    }

    /// Removes and returns the recorded counters.
    pub fn drain(&self) -> HashMap<GroupPeriod, HashSet<u64>> {
        std::mem::take(&mut *self.pending.lock()).counters
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn group_period_covers_counter_while_it_is_live() {
        let workspace = WorkspaceId::from("ws_1");
        for duration_ms in [1000, 1236, 1237, 60_000, 3_600_001, GROUP_WINDOW_MAX_MS] {
            for now_ms in [1_773_144_000_001, 1_773_144_999_999] {
                let period = GroupPeriod::for_window(&workspace, duration_ms, Timestamp(now_ms));
                let is_counted = |at_ms| {
                    GroupPeriod::list_live(&workspace, Timestamp(at_ms)).any(|live| live == period)
                };
                let expires_ms = (now_ms / duration_ms + 2) * duration_ms;

                assert!(is_counted(now_ms) && is_counted(expires_ms - 1), "{duration_ms} ms");
                assert!(!is_counted(now_ms + period.lifetime_ms()), "{duration_ms} ms");
            }
        }
    }

    #[test]
    fn group_period_lifetime_is_at_most_six_windows_when_estimated() {
        for duration_ms in [ESTIMATED_WINDOW_MIN_MS, 1235, 1236, 60_000, GROUP_WINDOW_MAX_MS] {
            let now = Timestamp(1_773_144_000_001);
            let period = GroupPeriod::for_window(&WorkspaceId::from("ws_1"), duration_ms, now);

            assert!(period.lifetime_ms() <= 6 * duration_ms, "{duration_ms} ms");
        }
    }

    #[test]
    fn group_totals_skip_window_when_shorter_than_one_second() {
        let totals = GroupTotals::default();
        let workspace = WorkspaceId::from("ws_1");
        let group = Arc::new(CounterGroup { name: "g".into(), workspace, live_max: 0 });
        let window = |duration_ms: i64| {
            Window::new(format!("{duration_ms}"), 5, duration_ms, 1).with_group(group.clone())
        };

        totals.record_growth(&[window(1), window(999)], Timestamp(1_773_144_000_000));
        assert!(totals.drain().is_empty());

        totals.record_growth(&[window(1), window(1_000)], Timestamp(1_773_144_000_000));
        let noted: Vec<_> = totals.drain().into_values().map(|counters| counters.len()).collect();
        assert_eq!(noted, [1]);
    }

    #[test]
    fn group_totals_record_each_counter_once() {
        let totals = GroupTotals::default();
        let workspace = WorkspaceId::from("ws_1");
        let group = CounterGroup { name: "g".into(), workspace, live_max: GROUP_LIVE_MAX };
        let group = Arc::new(group);
        let window = |name, cost| Window::new(name, 5, 60_000, cost).with_group(group.clone());
        let windows = [window("a", 1), window("a", 1), window("b", 1), window("c", 0)];

        totals.record_growth(&windows, Timestamp(1_773_144_000_000));
        totals.record_growth(&[Window::new("d", 5, 60_000, 1)], Timestamp(1_773_144_000_000));

        let noted: Vec<_> = totals.drain().into_values().map(|counters| counters.len()).collect();
        assert_eq!(noted, [2]);
        assert!(totals.drain().is_empty());
    }

    #[test]
    fn group_period_is_as_long_as_a_window_that_fills_its_class() {
        for class in 0..CLASS_COUNT {
            let duration_ms = GroupPeriod::length_ms(class);
            let period = GroupPeriod::for_window(&"ws_1".into(), duration_ms, Timestamp(0));

            assert_eq!(period.lifetime_ms(), 3 * duration_ms);
        }
    }

    #[test]
    fn group_totals_record_no_more_counters_than_their_maximum() {
        let totals = GroupTotals::default();
        let workspace = WorkspaceId::from("ws_1");
        let group = CounterGroup { name: "g".into(), workspace, live_max: GROUP_LIVE_MAX };
        let group = Arc::new(group);
        let windows =
            ["a", "b"].map(|name| Window::new(name, 5, 60_000, 1).with_group(group.clone()));
        totals.pending.lock().counter_count = PENDING_COUNTERS_MAX - 1;

        totals.record_growth(&windows, Timestamp(1_773_144_000_000));

        let noted: Vec<_> = totals.drain().into_values().map(|counters| counters.len()).collect();
        assert_eq!(noted, [1]);
    }

    #[test]
    fn workspace_is_full_until_others_are() {
        let totals = GroupTotals::default();
        let [first, second] = ["ws_1", "ws_2"].map(WorkspaceId::from);

        totals.set_full(HashSet::from([first.clone()]));
        assert!(totals.is_full(&first) && !totals.is_full(&second));

        totals.set_full(HashSet::from([second.clone()]));
        assert!(!totals.is_full(&first) && totals.is_full(&second));
    }
}

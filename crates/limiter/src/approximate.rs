//! Decides approximate windows from memory and synchronizes them with Redis later.
//!
//! A request is decided from memory only if this process has received the state of the window from Redis within
//! [`FRESH_MAX_MS`]. Otherwise Redis is queried as for an exact request, by one caller on behalf of all who need the
//! window at the same time. Consumed costs are sent with the next batch, whose reply contains what all replicas have
//! consumed. So a replica knows its own costs immediately, and those of the others except what they consumed since
//! their last batches: that is the whole error.

mod fetch;

use std::sync::Arc;

use dashmap::DashMap;
use dashmap::mapref::one::RefMut;
use fetch::{PendingFetch, WindowFetch};
use foundation::clock::{Stopwatch, Timestamp};

use super::window::is_within_limit;
use super::{EXACT_MAX, Window, WindowCount};

/// The maximum age of a cached window, in milliseconds. Batches are sent more than twice as often.
const FRESH_MAX_MS: i64 = 250;

/// Stores approximate counts of recently used windows in process memory. An entry is valid for 250 ms after the last
/// Redis reply.
pub struct ApproximateWindows {
    windows: DashMap<Arc<str>, WindowState>,
    stopwatch: Stopwatch,
}

/// What this process knows of a window. A window with neither part is removed.
#[derive(Default)]
struct WindowState {
    cached: Option<CachedWindow>,
    /// The query to Redis that is in progress.
    pending_fetch: Option<PendingFetch>,
}

/// The result of a request that is decided from memory if possible.
pub enum ApproximateDecision<'a> {
    /// The count of the window before the request, and whether the request was admitted.
    Decided { count: WindowCount, is_admitted: bool },
    /// The window is unknown or stale: this caller queries Redis.
    FetchRequired(WindowFetch<'a>),
    /// The window is unknown or stale, and another caller is querying Redis.
    FetchPending(PendingFetch),
}

impl WindowState {
    /// Marks a cost that was being sent as pending again, because it has not been consumed as far as is known.
    fn restore_pending(&mut self, carried_cost: i64) {
        if let Some(cached) = self.cached.as_mut().filter(|_| carried_cost > 0) {
            cached.sent_cost -= carried_cost;
            cached.pending_cost += carried_cost;
            cached.is_requested = true;
        }
    }

    fn record_reply(
        &mut self,
        window: &Window,
        found: WindowCount,
        is_admitted: bool,
        synced_at_ms: i64,
        sent_cost: i64,
    ) {
        let cost = if is_admitted { window.cost } else { 0 };
        let count =
            WindowCount { effective_count: found.effective_count.saturating_add(cost), ..found };
        let duration_ms = window.duration_ms;
        let new = CachedWindow {
            duration_ms,
            last_count: count,
            at_ms: synced_at_ms,
            pending_cost: 0,
            sent_cost: 0,
            is_requested: false,
        };
        let cached = self.cached.get_or_insert(new);
        (cached.duration_ms, cached.last_count, cached.at_ms) = (duration_ms, count, synced_at_ms);
        cached.sent_cost -= sent_cost;
    }
}

#[derive(Debug, Clone, Copy)]
struct CachedWindow {
    duration_ms: i64,
    /// The count in the last reply from Redis.
    last_count: WindowCount,
    /// When that reply arrived, by the stopwatch.
    at_ms: i64,
    /// The cost that was consumed here and not sent yet.
    pending_cost: i64,
    /// The cost that was sent and not confirmed yet.
    sent_cost: i64,
    /// Whether the window was requested since it was last sent.
    is_requested: bool,
}

impl CachedWindow {
    /// Returns the amount that counts against the limit, as far as this process knows.
    fn effective_count(&self) -> i64 {
        self.last_count
            .effective_count
            .saturating_add(self.pending_cost)
            .saturating_add(self.sent_cost)
    }
}

impl Default for ApproximateWindows {
    fn default() -> Self {
        Self { windows: DashMap::new(), stopwatch: Stopwatch::new() }
    }
}

impl ApproximateWindows {
    /// Returns the state of a window, locked. An unknown window is added.
    fn state(&self, key: &Arc<str>) -> RefMut<'_, Arc<str>, WindowState> {
        let insert = || self.windows.entry(key.clone()).or_default();
        self.windows.get_mut(key).unwrap_or_else(insert)
    }

    /// Consumes from a window if its cached count is fresh.
    pub fn try_consume(&self, window: &Window) -> ApproximateDecision<'_> {
        let mut state = self.state(&window.key);
        let pending_fetch = state.pending_fetch.clone();
        let is_fresh = |cached: &CachedWindow| {
            self.stopwatch.elapsed_ms() - cached.at_ms <= FRESH_MAX_MS
                && cached.duration_ms == window.duration_ms
        };
        let mut carried_cost = 0;
        if let Some(cached) = &mut state.cached {
            cached.is_requested = true;
            if is_fresh(cached) {
                let effective = cached.effective_count();
                let count = WindowCount {
                    effective_count: effective,
                    window_number: cached.last_count.window_number,
                };
                let is_admitted = is_within_limit(window, effective);
                if is_admitted {
                    cached.pending_cost += window.cost;
                }
                return ApproximateDecision::Decided { count, is_admitted };
            }
            // A cost that a batch is sending comes back with its reply.
            if cached.sent_cost == 0 && pending_fetch.is_none() {
                carried_cost = std::mem::take(&mut cached.pending_cost);
                cached.sent_cost = carried_cost;
            }
        }
        if let Some(pending_fetch) = pending_fetch {
            return ApproximateDecision::FetchPending(pending_fetch);
        }
        let (fetch, pending_fetch) = WindowFetch::new(self, window.key.clone(), carried_cost);
        state.pending_fetch = Some(pending_fetch);
        ApproximateDecision::FetchRequired(fetch)
    }

    /// Returns the cost that was consumed here from the current window and is not known to be counted in Redis.
    pub fn unsynced_cost(&self, window: &Window, now: Timestamp) -> i64 {
        let state = self.windows.get(&window.key);
        let cached = state.as_ref().and_then(|state| state.cached.as_ref()).filter(|cached| {
            cached.duration_ms == window.duration_ms
                && cached.last_count.window_number == window.number_at(now)
        });
        cached.map_or(0, |cached| cached.pending_cost.saturating_add(cached.sent_cost))
    }

    /// Returns the windows to send, each with the cost consumed here, regardless of its limit. Windows that were not
    /// requested since are removed.
    pub fn drain_pending(&self) -> Vec<Window> {
        let now_ms = self.stopwatch.elapsed_ms();
        let mut due = Vec::new();
        self.windows.retain(|key, state| {
            if let Some(cached) = &mut state.cached
                && cached.is_requested
                && cached.sent_cost == 0
            {
                cached.is_requested = false;
                cached.sent_cost = std::mem::take(&mut cached.pending_cost);
                let (duration_ms, cost) = (cached.duration_ms, cached.sent_cost);
                due.push(Window::new(key.clone(), EXACT_MAX, duration_ms, cost));
            }
            state.cached.take_if(|cached| {
                cached.pending_cost <= 0
                    && cached.sent_cost <= 0
                    && now_ms - cached.at_ms > FRESH_MAX_MS
            });
            state.cached.is_some() || state.pending_fetch.is_some()
        });
        due
    }

    /// Records the result of sending a window. `None` means that no reply arrived, so the cost is sent again. If Redis
    /// counted it after all, it counts twice, which rejects requests rather than admits them.
    pub fn record_sync(&self, window: &Window, count: Option<WindowCount>) {
        let at_ms = self.stopwatch.elapsed_ms();
        let Some(mut state) = self.windows.get_mut(&window.key) else { return };
        let Some(cached) = &mut state.cached else { return };
        // Not the whole sent cost: a caller that queries Redis may carry the rest.
        let sent_cost = window.cost;
        cached.sent_cost -= sent_cost;
        match count {
            Some(count) => {
                let effective = count.effective_count.saturating_add(sent_cost);
                (cached.last_count, cached.at_ms) =
                    (WindowCount { effective_count: effective, ..count }, at_ms);
            }
            None => {
                cached.pending_cost += sent_cost;
                cached.is_requested = true;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{ConsumeReply, GroupChange};
    use super::*;

    pub(super) fn window(limit: i64, cost: i64) -> Window {
        Window::new("a", limit, 60_000, cost)
    }

    pub(super) fn count(effective: i64) -> WindowCount {
        WindowCount { effective_count: effective, window_number: 1 }
    }

    /// Requests an unknown window and records the count that Redis replied with.
    pub(super) fn record_redis_reply(
        approximate: &ApproximateWindows,
        window: &Window,
        found: WindowCount,
        is_admitted: bool,
    ) {
        let ApproximateDecision::FetchRequired(fetch) = approximate.try_consume(window) else {
            panic!("the window is known")
        };
        fetch.record_exact(window, &consume_reply(is_admitted, &[found]));
    }

    pub(super) fn decision(
        approximate: &ApproximateWindows,
        window: &Window,
    ) -> Option<(i64, bool)> {
        match approximate.try_consume(window) {
            ApproximateDecision::Decided { count, is_admitted } => {
                Some((count.effective_count, is_admitted))
            }
            ApproximateDecision::FetchRequired(_) | ApproximateDecision::FetchPending(_) => None,
        }
    }

    pub(super) fn consume_reply(is_admitted: bool, found: &[WindowCount]) -> ConsumeReply {
        ConsumeReply {
            is_admitted,
            windows: found.to_vec(),
            lease: None,
            group_change: GroupChange::None,
            regional: None,
        }
    }

    #[test]
    fn try_consume_decides_when_redis_has_replied() {
        let approximate = ApproximateWindows::default();

        assert_eq!(decision(&approximate, &window(10, 1)), None);
        record_redis_reply(&approximate, &window(10, 1), count(0), true);
        assert_eq!(decision(&approximate, &window(10, 1)), Some((1, true)));
        assert_eq!(decision(&approximate, &Window::new("a", 10, 1000, 1)), None);
    }

    #[test]
    fn try_consume_counts_local_costs_when_sent_or_pending() {
        let approximate = ApproximateWindows::default();
        record_redis_reply(&approximate, &window(10, 1), count(0), true);

        let admitted =
            (0..20).filter(|_| decision(&approximate, &window(10, 1)).is_some_and(|(_, t)| t));
        assert_eq!(admitted.count(), 9);
        let due = approximate.drain_pending();
        let rejected = decision(&approximate, &window(10, 1));
        // Another replica has consumed three in the meantime.
        approximate.record_sync(&due[0], Some(count(4)));

        assert_eq!(due, [window(EXACT_MAX, 9)]);
        assert_eq!(rejected, Some((10, false)));
        assert_eq!(decision(&approximate, &window(14, 1)), Some((13, true)));
    }

    #[test]
    fn unsynced_cost_covers_only_the_current_window() {
        let approximate = ApproximateWindows::default();
        record_redis_reply(&approximate, &window(10, 1), count(0), true);
        decision(&approximate, &window(10, 2));
        approximate.drain_pending();
        decision(&approximate, &window(10, 3));

        let unsynced = |at_ms| approximate.unsynced_cost(&window(10, 1), Timestamp(at_ms));
        assert_eq!((unsynced(60_000), unsynced(119_999)), (5, 5));
        assert_eq!((unsynced(59_999), unsynced(120_000)), (0, 0), "windows before and after");
        let other = Window::new("a", 10, 1_000, 1);
        assert_eq!(approximate.unsynced_cost(&other, Timestamp(1_500)), 0, "another duration");
    }

    #[test]
    fn drain_pending_sends_cost_again_when_no_reply_arrived() {
        let approximate = ApproximateWindows::default();
        record_redis_reply(&approximate, &window(10, 1), count(0), false);
        decision(&approximate, &window(10, 4));

        let first = approximate.drain_pending();
        assert!(approximate.drain_pending().is_empty(), "it is being sent");
        approximate.record_sync(&first[0], None);

        assert_eq!(approximate.drain_pending(), first);
    }

    /// Makes the cached count older than it may be.
    pub(super) fn age(approximate: &ApproximateWindows) {
        let mut state = approximate.windows.get_mut("a").expect("known");
        state.cached.as_mut().expect("cached").at_ms = -FRESH_MAX_MS - 1;
    }

    #[test]
    fn window_is_sent_once_for_its_requests_and_removed_when_stale() {
        let approximate = ApproximateWindows::default();
        record_redis_reply(&approximate, &window(10, 1), count(0), true);
        assert_eq!(approximate.drain_pending(), [], "Redis knows the request");

        decision(&approximate, &window(10, 4));
        let sent = approximate.drain_pending();
        age(&approximate);
        assert_eq!(approximate.drain_pending(), [], "it is being sent");
        approximate.record_sync(&sent[0], Some(count(1)));
        assert_eq!(decision(&approximate, &window(10, 0)), Some((5, true)));

        let sent = approximate.drain_pending();
        assert_eq!(sent, [window(EXACT_MAX, 0)], "others may have consumed");
        approximate.record_sync(&sent[0], Some(count(5)));
        assert_eq!(approximate.drain_pending(), [], "it was not requested");
        assert!(approximate.windows.contains_key("a"), "it is fresh");
        age(&approximate);
        assert_eq!(approximate.drain_pending(), []);
        assert!(!approximate.windows.contains_key("a"));
    }
}

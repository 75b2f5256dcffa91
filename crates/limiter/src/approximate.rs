//! Decides approximate windows from memory and synchronizes them with Redis later.
//!
//! A request is decided from memory only if this process has received the state of the window from Redis within
//! [`FRESH_MAX_MS`]. Otherwise Redis is queried as for an exact request, by one caller on behalf of all who need the
//! window at the same time. Consumed costs are sent with the next batch, whose reply contains what all replicas have
//! consumed. So a replica knows its own costs immediately, and those of the others except what they consumed since
//! their last batches: that is the whole error.

use std::collections::HashMap;
use std::hash::{BuildHasher as _, RandomState};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use foundation::clock::{Stopwatch, Timestamp};
use tokio::sync::watch;

use super::window::is_within_limit;
use super::{ConsumeReply, EXACT_MAX, Window, WindowCount};

const SHARD_COUNT: usize = 64;
/// The maximum age of a cached window, in milliseconds. Batches are sent more than twice as often.
const FRESH_MAX_MS: i64 = 250;

/// Stores approximate counts of recently used windows in process memory. An entry is valid for 250 ms after the last
/// Redis reply.
pub struct ApproximateWindows {
    shards: Vec<Mutex<ApproximateShard>>,
    hasher: RandomState,
    stopwatch: Stopwatch,
}

#[derive(Default)]
struct ApproximateShard {
    cached_windows: HashMap<Arc<str>, CachedWindow>,
    /// Windows for which Redis is being queried, and whether it has timed out.
    pending_fetches: HashMap<Arc<str>, watch::Receiver<bool>>,
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

/// A query to Redis by another caller.
pub struct PendingFetch(watch::Receiver<bool>);

impl PendingFetch {
    /// Waits until the query has ended. Returns whether to try memory again; `false` means that Redis did not reply in
    /// time.
    pub async fn wait(mut self) -> bool {
        let is_missed = self.0.changed().await.is_ok() && *self.0.borrow();
        !is_missed
    }
}

/// The right to query Redis for a window on behalf of all waiting callers. Dropping it lets another caller query.
pub struct WindowFetch<'a> {
    approximate_windows: &'a ApproximateWindows,
    key: Arc<str>,
    /// The cost that was consumed here earlier and not sent yet. It is sent along, so that it counts.
    carried_cost: i64,
    has_timed_out: watch::Sender<bool>,
}

impl WindowFetch<'_> {
    /// Returns the windows to request from Redis; the window itself comes last.
    pub fn windows(&self, window: &Window) -> Vec<Window> {
        let carried_window =
            Window::new(self.key.clone(), EXACT_MAX, window.duration_ms, self.carried_cost);
        let carried_window = (self.carried_cost > 0).then_some(carried_window);
        carried_window.into_iter().chain([window.clone()]).collect()
    }

    /// Records the reply from Redis. Returns the reply for the window alone.
    pub fn record_exact(mut self, window: &Window, reply: &ConsumeReply) -> ConsumeReply {
        let count = reply.windows.last().copied();
        let count = count.unwrap_or(WindowCount { effective_count: 0, window_number: 0 });
        let carried_cost =
            if reply.is_admitted { 0 } else { std::mem::take(&mut self.carried_cost) };
        let mut shard = self.approximate_windows.shard(&self.key);
        shard.restore_pending(&self.key, carried_cost);
        // The carried cost is in the count of its window even if the request was rejected.
        let found = WindowCount { effective_count: count.effective_count - carried_cost, ..count };
        shard.record_reply(
            window,
            found,
            reply.is_admitted,
            self.approximate_windows.stopwatch.elapsed_ms(),
            self.carried_cost,
        );
        self.carried_cost = 0;
        drop(shard);
        ConsumeReply {
            is_admitted: reply.is_admitted,
            windows: vec![count],
            lease: None,
            group_change: reply.group_change,
        }
    }

    /// Records that Redis did not reply in time: all waiting callers decide without it.
    pub fn record_timeout(self) {
        self.has_timed_out.send_replace(true);
    }
}

impl Drop for WindowFetch<'_> {
    fn drop(&mut self) {
        let mut shard = self.approximate_windows.shard(&self.key);
        shard.pending_fetches.remove(&self.key);
        shard.restore_pending(&self.key, self.carried_cost);
    }
}

impl ApproximateShard {
    /// Marks a cost that was being sent as pending again, because it has not been consumed as far as is known.
    fn restore_pending(&mut self, key: &str, carried_cost: i64) {
        if let Some(cached) = self.cached_windows.get_mut(key).filter(|_| carried_cost > 0) {
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
        let cached = self.cached_windows.entry(window.key.clone()).or_insert(new);
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
        Self {
            shards: (0..SHARD_COUNT).map(|_| Mutex::default()).collect(),
            hasher: RandomState::new(),
            stopwatch: Stopwatch::new(),
        }
    }
}

impl ApproximateWindows {
    fn shard(&self, key: &str) -> MutexGuard<'_, ApproximateShard> {
        let shard = usize::try_from(self.hasher.hash_one(key) >> 32).unwrap_or(0) % SHARD_COUNT;
        self.shards[shard].lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Consumes from a window if its cached count is fresh.
    pub fn try_consume(&self, window: &Window) -> ApproximateDecision<'_> {
        let mut shard = self.shard(&window.key);
        let pending_fetch = shard.pending_fetches.get(&window.key).cloned();
        let is_fresh = |cached: &CachedWindow| {
            self.stopwatch.elapsed_ms() - cached.at_ms <= FRESH_MAX_MS
                && cached.duration_ms == window.duration_ms
        };
        let mut carried_cost = 0;
        if let Some(cached) = shard.cached_windows.get_mut(&window.key) {
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
            return ApproximateDecision::FetchPending(PendingFetch(pending_fetch));
        }
        let (outcome, pending_fetch) = watch::channel(false);
        shard.pending_fetches.insert(window.key.clone(), pending_fetch);
        ApproximateDecision::FetchRequired(WindowFetch {
            approximate_windows: self,
            key: window.key.clone(),
            carried_cost,
            has_timed_out: outcome,
        })
    }

    /// Returns the cost that was consumed here from the current window and is not known to be counted in Redis.
    pub fn unsynced_cost(&self, window: &Window, now: Timestamp) -> i64 {
        let shard = self.shard(&window.key);
        let cached = shard.cached_windows.get(&window.key).filter(|cached| {
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
        for shard in &self.shards {
            let mut shard = shard.lock().unwrap_or_else(PoisonError::into_inner);
            shard.cached_windows.retain(|key, cached| {
                if cached.is_requested && cached.sent_cost == 0 {
                    cached.is_requested = false;
                    cached.sent_cost = std::mem::take(&mut cached.pending_cost);
                    due.push(Window::new(
                        key.clone(),
                        EXACT_MAX,
                        cached.duration_ms,
                        cached.sent_cost,
                    ));
                }
                cached.pending_cost > 0
                    || cached.sent_cost > 0
                    || now_ms - cached.at_ms <= FRESH_MAX_MS
            });
        }
        due
    }

    /// Records the result of sending a window. `None` means that no reply arrived, so the cost is sent again. If Redis
    /// counted it after all, it counts twice, which rejects requests rather than admits them.
    pub fn record_sync(&self, window: &Window, count: Option<WindowCount>) {
        let at_ms = self.stopwatch.elapsed_ms();
        let mut shard = self.shard(&window.key);
        let Some(cached) = shard.cached_windows.get_mut(&window.key) else { return };
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
    use super::super::GroupChange;
    use super::*;

    fn window(limit: i64, cost: i64) -> Window {
        Window::new("a", limit, 60_000, cost)
    }

    fn count(effective: i64) -> WindowCount {
        WindowCount { effective_count: effective, window_number: 1 }
    }

    /// Requests an unknown window and records the count that Redis replied with.
    fn record_redis_reply(
        approximate: &ApproximateWindows,
        window: &Window,
        found: WindowCount,
        is_admitted: bool,
    ) {
        let ApproximateDecision::FetchRequired(fetch) = approximate.try_consume(window) else {
            panic!("the window is known")
        };
        fetch.record_exact(
            window,
            &ConsumeReply {
                is_admitted,
                windows: vec![found],
                lease: None,
                group_change: GroupChange::None,
            },
        );
    }

    fn decision(approximate: &ApproximateWindows, window: &Window) -> Option<(i64, bool)> {
        match approximate.try_consume(window) {
            ApproximateDecision::Decided { count, is_admitted } => {
                Some((count.effective_count, is_admitted))
            }
            ApproximateDecision::FetchRequired(_) | ApproximateDecision::FetchPending(_) => None,
        }
    }

    fn consume_reply(is_admitted: bool, found: &[WindowCount]) -> ConsumeReply {
        ConsumeReply {
            is_admitted,
            windows: found.to_vec(),
            lease: None,
            group_change: GroupChange::None,
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

    #[tokio::test]
    async fn try_consume_lets_one_caller_query_redis_when_window_is_unknown() {
        let approximate = ApproximateWindows::default();
        let ApproximateDecision::FetchRequired(fetch) = approximate.try_consume(&window(10, 1))
        else {
            panic!("the window is known")
        };
        let ApproximateDecision::FetchPending(first) = approximate.try_consume(&window(10, 1))
        else {
            panic!("no query is pending")
        };
        let ApproximateDecision::FetchPending(second) = approximate.try_consume(&window(10, 1))
        else {
            panic!("no query is pending")
        };

        drop(fetch);
        assert!(first.wait().await, "the next caller queries");
        let ApproximateDecision::FetchRequired(fetch) = approximate.try_consume(&window(10, 1))
        else {
            panic!("the window is known")
        };
        assert!(second.wait().await);
        let ApproximateDecision::FetchPending(third) = approximate.try_consume(&window(10, 1))
        else {
            panic!("no query is pending")
        };
        fetch.record_timeout();

        assert!(!third.wait().await, "no caller waits for a Redis that does not reply");
    }

    #[test]
    fn pending_costs_are_carried_when_redis_is_queried_again() {
        for is_admitted in [true, false] {
            let approximate = ApproximateWindows::default();
            record_redis_reply(&approximate, &window(10, 1), count(0), true);
            assert_eq!(decision(&approximate, &window(10, 3)), Some((1, true)));
            approximate.shard("a").cached_windows.get_mut("a").expect("known").at_ms =
                -FRESH_MAX_MS - 1;

            let ApproximateDecision::FetchRequired(fetch) = approximate.try_consume(&window(10, 5))
            else {
                panic!("the window is fresh")
            };
            assert_eq!(fetch.windows(&window(10, 5)), [window(EXACT_MAX, 3), window(10, 5)]);
            assert_eq!(approximate.drain_pending(), [], "they are being sent");
            let reply = fetch
                .record_exact(&window(10, 5), &consume_reply(is_admitted, &[count(1), count(4)]));

            assert_eq!(reply, consume_reply(is_admitted, &[count(4)]));
            let expected = if is_admitted { 9 } else { 4 };
            assert_eq!(decision(&approximate, &window(10, 0)), Some((expected, true)));
            let due: Vec<_> =
                approximate.drain_pending().iter().map(|window| window.cost).collect();
            assert_eq!(due, [if is_admitted { 0 } else { 3 }]);
        }
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
}

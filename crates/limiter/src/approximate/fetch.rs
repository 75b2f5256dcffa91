//! Queries to Redis for windows that are unknown or stale: one caller queries on behalf of all that wait.

use std::sync::Arc;

use tokio::sync::watch;

use super::super::{ConsumeReply, EXACT_MAX, Window, WindowCount};
use super::ApproximateWindows;

/// A query to Redis by another caller.
#[derive(Clone)]
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

impl<'a> WindowFetch<'a> {
    /// Creates the right, and what other callers wait for.
    pub fn new(
        approximate_windows: &'a ApproximateWindows,
        key: Arc<str>,
        carried_cost: i64,
    ) -> (Self, PendingFetch) {
        let (has_timed_out, pending_fetch) = watch::channel(false);
        let fetch = Self { approximate_windows, key, carried_cost, has_timed_out };
        (fetch, PendingFetch(pending_fetch))
    }

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
        let mut state = self.approximate_windows.state(&self.key);
        state.restore_pending(carried_cost);
        // The carried cost is in the count of its window even if the request was rejected.
        let found = WindowCount { effective_count: count.effective_count - carried_cost, ..count };
        state.record_reply(
            window,
            found,
            reply.is_admitted,
            self.approximate_windows.stopwatch.elapsed_ms(),
            self.carried_cost,
        );
        self.carried_cost = 0;
        drop(state);
        ConsumeReply {
            is_admitted: reply.is_admitted,
            windows: vec![count],
            lease: None,
            group_change: reply.group_change,
            regional: None,
        }
    }

    /// Records that Redis did not reply in time: all waiting callers decide without it.
    pub fn record_timeout(self) {
        self.has_timed_out.send_replace(true);
    }
}

impl Drop for WindowFetch<'_> {
    fn drop(&mut self) {
        self.approximate_windows.windows.remove_if_mut(&self.key, |_, state| {
            state.pending_fetch = None;
            state.restore_pending(self.carried_cost);
            state.cached.is_none()
        });
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::super::tests::{age, consume_reply, count, decision, record_redis_reply, window};
    use super::super::{ApproximateDecision, FRESH_MAX_MS};
    use super::*;

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
            let mut state = approximate.windows.get_mut("a").expect("known");
            state.cached.as_mut().expect("cached").at_ms = -FRESH_MAX_MS - 1;
            drop(state);

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

    /// Begins a query for a window.
    fn begin_fetch<'a>(approximate: &'a ApproximateWindows, window: &Window) -> WindowFetch<'a> {
        match approximate.try_consume(window) {
            ApproximateDecision::FetchRequired(fetch) => fetch,
            ApproximateDecision::Decided { .. } | ApproximateDecision::FetchPending(_) => {
                panic!("the window is known")
            }
        }
    }

    #[test]
    fn query_stays_pending_while_windows_are_sent() {
        let approximate = ApproximateWindows::default();
        let fetch = begin_fetch(&approximate, &window(10, 1));
        assert_eq!(fetch.windows(&window(10, 1)), [window(10, 1)]);

        assert_eq!(approximate.drain_pending(), []);

        let ApproximateDecision::FetchPending(pending) = approximate.try_consume(&window(10, 1))
        else {
            panic!("no query is pending")
        };
        assert!(pending.wait().now_or_never().is_none(), "the query has not ended");
        drop(fetch);
    }

    #[test]
    fn carried_cost_is_pending_again_when_query_has_no_reply() {
        for has_timed_out in [true, false] {
            let approximate = ApproximateWindows::default();
            record_redis_reply(&approximate, &window(10, 1), count(0), true);
            decision(&approximate, &window(10, 3));
            age(&approximate);

            let fetch = begin_fetch(&approximate, &window(10, 1));
            match has_timed_out {
                true => fetch.record_timeout(),
                false => drop(fetch),
            }

            assert_eq!(approximate.drain_pending(), [window(EXACT_MAX, 3)]);
        }
    }

    #[test]
    fn query_carries_no_cost_that_a_batch_is_sending() {
        let approximate = ApproximateWindows::default();
        record_redis_reply(&approximate, &window(10, 1), count(0), true);
        decision(&approximate, &window(10, 4));
        let sent = approximate.drain_pending();
        decision(&approximate, &window(10, 2));
        age(&approximate);

        let fetch = begin_fetch(&approximate, &window(10, 1));
        assert_eq!(fetch.windows(&window(10, 1)), [window(10, 1)]);
        drop(fetch);
        approximate.record_sync(&sent[0], Some(count(1)));

        assert_eq!(decision(&approximate, &window(10, 0)), Some((7, true)));
    }

    #[test]
    fn caller_that_waits_for_a_query_takes_no_cost_away() {
        let approximate = ApproximateWindows::default();
        record_redis_reply(&approximate, &window(10, 1), count(0), true);
        age(&approximate);
        let fetch = begin_fetch(&approximate, &window(10, 1));
        approximate.record_sync(&window(EXACT_MAX, 0), Some(count(1)));
        assert_eq!(decision(&approximate, &window(10, 3)), Some((1, true)));
        age(&approximate);

        let decided = approximate.try_consume(&window(10, 1));

        assert!(matches!(decided, ApproximateDecision::FetchPending(_)));
        drop(fetch);
        assert_eq!(approximate.drain_pending(), [window(EXACT_MAX, 3)]);
    }
}

//! Implements the time budget of a call, which counts only time in which this process ran.
//!
//! A process that is stopped, throttled or descheduled cannot read a reply, so the time that passes says nothing about
//! Redis. A wait is divided into short ticks, and a tick that ends late counts as one that ends on time. What is decided
//! after each tick, by [`RunTime`] and [`ReplyWait`], depends on the time that is passed to them alone.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::task::Poll;
use std::time::Duration;

use foundation::clock::Monotonic;
use foundation::fault_injection::Safeguard;

/// How long a wait lasts until the time is read again.
const TICK: Duration = Duration::from_millis(2);
/// The longest duration of a tick while the process is scheduled. The runtime's timers are up to a millisecond late.
const TICK_MAX: Duration = Duration::from_millis(5);
/// How often the connection is polled for a reply that has arrived, before the reply counts as late.
const READ_ATTEMPTS_MAX: usize = 8;
/// How many ticks in a row must have ended on time before a reply counts as late.
const ON_TIME_TICKS_MIN: usize = 4;
/// How many ticks beyond the budget to wait for that.
const EXTRA_TICKS_MAX: usize = 24;

/// Counts the time in which this process ran, as far as it can be observed.
pub struct RunTime {
    observed_at: Monotonic,
    run_time_total: Duration,
}

impl RunTime {
    pub fn new(now: Monotonic) -> Self {
        Self { observed_at: now, run_time_total: Duration::ZERO }
    }

    /// Returns the time in which this process ran since this was created. If the time between two observations is
    /// longer than [`TICK_MAX`], it counts as one [`TICK`], so a waiting caller must observe more often.
    pub fn observe(&mut self, now: Monotonic) -> Duration {
        let step = now.since(self.observed_at);
        self.run_time_total += if is_tick_late(step) { TICK } else { step };
        // Another caller may have read the time later and observed it earlier.
        self.observed_at = self.observed_at.max(now);
        self.run_time_total
    }
}

fn is_tick_late(length: Duration) -> bool {
    length > TICK_MAX && !Safeguard::RunTime.is_disabled()
}

/// The deadlines of one or more callers that wait for the same reply.
pub trait Deadlines {
    /// Updates how much time has passed.
    fn observe(&mut self, now: Monotonic);
    /// Returns the time left to the first of the callers that still wait.
    fn time_left(&self) -> Duration;
    /// Times out the callers whose deadline has passed. Returns whether any caller still waits.
    fn expire(&mut self) -> bool;
}

/// Decides when a reply counts as late.
#[derive(Debug)]
struct ReplyWait {
    /// How many ticks in a row have ended on time.
    on_time_ticks: usize,
    /// How many ticks began after the budget was used up.
    extra_ticks: usize,
    tick_count: usize,
    late_count: usize,
}

impl ReplyWait {
    fn new() -> Self {
        // The process is assumed to be scheduled until a tick ends late.
        Self { on_time_ticks: ON_TIME_TICKS_MIN, extra_ticks: 0, tick_count: 0, late_count: 0 }
    }

    /// Returns the length of the next tick, `left` before the deadline. `None`: the reply is late, unless it has arrived
    /// and was not read yet.
    fn next_tick(&mut self, left: Duration) -> Option<Duration> {
        let has_run = self.on_time_ticks >= ON_TIME_TICKS_MIN;
        if left.is_zero() && (has_run || self.extra_ticks >= EXTRA_TICKS_MAX) {
            return None;
        }
        self.extra_ticks += usize::from(left.is_zero());
        Some(TICK.min(left.max(Duration::from_millis(1))))
    }

    /// Records a tick that took `length`.
    fn record_tick(&mut self, length: Duration) {
        let is_late = is_tick_late(length);
        self.on_time_ticks = if is_late { 0 } else { self.on_time_ticks + 1 };
        self.tick_count += 1;
        self.late_count += usize::from(is_late);
    }
}

/// Waits for a reply while any caller waits for it. A reply that has arrived by the time a deadline is noticed counts.
/// Returns `None` when no caller waits any longer; the reply can still be awaited then.
pub async fn wait<T>(
    mut reply: Pin<&mut impl Future<Output = T>>,
    deadlines: &mut impl Deadlines,
) -> Option<T> {
    let (began, mut waiting) = (Monotonic::now(), ReplyWait::new());
    loop {
        let Some(length) = waiting.next_tick(deadlines.time_left()) else {
            if let Some(reply) = poll_arrived_reply(reply.as_mut()).await {
                return Some(reply);
            }
            if !deadlines.expire() {
                let waited_ms = u64::try_from(Monotonic::now().since(began).as_millis()).ok();
                let ReplyWait { extra_ticks, tick_count, late_count, .. } = waiting;
                tracing::debug!(
                    waited_ms,
                    ticks = tick_count,
                    late = late_count,
                    extra = extra_ticks,
                    "no reply from Redis in time"
                );
                return None;
            }
            continue;
        };
        let tick_began = Monotonic::now();
        tokio::select! {
            biased;
            reply = reply.as_mut() => return Some(reply),
            () = tokio::time::sleep(length) => {}
        }
        let now = Monotonic::now();
        deadlines.observe(now);
        waiting.record_tick(now.since(tick_began));
    }
}

/// Lets the runtime poll its sockets, and the connection read from them, a few times.
async fn poll_arrived_reply<T>(mut reply: Pin<&mut impl Future<Output = T>>) -> Option<T> {
    for _ in 0..READ_ATTEMPTS_MAX {
        tokio::task::yield_now().await;
        let polled = poll_fn(|context| Poll::Ready(reply.as_mut().poll(context))).await;
        if let Poll::Ready(reply) = polled {
            return Some(reply);
        }
    }
    None
}

/// The deadline of a single caller.
struct SingleDeadline {
    run_time: RunTime,
    time_left: Duration,
    timeout: Duration,
}

impl Deadlines for SingleDeadline {
    fn observe(&mut self, now: Monotonic) {
        self.time_left = self.timeout.saturating_sub(self.run_time.observe(now));
    }

    fn time_left(&self) -> Duration {
        self.time_left
    }

    fn expire(&mut self) -> bool {
        false
    }
}

/// Waits for a reply for at most `timeout`. Returns `None` if it took longer.
pub async fn wait_with_timeout<T>(timeout: Duration, reply: impl Future<Output = T>) -> Option<T> {
    let run_time = RunTime::new(Monotonic::now());
    let mut deadline = SingleDeadline { run_time, time_left: timeout, timeout };
    wait(pin!(reply), &mut deadline).await
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn run_time_counts_no_pause_when_observed_often() {
        let mut run_time = RunTime::new(Monotonic::from_ms(100));
        let mut observe = |ms| run_time.observe(Monotonic::from_ms(ms));

        assert_eq!(observe(103), 3 * MS);
        assert_eq!(observe(105), 5 * MS);
        assert_eq!(observe(1_005), 7 * MS);
        assert_eq!(observe(1_004), 7 * MS);
        assert_eq!(observe(1_006), 8 * MS, "no time is counted twice");
    }

    #[test]
    fn reply_is_late_when_the_budget_is_used_up_and_the_process_runs() {
        let mut waiting = ReplyWait::new();
        assert_eq!(waiting.next_tick(40 * MS), Some(2 * MS));
        assert_eq!(waiting.next_tick(MS / 2), Some(MS));
        waiting.record_tick(5 * MS);

        assert_eq!(waiting.next_tick(Duration::ZERO), None);
    }

    #[test]
    fn reply_is_late_only_after_four_ticks_on_time_when_the_process_was_paused() {
        let mut waiting = ReplyWait::new();
        waiting.record_tick(900 * MS);
        for _ in 0..4 {
            assert_eq!(waiting.next_tick(Duration::ZERO), Some(MS));
            waiting.record_tick(2 * MS);
        }
        assert_eq!(waiting.next_tick(Duration::ZERO), None);
    }

    #[test]
    fn reply_is_late_after_24_ticks_when_the_process_hardly_runs() {
        let mut waiting = ReplyWait::new();
        waiting.record_tick(900 * MS);
        for _ in 0..24 {
            assert!(waiting.next_tick(Duration::ZERO).is_some());
            waiting.record_tick(6 * MS);
        }
        assert_eq!(waiting.next_tick(Duration::ZERO), None);
    }

    #[tokio::test]
    async fn wait_with_timeout_returns_none_when_no_reply_arrives() {
        let began = Monotonic::now();

        assert_eq!(wait_with_timeout(40 * MS, std::future::pending::<()>()).await, None);

        assert!(Monotonic::now().since(began) >= 40 * MS);
    }

    /// The runtime's only thread is blocked for longer than the budget several times.
    #[tokio::test]
    async fn wait_with_timeout_returns_reply_when_process_is_paused() {
        let (send, reply) = tokio::sync::oneshot::channel();
        tokio::spawn(async move {
            for _ in 0..4 {
                std::thread::sleep(60 * MS);
                tokio::time::sleep(MS).await;
            }
            let _ = send.send(7);
        });

        assert_eq!(wait_with_timeout(40 * MS, reply).await, Some(Ok(7)));
    }

    /// It is awaited until the process has run for a while, so that a reply that arrived during the pause can be read.
    #[tokio::test]
    async fn wait_with_timeout_returns_reply_when_a_pause_has_used_up_the_budget() {
        let (send, reply) = tokio::sync::oneshot::channel();
        tokio::spawn(async move {
            std::thread::sleep(60 * MS);
            tokio::time::sleep(MS).await;
            let _ = send.send(7);
        });

        assert_eq!(wait_with_timeout(MS, reply).await, Some(Ok(7)));
    }

    #[tokio::test]
    async fn wait_with_timeout_returns_reply_when_it_has_arrived_and_no_time_is_left() {
        let (send, reply) = tokio::sync::oneshot::channel();
        tokio::spawn(async move { send.send(7) });

        assert_eq!(wait_with_timeout(Duration::ZERO, reply).await, Some(Ok(7)));
    }
}

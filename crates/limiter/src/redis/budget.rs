//! Implements the time budget of a call, which counts only time in which this process ran.
//!
//! A process that is stopped, throttled or descheduled cannot read a reply, so the time that passes says nothing about
//! Redis. A wait is divided into short ticks, and a tick that ends late counts as one that ends on time.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::task::Poll;
use std::time::Duration;

use foundation::clock::Stopwatch;
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
    stopwatch: Stopwatch,
    observed_at: Duration,
    run_time_total: Duration,
}

impl RunTime {
    pub fn new() -> Self {
        Self {
            stopwatch: Stopwatch::new(),
            observed_at: Duration::ZERO,
            run_time_total: Duration::ZERO,
        }
    }

    /// Returns the time in which this process ran since this was created. If the time between two observations is
    /// longer than [`TICK_MAX`], it counts as one [`TICK`], so a waiting caller must observe more often.
    pub fn observe(&mut self) -> Duration {
        self.advance_to(self.stopwatch.elapsed())
    }

    fn advance_to(&mut self, now: Duration) -> Duration {
        let step = now.saturating_sub(self.observed_at);
        let is_late = step > TICK_MAX && !Safeguard::RunTime.is_disabled();
        self.run_time_total += if is_late { TICK } else { step };
        self.observed_at = now;
        self.run_time_total
    }
}

/// The deadlines of one or more callers that wait for the same reply.
pub trait Deadlines {
    /// Updates how much time has passed.
    fn observe(&mut self);
    /// Returns the time left to the first of the callers that still wait.
    fn time_left(&self) -> Duration;
    /// Times out the callers whose deadline has passed. Returns whether any caller still waits.
    fn expire(&mut self) -> bool;
}

/// Waits for a reply while any caller waits for it. A reply that has arrived by the time a deadline is noticed counts.
/// Returns `None` when no caller waits any longer; the reply can still be awaited then.
pub async fn wait<T>(
    mut reply: Pin<&mut impl Future<Output = T>>,
    deadlines: &mut impl Deadlines,
) -> Option<T> {
    // The process is assumed to be scheduled until a tick ends late.
    let (mut in_time, mut extra) = (ON_TIME_TICKS_MIN, 0);
    let (watch, mut ticks, mut late) = (Stopwatch::new(), 0, 0);
    loop {
        let left = deadlines.time_left();
        if left.is_zero() && (in_time >= ON_TIME_TICKS_MIN || extra >= EXTRA_TICKS_MAX) {
            if let Some(reply) = poll_arrived_reply(reply.as_mut()).await {
                return Some(reply);
            }
            if !deadlines.expire() {
                let waited_ms = watch.elapsed_ms();
                tracing::debug!(waited_ms, ticks, late, extra, "no reply from Redis in time");
                return None;
            }
            continue;
        }
        extra += usize::from(left.is_zero());
        let (tick, length) = (Stopwatch::new(), TICK.min(left.max(Duration::from_millis(1))));
        tokio::select! {
            biased;
            reply = reply.as_mut() => return Some(reply),
            () = tokio::time::sleep(length) => {}
        }
        deadlines.observe();
        let is_late = tick.elapsed() > TICK_MAX && !Safeguard::RunTime.is_disabled();
        in_time = if is_late { 0 } else { in_time + 1 };
        (ticks, late) = (ticks + 1, late + usize::from(is_late));
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
    fn observe(&mut self) {
        self.time_left = self.timeout.saturating_sub(self.run_time.observe());
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
    let mut deadline = SingleDeadline { run_time: RunTime::new(), time_left: timeout, timeout };
    wait(pin!(reply), &mut deadline).await
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn run_time_counts_no_pause_when_observed_often() {
        let mut run_time = RunTime::new();

        assert_eq!(run_time.advance_to(3 * MS), 3 * MS);
        assert_eq!(run_time.advance_to(5 * MS), 5 * MS);
        assert_eq!(run_time.advance_to(905 * MS), 7 * MS);
        assert_eq!(run_time.advance_to(904 * MS), 7 * MS);
    }

    #[tokio::test]
    async fn wait_with_timeout_returns_none_when_no_reply_arrives() {
        let watch = Stopwatch::new();

        assert_eq!(wait_with_timeout(40 * MS, std::future::pending::<()>()).await, None);

        assert!(watch.elapsed() >= 40 * MS);
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
}

//! The time budget of a call, which counts only time in which this process ran.
//!
//! A process that is stopped, throttled or kept off the processor cannot read a reply, so the time that passes meanwhile
//! says nothing about Redis. A wait is cut into short ticks, and a tick that ends late counts as one that does not.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::task::Poll;
use std::time::Duration;

use foundation::clock::Stopwatch;
use foundation::fault_injection::Safeguard;

/// How long a wait lasts until the time is read again.
const TICK: Duration = Duration::from_millis(2);
/// How long a tick takes at most on a processor that is there. The runtime's timers are up to a millisecond late.
const TICK_MAX: Duration = Duration::from_millis(5);
/// How often the connection gets a turn to read a reply that has arrived, before the reply counts as late.
const TURNS: usize = 8;
/// How many ticks in a row must have ended in time before a reply counts as late.
const TICKS_IN_TIME: usize = 4;
/// How many ticks beyond the budget are waited for that.
const EXTRA_TICKS_MAX: usize = 24;

/// Counts the time in which this process ran, as far as it can be observed.
pub struct RunTime {
    watch: Stopwatch,
    observed: Duration,
    total: Duration,
}

impl RunTime {
    pub fn new() -> Self {
        Self { watch: Stopwatch::new(), observed: Duration::ZERO, total: Duration::ZERO }
    }

    /// Returns the time in which this process ran since this was created. Of the time between two observations counts a
    /// [`TICK`] where it is longer than [`TICK_MAX`], so whoever waits must observe more often.
    pub fn observe(&mut self) -> Duration {
        self.advance_to(self.watch.elapsed())
    }

    fn advance_to(&mut self, now: Duration) -> Duration {
        let step = now.saturating_sub(self.observed);
        let is_late = step > TICK_MAX && !Safeguard::RunTime.is_disabled();
        self.total += if is_late { TICK } else { step };
        self.observed = now;
        self.total
    }
}

/// One or more callers that wait for the same reply.
pub trait Deadlines {
    /// Looks how much time has passed.
    fn observe(&mut self);
    /// Returns the time that was left to the first of those who still wait.
    fn left(&self) -> Duration;
    /// Sends those away whose time was over. Returns whether anyone still waits.
    fn expire(&mut self) -> bool;
}

/// Waits for a reply while anyone waits for it. A reply that has arrived when a deadline is noticed counts. Returns
/// `None` when nobody waits any more; the reply can still be awaited then.
pub async fn wait<T>(
    mut reply: Pin<&mut impl Future<Output = T>>,
    deadlines: &mut impl Deadlines,
) -> Option<T> {
    // At first nothing speaks against the processor.
    let (mut in_time, mut extra) = (TICKS_IN_TIME, 0);
    let (watch, mut ticks, mut late) = (Stopwatch::new(), 0, 0);
    loop {
        let left = deadlines.left();
        if left.is_zero() && (in_time >= TICKS_IN_TIME || extra >= EXTRA_TICKS_MAX) {
            if let Some(reply) = read_arrived(reply.as_mut()).await {
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

/// Lets the runtime look at its sockets, and the connection read from them, a few times.
async fn read_arrived<T>(mut reply: Pin<&mut impl Future<Output = T>>) -> Option<T> {
    for _ in 0..TURNS {
        tokio::task::yield_now().await;
        let polled = poll_fn(|context| Poll::Ready(reply.as_mut().poll(context))).await;
        if let Poll::Ready(reply) = polled {
            return Some(reply);
        }
    }
    None
}

/// One caller.
struct Deadline {
    run_time: RunTime,
    left: Duration,
    timeout: Duration,
}

impl Deadlines for Deadline {
    fn observe(&mut self) {
        self.left = self.timeout.saturating_sub(self.run_time.observe());
    }

    fn left(&self) -> Duration {
        self.left
    }

    fn expire(&mut self) -> bool {
        false
    }
}

/// Waits for a reply for so long at most; `None`: it took longer.
pub async fn within<T>(timeout: Duration, reply: impl Future<Output = T>) -> Option<T> {
    let mut deadline = Deadline { run_time: RunTime::new(), left: timeout, timeout };
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
    async fn within_returns_nothing_when_no_reply_arrives() {
        let watch = Stopwatch::new();

        assert_eq!(within(40 * MS, std::future::pending::<()>()).await, None);

        assert!(watch.elapsed() >= 40 * MS);
    }

    /// The runtime's only thread is kept busy for longer than the budget, again and again.
    #[tokio::test]
    async fn within_returns_reply_when_process_is_paused() {
        let (send, reply) = tokio::sync::oneshot::channel();
        tokio::spawn(async move {
            for _ in 0..4 {
                std::thread::sleep(60 * MS);
                tokio::time::sleep(MS).await;
            }
            let _ = send.send(7);
        });

        assert_eq!(within(40 * MS, reply).await, Some(Ok(7)));
    }
}

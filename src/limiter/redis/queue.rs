//! Takes that wait for Redis share a script: what comes while two scripts are under way gathers, and
//! all of it goes in the next one. Alone, a take waits for nobody; in a crowd, Redis runs a tenth of
//! the scripts.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::oneshot;

use redis::cluster_routing::Slot;

use super::super::{Take, Taken};
use crate::clock::{Stopwatch, Timestamp};
use crate::error::Result;

/// How many scripts are under way at most. With one, the way to Redis and back is idle time; more
/// than two only make the batches smaller.
pub const WORKERS_MAX: usize = 2;
/// The same for a cluster, where only what belongs together shares a script.
pub const CLUSTER_WORKERS_MAX: usize = 64;
/// How many keys a script touches at most, unless a single take has more: Redis does nothing else
/// meanwhile, and this many take it about a quarter of a millisecond.
const KEYS_MAX: usize = 64;

/// A take that waits.
pub struct Asked {
    pub take: Take,
    pub now: Option<Timestamp>,
    /// The slot of a cluster that it belongs to.
    pub slot: Option<Slot>,
    /// When it was asked, by [`Queue::now`].
    pub since: Duration,
    pub answer: oneshot::Sender<Result<Taken>>,
}

impl Asked {
    fn keys(&self) -> usize {
        self.take.windows.len() + usize::from(self.take.spend.is_some())
    }

    /// Whether both may go in one script. What fills a purse goes alone, because it is
    /// not sent again when the connection breaks.
    fn joins(&self, other: &Self) -> bool {
        self.now == other.now
            && self.slot == other.slot
            && !self.take.fills()
            && !other.take.fills()
    }
}

pub struct Queue {
    watch: Stopwatch,
    workers_max: usize,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    waiting: VecDeque<Asked>,
    workers: usize,
}

/// The right to run batches, until there is none to run.
pub struct Worker(Option<Arc<Queue>>);

impl Queue {
    /// A queue that so many workers serve at most.
    pub fn new(workers_max: usize) -> Arc<Self> {
        Arc::new(Self { watch: Stopwatch::new(), workers_max, state: Mutex::default() })
    }

    /// The time since the queue was made.
    pub fn now(&self) -> Duration {
        self.watch.elapsed()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a take. A worker is returned where too few are at work; it must run batches until there
    /// is none.
    pub fn add(self: &Arc<Self>, asked: Asked) -> Option<Worker> {
        let mut state = self.lock();
        state.waiting.push_back(asked);
        if state.workers == self.workers_max {
            return None;
        }
        state.workers += 1;
        Some(Worker(Some(self.clone())))
    }
}

impl Worker {
    /// How long a take has waited.
    pub fn waited(&self, asked: &Asked) -> Duration {
        self.0.as_ref().map_or(Duration::ZERO, |queue| queue.now().saturating_sub(asked.since))
    }

    /// What to run next, in the order in which it was asked; nothing: the worker is done. Who has
    /// stopped waiting is left out, and so takes nothing.
    pub fn next(&mut self) -> Option<Vec<Asked>> {
        let queue = self.0.take()?;
        let mut state = queue.lock();
        let mut batch: Vec<Asked> = Vec::with_capacity(state.waiting.len().min(KEYS_MAX));
        let mut keys = 0;
        while let Some(asked) = state.waiting.front() {
            keys += asked.keys();
            if batch.first().is_some_and(|first| keys > KEYS_MAX || !first.joins(asked)) {
                break;
            }
            batch.extend(state.waiting.pop_front().filter(|asked| !asked.answer.is_closed()));
        }
        if batch.is_empty() {
            // Under the same lock that found nothing to do: nobody adds to a worker that has gone.
            state.workers -= 1;
            return None;
        }
        drop(state);
        self.0 = Some(queue);
        Some(batch)
    }
}

impl Drop for Worker {
    /// A worker that did not come to its end: who waits is sent away, lest nobody comes for them.
    fn drop(&mut self) {
        if let Some(queue) = &self.0 {
            let mut state = queue.lock();
            state.workers -= 1;
            state.waiting.clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::{Fill, Spend, Window};
    use super::*;

    type Answered = oneshot::Receiver<Result<Taken>>;

    fn asked(windows: usize, put: i64, now: Option<Timestamp>) -> (Asked, Answered) {
        let window = |n| Window::new(format!("w{n}"), 10, 1000, 1);
        let ends = Timestamp(i64::MAX);
        let fill = Fill { life: 1, opens: true, base: 0, block: put, bank: 0, ends };
        let spend = Spend { purse: "p".into(), cost: 1, fill: (put > 0).then_some(fill) };
        let take = Take { windows: (0..windows).map(window).collect(), spend: Some(spend) };
        let (answer, answered) = oneshot::channel();
        (Asked { take, now, slot: None, since: Duration::ZERO, answer }, answered)
    }

    fn sizes(queue: &Arc<Queue>, all: Vec<Asked>) -> Vec<usize> {
        let mut workers: Vec<_> = all.into_iter().filter_map(|asked| queue.add(asked)).collect();
        std::iter::from_fn(|| workers[0].next().map(|batch| batch.len())).collect()
    }

    #[test]
    fn what_gathers_goes_together_up_to_the_bound_on_keys() {
        let (all, _answered): (Vec<_>, Vec<_>) = (0..40).map(|_| asked(3, 0, None)).unzip();

        assert_eq!(sizes(&Queue::new(WORKERS_MAX), all), [16, 16, 8]);
    }

    #[test]
    fn a_take_beyond_the_bound_goes_alone() {
        let (all, _answered): (Vec<_>, Vec<_>) =
            [1, 200, 1].map(|windows| asked(windows, 0, None)).into_iter().unzip();

        assert_eq!(sizes(&Queue::new(WORKERS_MAX), all), [1, 1, 1]);
    }

    #[test]
    fn what_fills_a_purse_goes_alone_and_so_does_another_time() {
        let noon = Some(Timestamp(1_000_000));
        let (all, _answered): (Vec<_>, Vec<_>) =
            [(0, None), (0, None), (5, None), (0, None), (0, noon), (0, noon)]
                .map(|(put, now)| asked(1, put, now))
                .into_iter()
                .unzip();

        assert_eq!(sizes(&Queue::new(WORKERS_MAX), all), [2, 1, 1, 2]);
    }

    #[test]
    fn what_belongs_to_different_slots_goes_apart() {
        let slots = [1, 1, 2, 1].map(Slot::new);
        let (all, _answered): (Vec<_>, Vec<_>) = slots
            .map(|slot| {
                let (asked, answered) = asked(1, 0, None);
                (Asked { slot, ..asked }, answered)
            })
            .into_iter()
            .unzip();

        assert_eq!(sizes(&Queue::new(WORKERS_MAX), all), [2, 1, 1]);
    }

    #[test]
    fn who_has_stopped_waiting_is_left_out() {
        let (all, mut answered): (Vec<_>, Vec<_>) = (0..4).map(|_| asked(1, 0, None)).unzip();
        answered.drain(1..3);

        assert_eq!(sizes(&Queue::new(WORKERS_MAX), all), [2]);
    }

    #[test]
    fn two_work_at_most_and_whoever_ends_makes_room() {
        let queue = Queue::new(WORKERS_MAX);
        let (all, _answered): (Vec<_>, Vec<_>) = (0..3).map(|_| asked(1, 0, None)).unzip();
        let mut workers: Vec<_> = all.into_iter().filter_map(|asked| queue.add(asked)).collect();

        assert_eq!(workers.len(), 2);
        assert_eq!(workers[1].next().map(|batch| batch.len()), Some(3));
        assert!(workers[0].next().is_none());
        let (next, _answer) = asked(1, 0, None);
        assert!(queue.add(next).is_some());
    }

    #[test]
    fn who_waits_for_a_worker_that_is_lost_is_sent_away() {
        let queue = Queue::new(WORKERS_MAX);
        let (first, _answer) = asked(1, 0, None);
        let mut worker = queue.add(first).expect("a worker");
        worker.next().expect("a batch");
        let (waiting, mut answer) = asked(1, 0, None);
        let other = queue.add(waiting).expect("a worker");

        drop((worker, other));

        assert!(matches!(answer.try_recv(), Err(oneshot::error::TryRecvError::Closed)));
        let (next, _answer) = asked(1, 0, None);
        assert!(queue.add(next).is_some());
    }
}

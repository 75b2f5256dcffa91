//! Takes that wait for Redis share a script: what comes while two scripts are under way gathers, and
//! all of it goes in the next one. Alone, a take waits for nobody; in a crowd, Redis runs a tenth of
//! the scripts.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use foundation::clock::Timestamp;
use foundation::error::Error;
use redis::cluster_routing::Slot;
use tokio::sync::oneshot;

use super::super::{ConsumeReply, ConsumeRequest};
use super::budget::{Deadlines, RunTime};
use super::connections::timed_out;
use super::outage::{Charge, Unsettled};

/// How many scripts are under way at most. With one, the way to Redis and back is idle time; more
/// than two only make the batches smaller.
pub const WORKERS_MAX: usize = 2;
/// The same for a cluster, where only what belongs together shares a script.
pub const CLUSTER_WORKERS_MAX: usize = 64;
/// How many keys a script touches at most, unless a single take has more: Redis does nothing else
/// meanwhile, and this many take it about a quarter of a millisecond.
const KEYS_MAX: usize = 64;

/// A take that waits.
pub struct PendingRequest {
    pub take: ConsumeRequest,
    pub now: Option<Timestamp>,
    /// The slot of a cluster that it belongs to.
    pub slot: Option<Slot>,
    pub answer: Answer,
}

/// Where a take is answered.
pub type Answer = oneshot::Sender<Result<ConsumeReply, Missed>>;

/// Why a take was not answered by Redis.
#[derive(Debug)]
pub struct Missed {
    pub cause: Error,
    /// Present: Redis may still execute it, and whoever decides instead must tell.
    pub unsettled: Option<Unsettled>,
}

impl From<Error> for Missed {
    fn from(cause: Error) -> Self {
        Self { cause, unsettled: None }
    }
}

impl From<Missed> for Error {
    fn from(missed: Missed) -> Self {
        missed.cause
    }
}

impl PendingRequest {
    fn keys(&self) -> usize {
        self.take.windows.len() + usize::from(self.take.spend.is_some())
    }
}

/// Takes that share a script, and who waits for them.
pub struct Batch {
    pub takes: Vec<ConsumeRequest>,
    pub now: Option<Timestamp>,
    pub callers: Callers,
}

/// Who waits for the takes of a batch, in the order in which they asked. Each has the timeout for itself.
pub struct Callers {
    queue: Arc<ConsumeQueue>,
    timeout: Duration,
    /// [`State::run_time`] when it was last observed.
    run: Duration,
    /// When each asked, by [`State::run_time`], and where to answer.
    all: Vec<(Duration, Option<Answer>)>,
    /// The first one that still waits.
    first: usize,
    /// Those who were sent away: what each decides instead, by the place of the take.
    pub unsettled: Vec<(usize, oneshot::Receiver<Vec<Charge>>)>,
}

impl Callers {
    /// How much time is left to the last of them, in milliseconds.
    pub fn longest_left_ms(&self) -> i64 {
        let last = self.all.last().map_or(Duration::ZERO, |(since, _)| *since + self.timeout);
        i64::try_from(last.saturating_sub(self.run).as_millis()).unwrap_or(i64::MAX)
    }

    /// Answers those who still wait.
    pub fn answer(&mut self, mut answer: impl FnMut(usize) -> Result<ConsumeReply, Missed>) {
        for (place, (_, caller)) in self.all.iter_mut().enumerate().skip(self.first) {
            if let Some(caller) = caller.take() {
                // Who has stopped waiting hears nothing.
                let _ = caller.send(answer(place));
            }
        }
        self.first = self.all.len();
    }

    fn send_away(&mut self, place: usize) {
        let Some(caller) = self.all[place].1.take() else { return };
        let cause = timed_out(self.timeout);
        let (unsettled, decided) = Unsettled::new();
        self.unsettled.push((place, decided));
        let _ = caller.send(Err(Missed { cause, unsettled: Some(unsettled) }));
    }
}

impl Deadlines for Callers {
    fn observe(&mut self) {
        self.run = self.queue.lock().run_time.observe();
    }

    fn left(&self) -> Duration {
        let first = self.all.get(self.first);
        first.map_or(Duration::ZERO, |(since, _)| (*since + self.timeout).saturating_sub(self.run))
    }

    fn expire(&mut self) -> bool {
        while self.all.get(self.first).is_some_and(|(since, _)| *since + self.timeout <= self.run) {
            self.send_away(self.first);
            self.first += 1;
        }
        self.first < self.all.len()
    }
}

pub struct ConsumeQueue {
    workers_max: usize,
    timeout: Duration,
    state: Mutex<State>,
}

struct State {
    /// What waits, and since when.
    waiting: VecDeque<(Duration, PendingRequest)>,
    workers: usize,
    run_time: RunTime,
}

/// The right to run batches, until there is none to run.
pub struct Worker(Option<Arc<ConsumeQueue>>);

impl ConsumeQueue {
    /// A queue that so many workers serve at most, and in which nobody waits longer than the timeout.
    pub fn new(workers_max: usize, timeout: Duration) -> Arc<Self> {
        let (waiting, run_time) = (VecDeque::new(), RunTime::new());
        let state = Mutex::new(State { waiting, workers: 0, run_time });
        Arc::new(Self { workers_max, timeout, state })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a take. A worker is returned where too few are at work; it must run batches until there
    /// is none.
    pub fn add(self: &Arc<Self>, asked: PendingRequest) -> Option<Worker> {
        let mut state = self.lock();
        let since = state.run_time.observe();
        state.waiting.push_back((since, asked));
        if state.workers == self.workers_max {
            return None;
        }
        state.workers += 1;
        Some(Worker(Some(self.clone())))
    }
}

impl Worker {
    /// What to run next, in the order in which it was asked; nothing: the worker is done. Who has
    /// stopped waiting is left out, and so takes nothing.
    pub fn next_batch(&mut self) -> Option<Batch> {
        let queue = self.0.take()?;
        let mut state = queue.lock();
        let capacity = state.waiting.len().min(KEYS_MAX);
        let (mut takes, mut all) = (Vec::with_capacity(capacity), Vec::with_capacity(capacity));
        let (mut keys, mut now, mut slot, mut fills) = (0, None, None, false);
        while let Some((_, asked)) = state.waiting.front() {
            keys += asked.keys();
            // What fills a purse goes alone, because it is not sent again when the connection breaks.
            let joins = (now, slot) == (asked.now, asked.slot) && !fills && !asked.take.fills();
            if !takes.is_empty() && (keys > KEYS_MAX || !joins) {
                break;
            }
            let Some((since, asked)) = state.waiting.pop_front() else { break };
            if asked.answer.is_closed() {
                continue;
            }
            (now, slot, fills) = (asked.now, asked.slot, asked.take.fills());
            takes.push(asked.take);
            all.push((since, Some(asked.answer)));
        }
        if takes.is_empty() {
            // Under the same lock that found nothing to do: nobody adds to a worker that has gone.
            state.workers -= 1;
            return None;
        }
        let run = state.run_time.observe();
        drop(state);
        self.0 = Some(queue.clone());
        let (timeout, unsettled) = (queue.timeout, Vec::new());
        let callers = Callers { queue, timeout, run, all, first: 0, unsettled };
        Some(Batch { takes, now, callers })
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
    use super::super::super::{LeaseSpend, TopUp, Window};
    use super::*;

    type Answered = oneshot::Receiver<Result<ConsumeReply, Missed>>;

    fn asked(windows: usize, put: i64, now: Option<Timestamp>) -> (PendingRequest, Answered) {
        let window = |n| Window::new(format!("w{n}"), 10, 1000, 1);
        let ends = Timestamp(i64::MAX);
        let fill = TopUp {
            life: 1,
            creates_lease: true,
            granted_before: 0,
            block: put,
            bank: 0,
            refill_at: ends,
        };
        let spend = LeaseSpend { purse: "p".into(), cost: 1, fill: (put > 0).then_some(fill) };
        let take =
            ConsumeRequest { windows: (0..windows).map(window).collect(), spend: Some(spend) };
        let (answer, answered) = oneshot::channel();
        (PendingRequest { take, now, slot: None, answer }, answered)
    }

    fn queue() -> Arc<ConsumeQueue> {
        ConsumeQueue::new(WORKERS_MAX, Duration::from_millis(40))
    }

    fn sizes(queue: &Arc<ConsumeQueue>, all: Vec<PendingRequest>) -> Vec<usize> {
        let mut workers: Vec<_> = all.into_iter().filter_map(|asked| queue.add(asked)).collect();
        std::iter::from_fn(|| workers[0].next_batch().map(|batch| batch.takes.len())).collect()
    }

    #[test]
    fn what_gathers_goes_together_up_to_the_bound_on_keys() {
        let (all, _answered): (Vec<_>, Vec<_>) = (0..40).map(|_| asked(3, 0, None)).unzip();

        assert_eq!(sizes(&queue(), all), [16, 16, 8]);
    }

    #[test]
    fn a_take_beyond_the_bound_goes_alone() {
        let (all, _answered): (Vec<_>, Vec<_>) =
            [1, 200, 1].map(|windows| asked(windows, 0, None)).into_iter().unzip();

        assert_eq!(sizes(&queue(), all), [1, 1, 1]);
    }

    #[test]
    fn what_fills_a_purse_goes_alone_and_so_does_another_time() {
        let noon = Some(Timestamp(1_000_000));
        let (all, _answered): (Vec<_>, Vec<_>) =
            [(0, None), (0, None), (5, None), (0, None), (0, noon), (0, noon)]
                .map(|(put, now)| asked(1, put, now))
                .into_iter()
                .unzip();

        assert_eq!(sizes(&queue(), all), [2, 1, 1, 2]);
    }

    #[test]
    fn what_belongs_to_different_slots_goes_apart() {
        let slots = [1, 1, 2, 1].map(Slot::new);
        let (all, _answered): (Vec<_>, Vec<_>) = slots
            .map(|slot| {
                let (asked, answered) = asked(1, 0, None);
                (PendingRequest { slot, ..asked }, answered)
            })
            .into_iter()
            .unzip();

        assert_eq!(sizes(&queue(), all), [2, 1, 1]);
    }

    #[test]
    fn who_has_stopped_waiting_is_left_out() {
        let (all, mut answered): (Vec<_>, Vec<_>) = (0..4).map(|_| asked(1, 0, None)).unzip();
        answered.drain(1..3);

        assert_eq!(sizes(&queue(), all), [2]);
    }

    #[test]
    fn two_work_at_most_and_whoever_ends_makes_room() {
        let queue = queue();
        let (all, _answered): (Vec<_>, Vec<_>) = (0..3).map(|_| asked(1, 0, None)).unzip();
        let mut workers: Vec<_> = all.into_iter().filter_map(|asked| queue.add(asked)).collect();

        assert_eq!(workers.len(), 2);
        assert_eq!(workers[1].next_batch().map(|batch| batch.takes.len()), Some(3));
        assert!(workers[0].next_batch().is_none());
        let (next, _answer) = asked(1, 0, None);
        assert!(queue.add(next).is_some());
    }

    #[test]
    fn who_waits_for_a_worker_that_is_lost_is_sent_away() {
        let queue = queue();
        let (first, _answer) = asked(1, 0, None);
        let mut worker = queue.add(first).expect("a worker");
        worker.next_batch().expect("a batch");
        let (waiting, mut answer) = asked(1, 0, None);
        let other = queue.add(waiting).expect("a worker");

        drop((worker, other));

        assert!(matches!(answer.try_recv(), Err(oneshot::error::TryRecvError::Closed)));
        let (next, _answer) = asked(1, 0, None);
        assert!(queue.add(next).is_some());
    }
}

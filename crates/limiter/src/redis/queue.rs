//! Batches consume requests for Redis: requests that arrive while two scripts are running are sent together in the next
//! one. A single request does not wait for others; under load, Redis runs a tenth of the scripts.

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

/// The maximum number of concurrent scripts. With one, the round trip to Redis is idle time; more than two only make
/// the batches smaller.
pub const WORKERS_MAX: usize = 2;
/// The maximum number of concurrent scripts in a cluster, where only requests for the same slot share a script.
pub const CLUSTER_WORKERS_MAX: usize = 64;
/// The maximum number of keys of a script, unless a single request has more. Redis does nothing else while a script
/// runs; this many keys take about a quarter of a millisecond.
const KEYS_MAX: usize = 64;

/// A consume request that waits for a worker.
pub struct PendingRequest {
    pub take: ConsumeRequest,
    pub now: Option<Timestamp>,
    /// The slot of a cluster that it belongs to.
    pub slot: Option<Slot>,
    pub answer: Answer,
}

/// Sends the reply to the caller of a consume request.
pub type Answer = oneshot::Sender<Result<ConsumeReply, Missed>>;

/// The reason why Redis did not reply to a consume request.
#[derive(Debug)]
pub struct Missed {
    pub cause: Error,
    /// Present if Redis may still execute the request. Code that decides the request instead must report its decision
    /// here.
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

/// Consume requests that share a script, and their callers.
pub struct Batch {
    pub takes: Vec<ConsumeRequest>,
    pub now: Option<Timestamp>,
    pub callers: Callers,
}

/// The callers of a batch, in the order of their requests. Each has the full timeout.
pub struct Callers {
    queue: Arc<ConsumeQueue>,
    timeout: Duration,
    /// [`QueueState::run_time`] when it was last observed.
    run: Duration,
    /// When each caller made its request, by [`QueueState::run_time`], and where to send its reply.
    all: Vec<(Duration, Option<Answer>)>,
    /// The index of the first caller that still waits.
    first: usize,
    /// The callers that timed out: the index of each request, and a receiver of the decision made instead.
    pub unsettled: Vec<(usize, oneshot::Receiver<Vec<Charge>>)>,
}

impl Callers {
    /// Returns the time left to the last caller, in milliseconds.
    pub fn longest_left_ms(&self) -> i64 {
        let last = self.all.last().map_or(Duration::ZERO, |(since, _)| *since + self.timeout);
        i64::try_from(last.saturating_sub(self.run).as_millis()).unwrap_or(i64::MAX)
    }

    /// Replies to the callers that still wait.
    pub fn answer(&mut self, mut reply_for: impl FnMut(usize) -> Result<ConsumeReply, Missed>) {
        for (index, (_, caller)) in self.all.iter_mut().enumerate().skip(self.first) {
            if let Some(caller) = caller.take() {
                // A caller that has stopped waiting receives nothing.
                let _ = caller.send(reply_for(index));
            }
        }
        self.first = self.all.len();
    }

    fn send_away(&mut self, index: usize) {
        let Some(caller) = self.all[index].1.take() else { return };
        let cause = timed_out(self.timeout);
        let (unresolved, decided) = Unsettled::new();
        self.unsettled.push((index, decided));
        let _ = caller.send(Err(Missed { cause, unsettled: Some(unresolved) }));
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
    state: Mutex<QueueState>,
}

struct QueueState {
    /// The waiting requests, and when each was added.
    waiting: VecDeque<(Duration, PendingRequest)>,
    workers: usize,
    run_time: RunTime,
}

/// The right to run batches, until there are none to run.
pub struct Worker(Option<Arc<ConsumeQueue>>);

impl ConsumeQueue {
    /// Creates a queue with at most this many workers. No caller waits longer than the timeout.
    pub fn new(workers_max: usize, timeout: Duration) -> Arc<Self> {
        let (waiting, run_time) = (VecDeque::new(), RunTime::new());
        let state = Mutex::new(QueueState { waiting, workers: 0, run_time });
        Arc::new(Self { workers_max, timeout, state })
    }

    fn lock(&self) -> MutexGuard<'_, QueueState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a request. Returns a worker if too few are running; it must run batches until there are none.
    pub fn add(self: &Arc<Self>, request: PendingRequest) -> Option<Worker> {
        let mut state = self.lock();
        let since = state.run_time.observe();
        state.waiting.push_back((since, request));
        if state.workers == self.workers_max {
            return None;
        }
        state.workers += 1;
        Some(Worker(Some(self.clone())))
    }
}

impl Worker {
    /// Returns the next batch, in the order of the requests. `None` means that the worker is done. The requests of
    /// callers that have stopped waiting are left out, and so consume nothing.
    pub fn next_batch(&mut self) -> Option<Batch> {
        let queue = self.0.take()?;
        let mut state = queue.lock();
        let capacity = state.waiting.len().min(KEYS_MAX);
        let (mut requests, mut callers) =
            (Vec::with_capacity(capacity), Vec::with_capacity(capacity));
        let (mut keys, mut now, mut slot, mut has_top_up) = (0, None, None, false);
        while let Some((_, request)) = state.waiting.front() {
            keys += request.keys();
            // A top-up is sent alone, because it is not sent again when the connection breaks.
            let joins =
                (now, slot) == (request.now, request.slot) && !has_top_up && !request.take.fills();
            if !requests.is_empty() && (keys > KEYS_MAX || !joins) {
                break;
            }
            let Some((since, request)) = state.waiting.pop_front() else { break };
            if request.answer.is_closed() {
                continue;
            }
            (now, slot, has_top_up) = (request.now, request.slot, request.take.fills());
            requests.push(request.take);
            callers.push((since, Some(request.answer)));
        }
        if requests.is_empty() {
            // Under the same lock that found the queue empty, so that no request is added for a worker that has ended.
            state.workers -= 1;
            return None;
        }
        let run = state.run_time.observe();
        drop(state);
        self.0 = Some(queue.clone());
        let (timeout, unresolved) = (queue.timeout, Vec::new());
        let callers =
            Callers { queue, timeout, run, all: callers, first: 0, unsettled: unresolved };
        Some(Batch { takes: requests, now, callers })
    }
}

impl Drop for Worker {
    /// Rejects the waiting requests if the worker did not finish, so that their callers do not wait in vain.
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

    fn asked(
        windows: usize,
        top_up_units: i64,
        now: Option<Timestamp>,
    ) -> (PendingRequest, Answered) {
        let window = |n| Window::new(format!("w{n}"), 10, 1000, 1);
        let refill_at = Timestamp(i64::MAX);
        let top_up = TopUp {
            life: 1,
            creates_lease: true,
            granted_before: 0,
            block: top_up_units,
            bank: 0,
            refill_at,
        };
        let spend =
            LeaseSpend { purse: "p".into(), cost: 1, fill: (top_up_units > 0).then_some(top_up) };
        let request =
            ConsumeRequest { windows: (0..windows).map(window).collect(), spend: Some(spend) };
        let (reply_sender, reply) = oneshot::channel();
        (PendingRequest { take: request, now, slot: None, answer: reply_sender }, reply)
    }

    fn queue() -> Arc<ConsumeQueue> {
        ConsumeQueue::new(WORKERS_MAX, Duration::from_millis(40))
    }

    fn sizes(queue: &Arc<ConsumeQueue>, requests: Vec<PendingRequest>) -> Vec<usize> {
        let mut workers: Vec<_> =
            requests.into_iter().filter_map(|request| queue.add(request)).collect();
        std::iter::from_fn(|| workers[0].next_batch().map(|batch| batch.takes.len())).collect()
    }

    #[test]
    fn next_batch_combines_requests_up_to_maximum_of_keys() {
        let (requests, _replies): (Vec<_>, Vec<_>) = (0..40).map(|_| asked(3, 0, None)).unzip();

        assert_eq!(sizes(&queue(), requests), [16, 16, 8]);
    }

    #[test]
    fn next_batch_holds_one_request_when_it_exceeds_maximum_of_keys() {
        let (requests, _replies): (Vec<_>, Vec<_>) =
            [1, 200, 1].map(|windows| asked(windows, 0, None)).into_iter().unzip();

        assert_eq!(sizes(&queue(), requests), [1, 1, 1]);
    }

    #[test]
    fn next_batch_separates_requests_when_top_up_or_time_differs() {
        let noon = Some(Timestamp(1_000_000));
        let (requests, _replies): (Vec<_>, Vec<_>) =
            [(0, None), (0, None), (5, None), (0, None), (0, noon), (0, noon)]
                .map(|(top_up_units, now)| asked(1, top_up_units, now))
                .into_iter()
                .unzip();

        assert_eq!(sizes(&queue(), requests), [2, 1, 1, 2]);
    }

    #[test]
    fn next_batch_separates_requests_when_slots_differ() {
        let slots = [1, 1, 2, 1].map(Slot::new);
        let (requests, _replies): (Vec<_>, Vec<_>) = slots
            .map(|slot| {
                let (request, reply) = asked(1, 0, None);
                (PendingRequest { slot, ..request }, reply)
            })
            .into_iter()
            .unzip();

        assert_eq!(sizes(&queue(), requests), [2, 1, 1]);
    }

    #[test]
    fn next_batch_skips_request_when_caller_has_stopped_waiting() {
        let (requests, mut replies): (Vec<_>, Vec<_>) = (0..4).map(|_| asked(1, 0, None)).unzip();
        replies.drain(1..3);

        assert_eq!(sizes(&queue(), requests), [2]);
    }

    #[test]
    fn queue_allows_two_workers_at_a_time() {
        let queue = queue();
        let (requests, _replies): (Vec<_>, Vec<_>) = (0..3).map(|_| asked(1, 0, None)).unzip();
        let mut workers: Vec<_> =
            requests.into_iter().filter_map(|request| queue.add(request)).collect();

        assert_eq!(workers.len(), 2);
        assert_eq!(workers[1].next_batch().map(|batch| batch.takes.len()), Some(3));
        assert!(workers[0].next_batch().is_none());
        let (next, _reply) = asked(1, 0, None);
        assert!(queue.add(next).is_some());
    }

    #[test]
    fn waiting_request_fails_when_worker_is_dropped() {
        let queue = queue();
        let (first, _reply) = asked(1, 0, None);
        let mut worker = queue.add(first).expect("a worker");
        worker.next_batch().expect("a batch");
        let (waiting, mut reply) = asked(1, 0, None);
        let other = queue.add(waiting).expect("a worker");

        drop((worker, other));

        assert!(matches!(reply.try_recv(), Err(oneshot::error::TryRecvError::Closed)));
        let (next, _reply) = asked(1, 0, None);
        assert!(queue.add(next).is_some());
    }
}

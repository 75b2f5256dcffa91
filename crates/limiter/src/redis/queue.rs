//! Batches consume requests for Redis: requests that arrive while two scripts are running are sent together in the next
//! one. A single request does not wait for others; under load, Redis runs a tenth of the scripts.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use foundation::clock::{Monotonic, Timestamp};
use foundation::error::Error;
use parking_lot::Mutex;
use redis::cluster_routing::Slot;
use tokio::sync::oneshot;

use super::super::{ConsumeReply, ConsumeRequest};
use super::budget::{Deadlines, RunTime};
use super::errors::timeout_error;
use super::outage::{Charge, UnresolvedRequest};

/// The maximum number of concurrent scripts while Redis is near. With one, the round trip to Redis is idle time; more
/// than two only make the batches smaller.
pub const WORKERS_MAX: usize = 2;
/// The maximum number of keys of a script, unless a single request has more. Redis does nothing else while a script
/// runs; this many keys take about a quarter of a millisecond.
pub const KEYS_MAX: usize = 64;
/// How long after its arrival a request may be executed. Only one of a process that was stopped is older: the home of its
/// windows may have moved since, which every replica knows ten seconds before.
const SEND_MAX: Duration = Duration::from_secs(6);

/// A consume request that waits for a worker.
pub struct PendingRequest {
    pub request: ConsumeRequest,
    pub now: Option<Timestamp>,
    /// The slot of a cluster that it belongs to.
    pub slot: Option<Slot>,
    pub reply_sender: ReplySender,
}

/// Sends the reply to the caller of a consume request.
pub type ReplySender = oneshot::Sender<Result<ConsumeReply, ConsumeError>>;

/// The reason why Redis did not reply to a consume request.
#[derive(Debug)]
pub struct ConsumeError {
    pub cause: Error,
    /// Present if Redis may still execute the request. Code that decides the request instead must report its decision
    /// here.
    pub unresolved: Option<UnresolvedRequest>,
}

impl ConsumeError {
    /// Reports that the request is denied, and returns the cause. If Redis executes it all the same, it is refunded.
    pub fn deny(self) -> Error {
        if let Some(unresolved) = self.unresolved {
            unresolved.resolve(Vec::new());
        }
        self.cause
    }
}

impl From<Error> for ConsumeError {
    fn from(cause: Error) -> Self {
        Self { cause, unresolved: None }
    }
}

impl From<ConsumeError> for Error {
    fn from(missed: ConsumeError) -> Self {
        missed.cause
    }
}

impl PendingRequest {
    fn key_count(&self) -> usize {
        self.request.windows.len() + usize::from(self.request.spend.is_some())
    }
}

/// Consume requests that share a script, and their callers.
pub struct ConsumeBatch {
    pub requests: Vec<ConsumeRequest>,
    pub now: Option<Timestamp>,
    /// It must not be executed after this time.
    pub send_before: Monotonic,
    pub callers: Callers,
}

/// The callers of a batch, in the order of their requests. Each has the full timeout.
pub struct Callers {
    queue: Arc<ConsumeQueue>,
    timeout: Duration,
    /// [`QueueState::run_time`] when it was last observed.
    run_time: Duration,
    /// When each caller made its request, by [`QueueState::run_time`], and where to send its reply.
    callers: Vec<(Duration, Option<ReplySender>)>,
    /// The index of the first caller that still waits.
    first_waiting: usize,
    /// The callers that timed out: the index of each request, and a receiver of the decision made instead.
    pub unresolved: Vec<(usize, oneshot::Receiver<Vec<Charge>>)>,
}

impl Callers {
    /// Returns the time left to the last caller, in milliseconds.
    pub fn longest_time_left_ms(&self) -> i64 {
        let last = self.callers.last().map_or(Duration::ZERO, |(since, _)| *since + self.timeout);
        i64::try_from(last.saturating_sub(self.run_time).as_millis()).unwrap_or(i64::MAX)
    }

    /// Replies to the callers that still wait.
    pub fn send_replies(
        &mut self,
        mut reply_for: impl FnMut(usize) -> Result<ConsumeReply, ConsumeError>,
    ) {
        for (index, (_, caller)) in self.callers.iter_mut().enumerate().skip(self.first_waiting) {
            if let Some(caller) = caller.take() {
                // A caller that has stopped waiting receives nothing.
                let _ = caller.send(reply_for(index));
            }
        }
        self.first_waiting = self.callers.len();
    }

    fn time_out(&mut self, index: usize) {
        let Some(caller) = self.callers[index].1.take() else { return };
        let cause = timeout_error(self.timeout);
        let (unresolved, decided) = UnresolvedRequest::new();
        self.unresolved.push((index, decided));
        let _ = caller.send(Err(ConsumeError { cause, unresolved: Some(unresolved) }));
    }
}

impl Deadlines for Callers {
    fn observe(&mut self, now: Monotonic) {
        self.run_time = self.queue.state.lock().run_time.observe(now);
    }

    fn time_left(&self) -> Duration {
        let first = self.callers.get(self.first_waiting);
        first.map_or(Duration::ZERO, |(since, _)| {
            (*since + self.timeout).saturating_sub(self.run_time)
        })
    }

    fn expire(&mut self) -> bool {
        while self
            .callers
            .get(self.first_waiting)
            .is_some_and(|(since, _)| *since + self.timeout <= self.run_time)
        {
            self.time_out(self.first_waiting);
            self.first_waiting += 1;
        }
        self.first_waiting < self.callers.len()
    }
}

pub struct ConsumeQueue {
    state: Mutex<QueueState>,
}

struct QueueState {
    /// The waiting requests, and when each was added.
    waiting_requests: VecDeque<(Duration, Monotonic, PendingRequest)>,
    worker_count: usize,
    run_time: RunTime,
}

/// The right to run batches, until there are none to run.
pub struct QueueWorker(Option<Arc<ConsumeQueue>>);

impl ConsumeQueue {
    pub fn new(now: Monotonic) -> Arc<Self> {
        let (waiting, run_time) = (VecDeque::new(), RunTime::new(now));
        let state = Mutex::new(QueueState { waiting_requests: waiting, worker_count: 0, run_time });
        Arc::new(Self { state })
    }

    /// Adds a request. Returns a worker if fewer than `workers_max` are running; it must run batches until there are
    /// none.
    pub fn add(
        self: &Arc<Self>,
        request: PendingRequest,
        workers_max: usize,
        now: Monotonic,
    ) -> Option<QueueWorker> {
        let mut state = self.state.lock();
        let since = state.run_time.observe(now);
        state.waiting_requests.push_back((since, now, request));
        if state.worker_count >= workers_max {
            return None;
        }
        state.worker_count += 1;
        Some(QueueWorker(Some(self.clone())))
    }
}

impl QueueWorker {
    /// Returns the next batch, of at most `keys_max` keys unless a single request has more, in the order of the requests.
    /// `None` means that the worker is done. The requests of callers that have stopped waiting are left out, and so consume
    /// nothing. No caller waits longer than `timeout`.
    pub fn next_batch(
        &mut self,
        keys_max: usize,
        timeout: Duration,
        at: Monotonic,
    ) -> Option<ConsumeBatch> {
        let queue = self.0.take()?;
        let mut state = queue.state.lock();
        let capacity = state.waiting_requests.len().min(keys_max);
        let (mut requests, mut callers) =
            (Vec::with_capacity(capacity), Vec::with_capacity(capacity));
        let (mut keys, mut now, mut slot, mut has_top_up) = (0, None, None, false);
        let mut send_before = at;
        while let Some((_, _, request)) = state.waiting_requests.front() {
            keys += request.key_count();
            // Top-ups are sent together, because they are not sent again when the connection breaks.
            let joins = (now, slot, has_top_up)
                == (request.now, request.slot, request.request.has_top_up());
            if !requests.is_empty() && (keys > keys_max || !joins) {
                break;
            }
            let Some((since, added_at, request)) = state.waiting_requests.pop_front() else {
                break;
            };
            if request.reply_sender.is_closed() {
                continue;
            }
            (now, slot, has_top_up) = (request.now, request.slot, request.request.has_top_up());
            if requests.is_empty() {
                send_before = added_at + SEND_MAX;
            }
            requests.push(request.request);
            callers.push((since, Some(request.reply_sender)));
        }
        if requests.is_empty() {
            // Under the same lock that found the queue empty, so that no request is added for a worker that has ended.
            state.worker_count -= 1;
            return None;
        }
        let run = state.run_time.observe(at);
        drop(state);
        self.0 = Some(queue.clone());
        let unresolved = Vec::new();
        let callers =
            Callers { queue, timeout, run_time: run, callers, first_waiting: 0, unresolved };
        Some(ConsumeBatch { requests, now, send_before, callers })
    }
}

impl Drop for QueueWorker {
    /// Rejects the waiting requests if the worker did not finish, so that their callers do not wait in vain.
    fn drop(&mut self) {
        if let Some(queue) = &self.0 {
            let mut state = queue.state.lock();
            state.worker_count -= 1;
            state.waiting_requests.clear();
        }
    }
}

#[cfg(test)]
mod tests;

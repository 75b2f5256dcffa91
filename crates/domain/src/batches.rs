//! Questions to the database that many callers ask at once, and that one statement can answer for all of them.
//!
//! A statement, and a commit even more, costs the database about the same for one row as for many. A few tasks ask at the same
//! time, so a question that comes alone waits for nothing. Those that come while several are being answered share the next
//! statement, and the tasks divide them only if they are many: the more callers there are, the fewer statements each of them costs.
//!
//! While a question waits, a task runs that will take it: the first question starts one, and the last one ends only when none
//! waits.

use std::sync::Arc;
use std::time::Duration;

use foundation::clock::Monotonic;
use foundation::error::{Error, Result};
use parking_lot::Mutex;
use tokio::sync::oneshot;

/// The maximum number of questions that are answered together.
const BATCH_MAX: usize = 256;
/// The number of questions in hand from which those that wait share the next statement.
const IN_HAND_MIN: usize = 2;
/// The number of those that wait from which another task takes them nevertheless, while the database is near.
const WAITING_MIN: usize = 24;
/// The time that a question waits for the statement of others, which may never return. Then another task takes it.
const WAIT_MAX: Duration = Duration::from_millis(30);

/// How many tasks answer questions at the same time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BatchLimits {
    runners_max: usize,
    waiting_min: usize,
}

impl BatchLimits {
    /// Returns the limits for a database that is near. It is busy with each statement, so few questions are not divided.
    pub fn near(runners_max: usize) -> Self {
        Self { runners_max, waiting_min: WAITING_MIN }
    }

    /// Returns the limits for a database that is far away. A statement mostly waits for the network, so no question waits for
    /// the statement of others.
    pub fn far(runners_max: usize) -> Self {
        Self { runners_max, waiting_min: 1 }
    }
}

/// The questions of a process that wait.
pub struct BatchQueue<Q, A>(Arc<Mutex<State<Q, A>>>);

/// A question, and the channel for its answer.
pub struct BatchRequest<Q, A> {
    pub question: Q,
    asked_at: Monotonic,
    reply_sender: oneshot::Sender<Result<A>>,
}

/// A task that answers questions until none waits, or few for which another task will be free soon. If it is dropped before that,
/// those that wait fail, so that their callers do not wait in vain.
pub struct BatchRunner<Q, A> {
    /// `None` when it has ended.
    queue: Option<Arc<Mutex<State<Q, A>>>>,
    /// The number of questions of its last batch.
    in_hand: usize,
}

struct State<Q, A> {
    waiting: Vec<BatchRequest<Q, A>>,
    runners: usize,
    /// The number of questions that all runners have in hand.
    in_hand: usize,
    /// See [`BatchLimits`], as of the last question.
    waiting_min: usize,
}

impl<Q, A> State<Q, A> {
    /// Returns whether the questions that wait are worth a runner beside those that have questions in hand.
    fn is_worth_a_runner(&self, now: Monotonic) -> bool {
        let longest_wait = self.waiting.first().map(|request| now.since(request.asked_at));
        self.in_hand < IN_HAND_MIN
            || self.waiting.len() >= self.waiting_min
            || longest_wait.is_some_and(|wait| wait >= WAIT_MAX)
    }
}

impl<Q, A> Clone for BatchQueue<Q, A> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<Q, A> Default for BatchQueue<Q, A> {
    fn default() -> Self {
        let waiting = Vec::new();
        let state = State { waiting, runners: 0, in_hand: 0, waiting_min: WAITING_MIN };
        Self(Arc::new(Mutex::new(state)))
    }
}

impl<Q, A> BatchQueue<Q, A> {
    /// Asks a question and waits for the answer. `run` is called if another task must be started, within the limits.
    pub async fn ask(
        &self,
        question: Q,
        limits: BatchLimits,
        run: impl FnOnce(BatchRunner<Q, A>),
    ) -> Result<A> {
        let (reply_sender, reply) = oneshot::channel();
        let runner =
            self.add(BatchRequest { question, asked_at: Monotonic::now(), reply_sender }, limits);
        if let Some(runner) = runner {
            run(runner);
        }
        let failed = || Error::Internal("a batch of questions to the database has ended".into());
        reply.await.unwrap_or_else(|_| Err(failed()))
    }

    fn add(&self, request: BatchRequest<Q, A>, limits: BatchLimits) -> Option<BatchRunner<Q, A>> {
        let mut state = self.0.lock();
        let now = request.asked_at;
        state.waiting.push(request);
        state.waiting_min = limits.waiting_min;
        let is_another_needed = state.runners < limits.runners_max && state.is_worth_a_runner(now);
        if state.runners > 0 && !is_another_needed {
            return None;
        }
        state.runners += 1;
        Some(BatchRunner { queue: Some(self.0.clone()), in_hand: 0 })
    }
}

impl<Q, A> BatchRequest<Q, A> {
    /// Returns whether the caller has stopped waiting.
    pub fn is_abandoned(&self) -> bool {
        self.reply_sender.is_closed()
    }

    pub fn reply(self, answer: Result<A>) {
        // The caller may have stopped waiting.
        let _ = self.reply_sender.send(answer);
    }
}

impl<Q, A> BatchRunner<Q, A> {
    /// Returns the questions that have waited longest, without those whose callers have stopped waiting. `None` means that the
    /// task must end.
    pub fn next_batch(&mut self) -> Option<Vec<BatchRequest<Q, A>>> {
        let queue = self.queue.as_ref()?;
        let mut state = queue.lock();
        state.in_hand -= self.in_hand;
        self.in_hand = 0;
        state.waiting.retain(|request| !request.is_abandoned());
        let is_needed = state.runners == 1 || state.is_worth_a_runner(Monotonic::now());
        if state.waiting.is_empty() || !is_needed {
            // Under the same lock, so that no question is added for a task that has ended.
            state.runners -= 1;
            drop(state);
            self.queue = None;
            return None;
        }
        let count = state.waiting.len().min(BATCH_MAX);
        state.in_hand += count;
        self.in_hand = count;
        Some(state.waiting.drain(..count).collect())
    }

    /// Fails every question of a batch. If the database cannot be reached, those that have waited meanwhile need not find out by
    /// themselves.
    pub fn reject(&self, mut batch: Vec<BatchRequest<Q, A>>, cause: Error) {
        if let Some(queue) = self.queue.as_ref().filter(|_| cause.is_outage()) {
            batch.append(&mut queue.lock().waiting);
        }
        let cause = Arc::new(cause);
        for request in batch {
            request.reply(Err(Error::Shared(cause.clone())));
        }
    }
}

impl<Q, A> Drop for BatchRunner<Q, A> {
    fn drop(&mut self) {
        if let Some(queue) = &self.queue {
            let mut state = queue.lock();
            state.runners -= 1;
            state.in_hand -= self.in_hand;
            state.waiting.clear();
        }
    }
}

#[cfg(test)]
mod tests;

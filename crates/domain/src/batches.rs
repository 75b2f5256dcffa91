//! Questions to the database that many callers ask at once, and that one statement can answer for all of them.
//!
//! A statement, and a commit even more, costs the database about the same for one row as for many. A few tasks ask at the same
//! time, so a question that comes alone waits for nothing. Those that come meanwhile share the next statement: the more callers
//! there are, the fewer statements each of them costs.

use std::sync::Arc;

use foundation::error::{Error, Result};
use parking_lot::Mutex;
use tokio::sync::oneshot;

/// The maximum number of questions that are answered together.
const BATCH_MAX: usize = 256;

/// The questions of a process that wait.
pub struct BatchQueue<Q, A>(Arc<Mutex<State<Q, A>>>);

/// A question, and the channel for its answer.
pub struct BatchRequest<Q, A> {
    pub question: Q,
    reply_sender: oneshot::Sender<Result<A>>,
}

/// A task that answers questions until none waits. If it is dropped before that, those that wait fail, so that their callers do
/// not wait in vain.
pub struct BatchRunner<Q, A>(Option<Arc<Mutex<State<Q, A>>>>);

struct State<Q, A> {
    waiting: Vec<BatchRequest<Q, A>>,
    runners: usize,
}

impl<Q, A> Clone for BatchQueue<Q, A> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<Q, A> Default for BatchQueue<Q, A> {
    fn default() -> Self {
        Self(Arc::new(Mutex::new(State { waiting: Vec::new(), runners: 0 })))
    }
}

impl<Q, A> BatchQueue<Q, A> {
    /// Asks a question and waits for the answer. If fewer than `runners_max` tasks answer questions, `run` is called to start
    /// another one.
    pub async fn ask(
        &self,
        question: Q,
        runners_max: usize,
        run: impl FnOnce(BatchRunner<Q, A>),
    ) -> Result<A> {
        let (reply_sender, reply) = oneshot::channel();
        let runner = self.add(BatchRequest { question, reply_sender }, runners_max);
        if let Some(runner) = runner {
            run(runner);
        }
        let failed = || Error::Internal("a batch of questions to the database has ended".into());
        reply.await.unwrap_or_else(|_| Err(failed()))
    }

    fn add(&self, request: BatchRequest<Q, A>, runners_max: usize) -> Option<BatchRunner<Q, A>> {
        let mut state = self.0.lock();
        state.waiting.push(request);
        if state.runners == runners_max {
            return None;
        }
        state.runners += 1;
        Some(BatchRunner(Some(self.0.clone())))
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
        let queue = self.0.as_ref()?;
        let mut state = queue.lock();
        state.waiting.retain(|request| !request.is_abandoned());
        if state.waiting.is_empty() {
            // Under the same lock, so that no question is added for a task that has ended.
            state.runners -= 1;
            drop(state);
            self.0 = None;
            return None;
        }
        let count = state.waiting.len().min(BATCH_MAX);
        Some(state.waiting.drain(..count).collect())
    }

    /// Fails every question of a batch. If the database cannot be reached, those that have waited meanwhile need not find out by
    /// themselves.
    pub fn reject(&self, mut batch: Vec<BatchRequest<Q, A>>, cause: Error) {
        if let Some(queue) = self.0.as_ref().filter(|_| cause.is_outage()) {
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
        if let Some(queue) = &self.0 {
            let mut state = queue.lock();
            state.runners -= 1;
            state.waiting.clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Queue = BatchQueue<usize, ()>;

    fn add(
        queue: &Queue,
        question: usize,
    ) -> (Option<BatchRunner<usize, ()>>, oneshot::Receiver<Result<()>>) {
        let (reply_sender, reply) = oneshot::channel();
        (queue.add(BatchRequest { question, reply_sender }, 2), reply)
    }

    fn next_questions(runner: &mut BatchRunner<usize, ()>) -> Option<Vec<usize>> {
        Some(runner.next_batch()?.into_iter().map(|request| request.question).collect())
    }

    #[test]
    fn two_callers_start_runners_and_others_wait_for_them() {
        let queue = Queue::default();
        let (runners, _replies): (Vec<_>, Vec<_>) =
            (0..300).map(|question| add(&queue, question)).unzip();

        let mut runners: Vec<_> = runners.into_iter().flatten().collect();

        assert_eq!(runners.len(), 2);
        let batches: Vec<_> =
            [0, 1, 0, 1].map(|number| next_questions(&mut runners[number])).into();
        let (first, rest) = ((0..BATCH_MAX).collect(), (BATCH_MAX..300).collect());
        assert_eq!(batches, [Some(first), Some(rest), None, None]);
        assert!(add(&queue, 300).0.is_some(), "both have ended");
    }

    #[test]
    fn waiting_questions_fail_when_a_runner_is_dropped() {
        let queue = Queue::default();
        let (runner, _reply) = add(&queue, 0);
        let mut runner = runner.expect("a runner");
        assert_eq!(next_questions(&mut runner), Some(vec![0]));
        let (other_runner, mut reply) = add(&queue, 1);

        drop(runner);

        assert!(matches!(reply.try_recv(), Err(oneshot::error::TryRecvError::Closed)));
        assert_eq!(queue.0.lock().runners, 1, "the one of the second caller");
        drop(other_runner);
        assert_eq!(queue.0.lock().runners, 0);
    }

    #[test]
    fn batch_leaves_out_callers_that_have_stopped_waiting() {
        let queue = Queue::default();
        let (mut runners, mut replies): (Vec<_>, Vec<_>) =
            (0..4).map(|question| add(&queue, question)).unzip();
        replies.drain(1..3);

        assert_eq!(next_questions(runners[0].as_mut().expect("a runner")), Some(vec![0, 3]));
    }

    #[test]
    fn outage_rejects_those_that_wait_too_and_another_failure_does_not() {
        for (cause, waits) in
            [(Error::StoreNotReady, false), (Error::Internal("test".into()), true)]
        {
            let queue = Queue::default();
            let (runner, mut reply) = add(&queue, 0);
            let mut runner = runner.expect("a runner");
            let batch = runner.next_batch().expect("a batch");
            let (_other_runner, mut other_reply) = add(&queue, 1);

            runner.reject(batch, cause);

            assert!(matches!(reply.try_recv(), Ok(Err(Error::Shared(_)))));
            assert_eq!(other_reply.try_recv().is_err(), waits);
        }
    }
}

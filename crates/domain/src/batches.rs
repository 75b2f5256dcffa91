//! Questions to the database that many callers ask at once, and that one statement can answer for all of them.
//!
//! A statement, and a commit even more, costs the database about the same for one row as for many. A few tasks ask at the same
//! time, so a question that comes alone waits for nothing. Those that come while several are being answered share the next
//! statement, and the tasks divide them only if they are many: the more callers there are, the fewer statements each of them costs.
//!
//! While a question waits, a task runs that will take it: the first question starts one, and the last one ends only when none
//! waits.

use std::sync::Arc;
use std::time::{Duration, Instant};

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
    asked_at: Instant,
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
    fn is_worth_a_runner(&self) -> bool {
        let longest_wait = self.waiting.first().map(|request| request.asked_at.elapsed());
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
            self.add(BatchRequest { question, asked_at: Instant::now(), reply_sender }, limits);
        if let Some(runner) = runner {
            run(runner);
        }
        let failed = || Error::Internal("a batch of questions to the database has ended".into());
        reply.await.unwrap_or_else(|_| Err(failed()))
    }

    fn add(&self, request: BatchRequest<Q, A>, limits: BatchLimits) -> Option<BatchRunner<Q, A>> {
        let mut state = self.0.lock();
        state.waiting.push(request);
        state.waiting_min = limits.waiting_min;
        let is_another_needed = state.runners < limits.runners_max && state.is_worth_a_runner();
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
        let is_needed = state.runners == 1 || state.is_worth_a_runner();
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
mod tests {
    use super::*;

    type Queue = BatchQueue<usize, ()>;

    type Runner = BatchRunner<usize, ()>;
    type Reply = oneshot::Receiver<Result<()>>;

    fn add(queue: &Queue, question: usize) -> (Option<Runner>, Reply) {
        add_with(queue, question, BatchLimits::near(2))
    }

    fn add_with(queue: &Queue, question: usize, limits: BatchLimits) -> (Option<Runner>, Reply) {
        let (reply_sender, reply) = oneshot::channel();
        // In the future, so that no question has waited long, however slowly the test runs.
        let asked_at = Instant::now() + Duration::from_secs(3_600);
        (queue.add(BatchRequest { question, asked_at, reply_sender }, limits), reply)
    }

    /// Returns the only runner of a queue, which has this many questions in hand.
    fn runner_with(queue: &Queue, count: usize) -> Runner {
        let (runners, _replies): (Vec<_>, Vec<_>) =
            (0..count).map(|question| add(queue, question)).unzip();
        let mut runners: Vec<_> = runners.into_iter().flatten().collect();
        let mut runner = runners.remove(0);
        assert_eq!(next_questions(&mut runner), Some((0..count).collect()));
        assert!(runners.iter_mut().all(|other| next_questions(other).is_none()));
        runner
    }

    fn next_questions(runner: &mut Runner) -> Option<Vec<usize>> {
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

    #[test]
    fn questions_wait_for_a_batch_in_hand_until_they_are_many() {
        let queue = Queue::default();
        let mut first = runner_with(&queue, IN_HAND_MIN);
        let (runners, _replies): (Vec<_>, Vec<_>) =
            (1..WAITING_MIN).map(|question| add(&queue, question)).unzip();
        assert!(runners.iter().all(Option::is_none));

        let (second, _reply) = add(&queue, WAITING_MIN);

        let mut second = second.expect("a runner");
        assert_eq!(next_questions(&mut second), Some((1..=WAITING_MIN).collect()));
        let (none, _reply) = add(&queue, 0);
        assert!(none.is_none());
        assert_eq!(next_questions(&mut first), None, "the other one takes the question");
        assert_eq!(next_questions(&mut second), Some(vec![0]));
        assert_eq!(next_questions(&mut second), None);
    }

    #[test]
    fn question_that_has_waited_long_does_not_wait_for_a_statement_that_hangs() {
        let queue = Queue::default();
        let _hanging = runner_with(&queue, IN_HAND_MIN);
        let (none, _reply) = add(&queue, 1);
        assert!(none.is_none());
        let long_ago = Instant::now().checked_sub(WAIT_MAX);
        queue.0.lock().waiting[0].asked_at =
            long_ago.expect("a time after the start of the machine");

        let (runner, _other_reply) = add(&queue, 2);

        let mut runner = runner.expect("a runner");
        assert_eq!(next_questions(&mut runner), Some(vec![1, 2]));
    }

    #[test]
    fn runner_takes_few_questions_when_the_other_one_has_a_single_one_in_hand() {
        let queue = Queue::default();
        let mut first = runner_with(&queue, 1);
        let (second, _reply) = add(&queue, 1);
        let mut second = second.expect("a runner");
        assert_eq!(next_questions(&mut second), Some(vec![1]));
        let (none, _reply) = add(&queue, 2);

        assert!(none.is_none(), "two are running");
        assert_eq!(next_questions(&mut first), Some(vec![2]));
    }

    #[test]
    fn questions_do_not_wait_for_a_batch_in_hand_when_the_database_is_far_away() {
        let queue = Queue::default();
        let first = runner_with(&queue, IN_HAND_MIN);
        let add = |question| add_with(&queue, question, BatchLimits::far(3));

        let ((second, _reply), (third, _other_reply)) = (add(1), add(2));
        let (fourth, _last_reply) = add(3);

        let (second, third) = (second.expect("a runner"), third.expect("a runner"));
        assert!(fourth.is_none(), "three are running");
        let mut runners = [second, first, third];
        let batches = runners.each_mut().map(next_questions);
        assert_eq!(batches, [Some(vec![1, 2, 3]), None, None]);
    }

    /// Does the work of a runner once, and removes it when it has ended.
    fn advance(runners: &mut Vec<Runner>, number: usize) {
        if let Some(runner) = runners.get_mut(number)
            && runner.next_batch().is_none()
        {
            drop(runners.remove(number));
        }
    }

    /// Tries all orders of what may happen: a question is asked, either runner takes its next batch, or one is dropped.
    #[test]
    fn questions_that_wait_have_a_runner_in_every_order_of_events() {
        const EVENTS: u32 = 8;
        let limits = BatchLimits { runners_max: 2, waiting_min: 3 };
        for order in 0..4_usize.pow(EVENTS) {
            let (queue, mut runners, mut replies) = (Queue::default(), Vec::new(), Vec::new());
            for number in 0..EVENTS {
                match order / 4_usize.pow(number) % 4 {
                    0 => {
                        let (runner, reply) = add_with(&queue, 0, limits);
                        runners.extend(runner);
                        replies.push(reply);
                    }
                    1 => advance(&mut runners, 0),
                    2 => advance(&mut runners, 1),
                    _ => drop(runners.pop()),
                }
                let state = queue.0.lock();
                let in_hand: usize = runners.iter().map(|runner| runner.in_hand).sum();
                assert_eq!((state.runners, state.in_hand), (runners.len(), in_hand), "{order}");
                assert!(state.waiting.is_empty() || state.runners > 0, "{order}");
            }

            while !runners.is_empty() {
                advance(&mut runners, 0);
            }

            assert_eq!(queue.0.lock().waiting.len(), 0, "{order}");
            let is_closed = |reply: &mut Reply| {
                matches!(reply.try_recv(), Err(oneshot::error::TryRecvError::Closed))
            };
            assert!(replies.iter_mut().all(is_closed), "{order}");
        }
    }
}

//! Tests the queue of questions.

use super::*;

type Queue = BatchQueue<usize, ()>;

type Runner = BatchRunner<usize, ()>;
type Reply = oneshot::Receiver<Result<()>>;

fn add(queue: &Queue, question: usize) -> (Option<Runner>, Reply) {
    add_with(queue, question, BatchLimits::near(2))
}

fn add_with(queue: &Queue, question: usize, limits: BatchLimits) -> (Option<Runner>, Reply) {
    add_at(queue, question, limits, LATER)
}

/// A time to come, so that no question has waited long, however slowly the test runs.
const LATER: Monotonic = Monotonic::from_ms(1_000_000_000);

fn add_at(
    queue: &Queue,
    question: usize,
    limits: BatchLimits,
    asked_at: Monotonic,
) -> (Option<Runner>, Reply) {
    let (reply_sender, reply) = oneshot::channel();
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
    let batches: Vec<_> = [0, 1, 0, 1].map(|number| next_questions(&mut runners[number])).into();
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
    for (cause, waits) in [(Error::StoreNotReady, false), (Error::Internal("test".into()), true)] {
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
    let add_after = |question, wait| add_at(&queue, question, BatchLimits::near(2), LATER + wait);
    let (none, _other_reply) = add_after(2, WAIT_MAX.saturating_sub(Duration::from_millis(1)));
    assert!(none.is_none());

    let (runner, _last_reply) = add_after(3, WAIT_MAX);

    assert!(runner.is_some(), "it takes the questions, although another one has some in hand");
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

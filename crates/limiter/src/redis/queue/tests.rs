//! Tests how requests are combined into batches, and how long their callers wait.

use super::super::super::{LeaseSpend, TopUp, Window};
use super::*;

type ReplyReceiver = oneshot::Receiver<Result<ConsumeReply, ConsumeError>>;

fn pending_request(
    windows: usize,
    top_up_units: i64,
    now: Option<Timestamp>,
) -> (PendingRequest, ReplyReceiver) {
    let window = |n| Window::new(format!("w{n}"), 10, 1000, 1);
    let top_up = TopUp {
        redis_generation: 1,
        creates_lease: true,
        granted_before: 0,
        top_up: top_up_units,
        account_balance: 0,
        refill_at: Timestamp(i64::MAX),
    };
    let spend =
        LeaseSpend { lease: "p".into(), cost: 1, top_up: (top_up_units > 0).then_some(top_up) };
    let request = ConsumeRequest::with_spend((0..windows).map(window).collect(), spend);
    let (reply_sender, reply) = oneshot::channel();
    (PendingRequest { request, now, slot: None, reply_sender }, reply)
}

const TIMEOUT: Duration = Duration::from_millis(40);

fn queue() -> Arc<ConsumeQueue> {
    ConsumeQueue::new(Monotonic::default())
}

fn add(queue: &Arc<ConsumeQueue>, request: PendingRequest) -> Option<QueueWorker> {
    queue.add(request, WORKERS_MAX, Monotonic::default())
}

fn add_all(queue: &Arc<ConsumeQueue>, requests: Vec<PendingRequest>) -> Vec<QueueWorker> {
    requests.into_iter().filter_map(|request| add(queue, request)).collect()
}

fn batch_sizes(queue: &Arc<ConsumeQueue>, requests: Vec<PendingRequest>) -> Vec<usize> {
    let mut workers = add_all(queue, requests);
    std::iter::from_fn(|| {
        workers[0]
            .next_batch(KEYS_MAX, TIMEOUT, Monotonic::default())
            .map(|batch| batch.requests.len())
    })
    .collect()
}

#[test]
fn next_batch_combines_requests_up_to_maximum_of_keys() {
    let (requests, _replies): (Vec<_>, Vec<_>) =
        (0..40).map(|_| pending_request(3, 0, None)).unzip();

    assert_eq!(batch_sizes(&queue(), requests), [16, 16, 8]);
}

#[test]
fn next_batch_is_larger_when_more_keys_are_allowed() {
    let queue = queue();
    let (requests, _replies): (Vec<_>, Vec<_>) =
        (0..40).map(|_| pending_request(3, 0, None)).unzip();
    let mut workers = add_all(&queue, requests);

    let batch = workers[0].next_batch(100, TIMEOUT, Monotonic::default()).expect("a batch");

    assert_eq!(batch.requests.len(), 25);
}

#[test]
fn next_batch_holds_one_request_when_it_exceeds_maximum_of_keys() {
    let (requests, _replies): (Vec<_>, Vec<_>) =
        [1, 200, 1].map(|windows| pending_request(windows, 0, None)).into_iter().unzip();

    assert_eq!(batch_sizes(&queue(), requests), [1, 1, 1]);
}

#[test]
fn next_batch_separates_requests_when_top_up_or_time_differs() {
    let noon = Some(Timestamp(1_000_000));
    let (requests, _replies): (Vec<_>, Vec<_>) =
        [(0, None), (0, None), (5, None), (7, None), (0, None), (0, noon), (0, noon)]
            .map(|(top_up_units, now)| pending_request(1, top_up_units, now))
            .into_iter()
            .unzip();

    assert_eq!(batch_sizes(&queue(), requests), [2, 2, 1, 2]);
}

#[test]
fn next_batch_separates_requests_when_slots_differ() {
    let slots = [1, 1, 2, 1].map(Slot::new);
    let (requests, _replies): (Vec<_>, Vec<_>) = slots
        .map(|slot| {
            let (request, reply) = pending_request(1, 0, None);
            (PendingRequest { slot, ..request }, reply)
        })
        .into_iter()
        .unzip();

    assert_eq!(batch_sizes(&queue(), requests), [2, 1, 1]);
}

#[test]
fn next_batch_skips_request_when_caller_has_stopped_waiting() {
    let (requests, mut replies): (Vec<_>, Vec<_>) =
        (0..4).map(|_| pending_request(1, 0, None)).unzip();
    replies.drain(1..3);

    assert_eq!(batch_sizes(&queue(), requests), [2]);
}

#[test]
fn queue_allows_two_workers_at_a_time() {
    let queue = queue();
    let (requests, _replies): (Vec<_>, Vec<_>) =
        (0..3).map(|_| pending_request(1, 0, None)).unzip();
    let mut workers = add_all(&queue, requests);

    assert_eq!(workers.len(), 2);
    assert_eq!(
        workers[1]
            .next_batch(KEYS_MAX, TIMEOUT, Monotonic::default())
            .map(|batch| batch.requests.len()),
        Some(3)
    );
    assert!(workers[0].next_batch(KEYS_MAX, TIMEOUT, Monotonic::default()).is_none());
    let (next, _reply) = pending_request(1, 0, None);
    assert!(add(&queue, next).is_some());
}

#[test]
fn waiting_request_fails_when_worker_is_dropped() {
    let queue = queue();
    let (first, _reply) = pending_request(1, 0, None);
    let mut worker = add(&queue, first).expect("a worker");
    worker.next_batch(KEYS_MAX, TIMEOUT, Monotonic::default()).expect("a batch");
    let (waiting, mut reply) = pending_request(1, 0, None);
    let other = add(&queue, waiting).expect("a worker");

    drop((worker, other));

    assert!(matches!(reply.try_recv(), Err(oneshot::error::TryRecvError::Closed)));
    let (next, _reply) = pending_request(1, 0, None);
    assert!(add(&queue, next).is_some());
}

#[test]
fn each_caller_has_the_full_timeout_when_requests_share_a_batch() {
    let queue = queue();
    let ((first, mut first_reply), (second, mut second_reply)) =
        (pending_request(1, 0, None), pending_request(1, 0, None));
    let at = Monotonic::from_ms;
    let mut worker = queue.add(first, WORKERS_MAX, at(0)).expect("a worker");
    for ms in [3, 6, 9] {
        queue.state.lock().run_time.observe(at(ms));
    }
    let _other_worker = queue.add(second, WORKERS_MAX, at(10));
    let mut callers = worker.next_batch(KEYS_MAX, TIMEOUT, at(10)).expect("a batch").callers;
    assert_eq!(callers.time_left(), Duration::from_millis(30));
    assert_eq!(callers.longest_time_left_ms(), 40);

    // The process was paused, which counts as one tick.
    callers.observe(at(5_000));
    assert_eq!(callers.time_left(), Duration::from_millis(28));
    for ms in (5_002..=5_028).step_by(2) {
        callers.observe(at(ms));
    }
    assert!(callers.expire(), "the second caller still waits");
    assert!(first_reply.try_recv().is_ok_and(|reply| reply.is_err()));
    assert_eq!(callers.time_left(), Duration::from_millis(10));

    // A late reply reaches the caller that waits, and the other one is reconciled.
    callers.send_replies(|_| Err(Error::RedisBreakerOpen.into()));
    assert!(second_reply.try_recv().is_ok());
    assert_eq!(callers.unresolved.iter().map(|(index, _)| *index).collect::<Vec<_>>(), [0]);
}

#[test]
fn batch_may_be_executed_for_six_seconds_from_its_first_request() {
    let queue = queue();
    let (old, _reply) = pending_request(1, 0, None);
    let (new, _other_reply) = pending_request(1, 0, None);
    let at = Monotonic::from_ms;
    let mut worker = queue.add(old, WORKERS_MAX, at(100)).expect("a worker");
    let _other_worker = queue.add(new, WORKERS_MAX, at(5_000));

    let batch = worker.next_batch(KEYS_MAX, TIMEOUT, at(5_000)).expect("a batch");

    assert_eq!((batch.requests.len(), batch.send_before), (2, at(6_100)));
}

#[test]
fn no_caller_waits_any_longer_when_all_have_timed_out() {
    let queue = queue();
    let (requests, mut replies): (Vec<_>, Vec<_>) =
        (0..2).map(|_| pending_request(1, 0, None)).unzip();
    let mut workers = add_all(&queue, requests);
    let batch = workers[0].next_batch(KEYS_MAX, TIMEOUT, Monotonic::default());
    let mut callers = batch.expect("a batch").callers;
    assert!(callers.expire(), "both wait");

    for ms in (4..=40).step_by(4) {
        callers.observe(Monotonic::from_ms(ms));
    }

    assert!(!callers.expire());
    assert_eq!((callers.time_left(), callers.longest_time_left_ms()), (Duration::ZERO, 0));
    for reply in &mut replies {
        let Ok(Err(missed)) = reply.try_recv() else { panic!("a timeout") };
        assert!(matches!(missed.cause, Error::RedisTimeout(40)) && missed.unresolved.is_some());
    }
}

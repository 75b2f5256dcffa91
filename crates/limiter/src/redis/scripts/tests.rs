//! Tests how many scripts run, how large they are and until when, without a Redis.

use tokio::sync::oneshot;

use super::super::super::{GroupChange, LeaseSpend, Window};
use super::super::queue::{ConsumeQueue, PendingRequest};
use super::super::tests::{add_charge, counters, is_charging, silent_counters};
use super::*;

#[test]
fn counters_tell_whether_sentinel_names_their_primary() {
    assert!(counters("redis-sentinel://127.0.0.1:1/counters").has_sentinel());
    assert!(!counters("redis://127.0.0.1:1").has_sentinel());
}

#[test]
fn more_and_larger_scripts_are_under_way_when_redis_is_farther() {
    for (round_trip_ms, workers, keys, timeout_ms) in [
        (0, 2, 64, 40),
        (6, 2, 64, 40),
        (9, 3, 64, 40),
        (20, 6, 80, 80),
        (60, 20, 240, 240),
        (500, 32, 256, 1_000),
    ] {
        let counters = counters("redis://127.0.0.1:1");
        assert_eq!((counters.round_trip(), counters.consumer.workers_max()), (None, 2));
        let (runner, round_trip) = (&counters.script_runner, Duration::from_millis(round_trip_ms));

        runner.connections.distance().record(round_trip, Monotonic::default());

        assert_eq!(counters.round_trip(), Some(round_trip));
        assert_eq!(counters.timeout(), Duration::from_millis(timeout_ms), "{round_trip:?}");
        let allowed = (counters.consumer.workers_max(), runner.keys_max());
        assert_eq!(allowed, (workers, keys), "{round_trip:?}");
    }
    let cluster = counters("redis-cluster://127.0.0.1:1");
    assert_eq!(cluster.consumer.workers_max(), 64);
}

#[test]
fn script_is_valid_while_its_callers_wait_and_two_seconds_longer_unless_it_spends_credits() {
    let windows = ConsumeRequest::of_windows(vec![Window::new("w", 10, 1_000, 1)]);
    let spend = LeaseSpend { lease: "p".into(), cost: 1, top_up: None };
    let spend = ConsumeRequest::with_spend(Vec::new(), spend);
    let (plain, spending) = ([windows.clone()], [windows, spend]);
    let validity = |requests: &[ConsumeRequest], sent_ms| {
        validity_ms(requests, 40, Monotonic::from_ms(sent_ms), Monotonic::from_ms(6_100))
    };

    assert_eq!(validity(&spending, 100), Some(40));
    assert_eq!(validity(&plain, 100), Some(2_040));
    // It is not valid any more six seconds after its first request was made.
    assert_eq!(validity(&plain, 4_060), Some(2_040));
    assert_eq!(validity(&plain, 4_061), Some(2_039));
    assert_eq!(validity(&spending, 6_099), Some(1));
    assert_eq!(validity(&plain, 6_100), None);
}

#[tokio::test]
async fn charges_are_sent_only_when_they_are_due_and_the_circuit_breaker_is_closed() {
    let counters = counters("redis://127.0.0.1:1");
    let runner = &counters.script_runner;
    assert!(runner.send_due_charges().is_none(), "none is due");
    add_charge(&counters);
    assert!(runner.send_due_charges().is_some());

    let has_opened = (0..4).any(|_| runner.breaker.record_failure(Monotonic::default()));

    assert!(has_opened && runner.outage_windows.is_charge_due());
    assert!(runner.send_due_charges().is_none(), "they wait for the probe");
}

#[tokio::test]
async fn due_charges_are_sent_when_redis_has_replied_and_not_when_it_has_failed() {
    let reply = ConsumeReply {
        is_admitted: true,
        windows: Vec::new(),
        lease: None,
        group_change: GroupChange::None,
        regional: None,
    };
    for (outcome, is_sent) in [(Ok(vec![reply]), true), (Err(Error::RedisBreakerOpen), false)] {
        let (_server, counters) = silent_counters();
        add_charge(&counters);
        let (queue, now) = (ConsumeQueue::new(Monotonic::default()), Monotonic::default());
        let (reply_sender, _caller) = oneshot::channel();
        let request = ConsumeRequest::default();
        let request = PendingRequest { request, now: None, slot: None, reply_sender };
        let mut worker = queue.add(request, 1, now).expect("a worker");
        let batch = worker.next_batch(1, Duration::from_secs(1), now).expect("a batch");

        counters.script_runner.send_replies(&batch.requests, batch.callers, outcome);

        assert_eq!(is_charging(&counters).await, is_sent);
    }
}

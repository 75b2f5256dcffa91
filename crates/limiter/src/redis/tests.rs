//! Tests where requests are sent, without a Redis.

use std::net::TcpListener;

use foundation::config::RedisTls;

use super::super::{Away, GrantTerms, Moves, Placement, RegionIndex, WindowHome};
use super::*;

/// Returns counters whose Redis does not reply, unless a server listens there.
pub fn counters(url: &str) -> RedisCounters {
    let address = RedisAddress::new(url, &RedisTls::default());
    let timeout = Duration::from_millis(40);
    RedisCounters::new(address, timeout, Keyspace::new("t:"), &Metrics::default())
        .expect("a valid URL")
}

/// Returns counters whose Redis accepts connections and never replies.
pub fn silent_counters() -> (TcpListener, RedisCounters) {
    let server = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = server.local_addr().expect("an address");
    (server, counters(&format!("redis://{address}")))
}

/// Makes a charge due.
pub fn add_charge(counters: &RedisCounters) {
    let charge = Charge { key: "w".into(), window_number: 1, duration_ms: 1_000, cost: 1 };
    counters.script_runner.outage_windows.add_charges(vec![charge]);
}

/// Returns whether charges are being sent, once the tasks that are ready have begun.
pub async fn is_charging(counters: &RedisCounters) -> bool {
    for _ in 0..3 {
        tokio::task::yield_now().await;
    }
    counters.script_runner.outage_windows.try_start_charging().is_none()
}

#[tokio::test]
async fn request_for_nothing_is_admitted_by_a_cluster_without_a_call() {
    let counters = counters("redis-cluster://127.0.0.1:1");

    let reply = counters.consume(&ConsumeRequest::default(), None).await;

    assert!(reply.expect("no call fails").is_admitted);
}

/// Returns a window that is counted here since its home has moved.
fn moved_window() -> Window {
    let away = Arc::new(Away { home: RegionIndex(1), lease: "a".into() });
    let before = WindowHome { first_window: 0, away: Some(away) };
    let homes = vec![before, WindowHome { first_window: 10, away: None }];
    let moves = Some(Arc::new(Moves { homes, begun: "b".into() }));
    let placement = Placement { away: None, moves };
    Window::new("w", 10, 60_000, 1).placed(&placement, || Timestamp(600_000))
}

#[tokio::test]
async fn request_of_another_region_is_decided_here_when_the_home_of_its_window_has_moved() {
    let own = ConsumeRequest::of_windows(vec![moved_window()]);
    let terms = GrantTerms { waiting: 1, least: 1, parts: 6 };
    let from_elsewhere = ConsumeRequest { grant_terms: Some(terms), ..own.clone() };
    // They know no other region.
    let counters = counters("redis://127.0.0.1:1");
    let consume = async |request: &ConsumeRequest| {
        counters.consume(request, None).await.expect_err("no reply").cause
    };

    assert!(matches!(consume(&own).await, Error::Internal(_)));
    assert!(consume(&from_elsewhere).await.is_redis_outage());
}

#[tokio::test]
async fn request_is_not_queued_while_the_circuit_breaker_is_open() {
    let counters = counters("redis://127.0.0.1:1");
    let breaker = &counters.script_runner.breaker;
    assert!((0..4).any(|_| breaker.record_failure(Monotonic::default())));

    let missed = counters.consume(&ConsumeRequest::default(), None).await.expect_err("no reply");

    // An error of the queue is shared by all callers of a script.
    assert!(matches!(missed.cause, Error::RedisBreakerOpen), "{missed:?}");
}

#[tokio::test]
async fn charges_that_are_due_are_sent_to_every_region() {
    for is_adjusted in [false, true] {
        let ((_own_server, own), (_other_server, other)) = (silent_counters(), silent_counters());
        let other = Arc::new(other);
        let own = own.with_regions(vec![None, Some(other.clone())], &Metrics::default());
        add_charge(&other);

        match is_adjusted {
            true => own.adjust(Vec::new()).await,
            false => {
                add_charge(&own);
                own.send_due_charges();
            }
        }

        assert!(is_charging(&other).await);
        assert_eq!(is_charging(&own).await, !is_adjusted, "none is due here");
    }
}

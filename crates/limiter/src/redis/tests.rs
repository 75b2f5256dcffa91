//! Tests where requests are sent, without a Redis.

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

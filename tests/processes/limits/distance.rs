//! Tests a replica that is far away from Redis.

use super::*;
use crate::proxy::LinkState;

/// A quarter of a round trip between continents, and at most half of one with this proxy.
const ONE_WAY: Duration = Duration::from_millis(40);

#[test]
fn limit_is_exact_and_never_degraded_when_a_replica_is_far_from_redis() {
    let _turn = acquire_turn();
    let mut stack = start_stack(1);
    let proxy = Proxy::to(SocketAddr::from(([127, 0, 0, 1], stack.redis.port)));
    proxy.set(LinkState::Slow(ONE_WAY), LinkState::Slow(ONE_WAY));
    stack.start_replica(&format!("redis://{}", proxy.address));
    std::thread::sleep(DISCOVERY_TIME);

    let replies = stack.exhaust("far", 2_000, Duration::from_millis(2), || {});

    assert_eq!(replies, Replies { admitted: 2_000, degraded: 0 });
    let (status, metrics) = get(stack.replicas[1].address, "/metrics").unwrap();
    assert_eq!(status, 200);
    let distance = "keyward_redis_round_trip_seconds ";
    let line = metrics.lines().find_map(|line| line.strip_prefix(distance)).expect(distance);
    let seconds: f64 = line.parse().unwrap();
    assert!((0.08..0.2).contains(&seconds), "{line}");
}

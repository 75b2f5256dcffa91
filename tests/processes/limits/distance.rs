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

    // In a round in which the machine pauses Redis, which a probe notices too, replies may be degraded.
    let is_exact = (0..6).any(|round| {
        let rest = Duration::from_millis(2 + 3 * round);
        let (replies, slowest) = with_redis_probe(&stack.redis, || {
            stack.exhaust(&format!("far-{round}"), 2_000, rest, || {})
        });
        match replies.degraded {
            0 => assert_eq!(replies.admitted, 2_000),
            _ => assert!(slowest > PROMPT_REPLY_MAX, "{replies:?} {slowest:?}"),
        }
        replies.degraded == 0
    });
    assert!(is_exact, "no round was decided by Redis alone");
    let (status, metrics) = get(stack.replicas[1].address, "/metrics").unwrap();
    assert_eq!(status, 200);
    let distance = "keyward_redis_round_trip_seconds ";
    let line = metrics.lines().find_map(|line| line.strip_prefix(distance)).expect(distance);
    let seconds: f64 = line.parse().unwrap();
    assert!((0.08..0.2).contains(&seconds), "{line}");
}

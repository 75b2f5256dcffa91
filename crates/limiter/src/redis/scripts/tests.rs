//! Tests how many scripts run and how large they are, without a Redis.

use foundation::config::RedisTls;
use foundation::metrics::Metrics;

use super::super::super::Keyspace;
use super::super::{RedisAddress, RedisCounters};
use super::*;

fn counters(url: &str) -> RedisCounters {
    let address = RedisAddress::new(url, &RedisTls::default());
    let timeout = Duration::from_millis(40);
    RedisCounters::new(address, timeout, Keyspace::new("t:"), &Metrics::default())
        .expect("a valid URL")
}

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

//! Tests what becomes of costs that were admitted without Redis when so few requests arrive that no circuit breaker opens.

use super::outages::{LONG, consume, counters_at, decide, wait_until, window};
use super::*;
use crate::servers::Redis;

#[tokio::test]
async fn admissions_are_kept_when_few_requests_find_redis_unreachable() {
    for hangs in [false, true] {
        let (mut server, metrics) = (Redis::start(), Metrics::default());
        let counters = counters_at(server.port, Duration::from_millis(40), &metrics);
        let window = window("requests", 1);
        assert_eq!(consume(&counters, &window).await.unwrap(), 0);

        if hangs {
            server.signal("STOP");
        } else {
            server.kill();
        }
        let missed = consume(&counters, &window).await.unwrap_err();
        assert!(decide(&counters, &window, true, missed.unresolved));
        for _ in 0..30 {
            counters.send_due_charges();
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        assert!(!counters.is_breaker_open());
        if hangs {
            server.signal("CONT");
        } else {
            server.restart();
        }

        let other = counters_at(server.port, LONG, &Metrics::default());
        let expected = if hangs { 2 } else { 1 };
        wait_until("the admission is charged", async || {
            counters.send_due_charges();
            consume(&other, &window.to_peek()).await.is_ok_and(|count| count == expected)
        })
        .await;
        assert_eq!(metrics.local_costs_dropped.get(), 0, "hangs: {hangs}");
    }
}

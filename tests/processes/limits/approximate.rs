//! Tests that approximate limits are exact on one replica.

use super::*;
use crate::support::process::get;

#[test]
fn approximate_limit_is_exact_on_one_replica_when_first_burst_is_concurrent() {
    let _turn = acquire_turn();
    let stack = start_stack(1);
    let address = stack.replicas[0].address;
    stack.warm_up("burst", 50);

    let mut exact = 0;
    for round in 0..20 {
        let request = json!({
            "namespace": "exact", "identifier": format!("burst-{round}"), "limit": 50,
            "duration": 86_400_000, "async": true
        });
        let degraded = degraded_responses(address);
        let admitted = admitted_in_burst(address, &request);
        if degraded_responses(address) == degraded {
            assert_eq!(admitted, 50, "round {round}");
            exact += 1;
        }
    }
    assert!(exact >= 5, "{exact} of 20 rounds were decided with Redis");
}

#[test]
fn approximate_limit_is_exact_on_one_replica_when_redis_stops_replying() {
    let _turn = acquire_turn();
    let stack = start_stack(1);
    let mut client = Client::new(stack.replicas[0].address);
    for round in 0..3 {
        let request = json!({
            "namespace": "exact", "identifier": format!("stop-{round}"), "limit": 50,
            "duration": 86_400_000, "async": true
        });
        let mut ask = || {
            let reply = client.post("/v1/ratelimits.limit", ROOT_KEY, &request).expect("a reply");
            let body: Value = serde_json::from_str(&reply.body).unwrap();
            usize::from(body["success"] == true)
        };
        let mut admitted = ask();

        // Until the known window is too old, memory decides; then the share of this replica.
        stack.redis.signal("STOP");
        let stopped = Stopwatch::new();
        while stopped.elapsed() < Duration::from_secs(1) {
            admitted += ask();
        }
        stack.redis.signal("CONT");
        loop {
            let degraded = degraded_responses(stack.replicas[0].address);
            admitted += ask();
            if degraded_responses(stack.replicas[0].address) == degraded {
                break;
            }
            assert!(stopped.elapsed() < Duration::from_secs(5), "Redis is not called again");
        }

        assert_eq!(admitted, 50, "round {round}");
    }
}

/// Returns how many responses a replica has given without Redis.
fn degraded_responses(address: SocketAddr) -> String {
    let (_, metrics) = get(address, "/metrics").unwrap();
    let name = "keyward_degraded_answers_total{policy=\"local\"}";
    metrics.lines().find(|line| line.starts_with(name)).expect("the metric").to_owned()
}

/// Returns how many of the requests of 64 callers that start concurrently are admitted.
fn admitted_in_burst(address: SocketAddr, request: &Value) -> usize {
    let call = || {
        let mut client = Client::new(address);
        let ask = |_: &usize| {
            let reply = client.post("/v1/ratelimits.limit", ROOT_KEY, request).expect("a reply");
            assert_eq!(reply.status, 200, "{}", reply.body);
            let body: Value = serde_json::from_str(&reply.body).unwrap();
            body["success"] == true
        };
        (0..4).filter(ask).count()
    };
    std::thread::scope(|scope| {
        let callers: Vec<_> = (0..64).map(|_| scope.spawn(call)).collect();
        callers.into_iter().map(|caller| caller.join().expect("a caller")).sum()
    })
}

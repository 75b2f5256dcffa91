//! Tests requests whose replies arrive after they were decided without Redis.

use super::*;
use crate::faults::count_valid;
use crate::proxy::LinkState;

#[test]
fn denied_request_is_refunded_when_its_reply_is_late() {
    let _turn = acquire_turn();
    let (database, redis) = (database(), Redis::start());
    let proxy = Proxy::to(SocketAddr::from(([127, 0, 0, 1], redis.port)));
    let mut command = replica_command(&database.url, &format!("redis://{}", proxy.address));
    command.env("KEYWARD_KEYS_ON_OUTAGE", "closed");
    let server = Server::start(command);
    let limit = json!({ "name": "few", "limit": 6, "duration": 86_400_000, "autoApply": true });
    let key = create_key(&server, &json!({ "ratelimits": [limit] }));
    assert_valid(&verify(&server, &key));

    proxy.set(LinkState::Open, LinkState::Hole);
    let (_, denied) = verify(&server, &key);
    proxy.set(LinkState::Open, LinkState::Open);

    assert_eq!(denied["data"]["code"], "RATE_LIMITED", "{denied}");
    let (mut admitted, began) = (1, Stopwatch::new());
    while admitted < 6 {
        admitted += count_valid(&server, &key, 1);
        assert!(began.elapsed() < Duration::from_secs(5), "{admitted} of 6 were admitted");
        std::thread::sleep(Duration::from_millis(10));
    }
    let (_, next) = verify(&server, &key);
    assert_eq!(next["data"]["code"], "RATE_LIMITED", "{next}");
    assert_ne!(next["meta"]["degraded"], true, "{next}");
}

//! Tests that the leases of many keys are debited together.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::*;
use crate::faults::replace_address;
use crate::proxy::{LinkState, Proxy};

#[test]
fn leases_of_many_keys_are_debited_exactly_and_share_transactions() {
    const KEYS: usize = 300;
    const CREDITS: i64 = 1_000;
    const CALLERS: usize = 64;
    let _turn = acquire_turn();
    let (database, redis) = (database(), Redis::start());
    let replicas = replicas(&database, &[&redis]);
    let replica = &replicas[0];
    let keys: Vec<_> = (0..KEYS).map(|_| create_key(replica, CREDITS).1).collect();

    let next = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..CALLERS {
            scope.spawn(|| {
                while let Some(key) = keys.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let answer = verify(replica, key);
                    assert_valid(&answer);
                    assert_eq!(answer.1["data"]["credits"], CREDITS - 1);
                }
            });
        }
    });

    let keys = i64::try_from(KEYS).unwrap();
    assert_eq!(top_ups(&replicas), keys);
    let (leases, balances) =
        ("CAST(SUM(granted) AS BIGINT) FROM purses", "CAST(SUM(credits) AS BIGINT) FROM keys");
    let sum = |what: &str| sql(&database, &format!("SELECT {what}"));
    assert_eq!(sum(leases) + sum(balances), keys * CREDITS);
    let transactions = sum("COUNT(DISTINCT CAST(xmin AS TEXT)) FROM purses");
    assert!(transactions < keys, "no two leases shared a transaction");
}

/// Half of a round trip between continents.
const ONE_WAY: Duration = Duration::from_millis(75);

#[test]
fn leases_are_topped_up_when_the_database_is_far_away() {
    let _turn = acquire_turn();
    let stage = Stage::new();
    let near = stage.replica();
    let (_, address) = replace_address(&stage.database, SocketAddr::from(([127, 0, 0, 1], 0)));
    let link = Proxy::to(address.parse::<SocketAddr>().unwrap());
    let (database_url, _) = replace_address(&stage.database, link.address);
    let far = Server::start(stage.command(&database_url, &stage.redis.url()));
    let create = |_| near.create_key_with(&json!({ "credits": { "remaining": 100 } })).key;
    let keys: Vec<_> = (0..8).map(create).collect();
    link.set(LinkState::Slow(ONE_WAY), LinkState::Slow(ONE_WAY));

    // The second round uses connections that are open.
    for (round, keys) in keys.chunks(4).enumerate() {
        std::thread::scope(|scope| {
            for key in keys {
                scope.spawn(|| {
                    let answer = verify(&far, key);
                    assert_valid(&answer);
                    assert_eq!(answer.1["data"]["credits"], 99, "round {round}");
                });
            }
        });
    }
}

#[test]
fn command_counts_the_credits_of_a_lease_when_redis_is_far_away() {
    let _turn = acquire_turn();
    let stage = Stage::new();
    let near = stage.replica();
    let key = near.create_key_with(&json!({ "credits": { "remaining": 100 } }));
    assert_valid(&verify(&near.server, &key.key));
    let link = Proxy::to(SocketAddr::from(([127, 0, 0, 1], stage.redis.port)));
    link.set(LinkState::Slow(ONE_WAY), LinkState::Slow(ONE_WAY));

    let shown =
        stage.run_with_redis(&format!("redis://{}", link.address), &["key", "get", &key.id]);

    assert_eq!(shown["credits"]["remaining"], 99, "{shown}");
}

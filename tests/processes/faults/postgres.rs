//! Tests replicas whose Postgres becomes unreachable.

use std::sync::atomic::{AtomicBool, Ordering};

use super::*;
use crate::share_turn;
use crate::support::redis_url;

#[test]
fn cached_key_verifies_and_unknown_key_returns_503_when_postgres_is_unreachable() {
    let _turn = share_turn();
    let database = database();
    let (start_proxy, proxy) = start_proxy(&database);
    let server = replica(&start_proxy, &redis_url());
    let (cached, uncached) = (create_key(&server, &limited()), create_key(&server, &json!({})));
    // Until it may rely on announcements: for two seconds it waits for all transactions that ran when it began to read them,
    // including those of other tests, and then for those of its database. Two reads of the change log take one second more.
    std::thread::sleep(Duration::from_millis(3_500));
    assert_valid(&verify(&server, &cached));

    proxy.cut();
    let began = Stopwatch::new();
    while began.elapsed() < Duration::from_secs(7) {
        assert_valid(&verify(&server, &cached));
        std::thread::sleep(Duration::from_millis(200));
    }
    let (status, answer) = verify(&server, &uncached);
    let (change, _) = server.v2(ROOT_KEY, "apis.createApi", &json!({ "name": "payments" }));
    proxy.mend();

    assert_eq!(status, 503, "{answer}");
    assert_eq!(change, 503);
    let began = Stopwatch::new();
    while verify(&server, &uncached).0 != 200 {
        assert!(began.elapsed() < Duration::from_secs(2), "still refused");
    }
}

#[test]
fn connections_are_replaced_when_postgres_vanishes_silently() {
    let _turn = acquire_turn();
    let database = database();
    let (start_proxy, proxy) = start_proxy(&database);
    let server = replica(&start_proxy, &redis_url());
    let cached = create_key(&server, &limited());
    assert_valid(&verify(&server, &cached));
    let create = || server.v2(ROOT_KEY, "apis.createApi", &json!({ "name": "payments" })).0;

    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        // Enough that most connections are in use when they are lost.
        for _ in 0..16 {
            scope.spawn(|| {
                while !is_over.load(Ordering::SeqCst) {
                    create();
                }
            });
        }
        std::thread::sleep(Duration::from_secs(1));
        proxy.swallow();
        proxy.silence();
        std::thread::sleep(Duration::from_secs(8));
        assert_valid(&verify(&server, &cached));
        proxy.mend();
        std::thread::sleep(Duration::from_secs(2));
        is_over.store(true, Ordering::SeqCst);
    });

    let began = Stopwatch::new();
    for _ in 0..40 {
        assert_eq!(create(), 200);
    }
    assert!(began.elapsed() < Duration::from_secs(2), "connections still hang");
    // Background tasks continue as well.
    let (status, lists) = get(server.address, "/metrics").unwrap();
    assert_eq!(status, 200);
    assert!(lists.contains("keyward_database_reachable 1"), "{lists}");
}

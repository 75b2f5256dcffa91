//! Tests with requests to ClickHouse that fail at random: each event counts once, and a tail reads it once.

use analytics::tail::Tail;
use analytics::{clickhouse_delivery, writer};
use proptest::prelude::*;
use serde_json::json;

use super::count;
use super::tail::read_tail;
use crate::support::faulty_proxy::RequestFate;
use crate::support::{Keyward, Stack};

/// Returns random outcomes of a sequence of requests.
fn fates() -> impl Strategy<Value = Vec<RequestFate>> {
    let fate = prop_oneof![
        2 => Just(RequestFate::Answered),
        1 => Just(RequestFate::RequestLost),
        2 => Just(RequestFate::ReplyLost),
        2 => Just(RequestFate::Delayed),
    ];
    prop::collection::vec(fate, 0..6)
}

/// Runs rounds of this many verifications, each with the outcomes of the requests that two replicas then send.
async fn assert_every_event_counts_once(stack: Stack, rounds: &[(usize, Vec<RequestFate>)]) {
    let (kw, wire, _warehouse) = Keyward::start_with_faulty_clickhouse(stack).await;
    let other = kw.replica().await;
    let key = kw.create_key(json!({})).await;
    let mut tail = Tail::start(&kw.app.analytics, None).await.unwrap();
    let (mut verified, mut seen, mut followed) = (0, 0, 0);
    for (many, fates) in rounds {
        for _ in 0..*many {
            kw.verify(&key.key).await.assert_code("VALID");
            verified += 1;
        }
        writer::write_buffered(&kw.app.analytics).await.unwrap();
        wire.set_fates(fates.iter().copied());
        let (_, _) = tokio::join!(
            clickhouse_delivery::deliver(&kw.app.analytics),
            clickhouse_delivery::deliver(&other.app.analytics)
        );
        wire.set_fates([]);
        let now = count(&kw).await;
        assert!(seen <= now && now <= verified, "{seen} were there, now {now} of {verified}");
        seen = now;
        followed += read_tail(&kw, &mut tail).await.len();
        assert_eq!(followed, usize::try_from(seen).unwrap());
    }
    wire.wait_for_delayed().await;
    // Batches that were claimed by a replica that does not reply are claimed by another one.
    kw.clock.advance_ms(120_000);
    clickhouse_delivery::deliver(&kw.app.analytics).await.unwrap();

    assert_eq!(count(&kw).await, verified);
    followed += read_tail(&kw, &mut tail).await.len();
    assert_eq!(followed, usize::try_from(verified).unwrap());
    let waiting = kw
        .app
        .analytics
        .event_store()
        .read_local()
        .await
        .unwrap()
        .count_undelivered()
        .await
        .unwrap();
    assert_eq!(waiting.events, 0);
}

fn test_with_random_faults(stack: Stack, cases: u32) {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let rounds = prop::collection::vec((0..5_usize, fates()), 1..5);
    let config = ProptestConfig { cases, failure_persistence: None, ..ProptestConfig::default() };
    proptest!(config, |(rounds in rounds)| {
        runtime.block_on(assert_every_event_counts_once(stack, &rounds));
    });
}

#[test]
fn events_count_once_when_requests_fail_embedded() {
    test_with_random_faults(Stack::Embedded, 24);
}

#[test]
fn events_count_once_when_requests_fail_replica() {
    test_with_random_faults(Stack::Replica, 12);
}

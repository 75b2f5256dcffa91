//! Tests that a tail follows the events in ClickHouse by their deliveries.

use analytics::recent::RecentVerification;
use analytics::tail::{Tail, TailFilter};
use analytics::{clickhouse_delivery, writer};
use foundation::clock::{HOUR_MS, MINUTE_MS};
use serde_json::json;

use crate::support::seed::IssuedKey;
use crate::support::{Keyward, Stack};

/// Returns the keys of the verifications that have been delivered since the last step.
pub async fn read_tail(kw: &Keyward, tail: &mut Tail) -> Vec<String> {
    let workspace = domain::root_keys::default_workspace();
    let filter = TailFilter::default();
    let step = tail.step::<RecentVerification>(&kw.app.analytics, &workspace, &filter).await;
    let step = step.unwrap();
    assert!(!step.is_truncated);
    step.events.into_iter().map(|event| event.key_id.to_string()).collect()
}

async fn verify(kw: &Keyward, key: &IssuedKey) {
    kw.verify(&key.key).await.assert_code("VALID");
    writer::write_buffered(&kw.app.analytics).await.unwrap();
}

/// Begins deliveries that stay void.
async fn begin_deliveries(kw: &Keyward, count: usize) {
    let mut tx = kw.app.analytics.event_store().begin().await.unwrap();
    for _ in 0..count {
        tx.begin_delivery(kw.clock.now()).await.unwrap();
    }
    tx.commit().await.unwrap();
}

#[tokio::test]
async fn tail_reads_a_delivery_when_it_is_confirmed() {
    for stack in [Stack::Embedded, Stack::Replica] {
        let kw = Keyward::start_with_clickhouse(stack).await;
        let (slow_key, key) = (kw.create_key(json!({})).await, kw.create_key(json!({})).await);
        let mut tail = Tail::start(&kw.app.analytics, None).await.unwrap();
        verify(&kw, &slow_key).await;
        assert!(read_tail(&kw, &mut tail).await.is_empty(), "nothing is delivered yet");
        let now = kw.clock.now();
        let mut tx = kw.app.analytics.event_store().begin().await.unwrap();
        let slow = tx.begin_delivery(now).await.unwrap();
        let batches =
            tx.claim_batches(slow, now, now.plus_ms(3 * HOUR_MS), 10, usize::MAX).await.unwrap();
        tx.commit().await.unwrap();
        let line = batches[0].verifications.replacen('{', &format!("{{\"delivery\":{slow},"), 1);
        let client = &kw.clickhouse.as_ref().unwrap().client;
        client.insert("verifications", line).await.unwrap();

        kw.clock.advance_ms(2 * HOUR_MS);
        verify(&kw, &key).await;
        clickhouse_delivery::deliver(&kw.app.analytics).await.unwrap();
        assert_eq!(read_tail(&kw, &mut tail).await, [key.id]);
        assert!(read_tail(&kw, &mut tail).await.is_empty(), "the other delivery is void");
        let mut tx = kw.app.analytics.event_store().begin().await.unwrap();
        assert!(tx.confirm_delivery(slow, 1).await.unwrap());
        tx.commit().await.unwrap();

        assert_eq!(read_tail(&kw, &mut tail).await, [slow_key.id]);
        assert!(read_tail(&kw, &mut tail).await.is_empty());
    }
}

#[tokio::test]
async fn tail_begins_with_the_delivery_of_the_first_event_since_a_time() {
    let kw = Keyward::start_with_clickhouse(Stack::Embedded).await;
    let keys = [
        kw.create_key(json!({})).await,
        kw.create_key(json!({})).await,
        kw.create_key(json!({})).await,
    ];
    for key in &keys {
        kw.clock.advance_ms(HOUR_MS);
        verify(&kw, key).await;
        clickhouse_delivery::deliver(&kw.app.analytics).await.unwrap();
        // More than one step reads.
        begin_deliveries(&kw, 300).await;
    }
    let now = kw.clock.now();
    let [_, second, third] = keys.map(|key| key.id);

    let since = now.plus_ms(-90 * MINUTE_MS);
    let mut tail = Tail::start(&kw.app.analytics, Some(since)).await.unwrap();
    let mut late_tail = Tail::start(&kw.app.analytics, Some(now)).await.unwrap();
    let mut later_tail = Tail::start(&kw.app.analytics, Some(now.plus_ms(1))).await.unwrap();

    assert_eq!(read_tail(&kw, &mut tail).await, [second]);
    assert_eq!(read_tail(&kw, &mut tail).await, std::slice::from_ref(&third));
    assert!(read_tail(&kw, &mut tail).await.is_empty());
    assert_eq!(read_tail(&kw, &mut late_tail).await, [third]);
    assert!(read_tail(&kw, &mut later_tail).await.is_empty());
}

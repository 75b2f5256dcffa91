//! Tests deliveries that ClickHouse does not receive, rejects, or receives in part.

use std::sync::Arc;

use analytics::{clickhouse_delivery, writer};
use serde_json::json;

use super::count;
use crate::support::faulty_proxy::RequestFate;
use crate::support::{Keyward, NOON, Stack};

#[tokio::test]
async fn verify_succeeds_and_events_are_kept_when_clickhouse_is_unreachable() {
    let url = "http://127.0.0.1:1/nowhere".parse().unwrap();
    let kw = Keyward::start_with(Stack::Embedded, |settings| settings.clickhouse_url = Some(url));
    let kw = kw.await;
    kw.app.analytics.event_store().migrate().await.unwrap();
    let key = kw.create_key(json!({})).await;
    kw.verify(&key.key).await.assert_code("VALID");

    writer::write_buffered(&kw.app.analytics).await.unwrap();
    let refused = clickhouse_delivery::deliver(&kw.app.analytics)
        .await
        .expect_err("ClickHouse is unreachable");
    kw.clock.advance_ms(7_000);
    let _ = clickhouse_delivery::deliver(&kw.app.analytics).await;

    assert!(refused.is_outage(), "{refused}");
    assert!(!refused.to_string().contains("nowhere"), "{refused}");
    assert_eq!(kw.app.context.metrics.events.undelivered_events.get(), 1);
    assert_eq!(kw.app.context.metrics.events.undelivered_seconds.get(), 7);
    let asked = json!({ "query": "SELECT count() FROM key_verifications_v1" });
    kw.v2("analytics.getVerifications", asked).await.assert_error(503, "service_unavailable");
    kw.verify(&key.key).await.assert_code("VALID");
}

#[tokio::test]
async fn rejected_batch_does_not_delay_others() {
    let kw = Arc::new(Keyward::start_with_clickhouse(Stack::Embedded).await);
    let key = kw.create_key(json!({})).await;
    let mut tx = kw.app.analytics.event_store().begin().await.unwrap();
    let parcel = store::outbox::OutboxBatch {
        name: "spoiled".into(),
        events: 1,
        verifications: "{\"time\":\"never\"}\n".into(),
        ..Default::default()
    };
    tx.enqueue_batch(&parcel, NOON).await.unwrap();
    tx.commit().await.unwrap();
    kw.verify(&key.key).await.assert_code("VALID");
    writer::write_buffered(&kw.app.analytics).await.unwrap();

    assert!(clickhouse_delivery::deliver(&kw.app.analytics).await.is_err());
    kw.clock.advance_ms(60_000);
    assert!(clickhouse_delivery::deliver(&kw.app.analytics).await.is_err());
    let _ = clickhouse_delivery::deliver(&kw.app.analytics).await;

    assert_eq!(count(&kw).await, 1);
    assert_eq!(
        kw.app.context.metrics.events.undelivered_events.get(),
        1,
        "the rejected batch is kept"
    );
}

#[tokio::test]
async fn batches_are_sent_one_by_one_when_their_delivery_was_lost() {
    let (kw, wire, _warehouse) = Keyward::start_with_faulty_clickhouse(Stack::Embedded).await;
    let key = kw.create_key(json!({})).await;
    for _ in 0..3 {
        kw.verify(&key.key).await.assert_code("VALID");
        writer::write_buffered(&kw.app.analytics).await.unwrap();
    }
    // The first delivery is lost, and the one after the next, which may have several batches again.
    wire.set_fates([RequestFate::RequestLost, RequestFate::Answered, RequestFate::RequestLost]);

    for _ in 0..2 {
        assert!(clickhouse_delivery::deliver(&kw.app.analytics).await.is_err());
    }

    assert_eq!(count(&kw).await, 1);
}

#[tokio::test]
async fn partial_delivery_does_not_count() {
    let (kw, wire, warehouse) = Keyward::start_with_faulty_clickhouse(Stack::Embedded).await;
    let key = kw.create_key(json!({})).await;
    kw.verify(&key.key).await.assert_code("VALID");
    kw.check_limit("mail", "user_1", json!({})).await.data();
    writer::write_buffered(&kw.app.analytics).await.unwrap();
    wire.set_fates([RequestFate::LastConnection]);

    let failed = clickhouse_delivery::deliver(&kw.app.analytics)
        .await
        .expect_err("the second table is not reached");

    let rows: Vec<(i64,)> =
        warehouse.client.fetch_rows("SELECT delivery FROM verifications", &[]).await.unwrap();
    let delivered = kw.app.analytics.event_store().delivery_snapshot().await.unwrap();
    assert_eq!(rows, [(delivered.last_delivery,)], "{failed}");
    assert_eq!(
        delivered.void_deliveries,
        [delivered.last_delivery],
        "the batch is delivered again, and must not count twice"
    );
}

//! Tests the event buffer between requests and the database: requests do not wait, and every lost event is counted.

use analytics::writer;
use axum::body::Body;
use axum::http::Request;
use serde_json::json;
use store::events::{Aggregate, EventBatch, TotalDelta, TotalKey};

use crate::on_both_stacks;
use crate::support::{Keyward, NOON, Stack};

/// Returns a value of `/metrics`.
pub async fn metric(kw: &Keyward, name: &str) -> u64 {
    let reply = kw.send(Request::get("/metrics").body(Body::empty()).unwrap()).await;
    let line =
        reply.text.lines().find(|line| line.starts_with(name)).expect("the metric").to_owned();
    line.rsplit(' ').next().unwrap().parse().unwrap()
}

on_both_stacks! {
    async fn batch_is_written_once_when_retried(kw) {
    let key = kw.create_key(json!({})).await;
    kw.write_events().await;
    kw.verify(&key.key).await.assert_code("VALID");
    kw.change_events("ALTER TABLE verification_totals RENAME TO away").await;

    let failed = writer::write_buffered(&kw.app.analytics).await;
    kw.verify(&key.key).await.assert_code("VALID");
    kw.change_events("ALTER TABLE away RENAME TO verification_totals").await;
    kw.write_events().await;

    assert!(failed.is_err());
    assert_eq!(kw.query_events("SELECT request_id FROM verifications").await.len(), 2);
    let counts =
        kw.query_events("SELECT CAST(count AS TEXT) FROM verification_totals WHERE unit = 'day'").await;
    assert_eq!(counts, ["2"]);
    }
}

async fn assert_drops_excess(stack: Stack) {
    let kw = Keyward::start_with(stack, |settings| settings.events_waiting_max = 3).await;
    let key = kw.create_key(json!({})).await;
    let written = "keyward_events_written_total{kind=\"verification\"}";
    let dropped = "keyward_events_dropped_total{kind=\"verification\"}";

    for _ in 0..3 {
        kw.verify(&key.key).await.assert_code("VALID");
    }
    assert_eq!(metric(&kw, dropped).await, 0);
    kw.verify(&key.key).await.assert_code("VALID");
    assert_eq!(metric(&kw, dropped).await, 1);

    kw.write_events().await;
    kw.verify(&key.key).await.assert_code("VALID");
    assert_eq!(metric(&kw, written).await, 3);
    assert_eq!(metric(&kw, dropped).await, 1);
}

#[tokio::test]
async fn event_buffer_drops_events_when_full_embedded() {
    assert_drops_excess(Stack::Embedded).await;
}

#[tokio::test]
async fn event_buffer_drops_events_when_full_replica() {
    assert_drops_excess(Stack::Replica).await;
}

async fn assert_drops_excess_bytes(stack: Stack) {
    let kw =
        Keyward::start_with(stack, |settings| settings.events_waiting_bytes_max = 20_000).await;
    let key = kw.create_key(json!({})).await;
    let dropped = "keyward_events_dropped_total{kind=\"verification\"}";
    let tags = json!({ "tags": vec!["é".repeat(512); 10] });

    kw.verify_with(&key.key, tags.clone()).await.assert_code("VALID");
    assert_eq!(metric(&kw, dropped).await, 0);
    kw.verify_with(&key.key, tags.clone()).await.assert_code("VALID");
    assert_eq!(metric(&kw, dropped).await, 1);
    kw.verify(&key.key).await.assert_code("VALID");
    assert_eq!(metric(&kw, dropped).await, 1);

    kw.write_events().await;
    kw.verify_with(&key.key, tags).await.assert_code("VALID");
    assert_eq!(metric(&kw, dropped).await, 1);
}

#[tokio::test]
async fn event_buffer_drops_events_when_too_large_embedded() {
    assert_drops_excess_bytes(Stack::Embedded).await;
}

#[tokio::test]
async fn event_buffer_drops_events_when_too_large_replica() {
    assert_drops_excess_bytes(Stack::Replica).await;
}

on_both_stacks! {
    async fn batch_ends_when_its_events_have_eight_mebibytes(kw) {
        let mut keys = Vec::new();
        for _ in 0..5 {
            keys.push(kw.create_key(json!({})).await.key);
        }
        // In JSON within JSON, each of these characters has seven bytes: 150 of these events have more than ten mebibytes.
        let letters = "\u{1}".repeat(500);
        for n in 0..150 {
            let tags: Vec<_> = (0..20).map(|tag| format!("{n:03} {tag:02} {letters}")).collect();
            kw.verify_with(&keys[n % 5], json!({ "tags": tags })).await.assert_code("VALID");
        }
        kw.write_events().await;
        kw.verify(&keys[0]).await.assert_code("VALID");
        kw.write_events().await;

        let sql = "SELECT CAST(COUNT(*) AS TEXT) FROM verifications GROUP BY batch ORDER BY batch";
        assert_eq!(kw.query_events(sql).await, ["119", "31", "1"]);
    }

    async fn batch_counts_once_when_resent(kw) {
        kw.write_events().await;
        let total_key = TotalKey {
            workspace_id: "ws_default".into(),
            id: "api_a".into(),
            unit: "day",
            time: NOON,
            outcome: "VALID",
        };
        let aggregate = Aggregate { count: 3, ..Aggregate::default() };
        let batch = EventBatch {
            name: "replica 1".into(),
            verification_totals: vec![TotalDelta { total_key, aggregate }],
            ..EventBatch::default()
        };

        for _ in 0..2 {
            let mut tx = kw.app.analytics.event_store().begin().await.unwrap();
            tx.insert_batch(&batch, NOON).await.unwrap();
            tx.commit().await.unwrap();
        }

        let counts = kw.query_events("SELECT CAST(count AS TEXT) FROM verification_totals").await;
        assert_eq!(counts, ["3"]);
    }

    async fn batch_is_written_once_when_server_stops_during_write(kw) {
        let key = kw.create_key(json!({})).await;
        kw.write_events().await;
        for _ in 0..20 {
            kw.verify(&key.key).await.assert_code("VALID");
            // Cancelled at any moment, as a stopping server cancels its background tasks.
            let writing = writer::write_buffered(&kw.app.analytics);
            let _ = tokio::time::timeout(std::time::Duration::from_micros(300), writing).await;
        }

        kw.write_events().await;

        let sql = "SELECT request_id FROM verifications v JOIN verification_series s ON s.id = v.series";
        assert_eq!(kw.query_events(sql).await.len(), 20);
    }
}

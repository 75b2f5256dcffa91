//! Between a request and the database: nobody waits, and nothing is lost without being counted.

use axum::body::Body;
use axum::http::Request;
use keyward::domain::analytics::writer;
use keyward::store::Events;
use serde_json::json;

use crate::both;
use crate::support::{Keyward, Stack};

async fn run(kw: &Keyward, sql: &'static str) {
    match &kw.app.events {
        Events::Postgres { write, .. } => {
            sqlx::query(sql).execute(write).await.unwrap();
        }
        Events::Sqlite { write, .. } => {
            sqlx::query(sql).execute(write).await.unwrap();
        }
    }
}

/// A figure of `/metrics`.
async fn metric(kw: &Keyward, name: &str) -> u64 {
    let reply = kw.send(Request::get("/metrics").body(Body::empty()).unwrap()).await;
    let line =
        reply.text.lines().find(|line| line.starts_with(name)).expect("the metric").to_owned();
    line.rsplit(' ').next().unwrap().parse().unwrap()
}

both! {
    async fn what_could_not_be_written_is_written_later_and_once(kw) {
    let key = kw.key(json!({})).await;
    kw.write_events().await;
    kw.verify(&key.key).await.is("VALID");
    run(&kw, "ALTER TABLE verification_totals RENAME TO away").await;

    let failed = writer::write(&kw.app).await;
    kw.verify(&key.key).await.is("VALID");
    run(&kw, "ALTER TABLE away RENAME TO verification_totals").await;
    kw.write_events().await;

    assert!(failed.is_err());
    assert_eq!(kw.events("SELECT request_id FROM verifications").await.len(), 2);
    let told =
        kw.events("SELECT CAST(count AS TEXT) FROM verification_totals WHERE unit = 'day'").await;
    assert_eq!(told, ["2"]);
    }
}

async fn drops_what_is_too_much(stack: Stack) {
    let kw = Keyward::start_with(stack, |settings| settings.events_waiting_max = 3).await;
    let key = kw.key(json!({})).await;
    let written = "keyward_events_written_total{kind=\"verification\"}";
    let dropped = "keyward_events_dropped_total{kind=\"verification\"}";

    for _ in 0..3 {
        kw.verify(&key.key).await.is("VALID");
    }
    assert_eq!(metric(&kw, dropped).await, 0);
    kw.verify(&key.key).await.is("VALID");
    assert_eq!(metric(&kw, dropped).await, 1);

    kw.write_events().await;
    kw.verify(&key.key).await.is("VALID");
    assert_eq!(metric(&kw, written).await, 3);
    assert_eq!(metric(&kw, dropped).await, 1);
}

#[tokio::test]
async fn verification_goes_on_when_too_many_events_wait_embedded() {
    drops_what_is_too_much(Stack::Embedded).await;
}

#[tokio::test]
async fn verification_goes_on_when_too_many_events_wait_replica() {
    drops_what_is_too_much(Stack::Replica).await;
}

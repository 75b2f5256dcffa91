//! Tests the records of checks of the standalone limiter.

use axum::body::Body;
use foundation::clock::DAY_MS;
use serde_json::json;

use crate::on_both_stacks;
use crate::support::{Keyward, NOON, post};

const RECORDED_CHECKS: &str =
    "SELECT s.identifier || ' ' || s.passed || ' ' || r.override_id || ' ' || r.max || ' '
        || r.remaining || ' ' || r.reset_at || ' ' || r.tokens
    FROM ratelimits r JOIN ratelimit_series s ON s.id = r.series
    ORDER BY 1";

/// Returns how the engine writes a boolean.
fn sql_bool(kw: &Keyward, passed: bool) -> &'static str {
    match (kw.stack, passed) {
        (crate::support::Stack::Embedded, true) => "1",
        (crate::support::Stack::Embedded, false) => "0",
        (crate::support::Stack::Replica, true) => "true",
        (crate::support::Stack::Replica, false) => "false",
    }
}

on_both_stacks! {
    async fn every_check_is_recorded_when_allowed_or_denied(kw) {
    let check = |cost| json!({ "namespace": "email", "identifier": "ann", "limit": 3, "duration": 60_000, "cost": cost });
    assert_eq!(kw.v2("ratelimit.limit", check(2)).await.data()["success"], true);
    assert_eq!(kw.v2("ratelimit.limit", check(2)).await.data()["success"], false);
    let body = json!({ "identifier": "bob", "limit": 1, "duration": 60_000, "namespace": "email" });
    kw.v1("ratelimits.limit", body).await.v1_body();

    kw.write_events().await;

    let reset = NOON.0 + 60_000;
    assert_eq!(
        kw.query_events(RECORDED_CHECKS).await,
        [
            format!("ann {}  3 0 {reset} 2", sql_bool(&kw, false)),
            format!("ann {}  3 1 {reset} 2", sql_bool(&kw, true)),
            format!("bob {}  1 0 {reset} 1", sql_bool(&kw, true)),
        ]
    );
    }
}

on_both_stacks! {
    async fn each_check_of_a_multi_limit_is_recorded(kw) {
    let member = |who, limit| json!({ "namespace": "email", "identifier": who, "limit": limit, "duration": 60_000 });
    kw.v2("ratelimit.multiLimit", json!([member("ann", 1), member("bob", 9)])).await.data();

    kw.write_events().await;

    let rows = kw.query_events("SELECT identifier FROM ratelimit_series ORDER BY 1").await;
    assert_eq!(rows, ["ann", "bob"]);
    }
}

on_both_stacks! {
    async fn override_is_recorded_with_its_limit(kw) {
    let check =
        json!({ "namespace": "email", "identifier": "ann", "limit": 3, "duration": 60_000 });
    kw.v2("ratelimit.limit", check.clone()).await.data();
    let set = json!({ "namespace": "email", "identifier": "an*", "limit": 7, "duration": 60_000 });
    let id = kw.v2("ratelimit.setOverride", set).await.text_of("overrideId");

    kw.v2("ratelimit.limit", check).await.data();
    kw.write_events().await;

    let rows =
        kw.query_events("SELECT override_id || ' ' || max FROM ratelimits WHERE override_id <> ''").await;
    assert_eq!(rows, [format!("{id} 7")]);
    }
}

on_both_stacks! {
    async fn check_is_not_recorded_when_caller_opts_out(kw) {
    let check =
        json!({ "namespace": "email", "identifier": "ann", "limit": 3, "duration": 60_000 });
    let request = post("ratelimit.limit")
        .header("authorization", format!("Bearer {}", kw.root_key))
        .header("x-unkey-metrics", "disabled")
        .body(Body::from(check.to_string()))
        .unwrap();
    assert_eq!(kw.send(request).await.data()["success"], true);

    kw.write_events().await;

    assert_eq!(kw.query_events("SELECT request_id FROM ratelimits").await, [""; 0]);
    }
}

on_both_stacks! {
    async fn batch_of_two_days_has_each_series_once(kw) {
    let key = kw.create_key(json!({})).await;
    let check =
        json!({ "namespace": "email", "identifier": "ann", "limit": 9, "duration": 60_000 });
    for _ in 0..3 {
        kw.v2("ratelimit.limit", check.clone()).await.data();
        kw.verify_with(&key.key, json!({ "tags": ["a"] })).await.assert_code("VALID");
        kw.clock.advance_ms(DAY_MS);
    }

    kw.write_events().await;

    let last_day = (NOON.0 - NOON.0 % DAY_MS + 2 * DAY_MS).to_string();
    let seen = kw.query_events("SELECT CAST(seen_at AS TEXT) FROM ratelimit_series").await;
    assert_eq!(seen, [last_day]);
    for (sql, count) in [
        ("SELECT CAST(COUNT(*) AS TEXT) FROM ratelimits", "3"),
        ("SELECT CAST(COUNT(*) AS TEXT) FROM verifications", "3"),
        ("SELECT CAST(COUNT(*) AS TEXT) FROM verification_series", "1"),
    ] {
        assert_eq!(kw.query_events(sql).await, [count], "{sql}");
    }
    }
}

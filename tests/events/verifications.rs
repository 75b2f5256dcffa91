//! Tests the records of verifications.

use serde_json::json;

use crate::on_both_stacks;

on_both_stacks! {
    async fn every_verification_of_an_existing_key_is_recorded(kw) {
    let key = kw.create_key(json!({ "credits": { "remaining": 3 }, "externalId": "acme" })).await;

    let body = json!({ "key": key.key, "credits": { "cost": 2 }, "tags": ["b", "a", "b"] });
    let reply = kw.v2("keys.verifyKey", body).await;
    kw.write_events().await;

    let request = reply.body["meta"]["requestId"].as_str().unwrap();
    let rows = kw
        .query_events(
            "SELECT s.key_id || ' ' || s.external_id || ' ' || s.outcome || ' ' || s.tags || ' '
                || v.request_id || ' ' || v.spent_credits || ' ' || v.time || ' ' || v.reason
            FROM verifications v JOIN verification_series s ON s.id = v.series",
        )
        .await;
    assert_eq!(
        rows,
        [format!("{} acme VALID [\"a\",\"b\"] {request} 2 {} ", key.id, crate::support::NOON.0)]
    );
    }
}

on_both_stacks! {
    async fn v1_verification_is_recorded_like_v2(kw) {
    let key = kw.create_key(json!({})).await;

    let reply = kw.verify_v1(&key.key, json!({ "tags": ["path=/"] })).await;
    kw.write_events().await;

    let request = reply.assert_v1_code("VALID")["requestId"].as_str().unwrap().to_owned();
    let rows = kw
        .query_events(
            "SELECT s.key_id || ' ' || s.outcome || ' ' || s.tags || ' ' || v.request_id
            FROM verifications v JOIN verification_series s ON s.id = v.series",
        )
        .await;
    assert_eq!(rows, [format!("{} VALID [\"path=/\"] {request}", key.id)]);
    }
}

on_both_stacks! {
    async fn tag_combinations_are_limited_to_a_thousand_per_key_and_day(kw) {
    let (key, other) = (kw.create_key(json!({})).await, kw.create_key(json!({})).await);
    for n in 0..1_005 {
        kw.verify_with(&key.key, json!({ "tags": [format!("tag{n}")] })).await.assert_code("VALID");
        if n % 400 == 0 {
            kw.write_events().await;
        }
    }
    kw.verify_with(&key.key, json!({ "tags": ["tag7"] })).await.assert_code("VALID");
    kw.verify_with(&other.key, json!({ "tags": ["tag"] })).await.assert_code("VALID");

    kw.write_events().await;

    let mut rows = kw
        .query_events(
            "SELECT k.key_id || ' ' || k.tagged || ' ' || COUNT(DISTINCT k.id) || ' ' || COUNT(*)
            FROM verifications v JOIN (
                SELECT id, key_id, CASE WHEN tags = '[]' THEN 'without' ELSE 'with' END AS tagged
                FROM verification_series) k ON k.id = v.series
            GROUP BY k.key_id, k.tagged",
        )
        .await;
    let mut expected = [
        format!("{} with 1000 1001", key.id),
        format!("{} without 1 5", key.id),
        format!("{} with 1 1", other.id),
    ];
    expected.sort_unstable();
    rows.sort_unstable();
    assert_eq!(rows, expected);
    }
}

on_both_stacks! {
    async fn verification_of_unknown_key_is_not_recorded(kw) {
    kw.verify("nobody").await.assert_code("NOT_FOUND");
    kw.verify_v1("nobody", json!({})).await.assert_v1_code("NOT_FOUND");

    kw.write_events().await;

    assert_eq!(kw.query_events("SELECT request_id FROM verifications").await, [""; 0]);
    }
}

on_both_stacks! {
    async fn rejection_is_recorded_with_its_reason(kw) {
    let limit = json!([{ "name": "uploads", "limit": 1, "duration": 60_000, "autoApply": true }]);
    let limited = kw.create_key(json!({ "ratelimits": limit })).await;
    let empty = kw.create_key(json!({ "credits": { "remaining": 1 } })).await;
    let disabled = kw.create_key(json!({ "enabled": false })).await;
    let poor = kw.create_key(json!({})).await;
    let other = kw.create_api().await;

    kw.verify(&limited.key).await.assert_code("VALID");
    kw.verify(&limited.key).await.assert_code("RATE_LIMITED");
    let body = json!({ "key": empty.key, "credits": { "cost": 2 } });
    kw.v2("keys.verifyKey", body).await.assert_code("USAGE_EXCEEDED");
    kw.verify(&disabled.key).await.assert_code("DISABLED");
    let body = json!({ "key": poor.key, "permissions": "a AND b" });
    kw.v2("keys.verifyKey", body).await.assert_code("INSUFFICIENT_PERMISSIONS");
    let query = json!({ "and": ["a", { "or": ["b", "c"] }] });
    let body = json!({ "authorization": { "permissions": query } });
    kw.verify_v1(&poor.key, body).await.assert_v1_code("INSUFFICIENT_PERMISSIONS");
    kw.verify_v1(&poor.key, json!({ "apiId": other })).await.assert_v1_code("FORBIDDEN");
    kw.write_events().await;

    let rows = kw
        .query_events(
            "SELECT s.outcome || ': ' || v.reason || ' ' || v.spent_credits
            FROM verifications v JOIN verification_series s ON s.id = v.series
            WHERE s.outcome <> 'VALID' ORDER BY 1",
        )
        .await;
    assert_eq!(
        rows,
        [
            "DISABLED: The key is disabled 0".to_owned(),
            format!("FORBIDDEN: The key was presented for another API, {other} 0"),
            "INSUFFICIENT_PERMISSIONS: The key lacks required permissions: (a AND (b OR c)) 0".into(),
            "INSUFFICIENT_PERMISSIONS: The key lacks required permissions: a AND b 0".into(),
            "RATE_LIMITED: Exceeded \"uploads\": 1 per minute 0".into(),
            "USAGE_EXCEEDED: 1 credit remaining, 2 required 0".into(),
        ]
    );
    }
}

on_both_stacks! {
    async fn tag_is_stored_with_replacement_characters_when_unsupported(kw) {
    let key = kw.create_key(json!({})).await;

    let body = json!({ "key": key.key, "tags": ["a\u{0}b", "'; DROP TABLE verifications"] });
    kw.v2("keys.verifyKey", body).await.assert_code("VALID");
    kw.write_events().await;

    let rows = kw.query_events("SELECT tags FROM verification_series").await;
    assert_eq!(rows, ["[\"'; DROP TABLE verifications\",\"a\u{fffd}b\"]"]);
    }
}

on_both_stacks! {
    async fn shared_dimensions_of_verifications_are_written_once(kw) {
    let key = kw.create_key(json!({})).await;
    let replica = kw.replica().await;

    for _ in 0..3 {
        kw.verify(&key.key).await.assert_code("VALID");
        replica.verify(&key.key).await.assert_code("VALID");
        kw.write_events().await;
        replica.write_events().await;
    }

    assert_eq!(kw.query_events("SELECT key_id FROM verification_series").await, [key.id]);
    assert_eq!(kw.query_events("SELECT request_id FROM verifications").await.len(), 6);
    }
}

//! What is remembered of verifications.

use serde_json::json;

use crate::both;

both! {
    async fn every_verification_that_found_a_key_is_remembered(kw) {
    let key = kw.key(json!({ "credits": { "remaining": 3 }, "externalId": "acme" })).await;

    let body = json!({ "key": key.key, "credits": { "cost": 2 }, "tags": ["b", "a", "b"] });
    let reply = kw.v2("keys.verifyKey", body).await;
    kw.write_events().await;

    let request = reply.body["meta"]["requestId"].as_str().unwrap();
    let told = kw
        .events(
            "SELECT s.key_id || ' ' || s.external_id || ' ' || s.outcome || ' ' || s.tags || ' '
                || v.request_id || ' ' || v.spent_credits || ' ' || v.time || ' ' || v.reason
            FROM verifications v JOIN verification_series s ON s.id = v.series",
        )
        .await;
    assert_eq!(
        told,
        [format!("{} acme VALID [\"a\",\"b\"] {request} 2 {} ", key.id, crate::support::NOON.0)]
    );
    }
}

both! {
    async fn version_1_is_remembered_alike(kw) {
    let key = kw.key(json!({})).await;

    let reply = kw.verify_v1(&key.key, json!({ "tags": ["path=/"] })).await;
    kw.write_events().await;

    let request = reply.is_v1("VALID")["requestId"].as_str().unwrap().to_owned();
    let told = kw
        .events(
            "SELECT s.key_id || ' ' || s.outcome || ' ' || s.tags || ' ' || v.request_id
            FROM verifications v JOIN verification_series s ON s.id = v.series",
        )
        .await;
    assert_eq!(told, [format!("{} VALID [\"path=/\"] {request}", key.id)]);
    }
}

both! {
    async fn key_has_a_thousand_combinations_of_tags_a_day(kw) {
    let (key, other) = (kw.key(json!({})).await, kw.key(json!({})).await);
    for n in 0..1_005 {
        kw.verify_with(&key.key, json!({ "tags": [format!("tag{n}")] })).await.is("VALID");
        if n % 400 == 0 {
            kw.write_events().await;
        }
    }
    kw.verify_with(&key.key, json!({ "tags": ["tag7"] })).await.is("VALID");
    kw.verify_with(&other.key, json!({ "tags": ["tag"] })).await.is("VALID");

    kw.write_events().await;

    let mut told = kw
        .events(
            "SELECT k.key_id || ' ' || k.tagged || ' ' || COUNT(DISTINCT k.id) || ' ' || COUNT(*)
            FROM verifications v JOIN (
                SELECT id, key_id, CASE WHEN tags = '[]' THEN 'without' ELSE 'with' END AS tagged
                FROM verification_series) k ON k.id = v.series
            GROUP BY k.key_id, k.tagged",
        )
        .await;
    let mut wanted = [
        format!("{} with 1000 1001", key.id),
        format!("{} without 1 5", key.id),
        format!("{} with 1 1", other.id),
    ];
    wanted.sort_unstable();
    told.sort_unstable();
    assert_eq!(told, wanted);
    }
}

both! {
    async fn a_key_that_does_not_exist_leaves_nothing(kw) {
    kw.verify("nobody").await.is("NOT_FOUND");
    kw.verify_v1("nobody", json!({})).await.is_v1("NOT_FOUND");

    kw.write_events().await;

    assert_eq!(kw.events("SELECT request_id FROM verifications").await, [""; 0]);
    }
}

both! {
    async fn a_refusal_is_remembered_with_its_reason(kw) {
    let limit = json!([{ "name": "uploads", "limit": 1, "duration": 60_000, "autoApply": true }]);
    let limited = kw.key(json!({ "ratelimits": limit })).await;
    let empty = kw.key(json!({ "credits": { "remaining": 1 } })).await;
    let disabled = kw.key(json!({ "enabled": false })).await;
    let poor = kw.key(json!({})).await;
    let other = kw.api().await;

    kw.verify(&limited.key).await.is("VALID");
    kw.verify(&limited.key).await.is("RATE_LIMITED");
    let body = json!({ "key": empty.key, "credits": { "cost": 2 } });
    kw.v2("keys.verifyKey", body).await.is("USAGE_EXCEEDED");
    kw.verify(&disabled.key).await.is("DISABLED");
    let body = json!({ "key": poor.key, "permissions": "a AND b" });
    kw.v2("keys.verifyKey", body).await.is("INSUFFICIENT_PERMISSIONS");
    let query = json!({ "and": ["a", { "or": ["b", "c"] }] });
    let body = json!({ "authorization": { "permissions": query } });
    kw.verify_v1(&poor.key, body).await.is_v1("INSUFFICIENT_PERMISSIONS");
    kw.verify_v1(&poor.key, json!({ "apiId": other })).await.is_v1("FORBIDDEN");
    kw.write_events().await;

    let told = kw
        .events(
            "SELECT s.outcome || ': ' || v.reason || ' ' || v.spent_credits
            FROM verifications v JOIN verification_series s ON s.id = v.series
            WHERE s.outcome <> 'VALID' ORDER BY 1",
        )
        .await;
    assert_eq!(
        told,
        [
            "DISABLED: the key is disabled 0".to_owned(),
            format!("FORBIDDEN: the key was shown for another API, {other} 0"),
            "INSUFFICIENT_PERMISSIONS: the key lacks what was required: (a AND (b OR c)) 0".into(),
            "INSUFFICIENT_PERMISSIONS: the key lacks what was required: a AND b 0".into(),
            "RATE_LIMITED: over the limit uploads: 1 in 60000 ms 0".into(),
            "USAGE_EXCEEDED: 1 credits were left, and 2 asked for 0".into(),
        ]
    );
    }
}

both! {
    async fn a_tag_that_a_database_has_no_place_for_is_kept_as_far_as_it_goes(kw) {
    let key = kw.key(json!({})).await;

    let body = json!({ "key": key.key, "tags": ["a\u{0}b", "'; DROP TABLE verifications"] });
    kw.v2("keys.verifyKey", body).await.is("VALID");
    kw.write_events().await;

    let told = kw.events("SELECT tags FROM verification_series").await;
    assert_eq!(told, ["[\"'; DROP TABLE verifications\",\"a\u{fffd}b\"]"]);
    }
}

both! {
    async fn what_many_verifications_have_in_common_is_written_once(kw) {
    let key = kw.key(json!({})).await;
    let replica = kw.replica().await;

    for _ in 0..3 {
        kw.verify(&key.key).await.is("VALID");
        replica.verify(&key.key).await.is("VALID");
        kw.write_events().await;
        replica.write_events().await;
    }

    assert_eq!(kw.events("SELECT key_id FROM verification_series").await, [key.id]);
    assert_eq!(kw.events("SELECT request_id FROM verifications").await.len(), 6);
    }
}

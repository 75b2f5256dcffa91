//! Verification: both versions come to the same, and spend the same.

use serde_json::{Value, json};

use super::{MINUTE, update_v1};
use crate::on_both_stacks;
use crate::support::json::Fields as _;
use crate::support::seed::IssuedKey;
use crate::support::{Keyward, NOON};

/// Verifies by both versions, spending nothing: what each tells, in the words of version 2.
async fn compare(kw: &Keyward, key: &str, permission: &str, cost: i64) -> Value {
    let limits = json!([
        { "name": "default", "limit": 9, "duration": MINUTE, "cost": 0 },
        { "name": "tokens", "limit": 5, "duration": MINUTE, "cost": cost },
    ]);
    let by_v1 = kw
        .verify_v1(
            key,
            json!({
                "authorization": { "permissions": permission }, "remaining": { "cost": cost },
                "ratelimits": limits,
            }),
        )
        .await;
    let by_v2 = kw
        .verify_with(
            key,
            json!({
                "permissions": permission, "credits": { "cost": cost }, "ratelimits": limits,
            }),
        )
        .await;
    let (older, newer) = (by_v1.v1_body(), by_v2.data());
    for field in ["valid", "code", "keyId", "enabled", "name", "meta", "expires"] {
        assert_eq!(older.get(field), newer.get(field), "{field}: {older} {newer}");
    }
    // Version 1 always has the lists of a key that exists, and leaves nothing of an identity out.
    for list in ["permissions", "roles"] {
        let told = older.get(list).filter(|list| **list != json!([]));
        assert_eq!(told, newer.get(list), "{list}: {older} {newer}");
    }
    older.assert_has(json!({ "identity.id": newer["identity"]["id"], "ownerId": newer["identity"]["externalId"] }));
    if let Some(remaining) = older.get("remaining") {
        assert_eq!(*remaining, newer["credits"]);
    }
    if let Some(standing) = older.get("ratelimit") {
        let limits = newer["ratelimits"].as_array().unwrap();
        let same = |limit: &&Value| {
            ["limit", "remaining", "reset"].iter().all(|field| limit[*field] == standing[*field])
        };
        assert!(limits.iter().any(|limit| same(&limit)), "{older} {newer}");
    }
    newer["code"].clone()
}

/// The same key, made by each version.
async fn twins(kw: &Keyward) -> [IssuedKey; 2] {
    let api = kw.create_api().await;
    let common = json!({
        "name": "for billing", "externalId": "user_1", "meta": { "plan": "pro" },
        "roles": ["editor"], "permissions": ["a"], "expires": NOON.0 + 1000,
    });
    let (mut older, mut newer) = (common.clone(), common);
    older["remaining"] = json!(2);
    older["ratelimit"] = json!({ "limit": 9, "duration": MINUTE });
    newer["credits"] = json!({ "remaining": 2 });
    newer["ratelimits"] =
        json!([{ "name": "default", "limit": 9, "duration": MINUTE, "autoApply": true }]);
    [kw.create_key_v1(&api, older).await, kw.create_key_in(&api, newer).await]
}

on_both_stacks! {
    async fn both_versions_come_to_the_same_whatever_the_key(kw) {
        kw.create_role("editor", ["b"]).await;
        kw.create_permission("a").await;
        for key in twins(&kw).await {
            assert_eq!(compare(&kw, &key.key, "b", 0).await, "VALID");
            assert_eq!(compare(&kw, &key.key, "z", 0).await, "INSUFFICIENT_PERMISSIONS");
            assert_eq!(compare(&kw, &key.key, "a", 3).await, "USAGE_EXCEEDED");
            assert_eq!(compare(&kw, &key.key, "a", 6).await, "RATE_LIMITED");
            update_v1(&kw, &key.id, json!({ "expires": NOON.0 - 1 })).await;
            assert_eq!(compare(&kw, &key.key, "b", 0).await, "EXPIRED");
            update_v1(&kw, &key.id, json!({ "enabled": false })).await;
            assert_eq!(compare(&kw, &key.key, "b", 0).await, "DISABLED");
            kw.v1("keys.deleteKey", json!({ "keyId": key.id })).await.v1_body();
            assert_eq!(compare(&kw, &key.key, "b", 0).await, "NOT_FOUND");
        }
        let plain = kw.create_key(json!({})).await;
        kw.update_key(&plain.id, json!({ "permissions": ["a"] })).await.data();
        assert_eq!(compare(&kw, &plain.key, "a", 1).await, "VALID");
    }

    async fn both_versions_spend_from_one_balance_and_one_window(kw) {
        kw.create_role("editor", ["b"]).await;
        kw.create_permission("a").await;
        for key in twins(&kw).await {
            let by_v1 = kw.verify_v1(&key.key, json!({})).await;
            kw.verify(&key.key).await.assert_code("VALID").assert_has(json!({ "credits": 0, "ratelimits.0.remaining": 7 }));

            by_v1.assert_v1_code("VALID").assert_has(json!({ "remaining": 1, "ratelimit.remaining": 8 }));
            kw.verify_v1(&key.key, json!({})).await.assert_v1_code("USAGE_EXCEEDED");
        }
    }

    async fn both_versions_change_one_balance(kw) {
        let key = kw.create_key(json!({ "credits": { "remaining": 5 } })).await;
        let v1 = async |op: &str, value: Value| {
            let request = json!({ "keyId": key.id, "op": op, "value": value });
            kw.v1("keys.updateRemaining", request).await.v1_body()["remaining"].clone()
        };
        let v2 = async |operation: &str, value: Value| {
            let request = json!({ "keyId": key.id, "operation": operation, "value": value });
            kw.v2("keys.updateCredits", request).await.data()["remaining"].clone()
        };

        assert_eq!(v1("increment", json!(5)).await, 10);
        assert_eq!(v2("decrement", json!(3)).await, 7);
        kw.verify(&key.key).await.assert_code("VALID");
        assert_eq!(v1("decrement", json!(1)).await, 5);
        assert_eq!(v2("set", json!(1)).await, 1);
        assert_eq!(kw.verify_v1(&key.key, json!({})).await.assert_v1_code("VALID")["remaining"], 0);
        assert_eq!(v1("set", Value::Null).await, Value::Null);
        assert_eq!(kw.verify(&key.key).await.data().get("credits"), None);
        assert_eq!(v2("set", json!(4)).await, 4);
        assert_eq!(kw.verify_v1(&key.key, json!({})).await.assert_v1_code("VALID")["remaining"], 3);
    }

    async fn a_refill_of_either_version_falls_due_in_both(kw) {
        let api = kw.create_api().await;
        let refill = json!({ "interval": "daily", "amount": 10 });
        let keys = [
            kw.create_key_v1(&api, json!({ "remaining": 1, "refill": refill })).await,
            kw.create_key_in(&api, json!({ "credits": { "remaining": 1, "refill": refill } })).await,
        ];

        kw.clock.advance_ms(24 * 60 * MINUTE);

        for key in keys {
            assert_eq!(kw.verify_v1(&key.key, json!({})).await.assert_v1_code("VALID")["remaining"], 9);
            assert_eq!(kw.verify(&key.key).await.data()["credits"], 8);
        }
    }

    async fn a_key_that_was_taken_in_by_either_version_verifies_in_both(kw) {
        let api = kw.create_api().await;
        let hash = foundation::secret::KeyHash::compute("old_1").to_base64();
        let item = json!([{
            "apiId": api, "hash": { "value": hash, "variant": "sha256_base64" }, "name": "from elsewhere", "remaining": 5,
            "externalId": "user_1", "ratelimit": { "limit": 9, "refillRate": 9, "refillInterval": MINUTE },
        }]);
        kw.v1("migrations.createKeys", item).await.v1_body();

        let by_v1 = kw.verify_v1("old_1", json!({})).await;
        kw.verify("old_1").await.assert_code("VALID").assert_has(json!({ "credits": 3, "identity.externalId": "user_1" }));

        by_v1.assert_v1_code("VALID");
        by_v1.v1_body().assert_has(json!({ "name": "from elsewhere", "ratelimit.remaining": 8 }));
    }
}

//! The settings of a key.

use serde_json::{Value, json};

use super::{MINUTE, update_v1};
use crate::on_both_stacks;
use crate::support::json::Fields as _;
use crate::support::{Keyward, NOON};

async fn plant_roles(kw: &Keyward) {
    kw.create_role("editor", ["b", "c"]).await;
    kw.create_permission("a").await;
}

on_both_stacks! {
    async fn version_2_tells_all_of_a_key_that_version_1_made(kw) {
        plant_roles(&kw).await;
        let api = kw.create_api().await;
        let key = kw.create_key_v1(&api, json!({
            "prefix": "prod", "name": "for billing", "externalId": "user_1",
            "meta": { "plan": "pro" }, "roles": ["editor"], "permissions": ["a"],
            "expires": NOON.0 + 1000, "remaining": 7,
            "refill": { "interval": "monthly", "amount": 9, "refillDay": 31.0 },
            "ratelimit": { "limit": 60, "duration": MINUTE }, "enabled": false,
            "environment": "production",
        })).await;

        let told = kw.get_key(&key.id).await;

        assert_eq!(
            told,
            json!({
                "keyId": key.id, "start": &key.key[..9], "enabled": false, "name": "for billing", "meta": { "plan": "pro" },
                "createdAt": NOON.0, "expires": NOON.0 + 1000, "permissions": ["a", "b", "c"], "roles": ["editor"],
                "credits": { "remaining": 7, "refill": { "interval": "monthly", "amount": 9, "refillDay": 31 } },
                "identity": { "id": told["identity"]["id"], "externalId": "user_1" },
                "ratelimits": [{
                    "id": told["ratelimits"][0]["id"], "name": "default", "limit": 60, "duration": MINUTE, "autoApply": true,
                }],
            }),
        );
        assert!(told["ratelimits"][0]["id"].is_string() && told["identity"]["id"].is_string());
    }

    async fn version_1_tells_all_of_a_key_that_version_2_made(kw) {
        plant_roles(&kw).await;
        let api = kw.create_api().await;
        let key = kw.create_key_in(&api, json!({
            "prefix": "prod", "name": "for billing", "externalId": "user_1",
            "meta": { "plan": "pro" }, "roles": ["editor"], "permissions": ["a"],
            "expires": NOON.0 + 1000, "enabled": false,
            "credits": { "remaining": 7, "refill": { "interval": "daily", "amount": 9 } },
            "ratelimits": [
                { "name": "default", "limit": 60, "duration": MINUTE, "autoApply": true },
                { "name": "uploads", "limit": 5, "duration": MINUTE },
            ],
        })).await;
        let identity = kw.get_key(&key.id).await["identity"]["id"].clone();

        let told = kw.get_key_v1(&key.id).await;

        assert_eq!(
            told,
            json!({
                "id": key.id, "start": &key.key[..9], "apiId": api, "workspaceId": "ws_default", "enabled": false,
                "name": "for billing", "ownerId": "user_1",
                "identity": { "id": identity, "externalId": "user_1", "meta": {} }, "meta": { "plan": "pro" },
                "createdAt": NOON.0, "expires": NOON.0 + 1000, "permissions": ["a", "b", "c"], "roles": ["editor"],
                "remaining": 7, "refill": { "interval": "daily", "amount": 9, "refillDay": null, "lastRefillAt": NOON.0 },
                "ratelimit": {
                    "limit": 60, "duration": MINUTE, "refillRate": 60, "refillInterval": MINUTE, "async": false,
                    "type": "consistent",
                },
            }),
        );
    }

    async fn each_setting_that_version_1_changes_is_told_by_version_2(kw) {
        plant_roles(&kw).await;
        let key = kw.create_key(json!({})).await;

        for (change, pointer, told) in [
            (json!({ "name": "n" }), "/name", json!("n")),
            (json!({ "name": null }), "/name", Value::Null),
            (json!({ "meta": { "a": 1 } }), "/meta", json!({ "a": 1 })),
            (json!({ "meta": null }), "/meta", Value::Null),
            (json!({ "ownerId": "user_1" }), "/identity/externalId", json!("user_1")),
            (json!({ "externalId": "user_2" }), "/identity/externalId", json!("user_2")),
            (json!({ "externalId": null }), "/identity", Value::Null),
            (json!({ "expires": NOON.0 + 5 }), "/expires", json!(NOON.0 + 5)),
            (json!({ "expires": null }), "/expires", Value::Null),
            (json!({ "enabled": false }), "/enabled", json!(false)),
            (json!({ "enabled": true }), "/enabled", json!(true)),
            (json!({ "remaining": 4 }), "/credits", json!({ "remaining": 4 })),
            (
                json!({ "refill": { "interval": "daily", "amount": 3 } }),
                "/credits/refill", json!({ "interval": "daily", "amount": 3 }),
            ),
            (
                json!({ "refill": { "interval": "monthly", "amount": 3 } }),
                "/credits/refill", json!({ "interval": "monthly", "amount": 3, "refillDay": 1 }),
            ),
            (
                json!({ "refill": { "interval": "monthly", "amount": 3, "refillDay": 17 } }),
                "/credits/refill", json!({ "interval": "monthly", "amount": 3, "refillDay": 17 }),
            ),
            (json!({ "refill": null }), "/credits", json!({ "remaining": 4 })),
            (json!({ "remaining": null }), "/credits", Value::Null),
            (json!({ "ratelimit": { "limit": 8, "duration": 5_000 } }), "/ratelimits/0/limit", json!(8)),
            (json!({ "ratelimit": null }), "/ratelimits", Value::Null),
            (json!({ "roles": [{ "name": "editor" }] }), "/roles", json!(["editor"])),
            (json!({ "permissions": [{ "name": "a" }] }), "/permissions", json!(["a", "b", "c"])),
            (json!({ "roles": [] }), "/permissions", json!(["a"])),
            (json!({ "permissions": [] }), "/permissions", Value::Null),
        ] {
            update_v1(&kw, &key.id, change.clone()).await;

            let read = kw.get_key(&key.id).await;
            assert_eq!(read.pointer(pointer).unwrap_or(&Value::Null), &told, "{change}: {read}");
        }
    }

    async fn each_setting_that_version_2_changes_is_told_by_version_1(kw) {
        plant_roles(&kw).await;
        let api = kw.create_api().await;
        let key = kw.create_key_v1(&api, json!({})).await;
        let limit = |name: &str| json!({ "name": name, "limit": 8, "duration": 5_000, "autoApply": true });

        for (change, pointer, told) in [
            (json!({ "name": "n" }), "/name", json!("n")),
            (json!({ "name": null }), "/name", Value::Null),
            (json!({ "meta": { "a": 1 } }), "/meta", json!({ "a": 1 })),
            (json!({ "meta": null }), "/meta", Value::Null),
            (json!({ "externalId": "user_1" }), "/ownerId", json!("user_1")),
            (json!({ "externalId": "user_2" }), "/identity/externalId", json!("user_2")),
            (json!({ "externalId": null }), "/identity", Value::Null),
            (json!({ "externalId": null }), "/ownerId", Value::Null),
            (json!({ "expires": NOON.0 + 5 }), "/expires", json!(NOON.0 + 5)),
            (json!({ "expires": null }), "/expires", Value::Null),
            (json!({ "enabled": false }), "/enabled", json!(false)),
            (json!({ "enabled": true }), "/enabled", json!(true)),
            (json!({ "credits": { "remaining": 0 } }), "/remaining", json!(0)),
            (
                json!({ "credits": { "refill": { "interval": "daily", "amount": 3 } } }),
                "/refill", json!({ "interval": "daily", "amount": 3, "refillDay": null }),
            ),
            (
                json!({ "credits": { "refill": { "interval": "monthly", "amount": 3, "refillDay": 17 } } }),
                "/refill", json!({ "interval": "monthly", "amount": 3, "refillDay": 17 }),
            ),
            (json!({ "credits": { "refill": null } }), "/refill", Value::Null),
            (json!({ "credits": null }), "/remaining", Value::Null),
            (json!({ "ratelimits": [limit("default")] }), "/ratelimit/duration", json!(5_000)),
            (json!({ "ratelimits": [limit("uploads")] }), "/ratelimit", Value::Null),
            (json!({ "roles": ["editor"] }), "/roles", json!(["editor"])),
            (json!({ "permissions": ["a"] }), "/permissions", json!(["a", "b", "c"])),
            (json!({ "roles": [] }), "/permissions", json!(["a"])),
            (json!({ "permissions": [] }), "/permissions", json!([])),
        ] {
            kw.update_key(&key.id, change.clone()).await.data();

            let read = kw.get_key_v1(&key.id).await;
            assert_eq!(read.pointer(pointer).unwrap_or(&Value::Null), &told, "{change}: {read}");
        }
    }

    async fn what_version_2_cannot_say_stays_when_it_changes_a_key(kw) {
        let api = kw.create_api().await;
        let key = kw.create_key_v1(&api, json!({
            "environment": "production", "ownerId": "user_1",
            "ratelimit": { "limit": 8, "duration": MINUTE, "async": true },
        })).await;

        kw.update_key(&key.id, json!({ "name": "another" })).await.data();
        let new = kw.v2("keys.rerollKey", json!({ "keyId": key.id, "expiration": 60_000 })).await;

        for id in [key.id, new.text_of("keyId")] {
            let read = kw.get_key_v1(&id).await;
            assert_eq!(read["environment"], "production");
            read.assert_has(json!({ "ownerId": "user_1", "ratelimit.async": true, "ratelimit.type": "fast" }));
        }
        assert_eq!(kw.verify_v1(&new.text_of("key"), json!({})).await.assert_v1_code("VALID")["environment"], "production");
    }

    async fn both_versions_list_the_same_keys(kw) {
        let api = kw.create_api().await;
        for n in 0..3 {
            kw.create_key_v1(&api, json!({ "externalId": format!("user_{}", n % 2) })).await;
            kw.create_key_in(&api, json!({ "externalId": format!("user_{}", n % 2) })).await;
        }

        for (filter, count) in [("", 6), ("user_0", 4), ("user_1", 2), ("user_2", 0)] {
            let (query, request) = match filter {
                "" => (format!("apiId={api}"), json!({ "apiId": api })),
                user => (format!("apiId={api}&externalId={user}"), json!({ "apiId": api, "externalId": user })),
            };
            let by_v1 = kw.v1_get("apis.listKeys", &query).await.v1_body()["keys"].clone();
            let by_v2 = kw.v2("apis.listKeys", request).await.data().clone();
            let ids = |list: &Value, field: &str| -> Vec<Value> {
                list.as_array().unwrap().iter().map(|key| key[field].clone()).collect()
            };
            assert_eq!(ids(&by_v1, "id"), ids(&by_v2, "keyId"));
            assert_eq!(by_v2.as_array().unwrap().len(), count, "{filter}");
        }
    }

    async fn what_one_version_deletes_is_gone_for_the_other(kw) {
        let api = kw.create_api().await;
        let (first, second) = (kw.create_key_in(&api, json!({})).await, kw.create_key_v1(&api, json!({})).await);
        let third = kw.create_key_in(&api, json!({})).await;

        kw.v1("keys.deleteKey", json!({ "keyId": first.id })).await.v1_body();
        kw.v2("keys.deleteKey", json!({ "keyId": second.id })).await.data();

        kw.v2("keys.getKey", json!({ "keyId": first.id })).await.assert_error(404, "key_not_found");
        kw.v1_get("keys.getKey", &format!("keyId={}", second.id)).await.assert_v1_error(404, "NOT_FOUND");
        kw.verify(&first.key).await.assert_code("NOT_FOUND");
        kw.verify_v1(&second.key, json!({})).await.assert_v1_code("NOT_FOUND");
        kw.v1("apis.deleteApi", json!({ "apiId": api })).await.v1_body();
        kw.v2("apis.getApi", json!({ "apiId": api })).await.assert_error(404, "api_not_found");
        kw.verify(&third.key).await.assert_code("NOT_FOUND");
    }

    async fn both_versions_tell_of_an_api_alike(kw) {
        let made = kw.v1("apis.createApi", json!({ "name": "payments" })).await;
        let by_v1 = made.v1_body()["apiId"].as_str().unwrap().to_owned();
        let by_v2 = kw.create_api().await;

        for (id, name) in [(by_v1, "payments"), (by_v2, "an API")] {
            let told = kw.v2("apis.getApi", json!({ "apiId": id })).await;
            assert_eq!(*told.data(), json!({ "id": id, "name": name }));
            let told = kw.v1_get("apis.getApi", &format!("apiId={id}")).await;
            assert_eq!(*told.v1_body(), json!({ "id": id, "name": name, "workspaceId": "ws_default" }));
        }
    }
}

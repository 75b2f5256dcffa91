use serde_json::{Value, json};

use crate::support::{Keyward, NOON, Reply};
use crate::{on_both_stacks, on_every_event_store};

const HOUR: i64 = 3_600_000;
const MIDNIGHT: i64 = NOON.0 - 12 * HOUR;

async fn get(kw: &Keyward, query: &str) -> Reply {
    kw.v1_get("keys.getVerifications", query).await
}

fn day(time: i64, success: i64, rate_limited: i64, usage_exceeded: i64) -> Value {
    json!({
        "time": time, "success": success, "rateLimited": rate_limited,
        "usageExceeded": usage_exceeded
    })
}

on_every_event_store! {
    async fn the_days_of_a_key_are_told(kw) {
        let limit = json!({ "name": "default", "limit": 2, "duration": 60_000, "autoApply": true });
        let key = kw.create_key(json!({ "ratelimits": [limit], "credits": { "remaining": 3 } })).await;
        for code in ["VALID", "VALID", "RATE_LIMITED"] {
            kw.verify(&key.key).await.assert_code(code);
        }
        kw.clock.advance_ms(24 * HOUR);
        for code in ["VALID", "USAGE_EXCEEDED"] {
            kw.verify(&key.key).await.assert_code(code);
        }
        kw.write_events().await;

        let told = get(&kw, &format!("keyId={}", key.id)).await.v1_body().clone();
        let second = get(&kw, &format!("keyId={}&start={}", key.id, MIDNIGHT + 24 * HOUR)).await;

        let (first_day, second_day) = (day(MIDNIGHT, 2, 1, 0), day(MIDNIGHT + 24 * HOUR, 1, 0, 1));
        assert_eq!(told, json!({ "verifications": [first_day, second_day] }));
        assert_eq!(second.v1_body(), &json!({ "verifications": [second_day] }));
    }

    async fn the_days_of_all_keys_of_an_owner_are_told_together(kw) {
        let api = kw.create_api().await;
        let first = kw.create_key_v1(&api, json!({ "ownerId": "ann" })).await;
        let second = kw.create_key(json!({ "externalId": "ann" })).await;
        let other = kw.create_key(json!({ "externalId": "bob" })).await;
        for key in [&first, &second, &other] {
            kw.verify(&key.key).await.assert_code("VALID");
        }
        kw.write_events().await;

        let told = get(&kw, "ownerId=ann&granularity=day").await;
        // The key counts where both are given.
        let key = get(&kw, &format!("ownerId=ann&keyId={}", other.id)).await;

        assert_eq!(told.v1_body(), &json!({ "verifications": [day(MIDNIGHT, 2, 0, 0)] }));
        assert_eq!(key.v1_body(), &json!({ "verifications": [day(MIDNIGHT, 1, 0, 0)] }));
    }

    async fn a_key_that_was_not_used_has_no_days(kw) {
        let key = kw.create_key(json!({})).await;
        kw.write_events().await;
        assert_eq!(get(&kw, &format!("keyId={}", key.id)).await.v1_body(), &json!({ "verifications": [] }));
    }

    async fn one_of_key_and_owner_is_needed_and_must_be_there(kw) {
        kw.write_events().await;
        assert_eq!(get(&kw, "").await.assert_v1_error(400, "BAD_REQUEST"), "keyId or ownerId must be provided");
        get(&kw, "keyId=key_nobody").await.assert_v1_error(404, "NOT_FOUND");
        get(&kw, "ownerId=nobody").await.assert_v1_error(404, "NOT_FOUND");
        get(&kw, "ownerId=nobody&granularity=hour").await.assert_v1_error(400, "BAD_REQUEST");
    }

    async fn the_equal_owner_of_another_workspace_has_nothing_to_do_with_it(kw) {
        let key = kw.create_key(json!({ "externalId": "ann" })).await;
        kw.verify(&key.key).await.assert_code("VALID");
        kw.write_events().await;
        let stranger = kw.create_other_workspace().await;
        let ask = async |query: &str| { kw.v1_get_as(&stranger, "keys.getVerifications", query).await };

        ask("ownerId=ann").await.assert_v1_error(404, "NOT_FOUND");
        ask(&format!("keyId={}", key.id)).await.assert_v1_error(404, "NOT_FOUND");
    }

    async fn every_api_of_an_owner_must_be_open_to_the_root_key(kw) {
        let (mine, other) = (kw.create_api().await, kw.create_api().await);
        kw.create_key_in(&mine, json!({ "externalId": "ann" })).await;
        kw.create_key_in(&other, json!({ "externalId": "ann" })).await;
        kw.create_key_in(&mine, json!({ "externalId": "bob" })).await;
        kw.write_events().await;
        let root_key = kw.create_root_key([&format!("api.{mine}.read_key")]).await;
        let ask = async |query: &str| { kw.v1_get_as(&root_key, "keys.getVerifications", query).await };

        ask("ownerId=bob").await.v1_body();
        ask("ownerId=ann").await.assert_v1_error(403, "INSUFFICIENT_PERMISSIONS");
    }
}

on_both_stacks! {
    async fn get_verifications_omits_empty_days_of_a_long_period(kw) {
        let key = kw.create_key(json!({})).await;
        kw.verify(&key.key).await.assert_code("VALID");
        kw.write_events().await;

        let reply = get(&kw, &format!("keyId={}&start=0&end=9000000000000", key.id)).await;

        assert_eq!(reply.v1_body(), &json!({ "verifications": [day(MIDNIGHT, 1, 0, 0)] }));
    }
}

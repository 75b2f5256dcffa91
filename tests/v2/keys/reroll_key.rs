use serde_json::{Value, json};

use crate::on_both_stacks;
use crate::support::json::Fields as _;
use crate::support::seed::IssuedKey;
use crate::support::{Keyward, NOON, Reply};

const MINUTE: i64 = 60_000;

async fn reroll(kw: &Keyward, key: &IssuedKey, expiration: i64) -> Reply {
    kw.v2("keys.rerollKey", json!({ "keyId": key.id, "expiration": expiration })).await
}

async fn rerolled(kw: &Keyward, key: &IssuedKey, expiration: i64) -> IssuedKey {
    let reply = reroll(kw, key, expiration).await;
    IssuedKey { id: reply.text_of("keyId"), key: reply.text_of("key") }
}

/// What `keys.getKey` tells, but for what is a key's own.
async fn configuration(kw: &Keyward, id: &str) -> Value {
    let mut told = kw.get_key(id).await;
    for own in ["keyId", "start", "createdAt", "updatedAt"] {
        told.as_object_mut().unwrap().remove(own);
    }
    for limit in told["ratelimits"].as_array_mut().into_iter().flatten() {
        limit.as_object_mut().unwrap().remove("id");
    }
    told
}

on_both_stacks! {
    async fn the_new_key_is_configured_as_the_old_one(kw) {
        kw.create_role("editor", ["docs.edit"]).await;
        kw.create_permission("docs.read").await;
        let key = kw.create_key(json!({
            "prefix": "my_app", "byteLength": 32, "name": "for billing", "externalId": "user_1", "meta": { "plan": "pro" },
            "roles": ["editor"], "permissions": ["docs.read"], "expires": NOON.0 + 90 * MINUTE,
            "credits": { "remaining": 7, "refill": { "interval": "monthly", "amount": 10, "refillDay": 31 } },
            "ratelimits": [{ "name": "one", "limit": 5, "duration": 60_000, "autoApply": true }],
        })).await;
        let before = configuration(&kw, &key.id).await;

        let new = rerolled(&kw, &key, 30 * MINUTE).await;

        assert_eq!(configuration(&kw, &new.id).await, before);
        assert_ne!(new.id, key.id);
        assert!(new.key.starts_with("my_app_"), "{}", new.key);
        let random = new.key.strip_prefix("my_app_").unwrap();
        assert_eq!(bs58::decode(random).into_vec().unwrap().len(), 32);
        assert_eq!(kw.get_key(&new.id).await["start"], new.key[..11]);
        assert_eq!(kw.get_key(&new.id).await["createdAt"], NOON.0);
        kw.verify_with(&new.key, json!({ "permissions": "docs.read AND docs.edit" })).await.assert_code("VALID");
    }

    async fn with_no_grace_the_old_key_ends_at_once(kw) {
        let key = kw.create_key(json!({})).await;
        kw.verify(&key.key).await.assert_code("VALID");
        let new = rerolled(&kw, &key, 0).await;
        kw.verify(&key.key).await.assert_code("EXPIRED");
        kw.verify(&new.key).await.assert_code("VALID");
    }

    async fn a_grace_is_rounded_up_to_a_full_minute(kw) {
        kw.clock.advance_ms(1);
        let key = kw.create_key(json!({})).await;

        let new = rerolled(&kw, &key, 1).await;

        assert_eq!(kw.get_key(&key.id).await["expires"], NOON.0 + MINUTE);
        assert_eq!(kw.get_key(&new.id).await.get("expires"), None);
        kw.clock.advance_ms(MINUTE - 1);
        kw.verify(&key.key).await.assert_code("VALID");
        kw.clock.advance_ms(1);
        kw.verify(&key.key).await.assert_code("EXPIRED");
        kw.verify(&new.key).await.assert_code("VALID");
    }

    async fn reroll_returns_412_when_key_has_expired(kw) {
        let key = kw.create_key(json!({ "credits": { "remaining": 5 } })).await;
        let new = rerolled(&kw, &key, 0).await;

        let again = reroll(&kw, &key, 0).await;

        again.assert_error_about(412, "precondition_failed", &[&key.id, "2026-03-10T11:59:59.999Z", "replaced it"]);
        assert_eq!(kw.count_rows("keys").await, 2);
        kw.verify(&new.key).await.assert_code("VALID").assert_has(json!({ "credits": 4 }));
        // A key is still valid in the millisecond in which it expires.
        let expiring = kw.create_key(json!({ "expires": NOON.0 + MINUTE })).await;
        kw.clock.advance_ms(MINUTE);
        reroll(&kw, &expiring, MINUTE).await.data();
        kw.clock.advance_ms(1);
        reroll(&kw, &expiring, MINUTE).await.assert_error(412, "precondition_failed");
    }

    async fn an_earlier_end_is_never_put_off(kw) {
        let key = kw.create_key(json!({ "expires": NOON.0 + 5 * MINUTE })).await;
        let new = rerolled(&kw, &key, 60 * MINUTE).await;
        assert_eq!(kw.get_key(&key.id).await["expires"], NOON.0 + 5 * MINUTE);
        assert_eq!(kw.get_key(&new.id).await["expires"], NOON.0 + 5 * MINUTE);
    }

    async fn what_is_left_of_the_credits_passes_over_and_what_was_counted_does_not(kw) {
        let key = kw.create_key(json!({
            "credits": { "remaining": 10 },
            "ratelimits": [{ "name": "one", "limit": 5, "duration": 60_000, "autoApply": true }],
        })).await;
        for _ in 0..3 {
            kw.verify(&key.key).await.assert_code("VALID");
        }

        let new = rerolled(&kw, &key, MINUTE).await;

        kw.verify(&new.key).await.assert_code("VALID").assert_has(json!({ "credits": 6, "ratelimits.0.remaining": 4 }));
        assert_eq!(kw.get_key(&key.id).await["credits"]["remaining"], 7);
    }

    async fn a_refill_that_has_happened_does_not_happen_again(kw) {
        let daily = json!({ "interval": "daily", "amount": 10 });
        let key = kw.create_key(json!({ "credits": { "remaining": 3, "refill": daily } })).await;

        let new = rerolled(&kw, &key, 0).await;

        assert_eq!(kw.get_key(&new.id).await["credits"]["remaining"], 3);
        kw.clock.advance_ms(12 * 60 * MINUTE);
        assert_eq!(kw.get_key(&new.id).await["credits"]["remaining"], 10);
    }

    async fn both_keys_are_refilled_during_a_grace_period(kw) {
        let daily = json!({ "interval": "daily", "amount": 10 });
        let key = kw.create_key(json!({ "credits": { "remaining": 3, "refill": daily } })).await;

        let new = rerolled(&kw, &key, 2 * 24 * 60 * MINUTE).await;

        let balances = async || {
            let of = async |id: &str| kw.get_key(id).await["credits"]["remaining"].clone();
            [of(&key.id).await, of(&new.id).await]
        };
        assert_eq!(balances().await, [3, 3]);
        kw.clock.advance_ms(12 * 60 * MINUTE);
        assert_eq!(balances().await, [10, 10]);
        kw.verify(&key.key).await.assert_code("VALID");
        assert_eq!(balances().await, [9, 10]);
    }

    async fn the_keys_of_an_identity_go_on_sharing_its_limits(kw) {
        let key = kw.create_key(json!({ "externalId": "user_1" })).await;
        let identity = kw.get_key(&key.id).await["identity"]["id"].as_str().unwrap().to_owned();
        kw.set_identity_limits(&identity, &[("shared", 2, 60_000, true)]).await;
        kw.verify(&key.key).await.assert_code("VALID");

        let new = rerolled(&kw, &key, MINUTE).await;

        kw.verify(&new.key).await.assert_code("VALID");
        kw.verify(&key.key).await.assert_code("RATE_LIMITED");
    }

    async fn a_disabled_key_gives_a_disabled_key(kw) {
        let key = kw.create_key(json!({ "enabled": false })).await;
        let new = rerolled(&kw, &key, 0).await;
        kw.verify(&new.key).await.assert_code("DISABLED");
    }

    async fn nothing_is_left_to_spend_on_a_key_that_ends_at_once(kw) {
        let key = kw.create_key(json!({ "credits": { "remaining": 50 } })).await;
        kw.verify(&key.key).await.assert_code("VALID");
        let new = rerolled(&kw, &key, 0).await;
        assert_eq!(kw.v2("keys.getKey", json!({ "keyId": key.id })).await.data()["credits"]["remaining"], 0);
        assert_eq!(kw.verify(&new.key).await.data()["credits"], 48);
    }

    async fn one_entry_of_the_audit_log_names_both_keys(kw) {
        let key = kw.create_key(json!({})).await;
        let new = rerolled(&kw, &key, 0).await;
        assert_eq!(kw.list_audit_events(&key.id).await, ["key.create", "key.reroll"]);
        assert_eq!(kw.list_audit_events(&new.id).await, ["key.reroll"]);
    }
}

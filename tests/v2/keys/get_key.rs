use domain::last_used;
use serde_json::{Value, json};

use crate::on_both_stacks;
use crate::support::NOON;
use crate::support::json::Fields as _;
use crate::support::scenario::{pass, plain, read, verify};
use crate::support::seed::IssuedKey;
use crate::support::version::Version::V2;

/// The first minute of the day after [`NOON`].
const MIDNIGHT_IN_MS: i64 = 12 * 3_600_000;

on_both_stacks! {
    async fn it_tells_when_a_key_was_last_used(kw) {
        let key = kw.create_key(json!({})).await;
        let refused = kw.create_key(json!({ "enabled": false })).await;
        let used = async |key: &IssuedKey| {
            kw.verify(&key.key).await.data();
            last_used::flush(&kw.app.last_used).await.unwrap();
            kw.get_key(&key.id).await["lastUsedAt"].clone()
        };
        assert!(kw.get_key(&key.id).await.get("lastUsedAt").is_none());

        assert_eq!(used(&key).await, NOON.0);
        kw.clock.advance_ms(60_000);
        let later = NOON.plus_ms(60_000);
        assert_eq!(used(&key).await, later.0);
        assert_eq!(used(&refused).await, Value::Null);
        // Another replica, which notes what was before.
        let other = kw.replica().await;
        kw.clock.advance_ms(-30_000);
        other.verify(&key.key).await.assert_code("VALID");
        last_used::flush(&other.app.last_used).await.unwrap();
        assert_eq!(kw.get_key(&key.id).await["lastUsedAt"], later.0);
    }

    async fn a_use_that_could_not_be_written_is_written_later(kw) {
        let key = kw.create_key(json!({})).await;
        kw.verify(&key.key).await.assert_code("VALID");
        kw.execute_sql("ALTER TABLE key_uses RENAME TO hidden_uses".into()).await;
        last_used::flush(&kw.app.last_used).await.unwrap_err();
        kw.execute_sql("ALTER TABLE hidden_uses RENAME TO key_uses".into()).await;

        last_used::flush(&kw.app.last_used).await.unwrap();

        assert_eq!(kw.get_key(&key.id).await["lastUsedAt"], NOON.0);
    }

    async fn a_key_that_is_purged_leaves_no_use(kw) {
        let key = kw.create_key(json!({})).await;
        kw.verify(&key.key).await.assert_code("VALID");
        kw.v2("keys.deleteKey", json!({ "keyId": key.id, "permanent": true })).await.data();
        last_used::flush(&kw.app.last_used).await.unwrap();
        assert_eq!(kw.count_rows("key_uses").await, 0);
    }

    async fn to_decrypt_needs_a_vault(kw) {
        let key = kw.create_key(json!({})).await;
        let with = kw.v2("keys.getKey", json!({ "keyId": key.id, "decrypt": true })).await;
        assert_eq!(kw.v2("keys.getKey", json!({ "keyId": key.id, "decrypt": false })).await.data().get("plaintext"), None);
        assert_eq!(with.assert_error(412, "precondition_failed")["title"], "Precondition Failed");
    }

    async fn who_may_not_read_is_not_told_about_the_vault(kw) {
        let key = kw.create_key(json!({})).await;
        let root_key = kw.create_root_key(["api.*.decrypt_key"]).await;
        let reply = kw.v2_as(&root_key, "keys.getKey", json!({ "keyId": key.id, "decrypt": true })).await;
        reply.assert_error(403, "insufficient_permissions");
    }

    async fn it_tells_the_state_of_the_key_and_spends_nothing(kw) {
        let refill = json!({ "interval": "daily", "amount": 100 });
        let credits = |remaining: i64| json!({ "credits": { "remaining": remaining } });
        let used = |balance: i64| vec![verify(json!({ "credits": { "cost": 2 } }), "VALID", json!({})), read(credits(balance - 2))];
        kw.run(V2, vec![
            ("a disabled key", json!({ "enabled": false }), vec![read(json!({ "enabled": false }))]),
            ("an expired key", json!({ "expires": NOON.0 - 1 }), vec![read(json!({ "enabled": true, "expires": NOON.0 - 1 }))]),
            ("what is left of few credits", credits(5), used(5)),
            ("what is left of many credits", credits(5_000), used(5_000)),
            ("looking spends nothing", credits(1), vec![read(credits(1)), read(credits(1)), read(credits(1)), plain("VALID", json!({}))]),
            ("a refill that is due", json!({ "credits": { "remaining": 1, "refill": refill } }), vec![
                pass(MIDNIGHT_IN_MS), read(json!({ "credits": { "remaining": 100, "refill": refill } })),
            ]),
        ]).await;
    }

    async fn an_identity_is_told_with_all_its_limits(kw) {
        let limit = json!({ "name": "requests", "limit": 3, "duration": 1000 });
        let key = kw.create_key(json!({ "externalId": "user_1", "ratelimits": [limit] })).await;
        let identity = kw.get_key(&key.id).await["identity"]["id"].as_str().unwrap().to_owned();
        kw.set_identity_limits(&identity, &[("tokens", 7, 60_000, false), ("requests", 5, 60_000, true)]).await;

        let told = kw.get_key(&key.id).await;

        assert!(told["identity"]["ratelimits"][0]["id"].as_str().unwrap().starts_with("rl_"));
        told.assert_has(json!({
            "identity.ratelimits.0.name": "requests", "identity.ratelimits.0.limit": 5, "identity.ratelimits.0.duration": 60_000,
            "identity.ratelimits.0.autoApply": true, "identity.ratelimits.1.name": "tokens", "identity.ratelimits.1.limit": 7,
            "identity.ratelimits.1.duration": 60_000, "identity.ratelimits.1.autoApply": false, "identity.ratelimits.2": null,
            "ratelimits.0.limit": 3, "ratelimits.1": null,
        }));
    }
}

use domain::last_used;
use serde_json::{Value, json};
use store::Store;

use crate::on_both_stacks;
use crate::support::NOON;
use crate::support::seed::IssuedKey;

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

    async fn a_key_that_is_purged_leaves_no_use(kw) {
        let key = kw.create_key(json!({})).await;
        kw.verify(&key.key).await.assert_code("VALID");

        let request = json!({ "keyId": key.id, "permanent": true });
        kw.v2("keys.deleteKey", request).await.data();
        last_used::flush(&kw.app.last_used).await.unwrap();

        let sql = "SELECT COUNT(*) FROM key_uses";
        let rows: i64 = match kw.store() {
            Store::Postgres { pool, .. } => sqlx::query_scalar(sql).fetch_one(&pool.get()).await.unwrap(),
            Store::Sqlite { pool, .. } => sqlx::query_scalar(sql).fetch_one(pool).await.unwrap(),
        };
        assert_eq!(rows, 0);
    }

    async fn a_disabled_or_expired_key_is_told(kw) {
        let disabled = kw.create_key(json!({ "enabled": false })).await;
        let expired = kw.create_key(json!({ "expires": NOON.0 - 1 })).await;

        assert_eq!(kw.get_key(&disabled.id).await["enabled"], false);
        assert_eq!(kw.get_key(&expired.id).await["enabled"], true);
        assert_eq!(kw.get_key(&expired.id).await["expires"], NOON.0 - 1);
    }

    async fn a_key_that_never_was_is_not_found(kw) {
        let reply = kw.v2("keys.getKey", json!({ "keyId": "key_nowhere" })).await;

        let error = reply.assert_error(404, "key_not_found");
        assert_eq!(error["title"], "Not Found");
        assert!(error["detail"].as_str().unwrap().contains("key_nowhere"), "{error}");
    }

    async fn letter_case_matters_in_an_id(kw) {
        let key = kw.create_key(json!({})).await;

        let reply = kw.v2("keys.getKey", json!({ "keyId": key.id.to_uppercase() })).await;

        reply.assert_error(404, "key_not_found");
    }

    async fn the_key_itself_is_no_id(kw) {
        let key = kw.create_key(json!({})).await;

        let reply = kw.v2("keys.getKey", json!({ "keyId": key.key })).await;

        reply.assert_error(404, "key_not_found");
    }

    async fn who_may_not_read_learns_that_the_key_exists(kw) {
        let api = kw.create_api().await;
        let key = kw.create_key_in(&api, json!({})).await;
        let root_key = kw.create_root_key(["api.*.verify_key"]).await;

        let real = kw.v2_as(&root_key, "keys.getKey", json!({ "keyId": key.id })).await;
        let none = kw.v2_as(&root_key, "keys.getKey", json!({ "keyId": "key_nowhere" })).await;

        let detail = real.assert_error(403, "insufficient_permissions")["detail"].clone();
        let detail = detail.as_str().unwrap();
        assert!(detail.contains("api.*.read_key"), "{detail}");
        assert!(detail.contains(&format!("api.{api}.read_key")), "{detail}");
        none.assert_error(404, "key_not_found");
    }

    async fn a_permission_for_one_api_shows_no_key_of_another(kw) {
        let api = kw.create_api().await;
        let (own, other) = (kw.create_key_in(&api, json!({})).await, kw.create_key(json!({})).await);
        let root_key = kw.create_root_key([&*format!("api.{api}.read_key")]).await;

        let shown = kw.v2_as(&root_key, "keys.getKey", json!({ "keyId": own.id })).await;
        let refused = kw.v2_as(&root_key, "keys.getKey", json!({ "keyId": other.id })).await;

        assert_eq!(shown.data()["keyId"], own.id);
        refused.assert_error(403, "insufficient_permissions");
    }

    async fn to_decrypt_needs_a_vault(kw) {
        let key = kw.create_key(json!({})).await;

        let with = kw.v2("keys.getKey", json!({ "keyId": key.id, "decrypt": true })).await;
        let without = kw.v2("keys.getKey", json!({ "keyId": key.id, "decrypt": false })).await;

        assert_eq!(with.assert_error(412, "precondition_failed")["title"], "Precondition Failed");
        assert_eq!(without.data().get("plaintext"), None);
    }

    async fn who_may_not_read_is_not_told_about_the_vault(kw) {
        let key = kw.create_key(json!({})).await;
        let root_key = kw.create_root_key(["api.*.decrypt_key"]).await;
        let request = json!({ "keyId": key.id, "decrypt": true });

        let reply = kw.v2_as(&root_key, "keys.getKey", request).await;

        reply.assert_error(403, "insufficient_permissions");
    }

    async fn credits_are_what_is_left_after_the_last_verification(kw) {
        for balance in [5, 5_000] {
            let key = kw.create_key(json!({ "credits": { "remaining": balance } })).await;
            kw.verify_with(&key.key, json!({ "credits": { "cost": 2 } })).await.assert_code("VALID");

            let told = kw.get_key(&key.id).await;

            assert_eq!(told["credits"], json!({ "remaining": balance - 2 }));
        }
    }

    async fn looking_spends_nothing(kw) {
        let key = kw.create_key(json!({ "credits": { "remaining": 1 } })).await;

        for _ in 0..3 {
            assert_eq!(kw.get_key(&key.id).await["credits"]["remaining"], 1);
        }

        kw.verify(&key.key).await.assert_code("VALID");
    }

    async fn a_refill_that_is_due_is_told(kw) {
        let refill = json!({ "interval": "daily", "amount": 100 });
        let key = kw.create_key(json!({ "credits": { "remaining": 1, "refill": refill } })).await;

        kw.clock.advance_ms(MIDNIGHT_IN_MS);

        let told = kw.get_key(&key.id).await;
        assert_eq!(told["credits"], json!({ "remaining": 100, "refill": refill }));
    }

    async fn an_identity_is_told_with_all_its_limits(kw) {
        let limit = json!({ "name": "requests", "limit": 3, "duration": 1000 });
        let key = kw.create_key(json!({ "externalId": "user_1", "ratelimits": [limit] })).await;
        let identity = kw.get_key(&key.id).await["identity"]["id"].as_str().unwrap().to_owned();
        kw.set_identity_limits(
            &identity,
            &[("tokens", 7, 60_000, false), ("requests", 5, 60_000, true)],
        )
        .await;

        let told = kw.get_key(&key.id).await;

        let limits: Vec<_> = told["identity"]["ratelimits"]
            .as_array()
            .unwrap()
            .iter()
            .map(|limit| {
                assert!(limit["id"].as_str().unwrap().starts_with("rl_"));
                json!([limit["name"], limit["limit"], limit["duration"], limit["autoApply"]])
            })
            .collect();
        assert_eq!(
            limits,
            [json!(["requests", 5, 60_000, true]), json!(["tokens", 7, 60_000, false])]
        );
        assert_eq!(told["ratelimits"].as_array().unwrap().len(), 1);
        assert_eq!(told["ratelimits"][0]["limit"], 3);
    }
}

//! Tests what introspection says of keys, and what it spends.

use foundation::model::Networks;
use serde_json::{Value, json};

use crate::on_both_stacks;
use crate::support::{Keyward, NOON, Stack};

on_both_stacks! {
    async fn introspection_describes_an_active_key(kw) {
        let api = kw.create_api().await;
        kw.create_role("editor", ["documents.write"]).await;
        let key = kw
            .create_key_in(&api, json!({
                "name": "for billing", "externalId": "user_1", "meta": { "plan": "pro" },
                "roles": ["editor"], "permissions": ["documents.read"],
                "expires": NOON.0 + 90_999, "credits": { "remaining": 7 },
            }))
            .await;

        let reply = kw.introspect(&key.key, &[("token_type_hint", "refresh_token")]).await;

        let mut body = reply.assert_active().clone();
        let identity = body["keyward"]["identity"]["id"].take();
        assert!(identity.as_str().is_some_and(|id| id.starts_with("id_")), "{identity}");
        assert_eq!(body, json!({
            "active": true,
            "scope": "documents.read documents.write",
            "client_id": api,
            "sub": "user_1",
            "token_type": "Bearer",
            "exp": NOON.0 / 1000 + 90,
            "iat": NOON.0 / 1000,
            "jti": key.id,
            "keyward": {
                "name": "for billing",
                "credits": 7,
                "meta": { "plan": "pro" },
                "roles": ["editor"],
                "identity": { "id": null, "externalId": "user_1" },
            },
        }));
        assert_eq!(reply.headers["content-type"], "application/json");
        assert_eq!(reply.headers["cache-control"], "no-store");
        assert!(!reply.text.contains(&key.key));
    }

    async fn introspection_omits_what_a_plain_key_does_not_have(kw) {
        let api = kw.create_api().await;
        let key = kw.create_key_in(&api, json!({})).await;

        let reply = kw.introspect(&key.key, &[]).await;

        let iat = NOON.0 / 1000;
        assert_eq!(*reply.assert_active(), json!({
            "active": true, "client_id": api, "sub": key.id, "token_type": "Bearer", "iat": iat,
            "jti": key.id, "keyward": {},
        }));
    }

    async fn introspection_returns_environment_and_owner_of_v1_keys(kw) {
        let api = kw.create_api().await;
        let fields = json!({ "environment": "test", "ownerId": "user_1" });
        let key = kw.create_key_v1(&api, fields).await;

        let reply = kw.introspect(&key.key, &[]).await;

        assert_eq!(reply.assert_active()["keyward"]["environment"], "test");
        assert_eq!(reply.assert_active()["sub"], "user_1");
    }

    async fn introspection_returns_only_inactive_when_key_is_not_usable(kw) {
        let disabled = kw.create_key(json!({ "enabled": false })).await;
        let deleted = kw.create_key(json!({})).await;
        let expiring = kw.create_key(json!({ "expires": NOON.0 + 1000 })).await;
        kw.introspect(&deleted.key, &[]).await.assert_active();
        kw.v2("keys.deleteKey", json!({ "keyId": deleted.id })).await.data();

        kw.introspect(&disabled.key, &[]).await.assert_inactive();
        kw.introspect(&deleted.key, &[]).await.assert_inactive();
        kw.introspect("nobody_knows_this_key", &[]).await.assert_inactive();
        kw.introspect(&kw.root_key, &[]).await.assert_inactive();
        kw.clock.advance_ms(1000);
        kw.introspect(&expiring.key, &[]).await.assert_active();
        kw.clock.advance_ms(1);
        kw.introspect(&expiring.key, &[]).await.assert_inactive();
    }

    async fn introspection_returns_only_inactive_when_key_is_foreign(kw) {
        let api = kw.create_api().await;
        let (own, other) = (kw.create_key_in(&api, json!({})).await, kw.create_key(json!({})).await);
        let foreign_root_key = kw.create_other_workspace().await;
        let root_key = kw.create_root_key([&*format!("api.{api}.verify_key")]).await;

        kw.introspect_as(&foreign_root_key, &own.key, &[]).await.assert_inactive();
        kw.introspect_as(&root_key, &other.key, &[]).await.assert_inactive();
        kw.introspect_as(&root_key, &own.key, &[]).await.assert_active();
    }

    async fn introspection_without_cost_spends_nothing(kw) {
        let key = kw.create_key(limited_key(2, 1)).await;

        for _ in 0..3 {
            let reply = kw.introspect(&key.key, &[]).await;
            assert_eq!(reply.assert_active()["keyward"]["credits"], 2);
        }
        kw.verify(&key.key).await.assert_code("VALID");
        kw.verify(&key.key).await.assert_code("RATE_LIMITED");
        // The limit is exhausted, and is not looked at.
        let reply = kw.introspect(&key.key, &[]).await;

        assert_eq!(reply.assert_active()["keyward"]["credits"], 1);
    }

    async fn introspection_without_cost_is_active_when_no_credits_remain(kw) {
        let key = kw.create_key(json!({ "credits": { "remaining": 0 } })).await;

        let reply = kw.introspect(&key.key, &[]).await;

        assert_eq!(reply.assert_active()["keyward"]["credits"], 0);
        kw.introspect(&key.key, &[("cost", "1")]).await.assert_inactive();
    }

    async fn introspection_with_cost_spends_credits_and_limits(kw) {
        let key = kw.create_key(limited_key(10, 2)).await;

        let first = kw.introspect(&key.key, &[("cost", "3")]).await;
        let second = kw.introspect(&key.key, &[("cost", "0")]).await;
        let third = kw.introspect(&key.key, &[("cost", "3")]).await;
        let peek = kw.introspect(&key.key, &[("cost", "")]).await;

        assert_eq!(first.assert_active()["keyward"]["credits"], 7);
        assert_eq!(second.assert_active()["keyward"]["credits"], 7);
        third.assert_inactive();
        assert_eq!(peek.assert_active()["keyward"]["credits"], 7);
        kw.verify(&key.key).await.assert_code("RATE_LIMITED");
    }

    async fn introspection_with_cost_is_inactive_when_credits_do_not_suffice(kw) {
        let key = kw.create_key(json!({ "credits": { "remaining": 3 } })).await;

        kw.introspect(&key.key, &[("cost", "4")]).await.assert_inactive();
        let reply = kw.introspect(&key.key, &[("cost", "3")]).await;

        assert_eq!(reply.assert_active()["keyward"]["credits"], 0);
    }

    async fn introspection_checks_the_network_of_the_end_user(kw) {
        let api = kw.create_api().await;
        let key = kw.create_key_in(&api, json!({})).await;
        let networks = Networks::new(Networks::parse("10.0.0.0/8").unwrap());
        kw.update_api(&api, |settings| settings.allowed_networks = networks).await;

        kw.introspect(&key.key, &[("ip_address", "10.0.0.1")]).await.assert_active();
        kw.introspect(&key.key, &[("ip_address", "11.0.0.1")]).await.assert_inactive();
        kw.introspect(&key.key, &[]).await.assert_inactive();
    }

    async fn introspection_records_the_events_of_a_verification(kw) {
        let key = kw.create_key(json!({ "credits": { "remaining": 9 }, "enabled": true })).await;

        let replies = [
            kw.introspect(&key.key, &[]).await,
            kw.introspect(&key.key, &[("cost", "2")]).await,
            kw.introspect(&key.key, &[("cost", "20")]).await,
            kw.introspect("nobody_knows_this_key", &[]).await,
        ];
        kw.write_events().await;

        let mut rows = kw
            .query_events(
                "SELECT v.request_id || ' ' || s.key_id || ' ' || s.outcome || ' ' || v.spent_credits
                FROM verifications v JOIN verification_series s ON s.id = v.series",
            )
            .await;
        rows.sort();
        let request = |at: usize| replies[at].headers["keyward-request-id"].to_str().unwrap();
        let mut expected = vec![
            format!("{} {} VALID 0", request(0), key.id),
            format!("{} {} VALID 2", request(1), key.id),
            format!("{} {} USAGE_EXCEEDED 0", request(2), key.id),
        ];
        expected.sort();
        assert_eq!(rows, expected);
    }
}

#[tokio::test]
async fn introspection_is_the_same_on_every_replica() {
    let kw = Keyward::start(Stack::Replica).await;
    let other = kw.replica().await;
    let key = kw.create_key(json!({ "credits": { "remaining": 5_000 } })).await;
    kw.introspect(&key.key, &[("cost", "1")]).await.assert_active();

    let here = kw.introspect(&key.key, &[]).await;
    let there = other.introspect(&key.key, &[]).await;

    assert_eq!(here.assert_active(), there.assert_active());
    assert_eq!(there.body["keyward"]["credits"], 4_999);
}

fn limited_key(credits: i64, limit: i64) -> Value {
    json!({
        "credits": { "remaining": credits },
        "ratelimits": [
            { "name": "requests", "limit": limit, "duration": 60_000, "autoApply": true },
        ],
    })
}

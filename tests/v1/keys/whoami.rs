use serde_json::json;

use crate::on_both_stacks;
use crate::support::json::Fields as _;
use crate::support::{Keyward, NOON, Reply};

async fn whoami(kw: &Keyward, key: &str) -> Reply {
    kw.v1("keys.whoami", json!({ "key": key })).await
}

on_both_stacks! {
    async fn a_bare_key_is_its_id_its_age_and_whether_it_is_enabled(kw) {
        let key = kw.create_key(json!({ "meta": {} })).await;
        assert_eq!(*whoami(&kw, &key.key).await.v1_body(), json!({ "id": key.id, "createdAt": NOON.0, "enabled": true }));
    }

    async fn a_full_key_shows_what_it_has_and_not_itself(kw) {
        let meta = json!({ "externalId": "user_1", "meta": { "plan": "pro" } });
        let identity = kw.v2("identities.createIdentity", meta).await.text_of("identityId");
        let api = kw.create_api().await;
        let key = kw
            .create_key_v1(&api, json!({
                "name": "for billing", "prefix": "prod", "externalId": "user_1",
                "meta": { "team": 7 }, "remaining": 7, "environment": "staging",
                "expires": NOON.0 + 1, "ratelimit": { "limit": 1, "duration": 1000 },
            }))
            .await;

        assert_eq!(
            *whoami(&kw, &key.key).await.v1_body(),
            json!({
                "id": key.id, "name": "for billing", "createdAt": NOON.0, "enabled": true, "remaining": 7,
                "meta": { "team": 7 }, "environment": "staging", "identity": { "id": identity, "externalId": "user_1" },
            }),
        );

        assert_eq!(kw.v2("keys.whoami", json!({ "key": key.key })).await.data()["keyId"], key.id);
    }

    async fn looking_spends_nothing_and_spoils_no_verification(kw) {
        kw.create_permission("docs.read").await;
        let api = kw.create_api().await;
        let key = kw
            .create_key_v1(&api, json!({
                "externalId": "user_1", "remaining": 1, "permissions": ["docs.read"],
                "ratelimit": { "limit": 1, "duration": 60_000 },
            }))
            .await;

        for _ in 0..3 {
            assert_eq!(whoami(&kw, &key.key).await.v1_body()["remaining"], 1);
        }

        let reply = kw.verify_v1(&key.key, json!({})).await;
        let verified = reply.assert_v1_code("VALID");
        assert_eq!(verified["permissions"], json!(["docs.read"]));
        verified.assert_has(json!({ "ownerId": "user_1", "ratelimit.limit": 1 }));
        assert_eq!(whoami(&kw, &key.key).await.v1_body()["remaining"], 0);
    }

    async fn a_disabled_or_expired_key_is_told(kw) {
        let disabled = kw.create_key(json!({ "enabled": false })).await;
        let expired = kw.create_key(json!({ "expires": NOON.0 - 1 })).await;
        for (key, enabled) in [(disabled, false), (expired, true)] {
            whoami(&kw, &key.key).await.v1_body().assert_has(json!({ "id": key.id, "enabled": enabled }));
        }
    }

    async fn a_key_that_is_none_is_not_found_and_not_repeated(kw) {
        let deleted = kw.create_key(json!({})).await;
        kw.v1("keys.deleteKey", json!({ "keyId": deleted.id })).await.v1_body();

        for key in [&deleted.key, &kw.root_key, "prod_neverIssued", &*"k".repeat(513), &*"k".repeat(1_000_000)] {
            let reply = whoami(&kw, key).await;
            reply.assert_v1_error(404, "NOT_FOUND");
            assert!(!reply.text.contains(key), "{}", reply.text);
        }
    }
}

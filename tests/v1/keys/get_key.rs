use serde_json::{Value, json};

use crate::on_both_stacks;
use crate::support::{Keyward, NOON, Reply};

const HOUR: i64 = 3_600_000;

async fn get(kw: &Keyward, root_key: &str, query: &str) -> Reply {
    kw.v1_get_as(root_key, "keys.getKey", query).await
}

on_both_stacks! {
    async fn a_key_of_version_2_is_told_in_the_words_of_version_1(kw) {
        let key = kw
            .create_key(json!({
                "externalId": "user_1",
                "credits": { "remaining": 7, "refill": { "interval": "daily", "amount": 9 } },
                "ratelimits": [
                    { "name": "uploads", "limit": 5, "duration": 2_000 },
                    { "name": "default", "limit": 60, "duration": 60_000 },
                ],
            }))
            .await;

        let told = kw.get_key_v1(&key.id).await;

        assert_eq!((&told["id"], &told["remaining"]), (&json!(key.id), &json!(7)));
        let refill = json!({
            "interval": "daily", "amount": 9, "refillDay": null, "lastRefillAt": NOON.0,
        });
        assert_eq!(told["refill"], refill);
        let limit = &told["ratelimit"];
        assert_eq!((&limit["limit"], &limit["duration"]), (&json!(60), &json!(60_000)));
        assert_eq!(told["ownerId"], "user_1");
    }

    async fn a_new_key_counts_as_refilled_and_then_is_at_midnight(kw) {
        let api = kw.create_api().await;
        let daily = json!({ "interval": "daily", "amount": 9 });
        let key = kw.create_key_v1(&api, json!({ "remaining": 7, "refill": daily })).await;
        let told = async || {
            let told = kw.get_key_v1(&key.id).await;
            let listed = kw.v1_get("apis.listKeys", &format!("apiId={api}")).await;
            assert_eq!(listed.v1_body()["keys"][0], told);
            told["refill"]["lastRefillAt"].clone()
        };
        kw.clock.advance_ms(HOUR);

        assert_eq!(told().await, NOON.0);
        // Due, and done.
        kw.clock.advance_ms(23 * HOUR);
        assert_eq!(told().await, NOON.0 + 12 * HOUR);
        kw.verify_v1(&key.key, json!({})).await.assert_v1_code("VALID");
        assert_eq!(told().await, NOON.0 + 12 * HOUR);
    }

    async fn a_refill_that_came_with_a_change_has_not_been_until_it_is_due(kw) {
        let api = kw.create_api().await;
        let daily = json!({ "interval": "daily", "amount": 9 });
        let key = kw.create_key_v1(&api, json!({ "remaining": 7 })).await;

        let change = json!({ "keyId": key.id, "refill": daily });
        kw.v1("keys.updateKey", change).await.v1_body();

        let refill = kw.get_key_v1(&key.id).await["refill"].clone();
        assert_eq!(refill, json!({ "interval": "daily", "amount": 9, "refillDay": null }));
        kw.clock.advance_ms(12 * HOUR);
        for _ in 0..2 {
            let refill = kw.get_key_v1(&key.id).await["refill"].clone();
            assert_eq!(refill["lastRefillAt"], NOON.0 + 12 * HOUR);
            kw.verify_v1(&key.key, json!({})).await.assert_v1_code("VALID");
        }
    }

    async fn a_limit_by_another_name_is_not_told(kw) {
        let limit = json!({ "name": "uploads", "limit": 5, "duration": 2_000 });
        let key = kw.create_key(json!({ "ratelimits": [limit] })).await;

        assert_eq!(kw.get_key_v1(&key.id).await.get("ratelimit"), None);
    }

    async fn permissions_are_the_slugs_of_the_key_and_its_roles_once_each(kw) {
        let request = json!({ "name": "Read documents", "slug": "docs.read" });
        kw.v2("permissions.createPermission", request).await.data();
        kw.create_role("editor", ["docs.write", "docs.read"]).await;
        let key = kw.create_key(json!({ "roles": ["editor"], "permissions": ["docs.read"] })).await;

        let told = kw.get_key_v1(&key.id).await;

        assert_eq!(told["permissions"], json!(["docs.read", "docs.write"]));
        assert_eq!(told["roles"], json!(["editor"]));
    }

    async fn the_meta_of_the_identity_is_told_with_it(kw) {
        let meta = json!({ "plan": "pro" });
        let identity = json!({ "externalId": "user_1", "meta": meta });
        let identity = kw.v2("identities.createIdentity", identity).await.text_of("identityId");
        let key = kw.create_key(json!({ "externalId": "user_1" })).await;

        let told = kw.get_key_v1(&key.id).await;

        let identity = json!({ "id": identity, "externalId": "user_1", "meta": meta });
        assert_eq!(told["identity"], identity);
    }

    async fn when_it_was_changed_is_told_once_it_was(kw) {
        let key = kw.create_key(json!({})).await;
        let before = kw.get_key_v1(&key.id).await;
        kw.clock.advance_ms(HOUR);

        kw.v1("keys.updateKey", json!({ "keyId": key.id, "name": "renamed" })).await.v1_body();

        let after = kw.get_key_v1(&key.id).await;
        assert_eq!(before.get("updatedAt"), None);
        assert_eq!(after["updatedAt"], NOON.0 + HOUR);
        assert_eq!(after["createdAt"], NOON.0);
    }

    async fn what_is_left_is_told_and_looking_spends_nothing(kw) {
        let refill = json!({ "interval": "daily", "amount": 9 });
        let key = kw.create_key(json!({ "credits": { "remaining": 2, "refill": refill } })).await;
        kw.verify_v1(&key.key, json!({})).await.assert_v1_code("VALID");

        for _ in 0..3 {
            assert_eq!(kw.get_key_v1(&key.id).await["remaining"], 1);
        }
        kw.clock.advance_ms(12 * HOUR);
        assert_eq!(kw.get_key_v1(&key.id).await["remaining"], 9);
    }

    async fn a_disabled_or_expired_key_is_told(kw) {
        let disabled = kw.create_key(json!({ "enabled": false })).await;
        let expired = kw.create_key(json!({ "expires": NOON.0 - 1 })).await;

        assert_eq!(kw.get_key_v1(&disabled.id).await["enabled"], false);
        assert_eq!(kw.get_key_v1(&expired.id).await["expires"], NOON.0 - 1);
    }

    async fn a_recoverable_key_is_shown_to_who_means_it(kw) {
        let api = kw.create_api().await;
        kw.update_api(&api, |settings| settings.allows_recoverable_keys = true).await;
        let key = kw.create_key_in(&api, json!({ "recoverable": true })).await;
        for (decrypt, shown) in [
            ("", None), ("&decrypt=", None), ("&decrypt=false", None), ("&decrypt=0", None),
            ("&decrypt=true", Some(json!(key.key))), ("&decrypt=1", Some(json!(key.key))),
        ] {
            let reply = get(&kw, &kw.root_key, &format!("keyId={}{decrypt}", key.id)).await;

            assert_eq!(reply.v1_body().get("plaintext"), shown.as_ref(), "{decrypt}");
        }
        assert_eq!(kw.list_audit_events(&key.id).await, ["key.create", "key.decrypt", "key.decrypt"]);
    }

    async fn showing_it_needs_a_right_of_its_own_which_is_named(kw) {
        let (api, other) = (kw.create_api().await, kw.create_api().await);
        kw.update_api(&api, |settings| settings.allows_recoverable_keys = true).await;
        let key = kw.create_key_in(&api, json!({ "recoverable": true })).await;
        let query = format!("keyId={}&decrypt=true", key.id);
        let of_other = format!("api.{other}.decrypt_key");
        let of_own = format!("api.{api}.decrypt_key");
        for (right, may) in [
            ("api.*.read_api", false), (&*of_other, false), ("api.*.decrypt_key", true),
            (&*of_own, true),
        ] {
            let root_key = kw.create_root_key(["api.*.read_key", right]).await;

            let reply = get(&kw, &root_key, &query).await;

            if may {
                assert_eq!(reply.v1_body()["plaintext"], key.key, "{right}");
                continue;
            }
            let message = reply.assert_v1_error(403, "INSUFFICIENT_PERMISSIONS");
            assert!(message.contains("api.*.decrypt_key"), "{message}");
            assert!(message.contains(&of_own), "{message}");
            assert!(!reply.text.contains(&key.key));
        }
    }

    async fn where_no_copy_is_kept_none_is_shown(kw) {
        let sealing = kw.create_api().await;
        kw.update_api(&sealing, |settings| settings.allows_recoverable_keys = true).await;
        let unsealed = kw.create_key_in(&sealing, json!({})).await;
        let in_another = kw.create_key(json!({})).await;

        for key in [unsealed, in_another] {
            let reply = get(&kw, &kw.root_key, &format!("keyId={}&decrypt=true", key.id)).await;

            assert_eq!(reply.v1_body()["id"], key.id);
            assert_eq!(reply.body.get("plaintext"), None);
        }
    }

    async fn a_root_key_for_one_api_reads_no_key_of_another(kw) {
        let api = kw.create_api().await;
        let (own, other) = (kw.create_key_in(&api, json!({})).await, kw.create_key(json!({})).await);
        let root_key = kw.create_root_key([&*format!("api.{api}.read_key")]).await;

        let shown = get(&kw, &root_key, &format!("keyId={}", own.id)).await;
        let refused = get(&kw, &root_key, &format!("keyId={}", other.id)).await;

        assert_eq!(shown.v1_body()["id"], own.id);
        let message = refused.assert_v1_error(403, "INSUFFICIENT_PERMISSIONS");
        assert!(message.contains("api.*.read_key"), "{message}");
    }

    async fn a_key_that_is_not_there_is_named(kw) {
        let deleted = kw.create_key(json!({})).await.id;
        kw.v1("keys.deleteKey", json!({ "keyId": deleted })).await.v1_body();

        for id in [&*deleted, "key_nowhere"] {
            let message = get(&kw, &kw.root_key, &format!("keyId={id}"))
                .await
                .assert_v1_error(404, "NOT_FOUND");
            assert!(message.contains(id), "{message}");
        }
        for query in ["", "keyId="] {
            let reply = get(&kw, &kw.root_key, query).await;
            let message = reply.assert_v1_error(400, "BAD_REQUEST");
            let told = match query {
                "" => "keyId: Required",
                _ => "keyId: String must contain at least 1 character(s)",
            };
            assert_eq!(message, told);
        }
    }

    async fn neither_the_key_nor_its_hash_is_told(kw) {
        let key = kw.create_key(json!({ "prefix": "prod" })).await;
        let reply = get(&kw, &kw.root_key, &format!("keyId={}", key.id)).await;

        let told: &Value = reply.v1_body();

        assert_eq!((told.get("hash"), told.get("key")), (None, None));
        assert!(!reply.text.contains(&key.key), "{}", reply.text);
    }
}

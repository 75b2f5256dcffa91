mod refused;

use domain::root_keys;
use foundation::secret::KeyHash;
use futures_util::future::join_all;
use serde_json::{Value, json};
use store::Store;

use crate::on_both_stacks;
use crate::support::NOON;

const HOUR: i64 = 3_600_000;

/// How many random bytes are in a key that has no prefix.
fn random_bytes(key: &str) -> usize {
    bs58::decode(key).into_vec().expect("base58").len()
}

on_both_stacks! {
    async fn the_reply_is_the_id_and_the_key_which_both_versions_verify(kw) {
        let api = kw.create_api().await;

        let reply = kw.v1("keys.createKey", json!({ "apiId": api })).await;

        let fields: Vec<_> = reply.v1_body().as_object().unwrap().keys().collect();
        assert_eq!(fields, ["key", "keyId"]);
        let id = reply.body["keyId"].as_str().unwrap();
        assert!(id.starts_with("key_") && id.len() >= 20, "{id}");
        let key = reply.body["key"].as_str().unwrap();
        assert_eq!(kw.verify_v1(key, json!({})).await.assert_v1_code("VALID")["keyId"], id);
        kw.verify(key).await.assert_code("VALID");
    }

    async fn a_key_of_nothing_but_an_api_has_the_defaults(kw) {
        let api = kw.create_api().await;
        let key = kw.create_key_v1(&api, json!({})).await;

        assert_eq!(random_bytes(&key.key), 16);
        let mut told = kw.get_key_v1(&key.id).await;
        let start = told["start"].take();
        assert!(key.key.starts_with(start.as_str().unwrap()), "{start}");
        assert_eq!(
            told,
            json!({
                "id": key.id, "start": null, "workspaceId": root_keys::default_workspace(),
                "apiId": api, "createdAt": NOON.0, "roles": [], "permissions": [],
                "enabled": true,
            })
        );
    }

    async fn every_field_is_told_by_get_key_of_both_versions(kw) {
        kw.create_permission("docs.read").await;
        kw.create_role("editor", ["docs.write"]).await;
        let api = kw.create_api().await;
        let refill = json!({ "interval": "monthly", "amount": 100, "refillDay": 31 });
        let key = kw
            .create_key_v1(&api, json!({
                "prefix": "prod", "name": "for billing", "byteLength": 32,
                "externalId": "user_1", "meta": { "plan": "pro" }, "roles": ["editor"],
                "permissions": ["docs.read"], "expires": NOON.0 + 1, "remaining": 7,
                "refill": refill, "ratelimit": { "limit": 60, "duration": 60_000, "async": true },
                "enabled": false, "recoverable": false, "environment": "staging",
            }))
            .await;

        let mut told = kw.get_key_v1(&key.id).await;
        let second = kw.get_key(&key.id).await;

        let identity = told["identity"]["id"].take();
        assert!(identity.as_str().unwrap().starts_with("id_"), "{identity}");
        let mut refilled = refill.clone();
        refilled["lastRefillAt"] = json!(NOON.0);
        assert_eq!(
            told,
            json!({
                "id": key.id, "start": key.key[..9],
                "workspaceId": root_keys::default_workspace(), "apiId": api,
                "name": "for billing", "ownerId": "user_1", "meta": { "plan": "pro" },
                "createdAt": NOON.0, "expires": NOON.0 + 1, "remaining": 7, "refill": refilled,
                "ratelimit": {
                    "async": true, "type": "fast", "limit": 60, "duration": 60_000,
                    "refillRate": 60, "refillInterval": 60_000,
                },
                "roles": ["editor"], "permissions": ["docs.read", "docs.write"],
                "enabled": false, "environment": "staging",
                "identity": { "id": null, "externalId": "user_1", "meta": {} },
            })
        );
        for (field, told) in [
            ("name", json!("for billing")), ("meta", json!({ "plan": "pro" })),
            ("enabled", json!(false)), ("expires", json!(NOON.0 + 1)),
            ("credits", json!({ "remaining": 7, "refill": refill })),
            ("permissions", json!(["docs.read", "docs.write"])), ("roles", json!(["editor"])),
        ] {
            assert_eq!(second[field], told, "{field}");
        }
        assert_eq!(second["identity"]["externalId"], "user_1");
        assert_eq!(second["ratelimits"][0]["name"], "default");
        assert_eq!(random_bytes(key.key.strip_prefix("prod_").unwrap()), 32);
    }

    async fn what_is_left_out_is_as_the_api_is_set(kw) {
        let api = kw.create_api().await;
        kw.update_api(&api, |settings| {
            settings.default_prefix = Some("live".into());
            settings.default_byte_length = Some(24);
        })
        .await;

        let default = kw.create_key_v1(&api, json!({})).await;
        let own = kw.create_key_v1(&api, json!({ "prefix": "test", "byteLength": 16 })).await;
        let none = kw.create_key_v1(&api, json!({ "prefix": "" })).await;

        assert_eq!(random_bytes(default.key.strip_prefix("live_").unwrap()), 24);
        assert_eq!(random_bytes(own.key.strip_prefix("test_").unwrap()), 16);
        assert_eq!(random_bytes(&none.key), 24);
        assert_eq!(kw.get_key_v1(&default.id).await["start"], default.key[..9]);
        assert_eq!(kw.get_key_v1(&own.id).await["start"], own.key[..9]);
    }

    async fn whatever_the_prefix_four_characters_of_the_secret_are_shown(kw) {
        let api = kw.create_api().await;
        for prefix in ["p", "with space-and.dot", "ключ", "🗝🗝🗝🗝🗝🗝🗝🗝🗝🗝🗝🗝🗝🗝🗝🗝"] {
            let prefix: String = prefix.chars().take(16).collect();
            let key = kw.create_key_v1(&api, json!({ "prefix": prefix })).await;

            let random = key.key.strip_prefix(&format!("{prefix}_")).unwrap();
            let start = format!("{prefix}_{}", &random[..4]);
            assert_eq!(kw.get_key_v1(&key.id).await["start"], start);
            kw.verify_v1(&key.key, json!({})).await.assert_v1_code("VALID");
        }
    }

    async fn of_a_key_without_a_prefix_five_characters_are_shown(kw) {
        let api = kw.create_api().await;
        for fields in [json!({}), json!({ "prefix": "" })] {
            let key = kw.create_key_v1(&api, fields).await;

            let told = kw.get_key_v1(&key.id).await;

            assert_eq!(told["start"], key.key[..5]);
        }
    }

    async fn less_than_no_uses_is_none_left(kw) {
        let api = kw.create_api().await;
        for remaining in [-1, i64::MIN] {
            let key = kw.create_key_v1(&api, json!({ "remaining": remaining })).await;

            let reply = kw.verify_v1(&key.key, json!({})).await;

            assert_eq!(reply.assert_v1_code("USAGE_EXCEEDED")["remaining"], 0);
            assert_eq!(kw.get_key_v1(&key.id).await["remaining"], 0);
        }
        let key = kw.create_key_v1(&api, json!({ "remaining": 1 })).await;
        kw.verify_v1(&key.key, json!({})).await.assert_v1_code("VALID");
    }

    async fn of_the_key_itself_only_the_hash_is_kept(kw) {
        let api = kw.create_api().await;
        let key = kw.create_key_v1(&api, json!({ "prefix": "prod" })).await;

        let sql = "SELECT hash FROM keys";
        let hash: String = match kw.store() {
            Store::Postgres { pool, .. } => sqlx::query_scalar(sql).fetch_one(&pool.get()).await.unwrap(),
            Store::Sqlite { pool, .. } => sqlx::query_scalar(sql).fetch_one(pool).await.unwrap(),
        };
        assert_eq!(hash, KeyHash::compute(&key.key).to_base64());
    }

    async fn either_name_of_the_user_makes_an_identity_and_the_external_id_counts(kw) {
        let api = kw.create_api().await;
        for (fields, user) in [
            (json!({ "ownerId": "user_1" }), "user_1"),
            (json!({ "externalId": "user_2" }), "user_2"),
            (json!({ "ownerId": "nobody", "externalId": "user_3" }), "user_3"),
        ] {
            let key = kw.create_key_v1(&api, fields).await;

            let told = kw.get_key_v1(&key.id).await;
            assert_eq!(told["ownerId"], user);
            assert_eq!(told["identity"]["externalId"], user);
            let reply = kw.verify_v1(&key.key, json!({})).await;
            let verified = reply.assert_v1_code("VALID");
            assert_eq!(verified["ownerId"], user);
            assert_eq!(verified["identity"], told["identity"]);
            let second = kw.verify(&key.key).await;
            assert_eq!(second.data()["identity"]["externalId"], user);
        }
        assert_eq!(kw.count_rows("identities").await, 3);
    }

    async fn keys_made_at_once_for_one_user_share_an_identity(kw) {
        let api = kw.create_api().await;
        let request = json!({ "apiId": api, "externalId": "user_1" });

        let replies = join_all((0..6).map(|_| kw.v1("keys.createKey", request.clone()))).await;

        for reply in replies {
            reply.v1_body();
        }
        assert_eq!((kw.count_rows("keys").await, kw.count_rows("identities").await), (6, 1));
    }

    async fn what_is_named_twice_is_given_once(kw) {
        kw.create_permission("docs.read").await;
        kw.create_role("editor", ["docs.read"]).await;
        let api = kw.create_api().await;
        let fields = json!({
            "roles": ["editor", "editor"], "permissions": ["docs.read", "docs.read"],
        });

        let key = kw.create_key_v1(&api, fields).await;

        let told = kw.get_key_v1(&key.id).await;
        assert_eq!(told["roles"], json!(["editor"]));
        assert_eq!(told["permissions"], json!(["docs.read"]));
    }

    async fn uses_come_back_when_it_is_said(kw) {
        let api = kw.create_api().await;
        for (refill, told) in [
            (
                json!({ "interval": "daily", "amount": 9 }),
                json!({ "interval": "daily", "amount": 9, "refillDay": null }),
            ),
            (
                json!({ "interval": "monthly", "amount": 9 }),
                json!({ "interval": "monthly", "amount": 9, "refillDay": 1 }),
            ),
            (
                json!({ "interval": "monthly", "amount": 9, "refillDay": 15.0 }),
                json!({ "interval": "monthly", "amount": 9, "refillDay": 15 }),
            ),
        ] {
            let key = kw.create_key_v1(&api, json!({ "remaining": 2, "refill": refill })).await;

            let mut told = told;
            told["lastRefillAt"] = json!(NOON.0);
            assert_eq!(kw.get_key_v1(&key.id).await["refill"], told);
        }
    }

    async fn a_balance_is_spent_and_set_to_the_amount_at_midnight(kw) {
        let api = kw.create_api().await;
        let refill = json!({ "interval": "daily", "amount": 5 });
        let key = kw.create_key_v1(&api, json!({ "remaining": 1, "refill": refill })).await;

        let first = kw.verify_v1(&key.key, json!({})).await;
        let second = kw.verify_v1(&key.key, json!({})).await;
        kw.clock.advance_ms(12 * HOUR);
        let refilled = kw.verify_v1(&key.key, json!({})).await;

        assert_eq!(first.assert_v1_code("VALID")["remaining"], 0);
        assert_eq!(second.assert_v1_code("USAGE_EXCEEDED")["remaining"], 0);
        assert_eq!(refilled.assert_v1_code("VALID")["remaining"], 4);
    }

    async fn a_limit_is_read_as_each_client_writes_it(kw) {
        let api = kw.create_api().await;
        let told = |is_async: bool, kind: &str| json!({
            "async": is_async, "type": kind, "limit": 2, "duration": 60_000, "refillRate": 2,
            "refillInterval": 60_000,
        });
        for (limit, told) in [
            (json!({ "limit": 2, "duration": 60_000 }), told(false, "consistent")),
            (
                json!({ "limit": 2, "duration": 60_000, "async": true, "type": "fast" }),
                told(true, "fast"),
            ),
            (
                json!({ "limit": 2, "type": "fast", "refillRate": 1, "refillInterval": 60_000 }),
                told(true, "fast"),
            ),
            (
                json!({ "limit": 2, "duration": 60_000, "type": "fast", "async": false }),
                told(false, "consistent"),
            ),
            (
                json!({ "limit": 2, "duration": 60_000.0, "refillInterval": 1 }),
                told(false, "consistent"),
            ),
        ] {
            let key = kw.create_key_v1(&api, json!({ "ratelimit": limit })).await;

            assert_eq!(kw.get_key_v1(&key.id).await["ratelimit"], told, "{limit}");
        }
    }

    async fn every_verification_checks_the_limit(kw) {
        let api = kw.create_api().await;
        let fields = json!({ "ratelimit": { "limit": 2, "duration": 60_000 } });
        let key = kw.create_key_v1(&api, fields).await;

        kw.verify(&key.key).await.assert_code("VALID");
        kw.verify_v1(&key.key, json!({})).await.assert_v1_code("VALID");

        kw.verify_v1(&key.key, json!({})).await.assert_v1_code("RATE_LIMITED");
        kw.verify(&key.key).await.assert_code("RATE_LIMITED");
        let second = &kw.get_key(&key.id).await["ratelimits"];
        assert_eq!(second.as_array().map(Vec::len), Some(1));
        assert_eq!(second[0]["name"], "default");
        assert_eq!(second[0]["autoApply"], true);
    }

    async fn the_limit_of_a_key_is_its_own_whoever_has_it(kw) {
        let api = kw.create_api().await;
        let fields = json!({
            "externalId": "user_1", "ratelimit": { "limit": 1, "duration": 60_000 },
        });
        let (one, two) = (kw.create_key_v1(&api, fields.clone()).await, kw.create_key_v1(&api, fields).await);
        kw.verify_v1(&one.key, json!({})).await.assert_v1_code("VALID");

        kw.verify_v1(&two.key, json!({})).await.assert_v1_code("VALID");
    }

    async fn an_end_of_0_is_none_and_one_that_has_been_is_taken(kw) {
        let api = kw.create_api().await;
        let never = kw.create_key_v1(&api, json!({ "expires": 0 })).await;
        let soon = kw.create_key_v1(&api, json!({ "expires": NOON.0 + 1 })).await;
        let past = kw.create_key_v1(&api, json!({ "expires": NOON.0 - 1 })).await;

        kw.verify_v1(&soon.key, json!({})).await.assert_v1_code("VALID");
        kw.verify_v1(&past.key, json!({})).await.assert_v1_code("EXPIRED");
        assert_eq!(kw.get_key_v1(&never.id).await.get("expires"), None);
        kw.clock.advance_ms(2);
        kw.verify_v1(&soon.key, json!({})).await.assert_v1_code("EXPIRED");
        kw.verify_v1(&never.key, json!({})).await.assert_v1_code("VALID");
    }

    async fn a_key_may_be_made_that_is_disabled(kw) {
        let api = kw.create_api().await;
        let key = kw.create_key_v1(&api, json!({ "enabled": false })).await;

        assert_eq!(kw.verify_v1(&key.key, json!({})).await.assert_v1_code("DISABLED")["enabled"], false);
    }

    async fn a_label_and_meta_are_given_back_with_every_verification(kw) {
        let api = kw.create_api().await;
        let meta = json!({ "plan": "pro", "deep": { "list": [1, null, "ü"] } });
        let fields = json!({ "environment": "staging", "meta": meta, "name": "for billing" });
        let full = kw.create_key_v1(&api, fields).await;
        let empty = kw.create_key_v1(&api, json!({ "meta": {} })).await;

        let reply = kw.verify_v1(&full.key, json!({})).await;

        let verified = reply.assert_v1_code("VALID");
        assert_eq!(
            (&verified["environment"], &verified["meta"], &verified["name"]),
            (&json!("staging"), &meta, &json!("for billing"))
        );
        assert_eq!(kw.get_key_v1(&empty.id).await.get("meta"), None);
    }

    async fn a_recoverable_key_is_shown_again_by_both_versions(kw) {
        let api = kw.create_api().await;
        kw.update_api(&api, |settings| settings.allows_recoverable_keys = true).await;
        let key = kw.create_key_v1(&api, json!({ "recoverable": true })).await;

        let first = kw.v1_get("keys.getKey", &format!("keyId={}&decrypt=true", key.id)).await;
        let second = kw.v2("keys.getKey", json!({ "keyId": key.id, "decrypt": true })).await;

        assert_eq!(first.v1_body()["plaintext"], key.key);
        assert_eq!(second.data()["plaintext"], key.key);
    }

    async fn the_creation_is_in_the_audit_log(kw) {
        kw.create_permission("docs.read").await;
        kw.create_role("editor", []).await;
        let api = kw.create_api().await;
        let fields: Value = json!({
            "name": "for billing", "roles": ["editor"], "permissions": ["docs.read"],
        });

        let key = kw.create_key_v1(&api, fields).await;

        let events = [
            "authorization.connect_permission_and_key", "authorization.connect_role_and_key",
            "key.create",
        ];
        assert_eq!(kw.list_audit_events(&key.id).await, events);
        assert_eq!(kw.list_audit_events("for billing").await, events);
    }
}

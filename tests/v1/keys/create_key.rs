mod refused;

use domain::root_keys;
use foundation::secret::KeyHash;
use futures_util::future::join_all;
use serde_json::{Map, Value, json};

use crate::on_both_stacks;
use crate::support::NOON;
use crate::support::json::Fields as _;
use crate::support::scenario::{Scenario, other, pass, plain, read};
use crate::support::version::Version::V1;

/// Returns how many random bytes are in a key that has no prefix.
fn random_bytes(key: &str) -> usize {
    bs58::decode(key).into_vec().expect("base58").len()
}

on_both_stacks! {
    async fn a_key_of_nothing_but_an_api_has_the_defaults(kw) {
        let api = kw.create_api().await;
        let key = kw.create_key_v1(&api, json!({})).await;

        assert_eq!(random_bytes(&key.key), 16);
        assert_eq!(kw.get_key_v1(&key.id).await, json!({
            "id": key.id, "start": key.key[..5], "workspaceId": root_keys::default_workspace(), "apiId": api,
            "createdAt": NOON.0, "roles": [], "permissions": [], "enabled": true,
        }));
        assert_eq!(kw.list_texts("keys", "hash").await, [KeyHash::compute(&key.key).to_base64()]);
    }

    async fn meta_may_have_more_fields_than_version_2_accepts(kw) {
        let meta: Value = (0..101).map(|n| (format!("f{n}"), json!(n))).collect::<Map<_, _>>().into();
        let api = kw.create_api().await;
        let key = kw.create_key_v1(&api, json!({ "meta": meta })).await;

        kw.v1("keys.updateKey", json!({ "keyId": key.id, "meta": meta })).await.v1_body();
        kw.update_key(&key.id, json!({ "name": "renamed" })).await.data();
        kw.update_key(&key.id, json!({ "meta": meta })).await.assert_field_error("/properties/meta/maxProperties");

        assert_eq!(kw.get_key_v1(&key.id).await["meta"], meta);
        assert_eq!(kw.get_key(&key.id).await["meta"], meta);
        assert_eq!(kw.verify_with(&key.key, json!({})).await.assert_code("VALID")["meta"], meta);
    }

    async fn every_field_is_told_by_get_key_of_both_versions(kw) {
        kw.create_permission("docs.read").await;
        kw.create_role("editor", ["docs.write"]).await;
        let api = kw.create_api().await;
        let refill = json!({ "interval": "monthly", "amount": 100, "refillDay": 31 });
        let key = kw.create_key_v1(&api, json!({
            "prefix": "prod", "name": "for billing", "byteLength": 32, "externalId": "user_1", "meta": { "plan": "pro" },
            "roles": ["editor"], "permissions": ["docs.read"], "expires": NOON.0 + 1, "remaining": 7, "refill": refill,
            "ratelimit": { "limit": 60, "duration": 60_000, "async": true },
            "enabled": false, "recoverable": false, "environment": "staging",
        })).await;

        let mut told = kw.get_key_v1(&key.id).await;

        let identity = told["identity"]["id"].take();
        assert!(identity.as_str().unwrap().starts_with("id_"), "{identity}");
        let mut refilled = refill.clone();
        refilled["lastRefillAt"] = json!(NOON.0);
        assert_eq!(told, json!({
            "id": key.id, "start": key.key[..9], "workspaceId": root_keys::default_workspace(), "apiId": api,
            "name": "for billing", "ownerId": "user_1", "meta": { "plan": "pro" }, "createdAt": NOON.0,
            "expires": NOON.0 + 1, "remaining": 7, "refill": refilled,
            "ratelimit": {
                "async": true, "type": "fast", "limit": 60, "duration": 60_000, "refillRate": 60, "refillInterval": 60_000,
            },
            "roles": ["editor"], "permissions": ["docs.read", "docs.write"], "enabled": false, "environment": "staging",
            "identity": { "id": null, "externalId": "user_1", "meta": {} },
        }));
        kw.get_key(&key.id).await.assert_has(json!({
            "name": "for billing", "meta": { "plan": "pro" }, "enabled": false, "expires": NOON.0 + 1,
            "credits": { "remaining": 7, "refill": refill }, "permissions": ["docs.read", "docs.write"], "roles": ["editor"],
            "identity.externalId": "user_1", "ratelimits.0.name": "default",
        }));
        assert_eq!(random_bytes(key.key.strip_prefix("prod_").unwrap()), 32);
    }

    async fn what_is_left_out_is_as_the_api_is_set_and_the_start_is_shown(kw) {
        let (plain, api) = (kw.create_api().await, kw.create_api().await);
        kw.update_api(&api, |settings| {
            settings.default_prefix = Some("live".into());
            settings.default_byte_length = Some(24);
        })
        .await;
        let keys: String = "🗝".repeat(16);

        for (api, fields, prefix, bytes) in [
            (&api, json!({}), "live_", 24),
            (&api, json!({ "prefix": "test", "byteLength": 16 }), "test_", 16),
            (&api, json!({ "prefix": "" }), "", 24),
            (&plain, json!({ "prefix": "p" }), "p_", 16),
            (&plain, json!({ "prefix": "with space-and.d" }), "with space-and.d_", 16),
            (&plain, json!({ "prefix": "ключ" }), "ключ_", 16),
            (&plain, json!({ "prefix": keys }), &*format!("{keys}_"), 16),
            (&plain, json!({ "prefix": "" }), "", 16),
        ] {
            let key = kw.create_key_v1(api, fields).await;

            let random = key.key.strip_prefix(prefix).unwrap();
            assert_eq!(random_bytes(random), bytes, "{prefix}");
            // Four characters of the secret are shown, and five of a key without a prefix.
            let shown = if prefix.is_empty() { 5 } else { 4 };
            assert_eq!(kw.get_key_v1(&key.id).await["start"], format!("{prefix}{}", &random[..shown]));
            kw.verify_v1(&key.key, json!({})).await.assert_v1_code("VALID");
        }
    }

    async fn fields_take_effect(kw) {
        kw.create_permission("docs.read").await;
        kw.create_role("editor", ["docs.read"]).await;
        let refill = |refill: Value| json!({ "remaining": 2, "refill": refill });
        let refilled = |interval: &str, day: Value| {
            vec![read(json!({ "refill": { "interval": interval, "amount": 9, "refillDay": day, "lastRefillAt": NOON.0 } }))]
        };
        let limit = |is_async: bool| {
            let kind = if is_async { "fast" } else { "consistent" };
            vec![read(json!({ "ratelimit": {
                "async": is_async, "type": kind, "limit": 2, "duration": 60_000, "refillRate": 2, "refillInterval": 60_000,
            } }))]
        };
        let user = |user: &str| {
            let told = json!({ "ownerId": user, "identity.externalId": user });
            vec![read(told.clone()), plain("VALID", told), other(plain("VALID", json!({ "identity.externalId": user })))]
        };
        let nobody = || {
            let told = json!({ "ownerId": null, "identity": null });
            vec![read(told.clone()), plain("VALID", told), other(plain("VALID", json!({ "identity": null })))]
        };
        let meta = json!({ "plan": "pro", "deep": { "list": [1, null, "ü"] } });
        let labeled = json!({ "environment": "staging", "meta": meta, "name": "for billing" });
        let scenarios: Vec<Scenario> = vec![
            ("less than no uses is none left", json!({ "remaining": -1 }), vec![plain("USAGE_EXCEEDED", json!({ "remaining": 0 })), read(json!({ "remaining": 0 }))]),
            ("the least number of uses", json!({ "remaining": i64::MIN }), vec![plain("USAGE_EXCEEDED", json!({ "remaining": 0 })), read(json!({ "remaining": 0 }))]),
            ("one use", json!({ "remaining": 1 }), vec![plain("VALID", json!({}))]),
            ("ownerId makes an identity", json!({ "ownerId": "user_1" }), user("user_1")),
            ("externalId makes an identity", json!({ "externalId": "user_2" }), user("user_2")),
            ("externalId counts", json!({ "ownerId": "nobody", "externalId": "user_3" }), user("user_3")),
            ("an empty ownerId is none", json!({ "ownerId": "" }), nobody()),
            ("an empty externalId is none and counts", json!({ "ownerId": "nobody", "externalId": "" }), nobody()),
            ("what is named twice is given once", json!({ "roles": ["editor", "editor"], "permissions": ["docs.read", "docs.read"] }), vec![
                read(json!({ "roles": ["editor"], "permissions": ["docs.read"] })),
            ]),
            ("a daily refill", refill(json!({ "interval": "daily", "amount": 9 })), refilled("daily", Value::Null)),
            ("a monthly refill on the first", refill(json!({ "interval": "monthly", "amount": 9 })), refilled("monthly", json!(1))),
            ("a monthly refill on a day", refill(json!({ "interval": "monthly", "amount": 9, "refillDay": 15.0 })), refilled("monthly", json!(15))),
            ("a limit", json!({ "ratelimit": { "limit": 2, "duration": 60_000 } }), limit(false)),
            ("a limit of a newer client", json!({ "ratelimit": { "limit": 2, "duration": 60_000, "async": true, "type": "fast" } }), limit(true)),
            ("a limit of an older client", json!({ "ratelimit": { "limit": 2, "type": "fast", "refillRate": 1, "refillInterval": 60_000 } }), limit(true)),
            ("async counts before type", json!({ "ratelimit": { "limit": 2, "duration": 60_000, "type": "fast", "async": false } }), limit(false)),
            ("duration counts before refillInterval", json!({ "ratelimit": { "limit": 2, "duration": 60_000.0, "refillInterval": 1 } }), limit(false)),
            ("every verification checks the limit", json!({ "ratelimit": { "limit": 2, "duration": 60_000 } }), vec![
                other(plain("VALID", json!({}))), plain("VALID", json!({})), plain("RATE_LIMITED", json!({})), other(plain("RATE_LIMITED", json!({}))),
                other(read(json!({ "ratelimits.0.name": "default", "ratelimits.0.autoApply": true, "ratelimits.1": null }))),
            ]),
            ("an end of 0 is none", json!({ "expires": 0 }), vec![pass(2), plain("VALID", json!({})), read(json!({ "expires": null }))]),
            ("an end that comes", json!({ "expires": NOON.0 + 1 }), vec![plain("VALID", json!({})), pass(2), plain("EXPIRED", json!({}))]),
            ("an end that has been", json!({ "expires": NOON.0 - 1 }), vec![plain("EXPIRED", json!({}))]),
            ("a key may be made that is disabled", json!({ "enabled": false }), vec![plain("DISABLED", json!({ "enabled": false }))]),
            ("a label and meta are given back with every verification", labeled.clone(), vec![plain("VALID", labeled)]),
            ("an empty meta is none", json!({ "meta": {} }), vec![read(json!({ "meta": null }))]),
        ];
        kw.run(V1, scenarios).await;
        assert_eq!(kw.count_rows("identities").await, 3);
    }

    async fn keys_made_at_once_for_one_user_share_an_identity_and_have_limits_of_their_own(kw) {
        let api = kw.create_api().await;
        let request = json!({ "apiId": api, "externalId": "user_1", "ratelimit": { "limit": 1, "duration": 60_000 } });

        let replies = join_all((0..6).map(|_| kw.v1("keys.createKey", request.clone()))).await;

        for reply in replies {
            kw.verify_v1(reply.v1_body()["key"].as_str().unwrap(), json!({})).await.assert_v1_code("VALID");
        }
        assert_eq!((kw.count_rows("keys").await, kw.count_rows("identities").await), (6, 1));
    }

    async fn a_recoverable_key_is_shown_again_by_both_versions(kw) {
        let api = kw.create_api().await;
        kw.update_api(&api, |settings| settings.allows_recoverable_keys = true).await;
        let key = kw.create_key_v1(&api, json!({ "recoverable": true })).await;
        let first = kw.v1_get("keys.getKey", &format!("keyId={}&decrypt=true", key.id)).await;
        let second = kw.v2("keys.getKey", json!({ "keyId": key.id, "decrypt": true })).await;
        assert_eq!((&first.v1_body()["plaintext"], &second.data()["plaintext"]), (&json!(key.key), &json!(key.key)));
    }

    async fn what_the_key_was_given_is_in_the_audit_log(kw) {
        kw.create_permission("docs.read").await;
        kw.create_role("editor", []).await;
        let api = kw.create_api().await;
        let key = kw.create_key_v1(&api, json!({ "name": "for billing", "roles": ["editor"], "permissions": ["docs.read"] })).await;
        for target in [&*key.id, "for billing"] {
            let events = ["authorization.connect_permission_and_key", "authorization.connect_role_and_key", "key.create"];
            assert_eq!(kw.list_audit_events(target).await, events);
        }
    }
}

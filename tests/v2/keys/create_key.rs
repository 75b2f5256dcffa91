mod refused;

use axum::body::Body;
use foundation::secret::KeyHash;
use futures_util::future::join_all;
use serde_json::{Value, json};

use crate::on_both_stacks;
use crate::support::json::Fields as _;
use crate::support::scenario::{Scenario, plain, read};
use crate::support::version::Version::V2;
use crate::support::{Keyward, NOON, Reply, Stack, post};

/// Returns how many random bytes are in a key that has no prefix.
fn random_bytes(key: &str) -> usize {
    bs58::decode(key).into_vec().expect("base58").len()
}

/// Creates a key with fields that are written as they stand.
async fn create_raw(kw: &Keyward, fields: &str) -> Reply {
    let body = format!(r#"{{ "apiId": "{}", {fields} }}"#, kw.create_api().await);
    let request = post("keys.createKey").header("authorization", format!("Bearer {}", kw.root_key));
    kw.send(request.body(Body::from(body)).unwrap()).await
}

on_both_stacks! {
    async fn a_key_of_nothing_but_an_api_has_the_defaults(kw) {
        let key = kw.create_key(json!({})).await;
        assert_eq!(
            kw.get_key(&key.id).await,
            json!({ "keyId": key.id, "start": key.key[..4], "enabled": true, "createdAt": NOON.0 }),
        );
        assert_eq!(random_bytes(&key.key), 16);
        // Of the key itself only the hash and the start are stored.
        assert_eq!(kw.list_texts("keys", "hash").await, [KeyHash::compute(&key.key).to_base64()]);
        assert_eq!(kw.list_texts("keys", "start").await, [&key.key[..4]]);
        let other = kw.create_key(json!({})).await;
        assert!(other.key != key.key && other.id != key.id);
    }

    async fn every_field_is_told_by_get_key(kw) {
        kw.create_permission("documents.read").await;
        kw.create_role("editor", ["documents.write"]).await;
        let credits = json!({ "remaining": 7, "refill": { "interval": "monthly", "amount": 100, "refillDay": 31 } });
        let key = kw.create_key(json!({
            "prefix": "prod", "name": "for billing", "byteLength": 32, "externalId": "user_1234",
            "meta": { "plan": "pro" }, "roles": ["editor"], "permissions": ["documents.read"],
            "expires": NOON.0 + 1, "credits": credits, "enabled": false, "recoverable": false,
            "ratelimits": [{ "name": "requests", "limit": 60, "duration": 60_000, "autoApply": true }],
        })).await;

        let mut told = kw.get_key(&key.id).await;

        let (identity, limit) = (told["identity"]["id"].take(), told["ratelimits"][0]["id"].take());
        assert!(identity.as_str().unwrap().starts_with("id_"), "{identity}");
        assert!(limit.as_str().unwrap().starts_with("rl_"), "{limit}");
        assert_eq!(told, json!({
            "keyId": key.id, "start": key.key[..9], "enabled": false, "name": "for billing",
            "meta": { "plan": "pro" }, "createdAt": NOON.0, "expires": NOON.0 + 1,
            "permissions": ["documents.read", "documents.write"], "roles": ["editor"], "credits": credits,
            "identity": { "id": null, "externalId": "user_1234" },
            "ratelimits": [{ "id": null, "name": "requests", "limit": 60, "duration": 60_000, "autoApply": true }],
        }));
    }

    async fn a_key_is_its_prefix_and_random_bytes(kw) {
        for (fields, prefix, bytes) in [
            (json!({ "prefix": "p" }), "p_", 16), (json!({ "prefix": "prod" }), "prod_", 16), (json!({ "prefix": "a_b__" }), "a_b___", 16),
            (json!({ "prefix": "ABCDEFGHIJ_12345" }), "ABCDEFGHIJ_12345_", 16), (json!({ "byteLength": 16 }), "", 16),
            (json!({ "byteLength": 17 }), "", 17), (json!({ "byteLength": 255 }), "", 255),
        ] {
            let key = kw.create_key(fields).await;
            let random = key.key.strip_prefix(prefix).unwrap();
            assert_eq!(random_bytes(random), bytes, "{prefix}");
            assert_eq!(kw.get_key(&key.id).await["start"], format!("{prefix}{}", &random[..4]));
            kw.verify(&key.key).await.assert_code("VALID");
        }
    }

    async fn fields_take_effect(kw) {
        kw.create_role("zoo keeper", ["b", "a.z", "B"]).await;
        kw.create_role("Editor", ["a.z", "c"]).await;
        kw.create_permission("a.b").await;
        let name = " Schlüssel \"für\" 支付🦀\u{301} ' -- ; \\u0041 $1 ";
        let daily = |remaining: i64, amount: i64| json!({ "credits": { "remaining": remaining, "refill": { "interval": "daily", "amount": amount } } });
        let item = |at: usize, name: &str, limit: i64, duration: i64, auto_apply: bool| {
            let fields = [("name", json!(name)), ("limit", json!(limit)), ("duration", json!(duration)), ("autoApply", json!(auto_apply))];
            fields.map(|(field, value)| (format!("ratelimits.{at}.{field}"), value))
        };
        let limits = |items: &[[(String, Value); 4]]| {
            let mut told: serde_json::Map<_, _> = items.iter().flatten().cloned().collect();
            told.insert(format!("ratelimits.{}", items.len()), Value::Null);
            vec![read(told.into())]
        };
        let scenarios: Vec<Scenario> = vec![
            ("a name is kept to the letter", json!({ "name": name }), vec![read(json!({ "name": name })), plain("VALID", json!({ "name": name }))]),
            ("an empty meta is left out", json!({ "meta": {} }), vec![read(json!({ "meta": null })), plain("VALID", json!({ "meta": null }))]),
            ("what is named twice is given once", json!({ "permissions": ["a.b", "a.b"], "roles": ["Editor", "Editor"] }), vec![
                read(json!({ "permissions": ["a.b", "a.z", "c"], "roles": ["Editor"] })),
            ]),
            ("permissions of key and roles are told once each and sorted", json!({ "permissions": ["c", "a.b", "B"], "roles": ["zoo keeper", "Editor"] }), vec![
                read(json!({ "permissions": ["B", "a.b", "a.z", "b", "c"], "roles": ["Editor", "zoo keeper"] })),
            ]),
            ("it may have expired already", json!({ "expires": NOON.0 - 1 }), vec![plain("EXPIRED", json!({})), read(json!({ "expires": NOON.0 - 1 }))]),
            ("it may have expired at the epoch", json!({ "expires": 0 }), vec![plain("EXPIRED", json!({})), read(json!({ "expires": null }))]),
            ("it may be disabled", json!({ "enabled": false }), vec![plain("DISABLED", json!({}))]),
            ("it may have no credits", json!({ "credits": { "remaining": 0 } }), vec![read(json!({ "credits": { "remaining": 0 } })), plain("USAGE_EXCEEDED", json!({}))]),
            ("remaining null is unlimited", json!({ "credits": { "remaining": null } }), vec![read(json!({ "credits": null })), plain("VALID", json!({ "credits": null }))]),
            ("a daily refill is told without a day", daily(5, 10), vec![read(daily(5, 10))]),
            ("the largest balance is told exactly", daily(i64::MAX, i64::MAX), vec![read(daily(i64::MAX, i64::MAX))]),
            ("limits are told by name in order", json!({ "ratelimits": [
                { "name": "writes", "limit": 5, "duration": 1000, "autoApply": false },
                { "name": "Zürich 支付", "limit": i64::MAX, "duration": i64::MAX, "autoApply": true },
                { "name": "reads", "limit": 1, "duration": 86_400_000 },
            ] }), limits(&[
                item(0, "Zürich 支付", i64::MAX, i64::MAX, true), item(1, "reads", 1, 86_400_000, false), item(2, "writes", 5, 1000, false),
            ])),
            ("of two limits with one name the last counts", json!({ "ratelimits": [
                { "name": "requests", "limit": 1, "duration": 1000, "autoApply": true }, { "name": "Requests", "limit": 2, "duration": 2000 },
                { "name": "requests", "limit": 3, "duration": 3000 },
            ] }), limits(&[item(0, "Requests", 2, 2000, false), item(1, "requests", 3, 3000, false)])),
            ("a limit may carry fields that nobody knows", json!({ "ratelimits": [{ "name": "requests", "limit": 1, "duration": 1000, "async": true }] }), vec![
                read(json!({ "ratelimits.0.async": null, "ratelimits.0.limit": 1 })),
            ]),
        ];
        kw.run(V2, scenarios).await;
    }

    async fn bodies_are_read_as_they_are_written(kw) {
        let meta = r#"{ "z":1.0, "a":[null,true,{"ü":"🦀\n\"\\"}], "n":12345678901234567890, "":{}, "e":-1e-7 }"#;
        let twice = r#""name": 1, "name": "second", "meta": { "first": 1 }, "meta": { "second": [2.0, "zwei"] }, "credits": { "remaining": 1, "remaining": 2 }"#;
        let numbers = r#""byteLength": 16.0, "expires": 4102444800000.0,
            "credits": { "remaining": 1.5e1, "refill": { "interval": "monthly", "amount": 1e2, "refillDay": 15.0 } },
            "ratelimits": [{ "name": "requests", "limit": 60.0, "duration": 6E4 }]"#;
        let value: Value = serde_json::from_str(meta).unwrap();
        for (fields, told) in [
            (format!(r#""meta": {meta}"#), json!({ "meta": value })),
            // Of two fields with one name the last counts.
            (twice.to_owned(), json!({ "name": "second", "meta": { "second": [2.0, "zwei"] }, "credits.remaining": 2 })),
            (numbers.to_owned(), json!({
                "expires": 4_102_444_800_000_i64, "ratelimits.0.limit": 60, "ratelimits.0.duration": 60_000,
                "credits": { "remaining": 15, "refill": { "interval": "monthly", "amount": 100, "refillDay": 15 } },
            })),
        ] {
            let made = create_raw(&kw, &fields).await;
            kw.get_key(&made.text_of("keyId")).await.assert_has(told);
            assert_eq!(random_bytes(&made.text_of("key")), 16);
            if fields.contains(meta) {
                assert_eq!(kw.verify(&made.text_of("key")).await.data()["meta"], value);
            }
        }
    }

    async fn keys_of_one_external_id_share_an_identity_also_when_made_at_once(kw) {
        let api = kw.create_api().await;
        let keys = join_all((0..8).map(|_| kw.create_key_in(&api, json!({ "externalId": "user_1" })))).await;
        let other = kw.create_key(json!({ "externalId": "User_1" })).await;

        let identity = async |id: &str| kw.get_key(id).await["identity"].clone();
        let shared = identity(&keys[0].id).await;
        for key in keys {
            assert_eq!(identity(&key.id).await, shared);
        }
        assert_eq!((&shared["externalId"], &identity(&other.id).await["externalId"]), (&json!("user_1"), &json!("User_1")));
        assert_ne!(shared["id"], identity(&other.id).await["id"]);
        assert_eq!(kw.count_rows("identities").await, 2);
    }

    async fn a_missing_permission_is_created_when_the_root_key_may(kw) {
        let api = kw.create_api().await;
        let known = kw.create_permission("documents.read").await;
        let root_key = kw.create_root_key(["api.*.create_key", "rbac.*.create_permission"]).await;
        let request = json!({ "apiId": api, "permissions": ["docs.new", known, "docs.new"] });

        let key = kw.v2_as(&root_key, "keys.createKey", request).await.text_of("keyId");

        assert_eq!(kw.get_key(&key).await["permissions"], json!(["docs.new", "documents.read"]));
        assert_eq!(kw.count_rows("permissions").await, 2);
        let events = ["authorization.connect_permission_and_key", "permission.create"];
        assert_eq!(kw.list_audit_events("docs.new").await, events);
    }

    async fn giving_roles_and_permissions_needs_no_further_permission_and_is_audited(kw) {
        kw.create_role("editor", ["documents.read"]).await;
        kw.create_permission("documents.write").await;
        let api = kw.create_api().await;
        let root_key = kw.create_root_key(["api.*.create_key"]).await;
        let permissions = ["documents.read", "documents.write"];
        let request = json!({ "apiId": api, "name": "for billing", "roles": ["editor"], "permissions": permissions });

        let key = kw.v2_as(&root_key, "keys.createKey", request).await;

        let connect = "authorization.connect_permission_and_key";
        let events = [connect, connect, "authorization.connect_role_and_key", "key.create"];
        assert_eq!(kw.list_audit_events(&key.text_of("keyId")).await, events);
        assert_eq!(kw.list_audit_events("for billing").await, events);
        // Neither the replies of others nor the audit log hold the key.
        let key = (key.text_of("keyId"), key.text_of("key"));
        let got = kw.v2("keys.getKey", json!({ "keyId": key.0 })).await;
        assert!(!got.text.contains(&key.1) && !kw.verify(&key.1).await.text.contains(&key.1));
        assert!(!kw.list_texts("audit", "targets").await.iter().any(|entry| entry.contains(&key.1)));
    }
}

#[tokio::test]
async fn what_one_replica_made_the_other_verifies_at_once() {
    let kw = Keyward::start(Stack::Replica).await;
    let other = kw.replica().await;
    kw.create_role("editor", ["documents.read"]).await;

    for _ in 0..3 {
        let key = kw.create_key(json!({ "externalId": "user_1", "roles": ["editor"] })).await;
        let reply = other.verify_with(&key.key, json!({ "permissions": "documents.read" })).await;
        reply.assert_code("VALID").assert_has(json!({ "identity.externalId": "user_1" }));
        assert_eq!(other.get_key(&key.id).await, kw.get_key(&key.id).await);
    }
}

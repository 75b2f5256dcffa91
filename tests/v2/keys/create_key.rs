mod limits;
mod refused;

use axum::body::Body;
use foundation::secret::KeyHash;
use futures_util::future::join_all;
use serde_json::{Value, json};
use store::Store;

use crate::on_both_stacks;
use crate::support::{Keyward, NOON, Stack, post};

/// How many random bytes are in a key that has no prefix.
fn random_bytes(key: &str) -> usize {
    bs58::decode(key).into_vec().expect("base58").len()
}

on_both_stacks! {
    async fn credits_without_a_number_are_refused(kw) {
        let request = json!({ "apiId": kw.create_api().await, "credits": {} });

        let message = kw.v2("keys.createKey", request).await.assert_field_error("/properties/credits/required");

        assert!(message.contains("remaining"), "{message}");
    }

    async fn the_reply_is_the_id_and_the_key(kw) {
        let api = kw.create_api().await;

        let reply = kw.v2("keys.createKey", json!({ "apiId": api })).await;

        let fields: Vec<_> = reply.data().as_object().unwrap().keys().collect();
        let id = reply.text_of("keyId");
        assert_eq!(fields, ["key", "keyId"]);
        assert!(id.starts_with("key_") && id.len() >= 20, "{id}");
        kw.verify(&reply.text_of("key")).await.assert_code("VALID");
    }

    async fn a_key_of_nothing_but_an_api_has_the_defaults(kw) {
        let key = kw.create_key(json!({})).await;

        let told = kw.get_key(&key.id).await;

        assert_eq!(
            told,
            json!({
                "keyId": key.id, "start": key.key[..4], "enabled": true, "createdAt": NOON.0,
            })
        );
        assert_eq!(random_bytes(&key.key), 16);
    }

    async fn every_field_is_told_by_get_key(kw) {
        kw.create_permission("documents.read").await;
        kw.create_role("editor", ["documents.write"]).await;
        let key = kw
            .create_key(json!({
                "prefix": "prod",
                "name": "for billing",
                "byteLength": 32,
                "externalId": "user_1234",
                "meta": { "plan": "pro" },
                "roles": ["editor"],
                "permissions": ["documents.read"],
                "expires": NOON.0 + 1,
                "credits": {
                    "remaining": 7,
                    "refill": { "interval": "monthly", "amount": 100, "refillDay": 31 },
                },
                "ratelimits": [
                    { "name": "requests", "limit": 60, "duration": 60_000, "autoApply": true },
                ],
                "enabled": false,
                "recoverable": false,
            }))
            .await;

        let mut told = kw.get_key(&key.id).await;

        let (identity, limit) = (told["identity"]["id"].take(), told["ratelimits"][0]["id"].take());
        assert!(identity.as_str().unwrap().starts_with("id_"), "{identity}");
        assert!(limit.as_str().unwrap().starts_with("rl_"), "{limit}");
        assert_eq!(
            told,
            json!({
                "keyId": key.id,
                "start": key.key[..9],
                "enabled": false,
                "name": "for billing",
                "meta": { "plan": "pro" },
                "createdAt": NOON.0,
                "expires": NOON.0 + 1,
                "permissions": ["documents.read", "documents.write"],
                "roles": ["editor"],
                "credits": {
                    "remaining": 7,
                    "refill": { "interval": "monthly", "amount": 100, "refillDay": 31 },
                },
                "identity": { "id": null, "externalId": "user_1234" },
                "ratelimits": [
                    {
                        "id": null, "name": "requests", "limit": 60, "duration": 60_000,
                        "autoApply": true,
                    },
                ],
            })
        );
    }

    async fn a_prefix_and_an_underscore_precede_the_key(kw) {
        for prefix in ["p", "prod", "a_b__", "ABCDEFGHIJ_12345"] {
            let key = kw.create_key(json!({ "prefix": prefix })).await;

            let random = key.key.strip_prefix(&format!("{prefix}_")).unwrap();
            assert_eq!(random_bytes(random), 16);
            let start = format!("{prefix}_{}", &random[..4]);
            assert_eq!(kw.get_key(&key.id).await["start"], start);
        }
    }

    async fn byte_length_is_the_number_of_random_bytes(kw) {
        for length in [16, 17, 255] {
            let key = kw.create_key(json!({ "byteLength": length })).await;

            assert_eq!(random_bytes(&key.key), length);
            kw.verify(&key.key).await.assert_code("VALID");
        }
    }

    async fn no_two_keys_are_the_same(kw) {
        let api = kw.create_api().await;

        let (first, second) = (kw.create_key_in(&api, json!({})).await, kw.create_key_in(&api, json!({})).await);

        assert_ne!(first.key, second.key);
        assert_ne!(first.id, second.id);
    }

    async fn of_the_key_itself_only_the_hash_is_kept(kw) {
        let key = kw.create_key(json!({ "name": "for billing" })).await;

        let sql = "SELECT hash, start FROM keys";
        let (hash, start): (String, String) = match kw.store() {
            Store::Postgres { pool, .. } => sqlx::query_as(sql).fetch_one(&pool.get()).await.unwrap(),
            Store::Sqlite { pool, .. } => sqlx::query_as(sql).fetch_one(pool).await.unwrap(),
        };
        assert_eq!(hash, KeyHash::compute(&key.key).to_base64());
        assert_eq!(start, key.key[..4]);
    }

    async fn a_name_is_kept_to_the_letter(kw) {
        let name = " Schlüssel \"für\" 支付🦀\u{301} ' -- ; \\u0041 $1 ";

        let key = kw.create_key(json!({ "name": name })).await;

        assert_eq!(kw.get_key(&key.id).await["name"], name);
        assert_eq!(kw.verify(&key.key).await.data()["name"], name);
    }

    async fn meta_is_given_back_as_it_was_given(kw) {
        let meta = r#"{
            "z":1.0, "a":[null,true,{"ü":"🦀\n\"\\"}], "n":12345678901234567890, "":{}, "e":-1e-7
        }"#;
        let body = format!(r#"{{"apiId":"{}","meta":{meta}}}"#, kw.create_api().await);
        let request =
            post("keys.createKey").header("authorization", format!("Bearer {}", kw.root_key));

        let made = kw.send(request.body(Body::from(body)).unwrap()).await;

        let meta: Value = serde_json::from_str(meta).unwrap();
        assert_eq!(kw.get_key(&made.text_of("keyId")).await["meta"], meta);
        assert_eq!(kw.verify(&made.text_of("key")).await.data()["meta"], meta);
    }

    async fn an_empty_meta_is_left_out(kw) {
        let key = kw.create_key(json!({ "meta": {} })).await;

        assert_eq!(kw.get_key(&key.id).await.get("meta"), None);
        assert_eq!(kw.verify(&key.key).await.data().get("meta"), None);
    }

    async fn keys_of_one_external_id_share_an_identity(kw) {
        let first = kw.create_key(json!({ "externalId": "user_1" })).await;
        let second = kw.create_key(json!({ "externalId": "user_1" })).await;
        let other = kw.create_key(json!({ "externalId": "User_1" })).await;

        let identity = async |id: &str| kw.get_key(id).await["identity"].clone();
        assert_eq!(identity(&first.id).await, identity(&second.id).await);
        assert_ne!(identity(&first.id).await["id"], identity(&other.id).await["id"]);
        assert_eq!(identity(&other.id).await["externalId"], "User_1");
        assert_eq!(kw.count_rows("identities").await, 2);
    }

    async fn keys_made_at_once_for_one_external_id_share_an_identity(kw) {
        let api = kw.create_api().await;

        let keys =
            join_all((0..8).map(|_| kw.create_key_in(&api, json!({ "externalId": "user_1" })))).await;

        assert_eq!(kw.count_rows("identities").await, 1);
        for key in keys {
            assert_eq!(kw.get_key(&key.id).await["identity"]["externalId"], "user_1");
        }
    }

    async fn what_is_named_twice_is_given_once(kw) {
        kw.create_permission("documents.read").await;
        kw.create_role("editor", []).await;

        let key = kw
            .create_key(json!({
                "permissions": ["documents.read", "documents.read"],
                "roles": ["editor", "editor"],
            }))
            .await;

        let told = kw.get_key(&key.id).await;
        assert_eq!(told["permissions"], json!(["documents.read"]));
        assert_eq!(told["roles"], json!(["editor"]));
    }

    async fn permissions_of_key_and_roles_are_told_once_each_and_sorted(kw) {
        kw.create_role("zoo keeper", ["b", "a.z", "B"]).await;
        kw.create_role("Editor", ["a.z", "c"]).await;
        kw.create_permission("a.b").await;

        let key = kw
            .create_key(json!({
                "permissions": ["c", "a.b", "B"],
                "roles": ["zoo keeper", "Editor"],
            }))
            .await;

        let told = kw.get_key(&key.id).await;
        assert_eq!(told["permissions"], json!(["B", "a.b", "a.z", "b", "c"]));
        assert_eq!(told["roles"], json!(["Editor", "zoo keeper"]));
    }

    async fn a_missing_permission_is_created_when_the_root_key_may(kw) {
        let api = kw.create_api().await;
        let known = kw.create_permission("documents.read").await;
        let root_key = kw.create_root_key(["api.*.create_key", "rbac.*.create_permission"]).await;
        let request = json!({ "apiId": api, "permissions": ["docs.new", known, "docs.new"] });

        let reply = kw.v2_as(&root_key, "keys.createKey", request).await;

        let key = reply.data()["keyId"].as_str().unwrap().to_owned();
        assert_eq!(kw.get_key(&key).await["permissions"], json!(["docs.new", "documents.read"]));
        assert_eq!(kw.count_rows("permissions").await, 2);
        assert_eq!(
            kw.list_audit_events("docs.new").await,
            ["authorization.connect_permission_and_key", "permission.create"]
        );
    }

    async fn giving_roles_and_permissions_needs_no_further_permission(kw) {
        kw.create_role("editor", ["documents.read"]).await;
        let api = kw.create_api().await;
        let root_key = kw.create_root_key(["api.*.create_key"]).await;
        let request =
            json!({ "apiId": api, "roles": ["editor"], "permissions": ["documents.read"] });

        let reply = kw.v2_as(&root_key, "keys.createKey", request).await;

        reply.data();
    }

    async fn a_key_may_be_made_that_has_expired_already(kw) {
        let past = kw.create_key(json!({ "expires": NOON.0 - 1 })).await;
        let epoch = kw.create_key(json!({ "expires": 0 })).await;

        kw.verify(&past.key).await.assert_code("EXPIRED");
        kw.verify(&epoch.key).await.assert_code("EXPIRED");
        assert_eq!(kw.get_key(&past.id).await["expires"], NOON.0 - 1);
        assert_eq!(kw.get_key(&epoch.id).await.get("expires"), None);
    }

    async fn a_key_may_be_made_that_is_disabled(kw) {
        let key = kw.create_key(json!({ "enabled": false })).await;

        kw.verify(&key.key).await.assert_code("DISABLED");
    }

    async fn a_key_may_be_made_without_uses(kw) {
        let key = kw.create_key(json!({ "credits": { "remaining": 0 } })).await;

        assert_eq!(kw.get_key(&key.id).await["credits"], json!({ "remaining": 0 }));
        kw.verify(&key.key).await.assert_code("USAGE_EXCEEDED");
    }

    async fn remaining_null_is_unlimited(kw) {
        let key = kw.create_key(json!({ "credits": { "remaining": null } })).await;

        assert_eq!(kw.get_key(&key.id).await.get("credits"), None);
        assert_eq!(kw.verify(&key.key).await.data().get("credits"), None);
    }

    async fn a_daily_refill_is_told_without_a_day(kw) {
        let credits = json!({ "remaining": 5, "refill": { "interval": "daily", "amount": 10 } });

        let key = kw.create_key(json!({ "credits": credits })).await;

        assert_eq!(kw.get_key(&key.id).await["credits"], credits);
    }

    async fn the_largest_balance_is_told_exactly(kw) {
        let credits = json!({
            "remaining": i64::MAX, "refill": { "interval": "daily", "amount": i64::MAX },
        });

        let key = kw.create_key(json!({ "credits": credits })).await;

        assert_eq!(kw.get_key(&key.id).await["credits"], credits);
    }

    async fn of_two_fields_with_one_name_the_last_counts(kw) {
        let body = format!(
            r#"{{
                "apiId": "api_nowhere", "apiId": "{}", "name": 1, "name": "second",
                "meta": {{ "first": 1 }}, "meta": {{ "second": [2.0, "zwei"] }},
                "credits": {{ "remaining": 1, "remaining": 2 }}
            }}"#,
            kw.create_api().await,
        );
        let request =
            post("keys.createKey").header("authorization", format!("Bearer {}", kw.root_key));

        let made = kw.send(request.body(Body::from(body)).unwrap()).await;

        let told = kw.get_key(&made.text_of("keyId")).await;
        assert_eq!(told["name"], "second");
        assert_eq!(told["meta"], json!({ "second": [2.0, "zwei"] }));
        assert_eq!(told["credits"]["remaining"], 2);
    }

    async fn the_creation_is_in_the_audit_log(kw) {
        kw.create_role("editor", []).await;
        kw.create_permission("documents.read").await;
        kw.create_permission("documents.write").await;

        let plain = kw.create_key(json!({})).await;
        let full = kw
            .create_key(json!({
                "name": "for billing",
                "roles": ["editor"],
                "permissions": ["documents.read", "documents.write"],
            }))
            .await;

        assert_eq!(kw.list_audit_events(&plain.id).await, ["key.create"]);
        assert_eq!(
            kw.list_audit_events(&full.id).await,
            [
                "authorization.connect_permission_and_key",
                "authorization.connect_permission_and_key",
                "authorization.connect_role_and_key",
                "key.create",
            ]
        );
        assert_eq!(kw.list_audit_events("for billing").await.len(), 4);
    }

    async fn neither_the_reply_of_others_nor_the_audit_log_holds_the_key(kw) {
        let key = kw.create_key(json!({ "name": "for billing" })).await;

        let got = kw.v2("keys.getKey", json!({ "keyId": key.id })).await;
        let verified = kw.verify(&key.key).await;

        assert!(!got.text.contains(&key.key) && !verified.text.contains(&key.key));
        let sql = "SELECT targets FROM audit";
        let entries: Vec<String> = match kw.store() {
            Store::Postgres { pool, .. } => sqlx::query_scalar(sql).fetch_all(&pool.get()).await.unwrap(),
            Store::Sqlite { pool, .. } => sqlx::query_scalar(sql).fetch_all(pool).await.unwrap(),
        };
        assert!(!entries.iter().any(|entry| entry.contains(&key.key)));
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

        reply.assert_code("VALID");
        assert_eq!(reply.data()["identity"]["externalId"], "user_1");
        assert_eq!(other.get_key(&key.id).await, kw.get_key(&key.id).await);
    }
}

mod account;
mod ad_hoc;
mod credits;
mod identity_limits;
mod limits;
mod permissions;
mod request;
mod windows;

use futures_util::future::join_all;
use serde_json::{Value, json};
use store::Store;

use crate::on_both_stacks;
use crate::support::{Keyward, NOON, Reply, Stack};

/// Verifies a key at once as often as said, the servers taking turns; how often it was valid.
async fn valid_at_once(servers: &[&Keyward], key: &str, times: usize, request: Value) -> usize {
    let verifications =
        (0..times).map(|n| servers[n % servers.len()].verify_with(key, request.clone()));
    let replies = join_all(verifications).await;
    replies.iter().filter(|reply| reply.data()["valid"] == true).count()
}

/// Fails unless the answer is that of a key that never was.
#[track_caller]
fn assert_unknown(reply: &Reply) {
    assert_eq!(*reply.data(), json!({ "valid": false, "code": "NOT_FOUND" }));
}

on_both_stacks! {
    async fn a_plain_key_is_valid_and_has_nothing_else_to_tell(kw) {
        let key = kw.create_key(json!({})).await;

        let reply = kw.verify(&key.key).await;

        assert_eq!(
            *reply.data(),
            json!({
                "valid": true, "code": "VALID", "keyId": key.id, "enabled": true,
            })
        );
    }

    async fn a_valid_key_tells_all_that_it_carries(kw) {
        kw.create_role("zoo keeper", ["b"]).await;
        kw.create_role("Editor", ["a", "B"]).await;
        let key = kw
            .create_key(json!({
                "name": "for billing", "externalId": "user_1", "meta": { "plan": "pro" },
                "roles": ["zoo keeper", "Editor"], "permissions": ["b"], "expires": NOON.0 + 1,
                "credits": { "remaining": 7, "refill": { "interval": "daily", "amount": 9 } },
                "ratelimits": [
                    { "name": "requests", "limit": 60, "duration": 60_000, "autoApply": true },
                ],
            }))
            .await;
        let told = kw.get_key(&key.id).await;
        let identity = told["identity"]["id"].as_str().unwrap();
        kw.set_identity_limits(identity, &[("tokens", 5, 60_000, false)]).await;
        let shared = kw.get_key(&key.id).await["identity"]["ratelimits"][0]["id"].clone();

        let reply = kw.verify(&key.key).await;

        assert_eq!(
            *reply.data(),
            json!({
                "valid": true,
                "code": "VALID",
                "keyId": key.id,
                "enabled": true,
                "name": "for billing",
                "meta": { "plan": "pro" },
                "expires": NOON.0 + 1,
                "permissions": ["B", "a", "b"],
                "roles": ["Editor", "zoo keeper"],
                "credits": 6,
                "identity": {
                    "id": identity,
                    "externalId": "user_1",
                    "ratelimits": [{
                        "id": shared, "name": "tokens", "limit": 5, "duration": 60_000,
                        "autoApply": false,
                    }],
                },
                "ratelimits": [{
                    "id": told["ratelimits"][0]["id"],
                    "name": "requests",
                    "limit": 60,
                    "duration": 60_000,
                    "reset": NOON.0 + 60_000,
                    "remaining": 59,
                    "exceeded": false,
                    "autoApply": true,
                }],
            })
        );
    }

    async fn the_meta_of_an_identity_is_told_unless_it_is_empty(kw) {
        let full = kw.create_key(json!({ "externalId": "user_1" })).await;
        let empty = kw.create_key(json!({ "externalId": "user_2" })).await;
        for sql in [
            r#"UPDATE identities SET meta = '{"plan":{"seats":3.0}}' WHERE external_id = 'user_1'"#,
            "UPDATE identities SET meta = '{ }' WHERE external_id = 'user_2'",
        ] {
            match kw.store() {
                Store::Postgres { pool, .. } => drop(sqlx::query(sql).execute(&pool.get()).await.unwrap()),
                Store::Sqlite { pool, .. } => drop(sqlx::query(sql).execute(pool).await.unwrap()),
            }
        }

        let (full, empty) = (kw.verify(&full.key).await, kw.verify(&empty.key).await);

        assert_eq!(full.data()["identity"]["meta"], json!({ "plan": { "seats": 3.0 } }));
        assert_eq!(empty.data()["identity"].get("meta"), None);
    }

    async fn a_refused_key_is_told_as_a_valid_one_is(kw) {
        kw.create_role("editor", ["documents.read"]).await;
        let key = kw
            .create_key(json!({
                "name": "for billing", "externalId": "user_1", "meta": { "plan": "pro" },
                "roles": ["editor"], "expires": NOON.0 + 1, "credits": { "remaining": 7 },
                "ratelimits": [{ "name": "requests", "limit": 60, "duration": 60_000 }],
            }))
            .await;
        let tell = |reply: &Reply| {
            let mut told = reply.data().clone();
            for field in ["valid", "code", "credits", "enabled", "ratelimits"] {
                told.as_object_mut().unwrap().remove(field);
            }
            told
        };
        let valid = tell(&kw.verify(&key.key).await);
        let limited = json!({ "ratelimits": [{ "name": "requests", "cost": 61 }] });

        let mut refusals = vec![
            kw.verify_with(&key.key, json!({ "permissions": "documents.write" })).await,
            kw.verify_with(&key.key, limited).await,
            kw.verify_with(&key.key, json!({ "credits": { "cost": 7 } })).await,
        ];
        kw.clock.advance_ms(2);
        refusals.push(kw.verify(&key.key).await);
        kw.update_key(&key.id, json!({ "enabled": false })).await.data();
        refusals.push(kw.verify(&key.key).await);

        let codes =
            ["INSUFFICIENT_PERMISSIONS", "RATE_LIMITED", "USAGE_EXCEEDED", "EXPIRED", "DISABLED"];
        for (reply, code) in refusals.iter().zip(codes) {
            reply.assert_code(code);
            assert_eq!(tell(reply), valid, "{code}");
            assert_eq!(reply.data()["credits"], 6, "{code}");
            assert_eq!(reply.data()["enabled"], code != "DISABLED");
            assert_eq!(reply.data().get("ratelimits").is_some(), code == "RATE_LIMITED");
        }
    }

    async fn a_key_that_is_not_there_is_told_nothing_of(kw) {
        let api = kw.create_api().await;
        let full = json!({ "name": "for billing", "externalId": "user_1" });
        let (deleted, purged) = (kw.create_key(full.clone()).await, kw.create_key(full.clone()).await);
        let orphan = kw.create_key_in(&api, full).await;
        kw.v2("keys.deleteKey", json!({ "keyId": deleted.id })).await.data();
        kw.v2("keys.deleteKey", json!({ "keyId": purged.id, "permanent": true })).await.data();
        kw.v2("apis.deleteApi", json!({ "apiId": api })).await.data();

        for key in [&deleted.key, &purged.key, &orphan.key, "prod_neverIssued", "🦀", " "] {
            assert_unknown(&kw.verify(key).await);
        }
        assert_unknown(&kw.verify(&"x".repeat(512)).await);
    }

    async fn a_key_is_known_by_every_letter_of_it(kw) {
        let key = kw.create_key(json!({ "prefix": "prod" })).await;
        let (head, tail) = key.key.split_at(key.key.len() - 1);
        let other = if tail == "z" { "y" } else { "z" };

        for wrong in [
            key.key.to_uppercase(),
            format!("{head}{other}"),
            head.to_owned(),
            format!("{} ", key.key),
            key.key["prod_".len()..].to_owned(),
            key.id.clone(),
            kw.root_key.clone(),
        ] {
            assert_unknown(&kw.verify(&wrong).await);
        }
    }

    async fn who_may_not_verify_is_told_what_a_stranger_is_told(kw) {
        let key = kw.create_key(json!({})).await;
        let grants = ["api.*.read_key", "api.*.update_key", "api.api_other.verify_key"];
        let root_key = kw.create_root_key(grants).await;

        let reply = kw.v2_as(&root_key, "keys.verifyKey", json!({ "key": key.key })).await;

        assert_unknown(&reply);
    }

    /// The first verification caches the key and who may verify it.
    async fn cached_key_is_hidden_from_other_root_keys_however_often_they_ask(kw) {
        let key = kw.create_key(json!({})).await;
        let reader = kw.create_root_key(["api.*.read_key"]).await;
        let stranger = kw.create_other_workspace().await;

        for _ in 0..3 {
            kw.verify(&key.key).await.assert_code("VALID");
            for root_key in [&stranger, &reader] {
                let request = json!({ "key": key.key });
                assert_unknown(&kw.v2_as(root_key, "keys.verifyKey", request.clone()).await);
                assert_unknown(&kw.v2_as(root_key, "keys.verifyKey", request).await);
            }
        }
    }

    async fn a_permission_for_one_api_verifies_no_key_of_another(kw) {
        let api = kw.create_api().await;
        let (own, other) = (kw.create_key_in(&api, json!({})).await, kw.create_key(json!({})).await);
        let root_key = kw.create_root_key([&*format!("api.{api}.verify_key")]).await;

        let verified = kw.v2_as(&root_key, "keys.verifyKey", json!({ "key": own.key })).await;
        let hidden = kw.v2_as(&root_key, "keys.verifyKey", json!({ "key": other.key })).await;

        verified.assert_code("VALID");
        assert_unknown(&hidden);
    }

    async fn to_verify_needs_no_other_permission(kw) {
        kw.create_role("editor", ["documents.read"]).await;
        let key = kw.create_key(json!({ "roles": ["editor"], "credits": { "remaining": 1 } })).await;
        let root_key = kw.create_root_key(["api.*.verify_key"]).await;
        let request = json!({ "key": key.key, "permissions": "documents.read" });

        let reply = kw.v2_as(&root_key, "keys.verifyKey", request).await;

        reply.assert_code("VALID");
    }

    async fn a_hidden_key_spends_nothing(kw) {
        let key = kw.create_key(json!({ "credits": { "remaining": 1 } })).await;
        let root_key = kw.create_root_key(["api.*.read_key"]).await;

        kw.v2_as(&root_key, "keys.verifyKey", json!({ "key": key.key })).await.assert_code("NOT_FOUND");

        kw.verify(&key.key).await.assert_code("VALID");
    }

    async fn a_key_expires_after_its_last_millisecond(kw) {
        let key = kw.create_key(json!({ "expires": NOON.0 + 1000 })).await;

        kw.clock.advance_ms(1000);
        let at = kw.verify(&key.key).await;
        kw.clock.advance_ms(1);
        let after = kw.verify(&key.key).await;

        at.assert_code("VALID");
        after.assert_code("EXPIRED");
    }

    async fn the_first_check_that_fails_decides(kw) {
        kw.create_permission("documents.read").await;
        let key = kw
            .create_key(json!({
                "credits": { "remaining": 1 },
                "ratelimits": [
                    { "name": "requests", "limit": 1, "duration": 60_000, "autoApply": true },
                ],
            }))
            .await;
        kw.verify(&key.key).await.assert_code("VALID");
        kw.update_key(&key.id, json!({ "enabled": false, "expires": NOON.0 - 1 })).await.data();
        let permissions = "documents.read";
        let unknown_limit =
            json!({ "permissions": permissions, "ratelimits": [{ "name": "nothing" }] });
        let broken = json!({ "permissions": "(", "ratelimits": [{ "name": "nothing" }] });
        let too_short = json!({
            "permissions": "(", "ratelimits": [{ "name": "nothing", "limit": 1, "duration": 999 }],
        });

        // Each step mends what decided the one before.
        kw.verify_with("prod_neverIssued", too_short).await.assert_error(400, "invalid_input");
        kw.verify_with("prod_neverIssued", broken.clone()).await.assert_code("NOT_FOUND");
        kw.verify_with(&key.key, broken).await.assert_error(400, "permissions_query_syntax_error");
        kw.verify_with(&key.key, unknown_limit.clone()).await.assert_code("DISABLED");
        kw.update_key(&key.id, json!({ "enabled": true })).await.data();
        kw.verify_with(&key.key, unknown_limit.clone()).await.assert_code("EXPIRED");
        kw.update_key(&key.id, json!({ "expires": null })).await.data();
        kw.verify_with(&key.key, unknown_limit.clone()).await.assert_code("INSUFFICIENT_PERMISSIONS");
        kw.update_key(&key.id, json!({ "permissions": [permissions] })).await.data();
        kw.verify_with(&key.key, unknown_limit).await.assert_error(412, "precondition_failed");
        kw.verify(&key.key).await.assert_code("RATE_LIMITED");
        kw.clock.advance_ms(120_000);
        kw.verify(&key.key).await.assert_code("USAGE_EXCEEDED");
        kw.update_key(&key.id, json!({ "credits": { "remaining": 1 } })).await.data();
        kw.verify(&key.key).await.assert_code("VALID");
    }

    async fn verifying_leaves_no_trace_in_the_audit_log(kw) {
        let key = kw.create_key(json!({ "credits": { "remaining": 1 } })).await;
        let before = kw.count_rows("audit").await;

        kw.verify(&key.key).await.assert_code("VALID");
        kw.verify(&key.key).await.assert_code("USAGE_EXCEEDED");

        assert_eq!(kw.count_rows("audit").await, before);
    }
}

#[tokio::test]
async fn every_replica_verifies_alike() {
    let kw = Keyward::start(Stack::Replica).await;
    let other = kw.replica().await;
    kw.create_role("editor", ["documents.read"]).await;
    let key = kw.create_key(json!({
        "name": "for billing", "externalId": "user_1", "roles": ["editor"],
        "credits": { "remaining": 5_000 },
        "ratelimits": [{ "name": "requests", "limit": 10, "duration": 60_000, "autoApply": true }],
    })).await;

    let mut here = kw.verify(&key.key).await.data().clone();
    let there = other.verify(&key.key).await;

    assert_eq!((&here["credits"], &here["ratelimits"][0]["remaining"]), (&json!(4_999), &json!(9)));
    here["credits"] = json!(4_998);
    here["ratelimits"][0]["remaining"] = json!(8);
    assert_eq!(*there.data(), here);
}

mod account;
mod ad_hoc;
mod credits;
mod identity_limits;
mod limits;
mod permissions;
mod request;

use futures_util::future::join_all;
use serde_json::{Value, json};

use crate::on_both_stacks;
use crate::support::scenario::{call, error, pass, plain, refuse, update, verify};
use crate::support::version::Version::V2;
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
    assert_eq!(*reply.data(), json!({ "valid": false, "code": "NOT_FOUND" }), "{reply}");
}

on_both_stacks! {
    async fn a_plain_key_is_valid_and_has_nothing_else_to_tell(kw) {
        let key = kw.create_key(json!({})).await;
        let told = json!({ "valid": true, "code": "VALID", "keyId": key.id, "enabled": true });
        assert_eq!(*kw.verify(&key.key).await.data(), told);
    }

    async fn a_valid_key_tells_all_that_it_carries(kw) {
        kw.create_role("zoo keeper", ["b"]).await;
        kw.create_role("Editor", ["a", "B"]).await;
        let key = kw.create_key(json!({
            "name": "for billing", "externalId": "user_1", "meta": { "plan": "pro" },
            "roles": ["zoo keeper", "Editor"], "permissions": ["b"], "expires": NOON.0 + 1,
            "credits": { "remaining": 7, "refill": { "interval": "daily", "amount": 9 } },
            "ratelimits": [{ "name": "requests", "limit": 60, "duration": 60_000, "autoApply": true }],
        })).await;
        let limit = kw.get_key(&key.id).await["ratelimits"][0]["id"].clone();
        let identity = kw.get_key(&key.id).await["identity"]["id"].as_str().unwrap().to_owned();
        kw.set_identity_limits(&identity, &[("tokens", 5, 60_000, false)]).await;
        let shared = kw.get_key(&key.id).await["identity"]["ratelimits"][0]["id"].clone();

        assert_eq!(*kw.verify(&key.key).await.data(), json!({
            "valid": true, "code": "VALID", "keyId": key.id, "enabled": true, "name": "for billing", "meta": { "plan": "pro" },
            "expires": NOON.0 + 1, "permissions": ["B", "a", "b"], "roles": ["Editor", "zoo keeper"], "credits": 6,
            "identity": {
                "id": identity, "externalId": "user_1",
                "ratelimits": [{ "id": shared, "name": "tokens", "limit": 5, "duration": 60_000, "autoApply": false }],
            },
            "ratelimits": [{
                "id": limit, "name": "requests", "limit": 60, "duration": 60_000,
                "reset": NOON.0 + 60_000, "remaining": 59, "exceeded": false, "autoApply": true,
            }],
        }));
    }

    async fn the_meta_of_an_identity_is_told_unless_it_is_empty(kw) {
        for (user, stored, told) in [("user_1", r#"{"plan":{"seats":3.0}}"#, json!({ "plan": { "seats": 3.0 } })), ("user_2", "{ }", Value::Null)] {
            let key = kw.create_key(json!({ "externalId": user })).await;
            kw.execute_sql(format!("UPDATE identities SET meta = '{stored}' WHERE external_id = '{user}'")).await;
            let reply = kw.verify(&key.key).await;
            assert_eq!(reply.data()["identity"].get("meta").unwrap_or(&Value::Null), &told, "{reply}");
            assert_eq!(reply.data()["identity"].get("meta").is_some(), !told.is_null(), "{reply}");
        }
    }

    async fn a_refused_key_is_told_as_a_valid_one_is(kw) {
        kw.create_role("editor", ["documents.read"]).await;
        let key = kw.create_key(json!({
            "name": "for billing", "externalId": "user_1", "meta": { "plan": "pro" },
            "roles": ["editor"], "expires": NOON.0 + 1, "credits": { "remaining": 7 },
            "ratelimits": [{ "name": "requests", "limit": 60, "duration": 60_000 }],
        })).await;
        let tell = |reply: &Reply| {
            let mut told = reply.data().clone();
            for field in ["valid", "code", "credits", "enabled", "ratelimits"] {
                told.as_object_mut().unwrap().remove(field);
            }
            told
        };
        let valid = tell(&kw.verify(&key.key).await);
        let limited = json!({ "ratelimits": [{ "name": "requests", "cost": 61 }] });
        for (request, code) in [
            (json!({ "permissions": "documents.write" }), "INSUFFICIENT_PERMISSIONS"),
            (limited, "RATE_LIMITED"),
            (json!({ "credits": { "cost": 7 } }), "USAGE_EXCEEDED"),
            (json!({}), "EXPIRED"),
            (json!({}), "DISABLED"),
        ] {
            match code {
                "EXPIRED" => kw.clock.advance_ms(2),
                "DISABLED" => drop(kw.update_key(&key.id, json!({ "enabled": false })).await.data()), _ => {},
            }
            let reply = kw.verify_with(&key.key, request).await;
            reply.assert_code(code);
            assert_eq!((tell(&reply), &reply.data()["credits"]), (valid.clone(), &json!(6)), "{reply}");
            assert_eq!(reply.data()["enabled"], code != "DISABLED");
            assert_eq!(reply.data().get("ratelimits").is_some(), code == "RATE_LIMITED");
        }
    }

    async fn a_key_that_is_not_there_or_is_written_otherwise_is_told_nothing_of(kw) {
        let api = kw.create_api().await;
        let full = json!({ "name": "for billing", "externalId": "user_1" });
        let (deleted, purged) = (kw.create_key(full.clone()).await, kw.create_key(full.clone()).await);
        let orphan = kw.create_key_in(&api, full).await;
        kw.v2("keys.deleteKey", json!({ "keyId": deleted.id })).await.data();
        kw.v2("keys.deleteKey", json!({ "keyId": purged.id, "permanent": true })).await.data();
        kw.v2("apis.deleteApi", json!({ "apiId": api })).await.data();
        let key = kw.create_key(json!({ "prefix": "prod" })).await;
        let (head, tail) = key.key.split_at(key.key.len() - 1);
        let other = if tail == "z" { "y" } else { "z" };

        for unknown in [
            &deleted.key, &purged.key, &orphan.key, "prod_neverIssued", "🦀", " ", &*"x".repeat(512), &key.key.to_uppercase(),
            &format!("{head}{other}"), head, &format!("{} ", key.key), &key.key["prod_".len()..], &key.id, &kw.root_key,
        ] {
            assert_unknown(&kw.verify(unknown).await);
        }
    }

    async fn who_may_not_verify_is_told_what_a_stranger_is_told_and_spends_nothing(kw) {
        kw.create_role("editor", ["documents.read"]).await;
        let api = kw.create_api().await;
        let key = kw.create_key_in(&api, json!({ "roles": ["editor"], "credits": { "remaining": 4 } })).await;
        let other = kw.create_key(json!({})).await;
        let reader = kw.create_root_key(["api.*.read_key", "api.*.update_key", "api.api_other.verify_key"]).await;
        let stranger = kw.create_other_workspace().await;
        let ask = async |root_key: &str, key: &str| {
            kw.v2_as(root_key, "keys.verifyKey", json!({ "key": key, "permissions": "documents.read" })).await
        };

        // The first verification caches the key and who may verify it.
        for left in [3, 2, 1] {
            for root_key in [&stranger, &reader, &stranger, &reader] {
                assert_unknown(&ask(root_key, &key.key).await);
            }
            assert_eq!(kw.verify(&key.key).await.assert_code("VALID")["credits"], left);
        }
        // To verify needs no other permission, and one for one API verifies no key of another.
        let within = kw.create_root_key([&*format!("api.{api}.verify_key")]).await;
        ask(&within, &key.key).await.assert_code("VALID");
        assert_unknown(&ask(&within, &other.key).await);
    }

    async fn the_first_check_that_fails_decides(kw) {
        kw.create_permission("documents.read").await;
        let none = || json!({});
        let limit = json!({ "name": "requests", "limit": 1, "duration": 60_000, "autoApply": true });
        let unknown = || json!({ "permissions": "documents.read", "ratelimits": [{ "name": "nothing" }] });
        let broken = json!({ "permissions": "(", "ratelimits": [{ "name": "nothing" }] });
        let too_short = json!({ "permissions": "(", "ratelimits": [{ "name": "nothing", "limit": 1, "duration": 999 }] });
        kw.verify_with("prod_neverIssued", too_short).await.assert_error(400, "invalid_input");
        kw.verify_with("prod_neverIssued", broken.clone()).await.assert_code("NOT_FOUND");
        kw.run(V2, vec![
            // Each step mends what decided the one before.
            ("each check in its order", json!({ "credits": { "remaining": 1 }, "ratelimits": [limit] }), vec![
                plain("VALID", none()), update(json!({ "enabled": false, "expires": NOON.0 - 1 })),
                refuse(broken, error(400, "permissions_query_syntax_error", &[])), verify(unknown(), "DISABLED", none()),
                update(json!({ "enabled": true })), verify(unknown(), "EXPIRED", none()),
                update(json!({ "expires": null })), verify(unknown(), "INSUFFICIENT_PERMISSIONS", none()),
                update(json!({ "permissions": ["documents.read"] })), refuse(unknown(), error(412, "precondition_failed", &[])), plain("RATE_LIMITED", none()),
                pass(120_000), plain("USAGE_EXCEEDED", none()),
                call("keys.updateKey", json!({ "credits": { "remaining": 1 } }), none()), plain("VALID", none()),
            ]),
            ("a key expires after its last millisecond", json!({ "expires": NOON.0 + 1000 }), vec![
                pass(1000), plain("VALID", none()), pass(1), plain("EXPIRED", none()),
            ]),
        ]).await;
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
        "name": "for billing", "externalId": "user_1", "roles": ["editor"], "credits": { "remaining": 5_000 },
        "ratelimits": [{ "name": "requests", "limit": 10, "duration": 60_000, "autoApply": true }],
    })).await;

    let mut here = kw.verify(&key.key).await.data().clone();
    let there = other.verify(&key.key).await;

    assert_eq!((&here["credits"], &here["ratelimits"][0]["remaining"]), (&json!(4_999), &json!(9)));
    here["credits"] = json!(4_998);
    here["ratelimits"][0]["remaining"] = json!(8);
    assert_eq!(*there.data(), here);
}

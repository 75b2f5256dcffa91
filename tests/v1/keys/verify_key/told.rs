//! What is told of a key, with each outcome.

use foundation::secret::KeyHash;
use serde_json::{Value, json};

use super::{MINUTE, api_of, assert_unknown, issued, issued_by, update};
use crate::on_both_stacks;
use crate::support::json::Fields as _;
use crate::support::{Keyward, NOON, Reply, Stack};

fn fields(reply: &Reply) -> Vec<&str> {
    reply.v1_body().as_object().unwrap().keys().map(String::as_str).collect()
}

/// A key that carries something of everything.
fn everything() -> Value {
    json!({
        "name": "for billing", "externalId": "user_1", "meta": { "plan": "pro" },
        "environment": "production", "roles": ["zoo keeper", "Editor"], "permissions": ["b"],
        "expires": NOON.0 + 1000, "remaining": 7,
        "refill": { "interval": "daily", "amount": 9 },
        "ratelimit": { "limit": 3, "duration": MINUTE },
    })
}

async fn plant_roles(kw: &Keyward) {
    kw.create_role("zoo keeper", ["b"]).await;
    kw.create_role("Editor", ["a", "B"]).await;
}

on_both_stacks! {
    async fn a_plain_key_is_valid_and_has_nothing_else_to_tell(kw) {
        let key = issued(&kw, json!({})).await;

        let reply = kw.verify_v1(&key.key, json!({})).await;

        let id = reply.headers["unkey-request-id"].to_str().unwrap();
        assert_eq!(*reply.v1_body(), json!({
            "valid": true, "code": "VALID", "requestId": id,
            "keyId": key.id, "enabled": true, "permissions": [], "roles": [],
        }));
        assert_eq!(reply.headers.get("unkey-ratelimit-triggered"), None);
    }

    async fn a_valid_key_tells_all_that_it_carries(kw) {
        plant_roles(&kw).await;
        let user = json!({ "externalId": "user_1", "meta": { "seats": 3 } });
        let identity = kw.v1("identities.createIdentity", user).await.v1_body()["identityId"].clone();
        let key = issued(&kw, everything()).await;

        let reply = kw.verify_v1(&key.key, json!({})).await;

        let id = reply.headers["unkey-request-id"].to_str().unwrap();
        assert_eq!(
            *reply.v1_body(),
            json!({
                "valid": true, "code": "VALID", "requestId": id, "keyId": key.id, "enabled": true, "name": "for billing",
                "ownerId": "user_1", "meta": { "plan": "pro" }, "environment": "production", "expires": NOON.0 + 1000,
                "permissions": ["B", "a", "b"], "roles": ["Editor", "zoo keeper"],
                "identity": { "id": identity, "externalId": "user_1", "meta": { "seats": 3 } }, "remaining": 6,
                "ratelimit": { "limit": 3, "remaining": 2, "reset": NOON.0 + MINUTE },
            }),
        );
    }

    async fn each_outcome_tells_the_key_and_what_was_counted(kw) {
        plant_roles(&kw).await;
        let key = issued(&kw, everything()).await;
        let known = [
            "code", "enabled", "environment", "expires", "identity", "keyId", "meta", "name", "ownerId", "permissions",
            "requestId", "roles", "valid",
        ];
        let valid = kw.verify_v1(&key.key, json!({})).await;
        for (request, code, counted) in [
            (json!({ "authorization": { "permissions": "z" } }), "INSUFFICIENT_PERMISSIONS", &[][..]),
            (json!({ "apiId": "api_another" }), "FORBIDDEN", &[]),
            (json!({ "remaining": { "cost": 8 } }), "USAGE_EXCEEDED", &["ratelimit", "remaining"]),
            (json!({ "ratelimits": [{ "name": "default", "cost": 9 }] }), "RATE_LIMITED", &["ratelimit"]),
            (json!({}), "VALID", &["ratelimit", "remaining"]),
            (json!({}), "EXPIRED", &[]),
            (json!({}), "DISABLED", &[]),
        ] {
            match code {
                "EXPIRED" => kw.clock.advance_ms(1001), "DISABLED" => update(&kw, &key, json!({ "enabled": false })).await,
                _ => {},
            }
            let reply = kw.verify_v1(&key.key, request).await;
            reply.assert_v1_code(code);
            let mut told = [&known[..], counted].concat();
            told.sort_unstable();
            assert_eq!(fields(&reply), told, "{reply}");
            for field in ["keyId", "name", "ownerId", "meta", "environment", "identity", "roles"] {
                assert_eq!(reply.body[field], valid.body[field], "{field}: {reply}");
            }
            assert_eq!(reply.body["enabled"], code != "DISABLED");
        }
    }

    async fn a_key_that_is_not_there_tells_nothing_else(kw) {
        let (deleted, gone, of_no_api) = (issued(&kw, json!({})).await, issued(&kw, json!({})).await, issued(&kw, json!({})).await);
        kw.v1("keys.deleteKey", json!({ "keyId": deleted.id })).await.v1_body();
        kw.v1("keys.deleteKey", json!({ "keyId": gone.id, "permanent": true })).await.v1_body();
        kw.v1("apis.deleteApi", json!({ "apiId": api_of(&kw, &of_no_api).await })).await.v1_body();
        let made = kw.create_root_key(["api.*.verify_key"]).await;
        let key = issued(&kw, json!({ "prefix": "prod" })).await;

        for unknown in [
            "prod_neverIssued", &deleted.key, &gone.key, &of_no_api.key, &kw.root_key, &made, &key.id,
            &key.key.to_uppercase(), &format!("{} ", key.key), &key.key["prod_".len()..],
        ] {
            assert_unknown(&kw.verify_v1(unknown, json!({})).await);
        }
        kw.verify_v1(&key.key, json!({})).await.assert_v1_code("VALID");
    }

    async fn each_request_has_a_name_of_its_own(kw) {
        let key = issued(&kw, json!({})).await;

        let mut names = Vec::new();
        for key in [&*key.key, "nobody", &*key.key] {
            let reply = kw.verify_v1(key, json!({})).await;
            let name = reply.v1_body()["requestId"].as_str().unwrap().to_owned();
            assert_eq!(reply.headers["unkey-request-id"].to_str().unwrap(), name);
            assert!(name.starts_with("req_") && name.len() > 12, "{name}");
            names.push(name);
        }

        names.sort();
        names.dedup();
        assert_eq!(names.len(), 3);
    }

    async fn the_owner_is_the_identity_or_else_the_name_that_is_kept(kw) {
        let both = json!({ "ownerId": "older", "externalId": "newer" });
        let both = issued(&kw, both).await;
        let owner = issued(&kw, json!({ "ownerId": "user_1" })).await;
        let item = json!([{
            "apiId": api_of(&kw, &owner).await, "ownerId": "user_2",
            "hash": { "value": KeyHash::compute("old_1").to_base64(), "variant": "sha256_base64" },
        }]);
        kw.v1("migrations.createKeys", item).await.v1_body();
        let nobody = issued(&kw, json!({})).await;

        for (key, told, linked) in [
            (&*both.key, json!("newer"), json!("newer")),
            (&owner.key, json!("user_1"), json!("user_1")),
            ("old_1", json!("user_2"), Value::Null),
            (&nobody.key, Value::Null, Value::Null),
        ] {
            let reply = kw.verify_v1(key, json!({})).await;
            reply.assert_v1_code("VALID");
            reply.v1_body().assert_has(json!({ "ownerId": told, "identity.externalId": linked }));
            assert_eq!(reply.body.get("identity").is_some(), !linked.is_null(), "{}", reply.text);
        }
    }

    async fn a_key_whose_identity_is_gone_keeps_the_name_of_its_owner(kw) {
        let key = issued(&kw, json!({ "externalId": "user_1" })).await;
        let told = kw.verify_v1(&key.key, json!({})).await;
        let identity = told.v1_body()["identity"]["id"].clone();

        kw.v1("identities.deleteIdentity", json!({ "identityId": identity })).await.v1_body();
        let orphan = kw.verify_v1(&key.key, json!({})).await;
        update(&kw, &key, json!({ "externalId": null })).await;
        kw.verify_v1(&key.key, json!({})).await.assert_v1_code("VALID").assert_has(json!({ "ownerId": null }));

        orphan.assert_v1_code("VALID").assert_has(json!({ "ownerId": "user_1", "identity": null }));
    }

    async fn a_meta_that_is_empty_is_left_out_but_never_that_of_an_identity(kw) {
        let key = issued(&kw, json!({ "externalId": "user_1", "meta": {} })).await;
        for meta in [Value::Null, json!({ "plan": { "seats": 3.5 } }), json!({})] {
            if !meta.is_null() {
                kw.v1("identities.updateIdentity", json!({ "externalId": "user_1", "meta": meta })).await.v1_body();
            }
            let told = if meta.is_null() { json!({}) } else { meta };
            kw.verify_v1(&key.key, json!({})).await.assert_v1_code("VALID").assert_has(json!({ "meta": null, "identity.meta": told }));
        }
    }

    async fn an_expiry_of_0_is_none(kw) {
        let made = issued(&kw, json!({ "expires": 0 })).await;
        let changed = issued(&kw, json!({ "expires": NOON.0 - 1 })).await;
        update(&kw, &changed, json!({ "expires": 0 })).await;

        for key in [made, changed] {
            assert_eq!(kw.verify_v1(&key.key, json!({})).await.assert_v1_code("VALID").get("expires"), None);
        }
    }

    async fn a_key_is_told_whosever_it_is(kw) {
        let stranger = kw.create_other_workspace().await;
        let key = issued_by(&kw, &stranger, json!({ "name": "theirs", "remaining": 2 })).await;

        let reply = kw.verify_v1(&key.key, json!({})).await;

        reply.assert_v1_code("VALID").assert_has(json!({ "name": "theirs", "remaining": 1 }));
        // Version 2 is asked by somebody, whose key it is not.
        kw.verify(&key.key).await.assert_code("NOT_FOUND");
    }
}

#[tokio::test]
async fn every_replica_tells_the_same() {
    let kw = Keyward::start(Stack::Replica).await;
    let other = kw.replica().await;
    plant_roles(&kw).await;
    let key = issued(&kw, everything()).await;

    let mut here = kw.verify_v1(&key.key, json!({})).await.assert_v1_code("VALID").clone();
    let there = other.verify_v1(&key.key, json!({})).await;

    here["remaining"] = json!(5);
    here["ratelimit"]["remaining"] = json!(1);
    here["requestId"] = there.body["requestId"].clone();
    assert_eq!(*there.assert_v1_code("VALID"), here);
}

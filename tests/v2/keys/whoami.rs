use serde_json::json;

use crate::on_both_stacks;
use crate::support::{Keyward, NOON, Stack};

on_both_stacks! {
    async fn the_key_shows_what_its_id_shows(kw) {
        kw.create_role("editor", ["documents.read"]).await;
        let plain = kw.create_key(json!({})).await;
        let full = kw.create_key(json!({
            "prefix": "prod", "name": "for billing", "externalId": "user_1", "meta": { "plan": "pro" }, "roles": ["editor"],
            "expires": NOON.0 + 1, "credits": { "remaining": 7, "refill": { "interval": "daily", "amount": 9 } },
            "ratelimits": [{ "name": "requests", "limit": 60, "duration": 60_000 }],
        })).await;
        kw.update_key(&full.id, json!({ "enabled": true })).await.data();

        for key in [plain, full] {
            let reply = kw.v2("keys.whoami", json!({ "key": key.key })).await;

            assert_eq!(*reply.data(), kw.get_key(&key.id).await);
            assert!(!reply.text.contains(&key.key));
        }
    }

    async fn it_spends_nothing(kw) {
        let key = kw.create_key(json!({
            "credits": { "remaining": 1 },
            "ratelimits": [{ "name": "requests", "limit": 1, "duration": 60_000, "autoApply": true }],
        })).await;

        for _ in 0..3 {
            assert_eq!(kw.v2("keys.whoami", json!({ "key": key.key })).await.data()["credits"]["remaining"], 1);
        }

        kw.verify(&key.key).await.assert_code("VALID");
    }

    async fn a_disabled_or_expired_key_is_told(kw) {
        let disabled = kw.create_key(json!({ "enabled": false })).await;
        let expired = kw.create_key(json!({ "expires": NOON.0 - 1 })).await;
        for key in [disabled, expired] {
            assert_eq!(kw.v2("keys.whoami", json!({ "key": key.key })).await.data()["keyId"], key.id);
        }
    }

    async fn a_key_that_never_was_is_not_found_and_not_repeated(kw) {
        let reply = kw.v2("keys.whoami", json!({ "key": "prod_neverIssued" })).await;
        reply.assert_error(404, "key_not_found");
        assert!(!reply.text.contains("neverIssued"), "{}", reply.text);
    }

    async fn a_key_is_known_by_every_letter_of_it(kw) {
        let key = kw.create_key(json!({ "prefix": "prod" })).await;
        let (head, tail) = key.key.split_at(key.key.len() - 1);
        let other = if tail == "z" { "y" } else { "z" };

        for wrong in [
            key.key.to_uppercase(),
            format!("{head}{other}"),
            head.to_owned(),
            format!(" {}", key.key),
            format!("{} ", key.key),
            key.key["prod_".len()..].to_owned(),
            key.id.clone(),
        ] {
            kw.v2("keys.whoami", json!({ "key": wrong })).await.assert_error(404, "key_not_found");
        }
    }

    async fn a_root_key_is_no_key(kw) {
        kw.v2("keys.whoami", json!({ "key": kw.root_key })).await.assert_error(404, "key_not_found");
    }
}

#[tokio::test]
async fn every_replica_tells_the_same() {
    let kw = Keyward::start(Stack::Replica).await;
    let other = kw.replica().await;
    let key =
        kw.create_key(json!({ "externalId": "user_1", "credits": { "remaining": 5_000 } })).await;
    kw.verify(&key.key).await.assert_code("VALID");

    let here = kw.v2("keys.whoami", json!({ "key": key.key })).await;
    let there = other.v2("keys.whoami", json!({ "key": key.key })).await;

    assert_eq!(here.data(), there.data());
    assert_eq!(there.data()["credits"]["remaining"], 4_999);
}

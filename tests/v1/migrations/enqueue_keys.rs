use foundation::secret::KeyHash;
use serde_json::{Value, json};

use crate::on_both_stacks;
use crate::support::json::Fields as _;
use crate::support::{Keyward, Reply};

fn hash(key: &str) -> Value {
    json!({ "value": KeyHash::compute(key).to_base64(), "variant": "sha256_base64" })
}

async fn enqueue(kw: &Keyward, api: &str, keys: Value) -> Reply {
    let request = json!({ "migrationId": "the old shop", "apiId": api, "keys": keys });
    kw.v1("migrations.enqueueKeys", request).await
}

#[track_caller]
fn is_accepted(reply: &Reply) {
    assert_eq!((reply.status.as_u16(), &reply.body), (202, &json!({})), "{}", reply.text);
}

on_both_stacks! {
    async fn the_keys_are_there_when_the_answer_comes(kw) {
        kw.create_permission("docs.read").await;
        let api = kw.create_api().await;
        kw.verify_v1("old_key", json!({})).await.assert_v1_code("NOT_FOUND");
        let keys = json!([
            {
                "hash": hash("old_key"), "name": "the old one", "ownerId": "user_1", "permissions": ["docs.read"],
                "meta": { "a": 1 }, "remaining": 2, "refill": { "interval": "monthly", "amount": 9 },
                "ratelimit": { "limit": 1, "duration": 1000 }, "environment": "test",
            },
            { "plaintext": "another", "externalId": "user_2" },
        ]);

        is_accepted(&enqueue(&kw, &api, keys).await);

        let verified = kw.verify_v1("old_key", json!({ "apiId": api })).await;
        let told = verified.assert_v1_code("VALID");
        told.assert_has(json!({
            "name": "the old one", "ownerId": "user_1", "remaining": 1, "meta": { "a": 1 },
            "permissions": ["docs.read"], "ratelimit.remaining": 0, "environment": "test",
        }));
        kw.verify_v1("old_key", json!({})).await.assert_v1_code("RATE_LIMITED");
        let query = format!("keyId={}", told["keyId"].as_str().unwrap());
        let refill = kw.v1_get("keys.getKey", &query).await.v1_body()["refill"].clone();
        assert_eq!((&refill["interval"], &refill["refillDay"]), (&json!("monthly"), &json!(1)));
        assert_eq!(kw.verify_v1("another", json!({})).await.assert_v1_code("VALID")["identity"]["externalId"], "user_2");
    }

    async fn those_that_are_there_are_passed_over_as_they_are(kw) {
        let api = kw.create_api().await;
        let known = kw.create_key_in(&api, json!({ "name": "known" })).await;
        let keys = json!([
            { "hash": hash(&known.key), "name": "changed" },
            { "hash": hash("a"), "name": "first" },
            { "hash": hash("a"), "name": "second" },
            { "hash": hash("b") },
        ]);

        is_accepted(&enqueue(&kw, &api, keys.clone()).await);
        is_accepted(&enqueue(&kw, &api, keys).await);

        assert_eq!(kw.verify_v1(&known.key, json!({})).await.assert_v1_code("VALID")["name"], "known");
        assert_eq!(kw.verify_v1("a", json!({})).await.assert_v1_code("VALID")["name"], "first");
        kw.verify_v1("b", json!({})).await.assert_v1_code("VALID");
        assert_eq!(kw.count_rows("keys").await, 3);
    }

    async fn there_may_be_none(kw) {
        is_accepted(&enqueue(&kw, &kw.create_api().await, json!([])).await);
    }

    async fn the_api_must_be_there_even_where_no_key_is(kw) {
        let (api, gone) = (kw.create_api().await, kw.create_api().await);
        kw.v1("apis.deleteApi", json!({ "apiId": gone })).await.v1_body();
        let elsewhere = kw.create_root_key([&*format!("api.{gone}.create_key")]).await;
        let request = json!({ "migrationId": "m", "apiId": api, "keys": [] });

        for absent in ["api_nowhere", &gone] {
            enqueue(&kw, absent, json!([])).await.assert_v1_error_about(404, "NOT_FOUND", &[absent]);
        }
        let refused = kw.v1_as(&elsewhere, "migrations.enqueueKeys", request).await;

        refused.assert_v1_error_about(403, "INSUFFICIENT_PERMISSIONS", &[&format!("api.{api}.create_key")]);
    }

    async fn one_fault_takes_in_nothing(kw) {
        let api = kw.create_api().await;
        let good = json!({ "hash": hash("a") });

        enqueue(&kw, &api, json!([good, { "name": "neither" }])).await.assert_v1_fault("keys.1.hash: ", &[]);
        let role = enqueue(&kw, &api, json!([good, { "hash": hash("b"), "roles": ["x"] }])).await;
        enqueue(&kw, "api_nowhere", json!([good])).await.assert_v1_error(404, "NOT_FOUND");

        role.assert_v1_error(412, "PRECONDITION_FAILED");
        assert_eq!(kw.count_rows("keys").await, 0);
    }

    async fn keys_themselves_take_the_right_to_encrypt_too(kw) {
        let api = kw.create_api().await;
        let root_key = kw.create_root_key_with(vec![format!("api.{api}.create_key")]).await;
        let ask = async |key: Value| {
            let request = json!({ "migrationId": "m", "apiId": api, "keys": [key] });
            kw.v1_as(&root_key, "migrations.enqueueKeys", request).await
        };

        ask(json!({ "plaintext": "a" })).await.assert_v1_error_about(403, "INSUFFICIENT_PERMISSIONS", &["encrypt_key"]);
        is_accepted(&ask(json!({ "hash": hash("b") })).await);

        assert_eq!(kw.count_rows("keys").await, 1);
    }

    async fn each_key_is_in_the_audit_log(kw) {
        let api = kw.create_api().await;
        is_accepted(&enqueue(&kw, &api, json!([{ "hash": hash("a") }])).await);
        let id = kw.verify_v1("a", json!({})).await.assert_v1_code("VALID")["keyId"].clone();
        assert_eq!(kw.list_audit_events(id.as_str().unwrap()).await, ["key.create"]);
    }
}

use serde_json::{Value, json};

use crate::on_both_stacks;
use crate::support::Keyward;
use crate::support::json::Fields as _;

async fn create(kw: &Keyward) -> String {
    let request = json!({
        "externalId": "user_1", "meta": { "plan": "pro" }, "ratelimits": [{ "name": "one", "limit": 1, "duration": 60_000 }],
    });
    let reply = kw.v1("identities.createIdentity", request).await;
    reply.v1_body()["identityId"].as_str().unwrap().to_owned()
}

on_both_stacks! {
    async fn its_keys_go_on_at_once_without_its_meta_and_its_limits(kw) {
        let id = create(&kw).await;
        let key = kw.create_key(json!({ "externalId": "user_1" })).await;
        let asked = json!({ "ratelimits": [{ "name": "one" }] });
        kw.verify_v1(&key.key, asked.clone()).await.assert_v1_code("VALID");

        assert_eq!(*kw.v1("identities.deleteIdentity", json!({ "identityId": id })).await.v1_body(), json!({}));

        let verified = kw.verify_v1(&key.key, json!({})).await;
        verified.assert_v1_code("VALID").assert_has(json!({ "identity": null, "ownerId": "user_1" }));
        kw.verify_v1(&key.key, asked).await.assert_v1_error(400, "BAD_REQUEST");
        let told = kw.v1_get("keys.getKey", &format!("keyId={}", key.id)).await;
        assert_eq!((told.v1_body().get("identity"), &told.body["ownerId"]), (None, &json!("user_1")));
    }

    async fn it_is_gone_for_good_and_the_user_can_be_made_anew(kw) {
        let id = create(&kw).await;
        let key = kw.create_key(json!({ "externalId": "user_1" })).await;
        kw.v1("identities.deleteIdentity", json!({ "identityId": id })).await.v1_body();
        kw.v1_get("identities.getIdentity", "externalId=user_1").await.assert_v1_error(404, "NOT_FOUND");

        assert_ne!(create(&kw).await, id);

        assert_eq!(kw.verify_v1(&key.key, json!({})).await.assert_v1_code("VALID").get("identity"), None);
    }

    async fn only_its_id_names_it(kw) {
        create(&kw).await;
        let delete = async |request: Value| kw.v1("identities.deleteIdentity", request).await;

        let by_external_id = delete(json!({ "externalId": "user_1" })).await;
        delete(json!({ "identityId": "user_1" })).await.assert_v1_error_about(404, "NOT_FOUND", &["user_1"]);

        assert_eq!(by_external_id.assert_v1_error(400, "BAD_REQUEST"), "identityId: Required");
        assert_eq!(kw.count_rows("identities").await, 1);
    }
}

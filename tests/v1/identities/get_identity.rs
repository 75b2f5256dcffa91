use serde_json::json;

use crate::on_both_stacks;
use crate::support::{Keyward, Reply};

async fn get(kw: &Keyward, query: &str) -> Reply {
    kw.v1_get("identities.getIdentity", query).await
}

on_both_stacks! {
    async fn one_that_a_key_has_made_is_told_by_both_versions(kw) {
        let key = kw.create_key(json!({ "externalId": "user_1" })).await;
        let id = kw.get_key(&key.id).await["identity"]["id"].clone();
        let told = json!({ "id": id, "externalId": "user_1", "meta": {}, "ratelimits": [] });
        assert_eq!(*get(&kw, "externalId=user_1").await.v1_body(), told);
        assert_eq!(kw.get_identity("user_1").await, json!({ "id": id, "externalId": "user_1" }));
    }

    async fn the_id_counts_and_the_message_tells_what_was_asked_for(kw) {
        let id = kw.create_identity("user_1", json!({})).await;
        kw.create_identity("user_2", json!({})).await;
        assert_eq!(get(&kw, &format!("externalId=user_2&identityId={id}")).await.v1_body()["externalId"], "user_1");
        get(&kw, &format!("externalId={id}")).await.assert_v1_error_about(404, "NOT_FOUND", &["externalId", &id]);
        let message = get(&kw, "identityId=user_1").await.assert_v1_error(404, "NOT_FOUND");
        assert!(!message.contains("externalId") && message.contains("user_1"), "{message}");
        assert_eq!(get(&kw, "").await.assert_v1_error(400, "BAD_REQUEST"), "Provide either identityId or externalId");
    }
}

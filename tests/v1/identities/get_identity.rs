use serde_json::json;

use crate::on_both_stacks;
use crate::support::{Keyward, Reply};

async fn get(kw: &Keyward, query: &str) -> Reply {
    kw.v1_get("identities.getIdentity", query).await
}

async fn create(kw: &Keyward, external_id: &str) -> String {
    let request = json!({
        "externalId": external_id, "meta": { "plan": "pro" },
        "ratelimits": [
            { "name": "two", "limit": 2, "duration": 1000 },
            { "name": "one", "limit": 1, "duration": 60_000 },
        ],
    });
    let reply = kw.v1("identities.createIdentity", request).await;
    reply.v1_body()["identityId"].as_str().unwrap().to_owned()
}

on_both_stacks! {
    async fn an_identity_is_found_by_its_id_and_by_its_external_id(kw) {
        let id = create(&kw, "user_1").await;

        for query in [format!("identityId={id}"), "externalId=user_1".to_owned()] {
            let reply = get(&kw, &query).await;

            assert_eq!(
                *reply.v1_body(),
                json!({
                    "id": id, "externalId": "user_1", "meta": { "plan": "pro" },
                    "ratelimits": [
                        { "name": "one", "limit": 1, "duration": 60_000 },
                        { "name": "two", "limit": 2, "duration": 1000 },
                    ],
                })
            );
        }
    }

    async fn without_meta_and_limits_they_are_empty(kw) {
        let key = kw.create_key(json!({ "externalId": "user_1" })).await;
        let id = kw.get_key(&key.id).await["identity"]["id"].clone();

        let reply = get(&kw, "externalId=user_1").await;

        let told = json!({ "id": id, "externalId": "user_1", "meta": {}, "ratelimits": [] });
        assert_eq!(*reply.v1_body(), told);
    }

    async fn of_two_names_the_id_counts(kw) {
        let id = create(&kw, "user_1").await;
        create(&kw, "user_2").await;

        let reply = get(&kw, &format!("externalId=user_2&identityId={id}")).await;

        assert_eq!(reply.v1_body()["externalId"], "user_1");
    }

    async fn an_id_is_no_external_id_and_the_message_tells_what_was_asked_for(kw) {
        let id = create(&kw, "user_1").await;

        let by_external_id = get(&kw, &format!("externalId={id}")).await;
        let by_id = get(&kw, "identityId=user_1").await;

        let message = by_external_id.assert_v1_error(404, "NOT_FOUND");
        assert!(message.contains("externalId") && message.contains(&id), "{message}");
        let message = by_id.assert_v1_error(404, "NOT_FOUND");
        assert!(!message.contains("externalId") && message.contains("user_1"), "{message}");
    }

    async fn one_of_the_names_is_needed(kw) {
        let reply = get(&kw, "").await;

        let message = reply.assert_v1_error(400, "BAD_REQUEST");
        assert_eq!(message, "Provide either identityId or externalId");
    }

    async fn a_permission_for_one_identity_shows_no_other(kw) {
        let own = create(&kw, "user_1").await;
        create(&kw, "user_2").await;
        let root_key = kw.create_root_key_with(vec![format!("identity.{own}.read_identity")]).await;
        let ask = async |query: &str| {
            kw.v1_get_as(&root_key, "identities.getIdentity", query).await
        };

        assert_eq!(ask("externalId=user_1").await.v1_body()["id"], own);
        ask("externalId=user_2").await.assert_v1_error(403, "INSUFFICIENT_PERMISSIONS");
    }
}

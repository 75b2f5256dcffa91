use futures_util::future::join_all;
use serde_json::json;

use crate::on_both_stacks;

on_both_stacks! {
    async fn the_reply_is_the_id_and_nothing_else(kw) {
        let reply = kw.v2("identities.createIdentity", json!({ "externalId": "user_1" })).await;

        let fields: Vec<_> = reply.data().as_object().unwrap().keys().collect();
        let id = reply.text_of("identityId");
        assert_eq!(fields, ["identityId"]);
        assert!(id.starts_with("id_") && id.len() >= 19, "{id}");
    }

    async fn keys_that_name_it_belong_to_it(kw) {
        let request = json!({
            "externalId": "user_1", "meta": { "plan": "pro" },
            "ratelimits": [{ "name": "shared", "limit": 1, "duration": 60_000, "autoApply": true }],
        });
        let id = kw.v2("identities.createIdentity", request).await.text_of("identityId");

        let [one, other] =
            [kw.create_key(json!({ "externalId": "user_1" })).await, kw.create_key(json!({ "externalId": "user_1" })).await];

        let reply = kw.verify(&one.key).await;
        reply.assert_code("VALID");
        assert_eq!(reply.data()["identity"]["id"], id);
        assert_eq!(reply.data()["identity"]["meta"], json!({ "plan": "pro" }));
        kw.verify(&other.key).await.assert_code("RATE_LIMITED");
    }

    async fn its_meta_may_have_a_mebibyte_and_no_more(kw) {
        let most = 1024 * 1024 - r#"{"note":""}"#.len();
        let meta = |letters: usize| json!({ "note": "a".repeat(letters) });
        let create = |meta| json!({ "externalId": "user_1", "meta": meta });
        let update = |meta| json!({ "identity": "user_1", "meta": meta });

        let over = kw.v2("identities.createIdentity", create(meta(most + 1))).await;
        let at = kw.v2("identities.createIdentity", create(meta(most))).await;

        let message = over.assert_field_error("/properties/meta");
        assert!(message.contains("1048577") && message.contains("1048576"), "{message}");
        at.data();
        kw.v2("identities.updateIdentity", update(meta(most + 1))).await.assert_field_error("/properties/meta");
        kw.v2("identities.updateIdentity", update(meta(most))).await.data();
        let found = kw.v2("identities.getIdentity", json!({ "identity": "user_1" })).await;
        assert_eq!(found.data()["meta"], meta(most));
    }

    async fn there_is_one_of_an_external_id(kw) {
        let request = json!({ "externalId": "user_1" });
        let requests = (0..8).map(|_| kw.v2("identities.createIdentity", request.clone()));

        let replies = join_all(requests).await;

        let made = replies.iter().filter(|reply| reply.status == 200).count();
        assert_eq!(made, 1);
        let refused = replies.iter().find(|reply| reply.status != 200).unwrap();
        let detail = refused.assert_error(409, "identity_already_exists")["detail"].clone();
        assert!(detail.as_str().unwrap().contains("user_1"), "{detail}");
    }

    async fn an_external_id_in_other_letters_is_another_one(kw) {
        for id in ["user_1", "User_1"] {
            kw.v2("identities.createIdentity", json!({ "externalId": id })).await.data();
        }
    }

    async fn of_two_limits_of_one_name_the_last_counts(kw) {
        let limits = json!([
            { "name": "one", "limit": 1, "duration": 1000 },
            { "name": "one", "limit": 2, "duration": 2000, "autoApply": true },
        ]);
        let request = json!({ "externalId": "user_1", "ratelimits": limits });
        kw.v2("identities.createIdentity", request).await.data();

        let told = kw.v2("identities.getIdentity", json!({ "identity": "user_1" })).await;

        let limits = told.data()["ratelimits"].as_array().unwrap();
        assert_eq!((limits.len(), &limits[0]["limit"]), (1, &json!(2)));
        assert_eq!((&limits[0]["duration"], &limits[0]["autoApply"]), (&json!(2000), &json!(true)));
    }

    async fn fields_that_do_not_exist_are_passed_over(kw) {
        let request = json!({ "externalId": "user_1", "surprise": 1 });

        kw.v2("identities.createIdentity", request).await.data();
    }

    async fn it_and_its_limits_are_in_the_audit_log(kw) {
        let limits = json!([
            { "name": "one", "limit": 1, "duration": 1000 },
            { "name": "two", "limit": 2, "duration": 2000 },
        ]);
        let request = json!({ "externalId": "user_1", "ratelimits": limits });

        kw.v2("identities.createIdentity", request).await.data();

        let events = kw.list_audit_events("user_1").await;
        assert_eq!(events, ["identity.create", "ratelimit.create", "ratelimit.create"]);
    }
}

use serde_json::json;

use crate::on_both_stacks;

on_both_stacks! {
    async fn an_identity_is_found_by_id_and_by_external_id(kw) {
        let request = json!({
            "externalId": "user_1", "meta": { "plan": "pro" },
            "ratelimits": [{ "name": "one", "limit": 1, "duration": 1000 }],
        });
        let id = kw.v2("identities.createIdentity", request).await.text_of("identityId");

        for named in [id.as_str(), "user_1"] {
            let reply = kw.v2("identities.getIdentity", json!({ "identity": named })).await;

            let mut told = reply.data().clone();
            let limit = told["ratelimits"][0]["id"].take();
            assert!(limit.as_str().unwrap().starts_with("rl_"));
            let one = json!({
                "id": null, "name": "one", "limit": 1, "duration": 1000, "autoApply": false,
            });
            let meta = json!({ "plan": "pro" });
            let due = json!({ "id": id, "externalId": "user_1", "meta": meta, "ratelimits": [one] });
            assert_eq!(told, due);
        }
    }

    async fn what_it_does_not_have_is_left_out(kw) {
        let request = json!({ "externalId": "user_1", "meta": {} });
        let id = kw.v2("identities.createIdentity", request).await.text_of("identityId");

        let reply = kw.v2("identities.getIdentity", json!({ "identity": "user_1" })).await;

        assert_eq!(*reply.data(), json!({ "id": id, "externalId": "user_1" }));
    }

    async fn one_that_a_key_has_made_is_found_too(kw) {
        kw.create_key(json!({ "externalId": "user_1" })).await;

        let reply = kw.v2("identities.getIdentity", json!({ "identity": "user_1" })).await;

        assert_eq!(reply.data()["externalId"], "user_1");
    }

    async fn one_that_does_not_exist_is_not_found(kw) {
        let reply = kw.v2("identities.getIdentity", json!({ "identity": "user_1" })).await;

        reply.assert_error(404, "identity_not_found");
    }

    async fn a_grant_on_it_is_enough_and_on_another_is_not(kw) {
        let create = |id: &'static str| kw.v2("identities.createIdentity", json!({ "externalId": id }));
        let one = create("user_1").await.text_of("identityId");
        create("user_2").await.data();
        let root_key = kw.create_root_key_with(vec![format!("identity.{one}.read_identity")]).await;
        let get = async |id| kw.v2_as(&root_key, "identities.getIdentity", json!({ "identity": id })).await;

        get("user_1").await.data();
        get("user_2").await.assert_error(403, "insufficient_permissions");
    }
}

use serde_json::json;

use crate::on_both_stacks;

on_both_stacks! {
    async fn the_reply_is_nothing_but_its_meta(kw) {
        kw.v2("identities.createIdentity", json!({ "externalId": "user_1" })).await.data();

        let reply = kw.v2("identities.deleteIdentity", json!({ "identity": "user_1" })).await;

        let fields: Vec<_> = reply.body.as_object().unwrap().keys().collect();
        assert_eq!(reply.status, 200);
        assert_eq!(fields, ["meta"]);
    }

    async fn its_keys_go_on_without_its_meta_and_limits(kw) {
        let request = json!({
            "externalId": "user_1", "meta": { "plan": "pro" },
            "ratelimits": [{ "name": "one", "limit": 1, "duration": 60_000, "autoApply": true }],
        });
        let id = kw.v2("identities.createIdentity", request).await.text_of("identityId");
        let key = kw.create_key(json!({ "externalId": "user_1" })).await;
        kw.verify(&key.key).await.assert_code("VALID");
        kw.verify(&key.key).await.assert_code("RATE_LIMITED");

        kw.v2("identities.deleteIdentity", json!({ "identity": id })).await;

        let reply = kw.verify(&key.key).await;
        reply.assert_code("VALID");
        assert_eq!(reply.data().get("identity"), None);
        assert_eq!(reply.data().get("ratelimits"), None);
        assert_eq!(kw.get_key(&key.id).await.get("identity"), None);
    }

    async fn its_external_id_is_free_at_once_and_links_no_key_again(kw) {
        let key = kw.create_key(json!({ "externalId": "user_1" })).await;
        kw.v2("identities.deleteIdentity", json!({ "identity": "user_1" })).await;

        kw.v2("identities.createIdentity", json!({ "externalId": "user_1" })).await.data();

        assert_eq!(kw.verify(&key.key).await.data().get("identity"), None);
    }

    async fn it_does_not_stand_in_the_way_of_who_changes_its_keys(kw) {
        for _ in 0..5 {
            let key = kw.create_key(json!({ "externalId": "user_1" })).await;
            let delete = kw.v2("identities.deleteIdentity", json!({ "identity": "user_1" }));
            let reroll = kw.v2("keys.rerollKey", json!({ "keyId": key.id, "expiration": 0 }));
            let link = kw.update_key(&key.id, json!({ "externalId": "user_1" }));

            let (deleted, rerolled, linked) = tokio::join!(delete, reroll, link);

            for reply in [deleted, rerolled, linked] {
                assert!(reply.status.as_u16() < 500, "{}", reply.text);
            }
        }
    }

    async fn errors_are_sent_as_problems(kw) {
        let reply = kw.v2("identities.deleteIdentity", json!({ "identity": "user_1" })).await;

        reply.assert_error(404, "identity_not_found");
        assert_eq!(reply.headers["content-type"], "application/problem+json");
    }

    async fn it_and_its_limits_are_in_the_audit_log(kw) {
        let limits = json!([{ "name": "one", "limit": 1, "duration": 1000 }]);
        let request = json!({ "externalId": "user_1", "ratelimits": limits });
        kw.v2("identities.createIdentity", request).await.data();

        kw.v2("identities.deleteIdentity", json!({ "identity": "user_1" })).await;

        assert_eq!(
            kw.list_audit_events("user_1").await,
            ["identity.create", "identity.delete", "ratelimit.create", "ratelimit.delete"]
        );
    }
}

use serde_json::json;

use crate::on_both_stacks;
use crate::support::json::Fields as _;

on_both_stacks! {
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

        kw.verify(&key.key).await.assert_code("VALID").assert_has(json!({ "identity": null, "ratelimits": null }));
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
}

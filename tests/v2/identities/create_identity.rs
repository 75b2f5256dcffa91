use serde_json::json;

use crate::on_both_stacks;
use crate::support::json::Fields as _;

on_both_stacks! {
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
        reply.data().assert_has(json!({ "identity.id": id, "identity.meta": { "plan": "pro" } }));
        kw.verify(&other.key).await.assert_code("RATE_LIMITED");
    }

    async fn its_meta_may_have_a_mebibyte_and_no_more(kw) {
        let most = 1024 * 1024 - r#"{"note":""}"#.len();
        let meta = |letters: usize| json!({ "note": "a".repeat(letters) });
        let create = |meta| json!({ "externalId": "user_1", "meta": meta });
        let update = |meta| json!({ "identity": "user_1", "meta": meta });

        let over = kw.v2("identities.createIdentity", create(meta(most + 1))).await;
        kw.v2("identities.createIdentity", create(meta(most))).await.data();

        over.assert_field_error_about("/properties/meta", &["1048577", "1048576"]);
        kw.v2("identities.updateIdentity", update(meta(most + 1))).await.assert_field_error("/properties/meta");
        kw.v2("identities.updateIdentity", update(meta(most))).await.data();
        assert_eq!(kw.v2("identities.getIdentity", json!({ "identity": "user_1" })).await.data()["meta"], meta(most));
    }

    async fn of_two_limits_of_one_name_the_last_counts(kw) {
        let limits = json!([
            { "name": "one", "limit": 1, "duration": 1000 },
            { "name": "one", "limit": 2, "duration": 2000, "autoApply": true },
        ]);
        kw.v2("identities.createIdentity", json!({ "externalId": "user_1", "ratelimits": limits })).await.data();

        let told = kw.v2("identities.getIdentity", json!({ "identity": "user_1" })).await;

        let limits = told.data()["ratelimits"].as_array().unwrap();
        assert_eq!((limits.len(), &limits[0]["limit"]), (1, &json!(2)));
        assert_eq!((&limits[0]["duration"], &limits[0]["autoApply"]), (&json!(2000), &json!(true)));
    }
}

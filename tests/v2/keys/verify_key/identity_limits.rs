//! Rate limits of identities, beside those of keys.

use serde_json::{Value, json};

use super::limits::{MINUTE, ad_hoc, keys_of_identity, limit};
use crate::on_both_stacks;

on_both_stacks! {
    async fn limits_of_a_key_are_counted_for_that_key(kw) {
        let fields = json!({ "externalId": "user_1", "ratelimits": [
            { "name": "requests", "limit": 1, "duration": MINUTE, "autoApply": true },
        ] });
        let (first, second) = (kw.create_key(fields.clone()).await, kw.create_key(fields).await);

        kw.verify(&first.key).await.assert_code("VALID");

        kw.verify(&second.key).await.assert_code("VALID");
        kw.verify(&first.key).await.assert_code("RATE_LIMITED");
    }

    async fn limits_of_an_identity_are_shared_by_its_keys(kw) {
        let [first, second] = keys_of_identity(&kw, &[("requests", 2, MINUTE, true)]).await;

        let counts = [
            kw.verify(&first.key).await,
            kw.verify(&second.key).await,
            kw.verify(&first.key).await,
            kw.verify(&second.key).await,
        ];

        let codes: Vec<_> = counts.iter().map(|reply| reply.data()["code"].clone()).collect();
        assert_eq!(codes, ["VALID", "VALID", "RATE_LIMITED", "RATE_LIMITED"]);
        assert_eq!(counts[1].data()["ratelimits"][0]["remaining"], 0);
        assert_eq!(
            counts[0].data()["ratelimits"][0]["id"],
            counts[0].data()["identity"]["ratelimits"][0]["id"],
        );
    }

    async fn limits_of_an_identity_can_be_asked_for_by_name(kw) {
        let [first, second] = keys_of_identity(&kw, &[("tokens", 10, MINUTE, false)]).await;

        let unasked = kw.verify(&first.key).await;
        let asked = kw.verify_with(&first.key, limit("tokens", 7)).await;
        let refused = kw.verify_with(&second.key, limit("tokens", 4)).await;

        assert_eq!(unasked.data().get("ratelimits"), None);
        assert_eq!(asked.data()["ratelimits"][0]["remaining"], 3);
        refused.assert_code("RATE_LIMITED");
    }

    async fn limits_of_one_identity_are_no_matter_to_another(kw) {
        let [first, _] = keys_of_identity(&kw, &[("requests", 1, MINUTE, true)]).await;
        let stranger = kw.create_key(json!({ "externalId": "user_2" })).await;
        kw.verify(&first.key).await.assert_code("VALID");

        kw.update_key(&first.id, json!({ "externalId": "user_2" })).await.data();

        assert_eq!(kw.verify(&first.key).await.data().get("ratelimits"), None);
        kw.verify(&stranger.key).await.assert_code("VALID");
    }

    async fn a_limit_of_the_key_hides_that_of_its_identity(kw) {
        let [key, other] =
            keys_of_identity(&kw, &[("requests", 1, MINUTE, true), ("tokens", 9, MINUTE, true)])
                .await;
        let own = json!({ "name": "requests", "limit": 5, "duration": MINUTE });
        kw.update_key(&key.id, json!({ "ratelimits": [own] })).await.data();
        kw.verify(&other.key).await.assert_code("VALID");

        let unasked = kw.verify(&key.key).await;
        let asked = kw.verify_with(&key.key, limit("requests", 5)).await;

        let names = |limits: &Value| {
            let limits = limits.as_array().unwrap().iter();
            limits.map(|limit| limit["name"].clone()).collect::<Vec<_>>()
        };
        unasked.assert_code("VALID");
        assert_eq!(names(&unasked.data()["ratelimits"]), ["tokens"]);
        assert_eq!(names(&unasked.data()["identity"]["ratelimits"]), ["tokens"]);
        asked.assert_code("VALID");
        assert_eq!(asked.data()["ratelimits"][0]["limit"], 5);
    }

    async fn a_limit_made_for_one_call_is_counted_for_the_key(kw) {
        let [first, second] = keys_of_identity(&kw, &[("requests", 1, MINUTE, true)]).await;

        kw.verify_with(&first.key, ad_hoc(5, MINUTE, 5)).await.assert_code("VALID");

        kw.verify_with(&second.key, ad_hoc(5, MINUTE, 5)).await.assert_code("VALID");
        kw.verify_with(&first.key, ad_hoc(5, MINUTE, 1)).await.assert_code("RATE_LIMITED");
        kw.verify(&first.key).await.assert_code("VALID");
    }
}

//! Rate limits of identities, beside those of keys.

use serde_json::json;

use super::limits::{MINUTE, ad_hoc, keys_of_identity, limit};
use crate::on_both_stacks;
use crate::support::json::Fields as _;

on_both_stacks! {
    async fn limits_of_a_key_are_counted_for_that_key(kw) {
        let own = json!({ "name": "requests", "limit": 1, "duration": MINUTE, "autoApply": true });
        let fields = json!({ "externalId": "user_1", "ratelimits": [own] });
        let (first, second) = (kw.create_key(fields.clone()).await, kw.create_key(fields).await);
        kw.verify(&first.key).await.assert_code("VALID");
        kw.verify(&second.key).await.assert_code("VALID");
        kw.verify(&first.key).await.assert_code("RATE_LIMITED");
    }

    async fn limits_of_an_identity_are_shared_by_its_keys(kw) {
        let [first, second] = keys_of_identity(&kw, &[("requests", 2, MINUTE, true)]).await;
        for (key, code, left) in [(&first, "VALID", 1), (&second, "VALID", 0), (&first, "RATE_LIMITED", 0), (&second, "RATE_LIMITED", 0)] {
            let reply = kw.verify(&key.key).await;
            let shared = reply.data()["identity"]["ratelimits"][0]["id"].clone();
            reply.assert_code(code).assert_has(json!({ "ratelimits.0.remaining": left, "ratelimits.0.id": shared }));
        }
    }

    async fn limits_of_an_identity_can_be_asked_for_by_name(kw) {
        let [first, second] = keys_of_identity(&kw, &[("tokens", 10, MINUTE, false)]).await;
        assert_eq!(kw.verify(&first.key).await.data().get("ratelimits"), None);
        kw.verify_with(&first.key, limit("tokens", 7)).await.data().assert_has(json!({ "ratelimits.0.remaining": 3 }));
        kw.verify_with(&second.key, limit("tokens", 4)).await.assert_code("RATE_LIMITED");
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
        let [key, other] = keys_of_identity(&kw, &[("requests", 1, MINUTE, true), ("tokens", 9, MINUTE, true)]).await;
        let own = json!({ "name": "requests", "limit": 5, "duration": MINUTE });
        kw.update_key(&key.id, json!({ "ratelimits": [own] })).await.data();
        kw.verify(&other.key).await.assert_code("VALID");

        kw.verify(&key.key).await.assert_code("VALID").assert_has(json!({
            "ratelimits.0.name": "tokens", "ratelimits.1": null, "identity.ratelimits.0.name": "tokens", "identity.ratelimits.1": null,
        }));
        let asked = kw.verify_with(&key.key, limit("requests", 5)).await;
        asked.assert_code("VALID").assert_has(json!({ "ratelimits.0.limit": 5 }));
    }

    async fn a_limit_made_for_one_call_is_counted_for_the_key(kw) {
        let [first, second] = keys_of_identity(&kw, &[("requests", 1, MINUTE, true)]).await;
        for (key, cost, code) in [(&first, 5, "VALID"), (&second, 5, "VALID"), (&first, 1, "RATE_LIMITED")] {
            kw.verify_with(&key.key, ad_hoc(5, MINUTE, cost)).await.assert_code(code);
        }
        kw.verify(&first.key).await.assert_code("VALID");
    }
}

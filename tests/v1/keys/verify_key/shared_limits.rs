//! Limits of an identity: shared by its keys, hidden by those of a key.

use serde_json::{Value, json};

use super::{MINUTE, issued};
use crate::on_both_stacks;
use crate::support::Keyward;
use crate::support::seed::IssuedKey;

fn limit(name: &str, cost: i64) -> Value {
    json!({ "ratelimits": [{ "name": name, "cost": cost }] })
}

/// Two keys of an identity that version 1 gave a limit of 10.
async fn keys_of_identity(kw: &Keyward, name: &str) -> [IssuedKey; 2] {
    let user = json!({ "externalId": "user_1", "ratelimits": [{ "name": name, "limit": 10, "duration": MINUTE }] });
    kw.v1("identities.createIdentity", user).await.v1_body();
    let key = || issued(kw, json!({ "externalId": "user_1" }));
    [key().await, key().await]
}

on_both_stacks! {
    async fn one_that_version_1_made_is_checked_when_it_is_asked_for(kw) {
        let [key, _] = keys_of_identity(&kw, "tokens").await;

        assert_eq!(kw.verify_v1(&key.key, json!({})).await.assert_v1_code("VALID").get("ratelimit"), None);
        let asked = kw.verify_v1(&key.key, limit("tokens", 7)).await;
        let refused = kw.verify_v1(&key.key, limit("tokens", 4)).await;

        let told = &asked.assert_v1_code("VALID")["ratelimit"];
        assert_eq!((&told["limit"], &told["remaining"]), (&json!(10), &json!(3)));
        refused.assert_v1_code("RATE_LIMITED");
        assert_eq!(refused.headers["unkey-ratelimit-triggered"], "tokens");
    }

    async fn one_is_shared_by_all_keys_of_the_identity(kw) {
        let [first, second] = keys_of_identity(&kw, "tokens").await;
        let stranger = issued(&kw, json!({ "externalId": "user_2" })).await;

        kw.verify_v1(&first.key, limit("tokens", 6)).await.assert_v1_code("VALID");
        kw.verify_v1(&second.key, limit("tokens", 5)).await.assert_v1_code("RATE_LIMITED");
        assert_eq!(kw.verify_v1(&second.key, limit("tokens", 4)).await.assert_v1_code("VALID")["ratelimit"]["remaining"], 0);
        kw.verify_v1(&stranger.key, limit("tokens", 1)).await.assert_v1_error(400, "BAD_REQUEST");
    }

    async fn limits_of_a_key_and_of_one_call_are_counted_for_that_key(kw) {
        let fields = json!({ "externalId": "user_1", "ratelimit": { "limit": 1, "duration": MINUTE } });
        let (first, second) = (issued(&kw, fields.clone()).await, issued(&kw, fields).await);
        let inline = json!({ "ratelimits": [
            { "name": "default", "cost": 0 }, { "name": "x", "limit": 1, "duration": MINUTE },
        ] });

        for key in [&first, &second] {
            kw.verify_v1(&key.key, json!({})).await.assert_v1_code("VALID");
            kw.verify_v1(&key.key, inline.clone()).await.assert_v1_code("VALID");
        }
        for key in [&first, &second] {
            kw.verify_v1(&key.key, json!({})).await.assert_v1_code("RATE_LIMITED");
            kw.verify_v1(&key.key, inline.clone()).await.assert_v1_code("RATE_LIMITED");
        }
    }

    async fn a_limit_of_the_key_hides_that_of_its_identity(kw) {
        let [_, other] = keys_of_identity(&kw, "default").await;
        let key = issued(&kw, json!({ "externalId": "user_1", "ratelimit": { "limit": 2, "duration": MINUTE } })).await;

        let own = kw.verify_v1(&key.key, json!({})).await;
        let shared = kw.verify_v1(&other.key, limit("default", 1)).await;

        let told = |limit: i64, remaining: i64| (json!(limit), json!(remaining));
        let standing = |body: &Value| { (body["ratelimit"]["limit"].clone(), body["ratelimit"]["remaining"].clone()) };
        assert_eq!(standing(own.assert_v1_code("VALID")), told(2, 1));
        assert_eq!(standing(shared.assert_v1_code("VALID")), told(10, 9));
    }

    async fn one_that_applies_by_itself_is_checked_always_and_told_first(kw) {
        let [key, _] = keys_of_identity(&kw, "tokens").await;
        let identity = kw.get_key(&key.id).await["identity"]["id"].clone();
        kw.set_identity_limits(identity.as_str().unwrap(), &[("writes", 1, MINUTE, true)]).await;
        let asked = json!({ "ratelimits": [{ "name": "a", "limit": 5, "duration": MINUTE }] });

        assert_eq!(kw.verify_v1(&key.key, asked.clone()).await.assert_v1_code("VALID")["ratelimit"]["limit"], 1);
        let refused = kw.verify_v1(&key.key, asked).await;

        refused.assert_v1_code("RATE_LIMITED");
        assert_eq!(refused.headers["unkey-ratelimit-triggered"], "writes");
    }

    async fn the_limit_of_an_identity_comes_before_that_of_a_key(kw) {
        let limit = json!([{ "name": "appends", "limit": 5, "duration": MINUTE, "autoApply": true }]);
        let key = kw.create_key(json!({ "externalId": "user_1", "ratelimits": limit })).await;
        let identity = kw.get_key(&key.id).await["identity"]["id"].clone();
        kw.set_identity_limits(identity.as_str().unwrap(), &[("writes", 7, MINUTE, true)]).await;
        assert_eq!(kw.verify_v1(&key.key, json!({})).await.assert_v1_code("VALID")["ratelimit"]["limit"], 7);
    }
}

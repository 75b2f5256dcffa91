use serde_json::{Map, Value, json};

use crate::on_both_stacks;
use crate::support::json::Fields as _;
use crate::support::{Keyward, Reply};

async fn create(kw: &Keyward, mut fields: Value) -> Reply {
    fields["externalId"] = json!("user_1");
    kw.v1("identities.createIdentity", fields).await
}

on_both_stacks! {
    async fn a_key_of_the_user_tells_its_meta(kw) {
        let id = create(&kw, json!({ "meta": { "plan": "pro" } })).await.v1_body()["identityId"].clone();

        let key = kw.create_key(json!({ "externalId": "user_1" })).await;

        assert_eq!(
            kw.verify_v1(&key.key, json!({})).await.assert_v1_code("VALID")["identity"],
            json!({ "id": id, "externalId": "user_1", "meta": { "plan": "pro" } }),
        );
    }

    async fn its_limits_are_checked_when_they_are_asked_for_and_all_its_keys_share_them(kw) {
        create(&kw, json!({ "ratelimits": [{ "name": "requests", "limit": 2, "duration": 60_000 }] })).await.v1_body();
        let first = kw.create_key(json!({ "externalId": "user_1" })).await;
        let second = kw.create_key(json!({ "externalId": "user_1" })).await;
        let asked = json!({ "ratelimits": [{ "name": "requests" }] });

        for _ in 0..3 {
            assert_eq!(kw.verify_v1(&first.key, json!({})).await.assert_v1_code("VALID").get("ratelimit"), None);
        }
        let told = kw.verify_v1(&first.key, asked.clone()).await;
        kw.verify_v1(&second.key, asked.clone()).await.assert_v1_code("VALID");
        let refused = kw.verify_v1(&first.key, asked).await;

        told.assert_v1_code("VALID").assert_has(json!({ "ratelimit.limit": 2, "ratelimit.remaining": 1 }));
        refused.assert_v1_code("RATE_LIMITED");
        assert_eq!(refused.headers["unkey-ratelimit-triggered"], "requests");
    }

    async fn name_of_a_limit_may_be_empty(kw) {
        let limits = json!([{ "name": "", "limit": 2, "duration": 60_000 }, { "name": "requests", "limit": 2, "duration": 60_000 }]);
        create(&kw, json!({ "ratelimits": limits })).await.v1_body();
        kw.v1("identities.updateIdentity", json!({ "externalId": "user_1", "ratelimits": limits })).await.v1_body();

        let told = kw.v1_get("identities.getIdentity", "externalId=user_1").await;

        assert_eq!(told.v1_body()["ratelimits"], limits);
        let key = kw.create_key(json!({ "externalId": "user_1" })).await;
        kw.verify_v1(&key.key, json!({ "ratelimits": [{ "name": "requests" }] })).await.assert_v1_code("VALID");
    }

    async fn two_limits_of_one_name_make_nothing(kw) {
        let twice = json!([
            { "name": "requests", "limit": 3, "duration": 60_000 },
            { "name": "requests", "limit": 2, "duration": 60_000 },
        ]);

        assert_eq!(
            create(&kw, json!({ "ratelimits": twice })).await.assert_v1_error(409, "CONFLICT"),
            "Ratelimit with name \"requests\" is already defined in the request",
        );

        assert_eq!(kw.count_rows("identities").await, 0);
    }

    async fn meta_may_have_more_fields_than_version_2_accepts(kw) {
        let meta: Value = (0..101).map(|n| (format!("f{n}"), json!(n))).collect::<Map<_, _>>().into();
        let id = create(&kw, json!({ "meta": meta })).await.v1_body()["identityId"].clone();

        kw.v1("identities.updateIdentity", json!({ "identityId": id, "meta": meta })).await.v1_body();

        assert_eq!(kw.get_identity("user_1").await["meta"], meta);
    }

    async fn meta_has_64000_characters_at_most(kw) {
        // With its braces and quotes, 8 characters more.
        create(&kw, json!({ "meta": { "a": "é".repeat(63_993) } })).await.assert_v1_fault("meta: ", &["64000"]);
        create(&kw, json!({ "meta": { "a": "é".repeat(63_992) } })).await.v1_body();
    }
}

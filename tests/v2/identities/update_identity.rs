use serde_json::{Value, json};

use crate::on_both_stacks;
use crate::support::json::Fields as _;
use crate::support::{Keyward, Reply};

async fn update(kw: &Keyward, mut fields: Value) -> Reply {
    fields["identity"] = json!("user_1");
    kw.v2("identities.updateIdentity", fields).await
}

async fn create(kw: &Keyward) -> String {
    let request = json!({
        "externalId": "user_1", "meta": { "plan": "pro" },
        "ratelimits": [
            { "name": "one", "limit": 1, "duration": 60_000, "autoApply": true },
            { "name": "two", "limit": 2, "duration": 60_000 },
        ],
    });
    kw.v2("identities.createIdentity", request).await.text_of("identityId")
}

fn limits(reply: &Reply) -> Vec<(&str, i64)> {
    reply.data()["ratelimits"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|item| (item["name"].as_str().unwrap(), item["limit"].as_i64().unwrap()))
        .collect()
}

on_both_stacks! {
    async fn what_is_left_out_stays_and_is_told(kw) {
        let id = create(&kw).await;
        let reply = update(&kw, json!({})).await;
        reply.data().assert_has(json!({ "id": id, "meta": { "plan": "pro" } }));
        assert_eq!(limits(&reply), [("one", 1), ("two", 2)]);
    }

    async fn meta_is_replaced_as_a_whole_and_an_empty_object_clears_it(kw) {
        create(&kw).await;
        let key = kw.create_key(json!({ "externalId": "user_1" })).await;
        kw.verify(&key.key).await.assert_code("VALID");

        assert_eq!(update(&kw, json!({ "meta": { "since": 2020 } })).await.data()["meta"], json!({ "since": 2020 }));
        assert_eq!(kw.verify(&key.key).await.data()["identity"]["meta"], json!({ "since": 2020 }));
        assert_eq!(update(&kw, json!({ "meta": {} })).await.data().get("meta"), None);
    }

    async fn limits_are_replaced_by_name_and_those_that_stay_keep_id_and_count(kw) {
        create(&kw).await;
        let key = kw.create_key(json!({ "externalId": "user_1" })).await;
        kw.verify(&key.key).await.assert_code("VALID");
        let before = kw.v2("identities.getIdentity", json!({ "identity": "user_1" })).await;
        let wanted = json!([
            { "name": "three", "limit": 3, "duration": 60_000 },
            { "name": "one", "limit": 2, "duration": 60_000, "autoApply": true },
        ]);

        let reply = update(&kw, json!({ "ratelimits": wanted })).await;

        assert_eq!(limits(&reply), [("one", 2), ("three", 3)]);
        assert_eq!(reply.data()["ratelimits"][0]["id"], before.data()["ratelimits"][0]["id"]);
        assert_eq!(kw.v2("identities.getIdentity", json!({ "identity": "user_1" })).await.data(), reply.data());
        kw.verify(&key.key).await.assert_code("VALID");
        kw.verify(&key.key).await.assert_code("RATE_LIMITED");
    }

    async fn no_limits_at_all_takes_every_one(kw) {
        create(&kw).await;
        let key = kw.create_key(json!({ "externalId": "user_1" })).await;

        assert_eq!(update(&kw, json!({ "ratelimits": [] })).await.data().get("ratelimits"), None);

        for _ in 0..3 {
            kw.verify(&key.key).await.assert_code("VALID");
        }
    }

    async fn two_limits_of_one_name_are_refused_by_it_and_nothing_changes(kw) {
        create(&kw).await;
        let twice = json!([
            { "name": "same", "limit": 3, "duration": 60_000 },
            { "name": "same", "limit": 2, "duration": 60_000 },
        ]);

        let reply = update(&kw, json!({ "meta": {}, "ratelimits": twice })).await;

        assert!(reply.assert_field_error("/properties/ratelimits").contains("same"));
        assert_eq!(limits(&update(&kw, json!({})).await), [("one", 1), ("two", 2)]);
    }

    async fn each_change_of_a_limit_is_in_the_audit_log(kw) {
        let id = create(&kw).await;
        let wanted = json!([
            { "name": "one", "limit": 5, "duration": 60_000, "autoApply": true },
            { "name": "three", "limit": 3, "duration": 60_000 },
        ]);

        update(&kw, json!({ "ratelimits": wanted })).await.data();

        assert_eq!(
            kw.list_audit_events(&id).await,
            [
                "identity.create",
                "identity.update",
                "ratelimit.create",
                "ratelimit.create",
                "ratelimit.create",
                "ratelimit.delete",
                "ratelimit.update",
            ]
        );
    }
}

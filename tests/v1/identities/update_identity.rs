use serde_json::{Value, json};

use crate::on_both_stacks;
use crate::support::{Keyward, Reply};

async fn update(kw: &Keyward, mut fields: Value) -> Reply {
    fields["externalId"] = json!("user_1");
    kw.v1("identities.updateIdentity", fields).await
}

async fn get(kw: &Keyward) -> Value {
    kw.v1_get("identities.getIdentity", "externalId=user_1").await.v1_body().clone()
}

async fn create(kw: &Keyward) -> String {
    let request = json!({
        "externalId": "user_1", "meta": { "plan": "pro" },
        "ratelimits": [
            { "name": "one", "limit": 1, "duration": 60_000 },
            { "name": "two", "limit": 2, "duration": 60_000 },
        ],
    });
    let reply = kw.v1("identities.createIdentity", request).await;
    reply.v1_body()["identityId"].as_str().unwrap().to_owned()
}

on_both_stacks! {
    async fn what_is_left_out_stays_and_the_reply_is_the_whole_identity(kw) {
        let id = create(&kw).await;
        let before = get(&kw).await;

        for named in [json!({}), json!({ "environment": "default" }), json!({ "identityId": id })] {
            let reply = update(&kw, named).await;

            assert_eq!(*reply.v1_body(), before);
        }
    }

    async fn the_id_alone_names_it_too_and_counts_before_the_external_id(kw) {
        let id = create(&kw).await;
        let other = json!({ "externalId": "user_2" });
        kw.v1("identities.createIdentity", other.clone()).await.v1_body();

        let mut request = json!({ "identityId": id, "meta": { "plan": "free" } });
        kw.v1("identities.updateIdentity", request.clone()).await.v1_body();
        assert_eq!(get(&kw).await["meta"], json!({ "plan": "free" }));
        request["externalId"] = json!("user_2");
        request["meta"] = json!({ "plan": "none" });
        let reply = kw.v1("identities.updateIdentity", request).await;

        assert_eq!(reply.v1_body()["externalId"], "user_1");
        assert_eq!(get(&kw).await["meta"], json!({ "plan": "none" }));
    }

    async fn meta_is_replaced_as_a_whole_and_verification_tells_it_at_once(kw) {
        create(&kw).await;
        let key = kw.create_key(json!({ "externalId": "user_1" })).await;
        kw.verify_v1(&key.key, json!({})).await.assert_v1_code("VALID");

        let replaced = update(&kw, json!({ "meta": { "since": 2020 } })).await;
        let verified = kw.verify_v1(&key.key, json!({})).await;
        let cleared = update(&kw, json!({ "meta": {} })).await;
        let null = update(&kw, json!({ "meta": null })).await;

        assert_eq!(replaced.v1_body()["meta"], json!({ "since": 2020 }));
        assert_eq!(verified.assert_v1_code("VALID")["identity"]["meta"], json!({ "since": 2020 }));
        assert_eq!(cleared.v1_body()["meta"], json!({}));
        assert_eq!(null.assert_v1_error(400, "BAD_REQUEST"), "meta: Expected object, received null");
    }

    async fn limits_are_replaced_by_name_and_those_that_stay_keep_their_count(kw) {
        create(&kw).await;
        let key = kw.create_key(json!({ "externalId": "user_1" })).await;
        let ask = async |name: &str| {
            kw.verify_v1(&key.key, json!({ "ratelimits": [{ "name": name }] })).await
        };
        ask("one").await.assert_v1_code("VALID");
        let wanted = json!([
            { "name": "one", "limit": 2, "duration": 60_000 },
            { "name": "three", "limit": 3, "duration": 1000 },
        ]);

        let reply = update(&kw, json!({ "ratelimits": wanted })).await;

        assert_eq!(reply.v1_body()["ratelimits"], wanted);
        assert_eq!(*reply.v1_body(), get(&kw).await);
        assert_eq!(ask("one").await.assert_v1_code("VALID")["ratelimit"]["remaining"], 0);
        ask("one").await.assert_v1_code("RATE_LIMITED");
        ask("three").await.assert_v1_code("VALID");
        ask("two").await.assert_v1_error(400, "BAD_REQUEST");
    }

    async fn no_limits_at_all_takes_every_one(kw) {
        create(&kw).await;

        let reply = update(&kw, json!({ "ratelimits": [] })).await;

        assert_eq!(reply.v1_body()["ratelimits"], json!([]));
        assert_eq!(get(&kw).await["ratelimits"], json!([]));
        assert_eq!(reply.body["meta"], json!({ "plan": "pro" }));
    }

    async fn two_limits_of_one_name_change_nothing(kw) {
        create(&kw).await;
        let before = get(&kw).await;
        let twice = json!([
            { "name": "same", "limit": 3, "duration": 60_000 },
            { "name": "same", "limit": 2, "duration": 60_000 },
        ]);

        let reply = update(&kw, json!({ "meta": {}, "ratelimits": twice })).await;

        let message = reply.assert_v1_error(409, "CONFLICT");
        assert_eq!(message, "Ratelimit with name \"same\" is already defined in the request");
        assert_eq!(get(&kw).await, before);
    }

    async fn meta_has_64000_characters_at_most(kw) {
        create(&kw).await;

        let over = update(&kw, json!({ "meta": { "a": "é".repeat(63_993) } })).await;
        let at = update(&kw, json!({ "meta": { "a": "é".repeat(63_992) } })).await;

        let message = over.assert_v1_error(400, "BAD_REQUEST");
        assert!(message.starts_with("meta: ") && message.contains("64000"), "{message}");
        at.v1_body();
    }

    async fn one_that_is_not_there_is_told_by_what_was_asked_for(kw) {
        let neither = kw.v1("identities.updateIdentity", json!({ "meta": {} })).await;
        let missing = update(&kw, json!({ "meta": {} })).await;

        let message = neither.assert_v1_error(400, "BAD_REQUEST");
        assert_eq!(message, "Provide either identityId or externalId");
        let message = missing.assert_v1_error(404, "NOT_FOUND");
        assert!(message.contains("user_1"), "{message}");
        assert_eq!(kw.count_rows("identities").await, 0);
    }

    async fn each_change_of_a_limit_is_in_the_audit_log(kw) {
        let id = create(&kw).await;
        let wanted = json!([
            { "name": "one", "limit": 5, "duration": 60_000 },
            { "name": "three", "limit": 3, "duration": 60_000 },
        ]);

        update(&kw, json!({ "ratelimits": wanted })).await.v1_body();

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

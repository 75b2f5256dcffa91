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
    let limit =
        |name: &str, limit: i64| json!({ "name": name, "limit": limit, "duration": 60_000 });
    let fields =
        json!({ "meta": { "plan": "pro" }, "ratelimits": [limit("one", 1), limit("two", 2)] });
    kw.create_identity("user_1", fields).await
}

on_both_stacks! {
    async fn what_is_left_out_stays_and_the_reply_is_the_whole_identity(kw) {
        let id = create(&kw).await;
        let before = get(&kw).await;
        for named in [json!({}), json!({ "environment": "default" }), json!({ "identityId": id })] {
            assert_eq!(*update(&kw, named).await.v1_body(), before);
        }
    }

    async fn the_id_alone_names_it_too_and_counts_before_the_external_id(kw) {
        let id = create(&kw).await;
        kw.create_identity("user_2", json!({})).await;
        for (plan, fields) in [
            ("free", json!({ "identityId": id, "meta": { "plan": "free" } })),
            ("none", json!({ "identityId": id, "externalId": "user_2", "meta": { "plan": "none" } })),
        ] {
            assert_eq!(kw.v1("identities.updateIdentity", fields).await.v1_body()["externalId"], "user_1");
            assert_eq!(get(&kw).await["meta"], json!({ "plan": plan }));
        }
    }

    async fn meta_is_replaced_as_a_whole_and_verification_tells_it_at_once(kw) {
        create(&kw).await;
        let key = kw.create_key(json!({ "externalId": "user_1" })).await;
        kw.verify_v1(&key.key, json!({})).await.assert_v1_code("VALID");

        for meta in [json!({ "since": 2020 }), json!({}), json!({ "a": "é".repeat(63_992) })] {
            assert_eq!(update(&kw, json!({ "meta": meta })).await.v1_body()["meta"], meta);
            assert_eq!(kw.verify_v1(&key.key, json!({})).await.assert_v1_code("VALID")["identity"]["meta"], meta);
        }
        // With its braces and quotes, 8 characters more.
        update(&kw, json!({ "meta": { "a": "é".repeat(63_993) } })).await.assert_v1_fault("meta: ", &["64000"]);
        update(&kw, json!({ "meta": null })).await.assert_v1_fault("meta: Expected object, received null", &[]);
    }

    async fn limits_are_replaced_by_name_and_those_that_stay_keep_their_count(kw) {
        create(&kw).await;
        let key = kw.create_key(json!({ "externalId": "user_1" })).await;
        let ask = async |name: &str| kw.verify_v1(&key.key, json!({ "ratelimits": [{ "name": name }] })).await;
        ask("one").await.assert_v1_code("VALID");
        let wanted = json!([
            { "name": "one", "limit": 2, "duration": 60_000 }, { "name": "three", "limit": 3, "duration": 1000 },
        ]);

        let reply = update(&kw, json!({ "ratelimits": wanted })).await;

        assert_eq!(reply.v1_body()["ratelimits"], wanted);
        assert_eq!(*reply.v1_body(), get(&kw).await);
        assert_eq!(ask("one").await.assert_v1_code("VALID")["ratelimit"]["remaining"], 0);
        ask("one").await.assert_v1_code("RATE_LIMITED");
        ask("three").await.assert_v1_code("VALID");
        ask("two").await.assert_v1_error(400, "BAD_REQUEST");

        // No limits at all takes every one.
        let reply = update(&kw, json!({ "ratelimits": [] })).await;
        assert_eq!((&reply.v1_body()["ratelimits"], &get(&kw).await["ratelimits"]), (&json!([]), &json!([])));
        assert_eq!(reply.body["meta"], json!({ "plan": "pro" }));
    }

    async fn two_limits_of_one_name_change_nothing(kw) {
        create(&kw).await;
        let before = get(&kw).await;
        let same = |limit: i64| json!({ "name": "same", "limit": limit, "duration": 60_000 });
        let reply = update(&kw, json!({ "meta": {}, "ratelimits": [same(3), same(2)] })).await;
        let message = "Ratelimit with name \"same\" is already defined in the request";
        assert_eq!(reply.assert_v1_error(409, "CONFLICT"), message);
        assert_eq!(get(&kw).await, before);
    }

    async fn one_of_the_names_is_needed(kw) {
        let reply = kw.v1("identities.updateIdentity", json!({ "meta": {} })).await;
        assert_eq!(reply.assert_v1_error(400, "BAD_REQUEST"), "Provide either identityId or externalId");
        assert_eq!(kw.count_rows("identities").await, 0);
    }

    async fn each_change_of_a_limit_is_in_the_audit_log(kw) {
        let id = create(&kw).await;
        let wanted = json!([
            { "name": "one", "limit": 5, "duration": 60_000 }, { "name": "three", "limit": 3, "duration": 60_000 },
        ]);
        update(&kw, json!({ "ratelimits": wanted })).await.v1_body();
        let create = "ratelimit.create";
        assert_eq!(
            kw.list_audit_events(&id).await,
            ["identity.create", "identity.update", create, create, create, "ratelimit.delete", "ratelimit.update"],
        );
    }
}

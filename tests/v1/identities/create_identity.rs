use serde_json::{Value, json};

use crate::on_both_stacks;
use crate::support::{Keyward, Reply};

async fn create(kw: &Keyward, mut fields: Value) -> Reply {
    fields["externalId"] = json!("user_1");
    kw.v1("identities.createIdentity", fields).await
}

on_both_stacks! {
    async fn the_reply_is_the_id_and_nothing_else(kw) {
        let reply = create(&kw, json!({})).await;

        let id = reply.v1_body()["identityId"].as_str().unwrap();
        assert_eq!(*reply.v1_body(), json!({ "identityId": id }));
        assert!(id.starts_with("id_") && id.len() >= 19, "{id}");
    }

    async fn a_key_of_the_user_tells_its_meta(kw) {
        let id = create(&kw, json!({ "meta": { "plan": "pro" } })).await.v1_body()["identityId"].clone();

        let key = kw.create_key(json!({ "externalId": "user_1" })).await;

        let verified = kw.verify_v1(&key.key, json!({})).await;
        assert_eq!(
            verified.assert_v1_code("VALID")["identity"],
            json!({ "id": id, "externalId": "user_1", "meta": { "plan": "pro" } })
        );
    }

    async fn its_limits_are_checked_when_they_are_asked_for_and_all_its_keys_share_them(kw) {
        let limits = json!([{ "name": "requests", "limit": 2, "duration": 60_000 }]);
        create(&kw, json!({ "ratelimits": limits })).await.v1_body();
        let first = kw.create_key(json!({ "externalId": "user_1" })).await;
        let second = kw.create_key(json!({ "externalId": "user_1" })).await;
        let asked = json!({ "ratelimits": [{ "name": "requests" }] });

        for _ in 0..3 {
            let unasked = kw.verify_v1(&first.key, json!({})).await;
            assert_eq!(unasked.assert_v1_code("VALID").get("ratelimit"), None);
        }
        let told = kw.verify_v1(&first.key, asked.clone()).await;
        kw.verify_v1(&second.key, asked.clone()).await.assert_v1_code("VALID");
        let refused = kw.verify_v1(&first.key, asked).await;

        assert_eq!(told.assert_v1_code("VALID")["ratelimit"]["limit"], 2);
        assert_eq!(told.body["ratelimit"]["remaining"], 1);
        refused.assert_v1_code("RATE_LIMITED");
        assert_eq!(refused.headers["unkey-ratelimit-triggered"], "requests");
    }

    async fn there_is_one_identity_of_a_user_in_a_workspace(kw) {
        create(&kw, json!({})).await.v1_body();
        let stranger = kw.create_other_workspace().await;
        let request = json!({ "externalId": "user_1" });

        let again = create(&kw, json!({ "meta": { "plan": "free" } })).await;
        let elsewhere = kw.v1_as(&stranger, "identities.createIdentity", request).await;

        let message = again.assert_v1_error(409, "CONFLICT");
        assert!(message.contains("user_1"), "{message}");
        elsewhere.v1_body();
        assert_eq!(kw.count_rows("identities").await, 2);
    }

    async fn two_limits_of_one_name_make_nothing(kw) {
        let twice = json!([
            { "name": "requests", "limit": 3, "duration": 60_000 },
            { "name": "requests", "limit": 2, "duration": 60_000 },
        ]);

        let reply = create(&kw, json!({ "ratelimits": twice })).await;

        let message = reply.assert_v1_error(409, "CONFLICT");
        assert_eq!(message, "Ratelimit with name \"requests\" is already defined in the request");
        assert_eq!(kw.count_rows("identities").await, 0);
    }

    async fn meta_has_64000_characters_at_most(kw) {
        // With its braces and quotes, 8 characters more.
        let over = create(&kw, json!({ "meta": { "a": "é".repeat(63_993) } })).await;
        let at = create(&kw, json!({ "meta": { "a": "é".repeat(63_992) } })).await;

        let message = over.assert_v1_error(400, "BAD_REQUEST");
        assert!(message.starts_with("meta: ") && message.contains("64000"), "{message}");
        at.v1_body();
    }

    async fn the_creation_is_in_the_audit_log_with_its_limits(kw) {
        let limits = json!([{ "name": "requests", "limit": 2, "duration": 60_000 }]);

        let reply = create(&kw, json!({ "ratelimits": limits })).await;

        let id = reply.v1_body()["identityId"].as_str().unwrap();
        assert_eq!(kw.list_audit_events(id).await, ["identity.create", "ratelimit.create"]);
    }
}

//! Keys that are not made, and leave nothing behind.

use serde_json::{Value, json};

use crate::on_both_stacks;
use crate::support::{Keyward, Reply};

async fn create(kw: &Keyward, api: &str, mut fields: Value) -> Reply {
    fields["apiId"] = api.into();
    kw.v1("keys.createKey", fields).await
}

on_both_stacks! {
    async fn uses_that_make_no_sense(kw) {
        let api = kw.create_api().await;
        let daily = json!({ "interval": "daily", "amount": 1 });
        let monthly = |day: Value| json!({
            "remaining": 5, "refill": { "interval": "monthly", "amount": 1, "refillDay": day },
        });
        for (fields, told) in [
            (
                json!({ "remaining": 0 }),
                "remaining: must not be 0; omit it for an unlimited key, or send \
                enabled: false",
            ),
            (json!({ "remaining": null }), "remaining: Expected number, received null"),
            (json!({ "remaining": 1.5 }), "remaining: Expected integer, received float"),
            (json!({ "refill": daily }), "refill: requires remaining; the key is unlimited"),
            (
                json!({
                    "remaining": 5,
                    "refill": { "interval": "daily", "amount": 1, "refillDay": 1 },
                }),
                "refill: refillDay is allowed only with the interval monthly",
            ),
            (
                json!({ "remaining": 5, "refill": { "interval": "daily", "amount": 0 } }),
                "refill.amount: Number must be greater than or equal to 1",
            ),
            (
                json!({ "remaining": 5, "refill": { "interval": "yearly", "amount": 1 } }),
                "refill.interval: Invalid enum value. Expected 'daily' | 'monthly', \
                received 'yearly'",
            ),
            (monthly(json!(1.5)), "refill.refillDay: Expected integer, received float"),
            (monthly(json!(32)), "refill.refillDay: Number must be less than or equal to 31"),
        ] {
            let message = create(&kw, &api, fields).await.assert_v1_error(400, "BAD_REQUEST");
            assert_eq!(message, told);
        }
        assert_eq!(kw.count_rows("keys").await, 0);
    }

    async fn a_limit_that_makes_no_sense(kw) {
        let api = kw.create_api().await;
        for (limit, told) in [
            (json!({ "duration": 1000 }), "ratelimit.limit: Required"),
            (json!({ "limit": 2 }), "ratelimit.duration: Required"),
            (json!({ "limit": 2, "refillRate": 2 }), "ratelimit.duration: Required"),
            (
                json!({ "limit": 2, "duration": 999 }),
                "ratelimit.duration: Number must be greater than or equal to 1000",
            ),
            (
                json!({ "limit": 2, "duration": 1000, "type": "slow" }),
                "ratelimit.type: Invalid enum value. Expected 'fast' | 'consistent', \
                received 'slow'",
            ),
        ] {
            let reply = create(&kw, &api, json!({ "ratelimit": limit })).await;
            assert_eq!(reply.assert_v1_error(400, "BAD_REQUEST"), told);
        }
        assert_eq!(kw.count_rows("keys").await, 0);
    }

    async fn meta_that_is_no_object(kw) {
        let api = kw.create_api().await;

        let message = create(&kw, &api, json!({ "meta": [] })).await.assert_v1_error(400, "BAD_REQUEST");

        assert_eq!(message, "meta: Expected object, received array");
    }

    async fn a_role_or_permission_that_does_not_exist_whoever_could_make_it(kw) {
        kw.create_permission("docs.read").await;
        let api = kw.create_api().await;
        let fields = json!({
            "externalId": "user_1", "roles": ["ghost", "phantom"],
            "permissions": ["docs.read", "docs.write"],
        });

        let message = create(&kw, &api, fields).await.assert_v1_error(404, "NOT_FOUND");

        for named in ["ghost", "phantom", "docs.write"] {
            assert!(message.contains(named), "{named}: {message}");
        }
        assert!(!message.contains("docs.read"), "{message}");
        for table in ["keys", "identities", "roles"] {
            assert_eq!(kw.count_rows(table).await, 0, "{table}");
        }
        assert_eq!(kw.count_rows("permissions").await, 1);
    }

    async fn in_an_api_that_is_not_there(kw) {
        let api = kw.create_api().await;
        kw.v1("apis.deleteApi", json!({ "apiId": api })).await.v1_body();

        for api in [&*api, "api_nowhere"] {
            let message = create(&kw, api, json!({})).await.assert_v1_error(404, "NOT_FOUND");
            assert!(message.contains(api), "{message}");
        }
    }

    async fn in_an_api_beside_the_one_that_the_root_key_is_for(kw) {
        let (own, other) = (kw.create_api().await, kw.create_api().await);
        let root_key = kw.create_root_key([&*format!("api.{own}.create_key")]).await;

        let made = kw.v1_as(&root_key, "keys.createKey", json!({ "apiId": own })).await;
        let refused = kw.v1_as(&root_key, "keys.createKey", json!({ "apiId": other })).await;

        made.v1_body();
        refused.assert_v1_error(404, "NOT_FOUND");
        assert_eq!(kw.count_rows("keys").await, 1);
    }

    async fn a_recoverable_one_where_none_are_kept(kw) {
        let api = kw.create_api().await;

        let reply = create(&kw, &api, json!({ "recoverable": true })).await;

        let message = reply.assert_v1_error(412, "PRECONDITION_FAILED");
        assert!(message.contains(&api), "{message}");
        assert_eq!(kw.count_rows("keys").await, 0);
    }

    async fn a_recoverable_one_by_who_may_not_seal(kw) {
        let api = kw.create_api().await;
        kw.update_api(&api, |settings| settings.allows_recoverable_keys = true).await;
        let root_key = kw.create_root_key(["api.*.create_key"]).await;
        let request = json!({ "apiId": api, "recoverable": true, "externalId": "user_1" });

        let refused = kw.v1_as(&root_key, "keys.createKey", request).await;

        refused.assert_v1_error(404, "NOT_FOUND");
        assert_eq!((kw.count_rows("keys").await, kw.count_rows("identities").await), (0, 0));
    }
}

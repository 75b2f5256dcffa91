//! Keys that are not made, and leave nothing behind.

use serde_json::{Value, json};

use crate::on_both_stacks;
use crate::support::{Keyward, Reply};

async fn create(kw: &Keyward, api: &str, mut fields: Value) -> Reply {
    fields["apiId"] = api.into();
    kw.v1("keys.createKey", fields).await
}

on_both_stacks! {
    async fn fields_that_make_no_sense(kw) {
        let api = kw.create_api().await;
        let daily = json!({ "interval": "daily", "amount": 1 });
        let refill = |refill: Value| json!({ "remaining": 5, "refill": refill });
        let monthly = |day: Value| refill(json!({ "interval": "monthly", "amount": 1, "refillDay": day }));
        let limit = |limit: Value| json!({ "ratelimit": limit });
        for (fields, message) in [
            (json!({ "remaining": 0 }), "remaining: must not be 0; omit it for an unlimited key, or send enabled: false"),
            (json!({ "remaining": null }), "remaining: Expected number, received null"),
            (json!({ "remaining": 1.5 }), "remaining: Expected integer, received float"),
            (json!({ "refill": daily }), "refill: requires remaining; the key is unlimited"),
            (refill(json!({ "interval": "daily", "amount": 1, "refillDay": 1 })), "refill: refillDay is allowed only with the interval monthly"),
            (refill(json!({ "interval": "daily", "amount": 0 })), "refill.amount: Number must be greater than or equal to 1"),
            (
                refill(json!({ "interval": "yearly", "amount": 1 })),
                "refill.interval: Invalid enum value. Expected 'daily' | 'monthly', received 'yearly'",
            ),
            (monthly(json!(1.5)), "refill.refillDay: Expected integer, received float"),
            (monthly(json!(32)), "refill.refillDay: Number must be less than or equal to 31"),
            (limit(json!({ "duration": 1000 })), "ratelimit.limit: Required"),
            (limit(json!({ "limit": 2 })), "ratelimit.duration: Required"),
            (limit(json!({ "limit": 2, "refillRate": 2 })), "ratelimit.duration: Required"),
            (limit(json!({ "limit": 2, "duration": 999 })), "ratelimit.duration: Number must be greater than or equal to 1000"),
            (
                limit(json!({ "limit": 2, "duration": 1000, "type": "slow" })),
                "ratelimit.type: Invalid enum value. Expected 'fast' | 'consistent', received 'slow'",
            ),
            (json!({ "meta": [] }), "meta: Expected object, received array"),
        ] {
            assert_eq!(create(&kw, &api, fields).await.assert_v1_error(400, "BAD_REQUEST"), message);
        }
        assert_eq!(kw.count_rows("keys").await, 0);
    }

    async fn a_role_or_permission_that_does_not_exist_whoever_could_make_it(kw) {
        kw.create_permission("docs.read").await;
        let api = kw.create_api().await;
        let fields = json!({
            "externalId": "user_1", "roles": ["ghost", "phantom"], "permissions": ["docs.read", "docs.write"],
        });

        let message = create(&kw, &api, fields).await.assert_v1_error(404, "NOT_FOUND");

        for (word, is_named) in [("ghost", true), ("phantom", true), ("docs.write", true), ("docs.read", false)] {
            assert_eq!(message.contains(word), is_named, "{word}: {message}");
        }
        for (table, rows) in [("keys", 0), ("identities", 0), ("roles", 0), ("permissions", 1)] {
            assert_eq!(kw.count_rows(table).await, rows, "{table}");
        }
    }

    async fn a_recoverable_one_where_none_are_kept_or_by_who_may_not_seal(kw) {
        let api = kw.create_api().await;
        create(&kw, &api, json!({ "recoverable": true })).await.assert_v1_error_about(412, "PRECONDITION_FAILED", &[&api]);

        kw.update_api(&api, |settings| settings.allows_recoverable_keys = true).await;
        let root_key = kw.create_root_key(["api.*.create_key"]).await;
        let request = json!({ "apiId": api, "recoverable": true, "externalId": "user_1" });
        kw.v1_as(&root_key, "keys.createKey", request).await.assert_v1_error(404, "NOT_FOUND");
        assert_eq!((kw.count_rows("keys").await, kw.count_rows("identities").await), (0, 0));
    }
}

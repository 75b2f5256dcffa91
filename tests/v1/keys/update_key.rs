mod credits;
mod links;

use serde_json::{Value, json};

use crate::on_both_stacks;
use crate::support::seed::IssuedKey;
use crate::support::{Keyward, NOON, Reply};

const MINUTE: i64 = 60_000;

async fn update(kw: &Keyward, key: &IssuedKey, mut fields: Value) -> Reply {
    fields["keyId"] = json!(key.id);
    kw.v1("keys.updateKey", fields).await
}

/// A key with something in every field that can be changed.
async fn full_key(kw: &Keyward) -> IssuedKey {
    kw.create_permission("docs.read").await;
    kw.create_role("editor", []).await;
    let api = kw.create_api().await;
    let fields = json!({
        "name": "for billing", "externalId": "user_1", "meta": { "plan": "pro" },
        "roles": ["editor"], "permissions": ["docs.read"], "expires": NOON.0 + MINUTE,
        "remaining": 7, "refill": { "interval": "daily", "amount": 9 },
        "ratelimit": { "limit": 60, "duration": 60_000 }, "environment": "staging",
    });
    kw.create_key_v1(&api, fields).await
}

/// What is told of a key, but for when it was changed and refilled.
async fn told(kw: &Keyward, key: &IssuedKey) -> Value {
    let mut told = kw.get_key_v1(&key.id).await;
    told.as_object_mut().unwrap().remove("updatedAt");
    if let Some(refill) = told["refill"].as_object_mut() {
        refill.remove("lastRefillAt");
    }
    told
}

on_both_stacks! {
    async fn what_is_left_out_stays_and_the_reply_tells_nothing(kw) {
        let key = full_key(&kw).await;
        let before = told(&kw, &key).await;

        let reply = update(&kw, &key, json!({})).await;

        assert_eq!(reply.text, "{}");
        assert_eq!(told(&kw, &key).await, before);
        update(&kw, &key, json!({ "name": "renamed" })).await.v1_body();
        let mut expected = before;
        expected["name"] = json!("renamed");
        assert_eq!(told(&kw, &key).await, expected);
    }

    async fn what_is_given_is_set_for_both_versions(kw) {
        let key = kw.create_key(json!({})).await;
        let change = json!({
            "name": "renamed", "externalId": "user_2", "meta": { "plan": "free" },
            "expires": NOON.0 + 1, "remaining": 5, "enabled": false,
            "ratelimit": { "limit": 3, "duration": 2_000 },
        });

        update(&kw, &key, change).await.v1_body();

        let first = kw.get_key_v1(&key.id).await;
        let second = kw.get_key(&key.id).await;
        for field in ["name", "meta", "expires", "enabled"] {
            assert_eq!(first[field], second[field], "{field}");
        }
        assert_eq!((&first["name"], &first["enabled"]), (&json!("renamed"), &json!(false)));
        assert_eq!((&first["expires"], &first["remaining"]), (&json!(NOON.0 + 1), &json!(5)));
        assert_eq!(first["meta"], json!({ "plan": "free" }));
        assert_eq!(first["identity"]["externalId"], "user_2");
        assert_eq!(second["credits"], json!({ "remaining": 5 }));
        assert_eq!(second["identity"]["externalId"], "user_2");
        assert_eq!(second["ratelimits"][0]["limit"], 3);
    }

    async fn null_clears(kw) {
        let key = full_key(&kw).await;
        let change = json!({
            "name": null, "externalId": null, "meta": null, "expires": null, "remaining": null,
            "refill": null, "ratelimit": null,
        });

        update(&kw, &key, change).await.v1_body();

        let after = kw.get_key_v1(&key.id).await;
        for field in [
            "name", "ownerId", "identity", "meta", "expires", "remaining", "refill", "ratelimit",
        ] {
            assert_eq!(after.get(field), None, "{field}");
        }
        assert_eq!(after["permissions"], json!(["docs.read"]));
        assert_eq!(kw.get_key(&key.id).await.get("identity"), None);
    }

    async fn what_cannot_be_cleared_says_so(kw) {
        let key = full_key(&kw).await;
        let before = told(&kw, &key).await;
        for (field, wanted) in
            [("enabled", "boolean"), ("roles", "array"), ("permissions", "array")]
        {
            let mut change = json!({ "name": "renamed" });
            change[field] = Value::Null;

            let message = update(&kw, &key, change).await.assert_v1_error(400, "BAD_REQUEST");

            assert_eq!(message, format!("{field}: Expected {wanted}, received null"));
        }
        assert_eq!(told(&kw, &key).await, before);
    }

    async fn of_the_two_names_of_the_user_the_external_id_counts(kw) {
        let key = full_key(&kw).await;
        for (change, user) in [
            (json!({ "ownerId": "user_2" }), Some("user_2")),
            (json!({ "ownerId": null }), None),
            (json!({ "externalId": "user_3", "ownerId": "nobody" }), Some("user_3")),
            (json!({ "externalId": null, "ownerId": "nobody" }), None),
            (json!({ "externalId": "user_3", "ownerId": null }), Some("user_3")),
            (json!({ "name": "renamed" }), Some("user_3")),
        ] {
            update(&kw, &key, change.clone()).await.v1_body();

            let after = kw.get_key_v1(&key.id).await;
            assert_eq!(after["ownerId"].as_str(), user, "{change}");
            assert_eq!(after["identity"]["externalId"].as_str(), user, "{change}");
            let reply = kw.verify_v1(&key.key, json!({})).await;
            assert_eq!(reply.v1_body()["ownerId"].as_str(), user, "{change}");
        }
    }

    async fn an_end_is_set_and_taken_and_0_is_none(kw) {
        let key = kw.create_key(json!({})).await;
        kw.verify_v1(&key.key, json!({})).await.assert_v1_code("VALID");

        update(&kw, &key, json!({ "expires": NOON.0 - 1 })).await.v1_body();
        kw.verify_v1(&key.key, json!({})).await.assert_v1_code("EXPIRED");
        kw.verify(&key.key).await.assert_code("EXPIRED");
        for never in [json!(0), json!(null)] {
            update(&kw, &key, json!({ "expires": NOON.0 - 1 })).await.v1_body();
            update(&kw, &key, json!({ "expires": never })).await.v1_body();

            kw.verify_v1(&key.key, json!({})).await.assert_v1_code("VALID");
            assert_eq!(kw.get_key_v1(&key.id).await.get("expires"), None);
        }
    }

    async fn a_key_is_disabled_and_enabled_at_once(kw) {
        let key = kw.create_key(json!({})).await;
        kw.verify_v1(&key.key, json!({})).await.assert_v1_code("VALID");

        update(&kw, &key, json!({ "enabled": false })).await.v1_body();
        kw.verify_v1(&key.key, json!({})).await.assert_v1_code("DISABLED");
        kw.verify(&key.key).await.assert_code("DISABLED");

        update(&kw, &key, json!({ "enabled": true })).await.v1_body();
        kw.verify_v1(&key.key, json!({})).await.assert_v1_code("VALID");
    }

    async fn a_limit_is_put_changed_and_taken_and_the_others_stay(kw) {
        let limit = json!({ "name": "uploads", "limit": 5, "duration": 2_000 });
        let key = kw.create_key(json!({ "ratelimits": [limit] })).await;
        let names = async || {
            let second = kw.get_key(&key.id).await;
            let limits = second["ratelimits"].as_array().cloned().unwrap_or_default();
            let names = limits.iter().map(|limit| limit["name"].as_str().unwrap().to_owned());
            names.collect::<Vec<_>>()
        };

        let limit = json!({ "limit": 1, "duration": 60_000, "async": true });
        update(&kw, &key, json!({ "ratelimit": limit })).await.v1_body();
        let put = (names().await, kw.get_key_v1(&key.id).await["ratelimit"].clone());
        kw.verify_v1(&key.key, json!({})).await.assert_v1_code("VALID");
        kw.verify_v1(&key.key, json!({})).await.assert_v1_code("RATE_LIMITED");
        let limit = json!({ "limit": 2, "duration": 60_000, "async": false });
        update(&kw, &key, json!({ "ratelimit": limit })).await.v1_body();
        let changed = (names().await, kw.get_key_v1(&key.id).await["ratelimit"].clone());
        kw.verify_v1(&key.key, json!({})).await.assert_v1_code("VALID");
        update(&kw, &key, json!({ "ratelimit": null })).await.v1_body();
        let taken = (names().await, kw.get_key_v1(&key.id).await.get("ratelimit").cloned());

        assert_eq!(put.0, ["default", "uploads"]);
        assert_eq!((&put.1["limit"], &put.1["type"]), (&json!(1), &json!("fast")));
        assert_eq!(changed.0, ["default", "uploads"]);
        assert_eq!((&changed.1["limit"], &changed.1["type"]), (&json!(2), &json!("consistent")));
        assert_eq!(taken, (vec!["uploads".to_owned()], None));
        kw.verify_v1(&key.key, json!({})).await.assert_v1_code("VALID");
    }

    async fn a_window_may_be_short_and_must_be_there(kw) {
        let key = kw.create_key(json!({})).await;
        for duration in [json!({ "duration": 1 }), json!({ "refillInterval": 1 })] {
            let mut limit = duration;
            limit["limit"] = json!(5);
            update(&kw, &key, json!({ "ratelimit": limit })).await.v1_body();
            assert_eq!(kw.get_key_v1(&key.id).await["ratelimit"]["duration"], 1);
        }

        let none = update(&kw, &key, json!({ "ratelimit": { "limit": 5 } })).await;

        assert_eq!(none.assert_v1_error(400, "BAD_REQUEST"), "ratelimit.duration: Required");
    }

    async fn a_change_is_audited(kw) {
        let key = kw.create_key(json!({})).await;

        update(&kw, &key, json!({ "name": "renamed" })).await.v1_body();

        assert_eq!(kw.list_audit_events(&key.id).await, ["key.create", "key.update"]);
        assert_eq!(kw.list_audit_events("renamed").await, ["key.update"]);
    }

    async fn a_key_that_is_not_there_is_named(kw) {
        let deleted = kw.create_key(json!({})).await;
        kw.v1("keys.deleteKey", json!({ "keyId": deleted.id })).await.v1_body();

        for id in [&*deleted.id, "key_nowhere"] {
            let reply = kw.v1("keys.updateKey", json!({ "keyId": id, "name": "x" })).await;
            let message = reply.assert_v1_error(404, "NOT_FOUND");
            assert!(message.contains(id), "{message}");
        }
    }

    async fn a_root_key_for_one_api_changes_no_key_of_another(kw) {
        let api = kw.create_api().await;
        let (own, other) = (kw.create_key_in(&api, json!({})).await, kw.create_key(json!({})).await);
        let root_key = kw.create_root_key([&*format!("api.{api}.update_key")]).await;
        let change = |key: &IssuedKey| json!({ "keyId": key.id, "name": "renamed" });

        let changed = kw.v1_as(&root_key, "keys.updateKey", change(&own)).await;
        let refused = kw.v1_as(&root_key, "keys.updateKey", change(&other)).await;

        changed.v1_body();
        refused.assert_v1_error(403, "INSUFFICIENT_PERMISSIONS");
        assert_eq!(kw.get_key_v1(&other.id).await.get("name"), None);
    }
}

mod credits;

use serde_json::{Value, json};

use crate::on_both_stacks;
use crate::support::scenario::update as change;
use crate::support::scenario::{Scenario, fail, field, other, plain, read};
use crate::support::seed::IssuedKey;
use crate::support::version::Version::V1;
use crate::support::{Keyward, NOON, Reply};

const MINUTE: i64 = 60_000;

async fn update(kw: &Keyward, key: &IssuedKey, mut fields: Value) -> Reply {
    fields["keyId"] = json!(key.id);
    kw.v1("keys.updateKey", fields).await
}

/// Creates a key with something in every field that can be changed.
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

/// Returns what is told of a key, but for when it was changed and refilled.
async fn told(kw: &Keyward, key: &IssuedKey) -> Value {
    let mut told = kw.get_key_v1(&key.id).await;
    told.as_object_mut().unwrap().remove("updatedAt");
    if let Some(refill) = told["refill"].as_object_mut() {
        refill.remove("lastRefillAt");
    }
    told
}

on_both_stacks! {
    async fn what_is_left_out_stays_null_clears_and_what_cannot_be_cleared_says_so(kw) {
        let key = full_key(&kw).await;
        let mut expected = told(&kw, &key).await;
        assert_eq!(update(&kw, &key, json!({})).await.text, "{}");
        assert_eq!(told(&kw, &key).await, expected);
        for (name, kind) in [("enabled", "boolean"), ("roles", "array"), ("permissions", "array")] {
            let reply = update(&kw, &key, json!({ "name": "renamed", name: null })).await;
            assert_eq!(reply.assert_v1_error(400, "BAD_REQUEST"), format!("{name}: Expected {kind}, received null"));
        }
        assert_eq!(told(&kw, &key).await, expected);
        update(&kw, &key, json!({ "name": "renamed" })).await.v1_body();
        expected["name"] = json!("renamed");
        assert_eq!(told(&kw, &key).await, expected);

        let cleared = ["name", "externalId", "meta", "expires", "remaining", "refill", "ratelimit"];
        let change = cleared.map(|name| (name.to_owned(), Value::Null)).into_iter().collect::<serde_json::Map<_, _>>();
        update(&kw, &key, change.into()).await.v1_body();
        let after = kw.get_key_v1(&key.id).await;
        for name in ["name", "ownerId", "identity", "meta", "expires", "remaining", "refill", "ratelimit"] {
            assert_eq!(after.get(name), None, "{name}");
        }
        assert_eq!(after["permissions"], json!(["docs.read"]));
        assert_eq!(kw.get_key(&key.id).await.get("identity"), None);
    }

    async fn fields_are_set_for_both_versions(kw) {
        let owner = |request: Value, user: Value| {
            let told = if user.is_null() { json!({ "ownerId": null, "identity": null }) } else { json!({ "ownerId": user, "identity.externalId": user }) };
            [change(request), read(told.clone()), plain("VALID", json!({ "ownerId": user }))]
        };
        let past = || change(json!({ "expires": NOON.0 - 1 }));
        let limit = |limit: i64, is_async: bool| change(json!({ "ratelimit": { "limit": limit, "duration": MINUTE, "async": is_async } }));
        let window = |request: Value| [change(json!({ "ratelimit": request })), read(json!({ "ratelimit.duration": 1 }))];
        let mut scenarios: Vec<Scenario> = vec![
            ("what is given is set", json!({}), vec![
                change(json!({
                    "name": "renamed", "externalId": "user_2", "meta": { "plan": "free" }, "expires": NOON.0 + 1,
                    "remaining": 5, "enabled": false, "ratelimit": { "limit": 3, "duration": 2_000 },
                })),
                read(json!({
                    "name": "renamed", "identity.externalId": "user_2", "meta": { "plan": "free" }, "expires": NOON.0 + 1,
                    "remaining": 5, "enabled": false,
                })),
                other(read(json!({
                    "name": "renamed", "identity.externalId": "user_2", "meta": { "plan": "free" }, "expires": NOON.0 + 1,
                    "credits": { "remaining": 5 }, "enabled": false, "ratelimits.0.limit": 3,
                }))),
            ]),
            ("an end is set and taken and 0 is none", json!({}), vec![
                plain("VALID", json!({})), past(), plain("EXPIRED", json!({})), other(plain("EXPIRED", json!({}))),
                change(json!({ "expires": 0 })), plain("VALID", json!({ "expires": null })), read(json!({ "expires": null })),
                past(), change(json!({ "expires": null })), plain("VALID", json!({})), read(json!({ "expires": null })),
            ]),
            ("a key is disabled and enabled at once", json!({}), vec![
                plain("VALID", json!({})), change(json!({ "enabled": false })), plain("DISABLED", json!({})), other(plain("DISABLED", json!({}))),
                change(json!({ "enabled": true })), plain("VALID", json!({})),
            ]),
            ("a limit is put, changed and taken and the others stay", json!({}), vec![
                other(change(json!({ "ratelimits": [{ "name": "uploads", "limit": 5, "duration": 2_000 }] }))),
                limit(1, true), other(read(json!({ "ratelimits.0.name": "default", "ratelimits.1.name": "uploads", "ratelimits.2": null }))),
                read(json!({ "ratelimit.limit": 1, "ratelimit.type": "fast" })), plain("VALID", json!({})), plain("RATE_LIMITED", json!({})),
                limit(2, false), other(read(json!({ "ratelimits.0.name": "default", "ratelimits.1.name": "uploads", "ratelimits.2": null }))),
                read(json!({ "ratelimit.limit": 2, "ratelimit.type": "consistent" })), plain("VALID", json!({})),
                change(json!({ "ratelimit": null })), read(json!({ "ratelimit": null })),
                other(read(json!({ "ratelimits.0.name": "uploads", "ratelimits.1": null }))), plain("VALID", json!({})),
            ]),
            ("a window may be short and must be there", json!({}), [
                window(json!({ "limit": 5, "duration": 1 })).to_vec(), window(json!({ "limit": 5, "refillInterval": 1 })).to_vec(),
                vec![fail("keys.updateKey", json!({ "ratelimit": { "limit": 5 } }), field("ratelimit.duration: Required", &[]))],
            ].concat()),
        ];
        scenarios.push(("of the two names of the user the external id counts", json!({ "externalId": "user_1" }), [
            owner(json!({ "ownerId": "user_2" }), json!("user_2")),
            owner(json!({ "ownerId": null }), Value::Null),
            owner(json!({ "externalId": "user_3", "ownerId": "nobody" }), json!("user_3")),
            owner(json!({ "externalId": null, "ownerId": "nobody" }), Value::Null),
            owner(json!({ "externalId": "user_3", "ownerId": null }), json!("user_3")),
            owner(json!({ "name": "renamed" }), json!("user_3")),
            owner(json!({ "externalId": "", "ownerId": "nobody" }), Value::Null),
            owner(json!({ "ownerId": "user_4" }), json!("user_4")),
            owner(json!({ "ownerId": "" }), Value::Null),
        ].concat()));
        kw.run(V1, scenarios).await;
    }

    async fn a_limit_is_changed_and_none_is_added_when_a_key_has_the_maximum(kw) {
        let limit = |name: String| json!({ "name": name, "limit": 5, "duration": MINUTE });
        let limits = |count: usize| -> Vec<_> { (0..count).map(|n| limit(format!("limit_{n}"))).collect() };
        let default = json!({ "ratelimit": { "limit": 1, "duration": MINUTE } });
        let full = kw.create_key(json!({ "ratelimits": limits(50) })).await;
        let other = kw.create_key(json!({ "ratelimits": limits(49) })).await;

        let refused = update(&kw, &full, default.clone()).await;
        update(&kw, &other, default.clone()).await.v1_body();
        update(&kw, &other, default).await.v1_body();

        refused.assert_v1_error_about(412, "PRECONDITION_FAILED", &["at most 50 rate limits"]);
        for key in [full, other] {
            assert_eq!(kw.get_key(&key.id).await["ratelimits"].as_array().unwrap().len(), 50);
        }
    }

    async fn a_change_is_audited(kw) {
        let key = kw.create_key(json!({})).await;
        update(&kw, &key, json!({ "name": "renamed" })).await.v1_body();
        assert_eq!(kw.list_audit_events(&key.id).await, ["key.create", "key.update"]);
        assert_eq!(kw.list_audit_events("renamed").await, ["key.update"]);
    }
}

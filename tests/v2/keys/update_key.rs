mod credits;
mod rbac;

use futures_util::future::join_all;
use serde_json::{Value, json};

use crate::on_both_stacks;
use crate::support::NOON;

/// Name, limit, duration and autoApply of each limit that getKey tells.
fn limits(told: &Value) -> Vec<Value> {
    let limits = told["ratelimits"].as_array().into_iter().flatten();
    limits.map(|l| json!([l["name"], l["limit"], l["duration"], l["autoApply"]])).collect()
}

on_both_stacks! {
    async fn the_reply_tells_nothing(kw) {
        let key = kw.create_key(json!({})).await;

        let reply = kw.update_key(&key.id, json!({ "name": "for billing" })).await;

        assert_eq!(*reply.data(), json!({}));
    }

    async fn what_is_left_out_stays(kw) {
        kw.create_permission("documents.read").await;
        kw.create_role("editor", []).await;
        let key = kw
            .create_key(json!({
                "prefix": "prod", "name": "for billing", "externalId": "user_1",
                "meta": { "plan": "pro" }, "roles": ["editor"], "permissions": ["documents.read"],
                "expires": NOON.0 + 1, "enabled": false,
                "credits": { "remaining": 7, "refill": { "interval": "daily", "amount": 9 } },
                "ratelimits": [{ "name": "requests", "limit": 60, "duration": 60_000 }],
            }))
            .await;
        let mut before = kw.get_key(&key.id).await;

        kw.update_key(&key.id, json!({})).await.data();

        before["updatedAt"] = json!(NOON.0);
        assert_eq!(kw.get_key(&key.id).await, before);
    }

    async fn a_change_is_told_with_its_time(kw) {
        let key = kw.create_key(json!({})).await;
        kw.clock.advance_ms(1234);

        kw.update_key(&key.id, json!({ "name": "for billing" })).await.data();

        let told = kw.get_key(&key.id).await;
        assert_eq!(
            (&told["createdAt"], &told["updatedAt"]),
            (&json!(NOON.0), &json!(NOON.0 + 1234))
        );
    }

    async fn a_name_is_set_and_cleared(kw) {
        let key = kw.create_key(json!({})).await;

        kw.update_key(&key.id, json!({ "name": "für Rechnungen 🧾" })).await.data();
        let set = kw.get_key(&key.id).await;
        kw.update_key(&key.id, json!({ "name": null })).await.data();
        let cleared = kw.get_key(&key.id).await;

        assert_eq!(set["name"], "für Rechnungen 🧾");
        assert_eq!(cleared.get("name"), None);
    }

    async fn an_external_id_is_linked_and_unlinked(kw) {
        let other = kw.create_key(json!({ "externalId": "user_1" })).await;
        let key = kw.create_key(json!({})).await;

        kw.update_key(&key.id, json!({ "externalId": "user_1" })).await.data();
        let known = kw.verify(&key.key).await.data()["identity"].clone();
        kw.update_key(&key.id, json!({ "externalId": "user_2" })).await.data();
        let new = kw.verify(&key.key).await.data()["identity"].clone();
        kw.update_key(&key.id, json!({ "externalId": null })).await.data();
        let none = kw.verify(&key.key).await;

        assert_eq!(known, kw.get_key(&other.id).await["identity"]);
        assert_eq!(new["externalId"], "user_2");
        assert_ne!(new["id"], known["id"]);
        assert_eq!(none.data().get("identity"), None);
        assert_eq!(kw.count_rows("identities").await, 2);
    }

    async fn meta_is_replaced_and_cleared(kw) {
        let key = kw.create_key(json!({ "meta": { "plan": "pro", "seats": 3 } })).await;

        kw.update_key(&key.id, json!({ "meta": { "plan": { "name": "free" } } })).await.data();
        let replaced = kw.verify(&key.key).await.data()["meta"].clone();
        kw.update_key(&key.id, json!({ "meta": null })).await.data();
        let cleared = kw.verify(&key.key).await;

        assert_eq!(replaced, json!({ "plan": { "name": "free" } }));
        assert_eq!(cleared.data().get("meta"), None);
    }

    async fn an_empty_meta_clears_it(kw) {
        let key = kw.create_key(json!({ "meta": { "plan": "pro" } })).await;

        kw.update_key(&key.id, json!({ "meta": {} })).await.data();

        assert_eq!(kw.get_key(&key.id).await.get("meta"), None);
    }

    async fn an_expiry_is_set_and_cleared(kw) {
        let key = kw.create_key(json!({})).await;

        kw.update_key(&key.id, json!({ "expires": NOON.0 - 1 })).await.data();
        kw.verify(&key.key).await.assert_code("EXPIRED");
        kw.update_key(&key.id, json!({ "expires": NOON.0 })).await.data();
        kw.verify(&key.key).await.assert_code("VALID");
        kw.update_key(&key.id, json!({ "expires": null })).await.data();

        assert_eq!(kw.get_key(&key.id).await.get("expires"), None);
        kw.verify(&key.key).await.assert_code("VALID");
    }

    async fn a_key_is_disabled_and_enabled_at_once(kw) {
        let key = kw.create_key(json!({})).await;
        kw.verify(&key.key).await.assert_code("VALID");

        kw.update_key(&key.id, json!({ "enabled": false })).await.data();
        kw.verify(&key.key).await.assert_code("DISABLED");
        kw.update_key(&key.id, json!({ "enabled": true })).await.data();

        kw.verify(&key.key).await.assert_code("VALID");
    }

    async fn limits_are_replaced_by_name(kw) {
        let key = kw
            .create_key(json!({ "ratelimits": [
            { "name": "reads", "limit": 1, "duration": 1000 },
            { "name": "writes", "limit": 2, "duration": 2000 },
        ] }))
            .await;
        let before = kw.get_key(&key.id).await;

        kw.update_key(
            &key.id,
            json!({ "ratelimits": [
            { "name": "writes", "limit": 20, "duration": 20_000, "autoApply": true },
            { "name": "Writes", "limit": 3, "duration": 3000 },
        ] }),
        )
        .await
        .data();

        let after = kw.get_key(&key.id).await;
        assert_eq!(
            limits(&after),
            [json!(["Writes", 3, 3000, false]), json!(["writes", 20, 20_000, true])]
        );
        assert_eq!(after["ratelimits"][1]["id"], before["ratelimits"][1]["id"]);
        assert_ne!(after["ratelimits"][0]["id"], before["ratelimits"][0]["id"]);
    }

    async fn of_two_limits_with_one_name_the_last_counts(kw) {
        let key = kw.create_key(json!({})).await;

        kw.update_key(
            &key.id,
            json!({ "ratelimits": [
            { "name": "requests", "limit": 1, "duration": 1000 },
            { "name": "requests", "limit": 2, "duration": 2000 },
        ] }),
        )
        .await
        .data();

        assert_eq!(limits(&kw.get_key(&key.id).await), [json!(["requests", 2, 2000, false])]);
    }

    async fn an_empty_list_removes_all_limits(kw) {
        let limit = json!({ "name": "requests", "limit": 1, "duration": 1000, "autoApply": true });
        let key = kw.create_key(json!({ "ratelimits": [limit] })).await;

        kw.update_key(&key.id, json!({ "ratelimits": [] })).await.data();

        assert_eq!(kw.get_key(&key.id).await.get("ratelimits"), None);
        assert_eq!(kw.verify(&key.key).await.data().get("ratelimits"), None);
    }

    async fn changes_of_different_fields_at_once_are_all_kept(kw) {
        let key = kw.create_key(json!({ "name": "before", "expires": NOON.0 + 1 })).await;
        let changes = [
            json!({ "name": "after" }),
            json!({ "externalId": "user_1" }),
            json!({ "meta": { "plan": "pro" } }),
            json!({ "expires": null }),
            json!({ "enabled": false }),
        ];

        for reply in join_all(changes.map(|change| kw.update_key(&key.id, change))).await {
            reply.data();
        }

        let told = kw.get_key(&key.id).await;
        assert_eq!(told["name"], "after");
        assert_eq!(told["identity"]["externalId"], "user_1");
        assert_eq!(told["meta"], json!({ "plan": "pro" }));
        assert_eq!(told.get("expires"), None);
        assert_eq!(told["enabled"], false);
    }

    async fn replacements_at_once_leave_one_of_them(kw) {
        let key = kw.create_key(json!({})).await;
        let change = |n: i64| {
            json!({
                "permissions": ["shared", format!("own.{n}")],
                "ratelimits": [
                    { "name": "shared", "limit": n, "duration": 1000 },
                    { "name": format!("own {n}"), "limit": n, "duration": 1000 },
                ],
            })
        };

        for reply in join_all((1..=6).map(|n| kw.update_key(&key.id, change(n)))).await {
            reply.data();
        }

        let told = kw.get_key(&key.id).await;
        let n = told["ratelimits"][1]["limit"].as_i64().unwrap();
        assert_eq!(told["permissions"], json!([format!("own.{n}"), "shared"]));
        assert_eq!(
            limits(&told),
            [json!([format!("own {n}"), n, 1000, false]), json!(["shared", n, 1000, false])]
        );
    }

    async fn a_key_that_never_was_is_not_found(kw) {
        let reply = kw.update_key("key_nowhere", json!({ "name": "for billing" })).await;

        reply.assert_error(404, "key_not_found");
    }

    async fn letter_case_matters_in_an_id(kw) {
        let key = kw.create_key(json!({})).await;

        let reply = kw.update_key(&key.id.to_lowercase(), json!({ "name": "for billing" })).await;

        reply.assert_error(404, "key_not_found");
    }

    async fn who_may_not_update_learns_that_the_key_exists(kw) {
        let api = kw.create_api().await;
        let key = kw.create_key_in(&api, json!({})).await;
        let root_key = kw.create_root_key(["api.*.read_key", "api.*.create_key"]).await;
        let request = |id: &str| json!({ "keyId": id, "enabled": false });

        let real = kw.v2_as(&root_key, "keys.updateKey", request(&key.id)).await;
        let none = kw.v2_as(&root_key, "keys.updateKey", request("key_nowhere")).await;

        let detail = real.assert_error(403, "insufficient_permissions")["detail"].clone();
        let detail = detail.as_str().unwrap();
        assert!(detail.contains("api.*.update_key"), "{detail}");
        assert!(detail.contains(&format!("api.{api}.update_key")), "{detail}");
        none.assert_error(404, "key_not_found");
        kw.verify(&key.key).await.assert_code("VALID");
    }

    async fn a_permission_for_one_api_changes_no_key_of_another(kw) {
        let api = kw.create_api().await;
        let (own, other) = (kw.create_key_in(&api, json!({})).await, kw.create_key(json!({})).await);
        let root_key = kw.create_root_key([&*format!("api.{api}.update_key")]).await;
        let request = |id: &str| json!({ "keyId": id, "enabled": false });

        let refused = kw.v2_as(&root_key, "keys.updateKey", request(&other.id)).await;
        let changed = kw.v2_as(&root_key, "keys.updateKey", request(&own.id)).await;

        refused.assert_error(403, "insufficient_permissions");
        changed.data();
        kw.verify(&other.key).await.assert_code("VALID");
    }

    async fn credits_may_carry_no_field_that_nobody_knows(kw) {
        let key = kw.create_key(json!({})).await;
        let (credits, refill) = ("/properties/credits", "/properties/credits/properties/refill");
        for (body, location) in [
            (json!({ "remaining": 1, "surprise": 1 }), credits),
            (json!({ "refill": { "interval": "daily", "amount": 1, "surprise": 1 } }), refill),
        ] {
            let reply = kw.update_key(&key.id, json!({ "credits": body })).await;

            let message = reply.assert_field_error(&format!("{location}/additionalProperties"));
            assert!(message.contains("surprise"), "{message}");
        }
    }

    async fn the_change_is_in_the_audit_log(kw) {
        kw.create_role("editor", []).await;
        let key = kw.create_key(json!({ "name": "before" })).await;

        kw.update_key(
            &key.id,
            json!({
                "name": "after", "roles": ["editor"], "permissions": ["documents.read"],
            }),
        )
        .await
        .data();

        assert_eq!(
            kw.list_audit_events(&key.id).await,
            [
                "authorization.connect_permission_and_key",
                "authorization.connect_role_and_key",
                "key.create",
                "key.update",
            ]
        );
        assert_eq!(
            kw.list_audit_events("documents.read").await,
            ["authorization.connect_permission_and_key", "permission.create"]
        );
    }
}

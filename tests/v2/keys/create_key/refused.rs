//! What is refused, and leaves nothing behind.

use axum::body::Body;
use serde_json::json;

use crate::on_both_stacks;
use crate::support::{Keyward, post};

/// Fails unless nothing at all was made by a refused request.
async fn assert_nothing_made(kw: &Keyward) {
    for table in ["keys", "identities", "ratelimits", "key_permissions", "key_roles"] {
        assert_eq!(kw.count_rows(table).await, 0, "{table}");
    }
}

on_both_stacks! {
    async fn a_role_that_does_not_exist_is_named_and_nothing_is_made(kw) {
        let api = kw.create_api().await;
        kw.create_role("editor", []).await;

        let reply = kw
            .v2(
                "keys.createKey",
                json!({
                    "apiId": api,
                    "externalId": "user_1",
                    "roles": ["writer", "editor", "Editor"],
                    "ratelimits": [{ "name": "requests", "limit": 1, "duration": 1000 }],
                }),
            )
            .await;

        let detail = reply.assert_error(404, "role_not_found")["detail"].clone();
        let detail = detail.as_str().unwrap();
        assert!(detail.contains("writer") && detail.contains("Editor"), "{detail}");
        assert!(!detail.contains("editor"), "{detail}");
        assert_nothing_made(&kw).await;
    }

    async fn a_missing_permission_needs_the_right_to_create_it_else_nothing_is_made(kw) {
        let api = kw.create_api().await;
        kw.create_permission("documents.read").await;
        let root_key = kw.create_root_key(["api.*.create_key"]).await;

        let reply = kw
            .v2_as(
                &root_key,
                "keys.createKey",
                json!({
                    "apiId": api,
                    "externalId": "user_1",
                    "permissions": ["documents.write", "documents.read"],
                    "ratelimits": [{ "name": "requests", "limit": 1, "duration": 1000 }],
                }),
            )
            .await;

        let detail = reply.assert_error(403, "insufficient_permissions")["detail"].clone();
        assert!(detail.as_str().unwrap().contains("rbac.*.create_permission"), "{detail}");
        assert_nothing_made(&kw).await;
        assert_eq!(kw.count_rows("permissions").await, 1);
    }

    async fn a_missing_role_leaves_missing_permissions_uncreated(kw) {
        let api = kw.create_api().await;
        let request =
            json!({ "apiId": api, "roles": ["writer"], "permissions": ["documents.read"] });

        let may = kw.v2("keys.createKey", request.clone()).await;
        let root_key = kw.create_root_key(["api.*.create_key"]).await;
        let may_not = kw.v2_as(&root_key, "keys.createKey", request).await;

        for reply in [may, may_not] {
            let detail = reply.assert_error(404, "role_not_found")["detail"].clone();
            assert!(detail.as_str().unwrap().contains("writer"), "{detail}");
        }
        assert_nothing_made(&kw).await;
        assert_eq!(kw.count_rows("permissions").await, 0);
    }

    async fn a_refill_that_makes_no_sense_is_refused(kw) {
        let api = kw.create_api().await;
        let refill = "/properties/credits/properties/refill";
        let day = "/properties/credits/properties/refill/properties/refillDay";
        for (credits, location) in [
            (json!({ "remaining": null, "refill": { "interval": "daily", "amount": 1 } }), refill),
            (json!({ "remaining": 1, "refill": { "interval": "monthly", "amount": 1 } }), day),
            (
                json!({
                    "remaining": 1,
                    "refill": { "interval": "daily", "amount": 1, "refillDay": 1 },
                }),
                day,
            ),
        ] {
            let reply = kw.v2("keys.createKey", json!({ "apiId": api, "credits": credits })).await;

            reply.assert_field_error(location);
        }
        assert_nothing_made(&kw).await;
    }

    async fn credits_may_carry_no_field_that_nobody_knows(kw) {
        let api = kw.create_api().await;
        let (credits, refill) = ("/properties/credits", "/properties/credits/properties/refill");
        for (body, location) in [
            (json!({ "remaining": 1, "surprise": 1 }), credits),
            (
                json!({
                    "remaining": 1,
                    "refill": { "interval": "daily", "amount": 1, "surprise": 1 },
                }),
                refill,
            ),
        ] {
            let reply = kw.v2("keys.createKey", json!({ "apiId": api, "credits": body })).await;

            let message = reply.assert_field_error(&format!("{location}/additionalProperties"));
            assert!(message.contains("surprise"), "{message}");
        }
    }

    async fn fields_of_version_1_are_refused(kw) {
        let api = kw.create_api().await;
        for (field, value) in [
            ("ownerId", json!("user_1")),
            ("remaining", json!(1)),
            ("refill", json!({ "interval": "daily", "amount": 1 })),
            ("ratelimit", json!({ "limit": 1, "duration": 1000 })),
            ("environment", json!("live")),
        ] {
            let reply = kw.v2("keys.createKey", json!({ "apiId": api, field: value })).await;

            let message = reply.assert_field_error("/additionalProperties");
            assert!(message.contains(field), "{message}");
        }
    }

    async fn a_recoverable_key_needs_a_vault(kw) {
        let api = kw.create_api().await;

        let reply = kw.v2("keys.createKey", json!({ "apiId": api, "recoverable": true })).await;

        assert_eq!(reply.assert_error(412, "precondition_failed")["title"], "Precondition Failed");
        assert_nothing_made(&kw).await;
    }

    async fn a_missing_api_is_told_before_a_missing_vault_and_that_before_a_missing_role(kw) {
        let request = |api: &str| json!({ "apiId": api, "recoverable": true, "roles": ["nobody"] });

        let nowhere = kw.v2("keys.createKey", request("api_nowhere")).await;
        let here = kw.v2("keys.createKey", request(&kw.create_api().await)).await;

        nowhere.assert_error(404, "api_not_found");
        here.assert_error(412, "precondition_failed");
    }

    async fn an_api_that_does_not_exist_is_not_found(kw) {
        let reply = kw.v2("keys.createKey", json!({ "apiId": "api_nowhere" })).await;

        let error = reply.assert_error(404, "api_not_found");
        assert!(error["detail"].as_str().unwrap().contains("api_nowhere"), "{error}");
    }

    async fn who_may_not_create_is_told_what_a_stranger_is_told(kw) {
        let api = kw.create_api().await;
        let grants = ["api.*.read_key", "api.*.read_api", "api.api_other.create_key"];
        let root_key = kw.create_root_key(grants).await;

        let real = kw.v2_as(&root_key, "keys.createKey", json!({ "apiId": api })).await;
        let none = kw.v2("keys.createKey", json!({ "apiId": "api_nowhere" })).await;

        let real = real.assert_error(404, "api_not_found").to_string();
        let none = none.assert_error(404, "api_not_found").to_string();
        assert_eq!(real.replace(&api, "api_nowhere"), none);
        assert_nothing_made(&kw).await;
    }

    async fn a_permission_for_one_api_creates_in_no_other(kw) {
        let (own, other) = (kw.create_api().await, kw.create_api().await);
        let root_key = kw.create_root_key([&*format!("api.{own}.create_key")]).await;

        let made = kw.v2_as(&root_key, "keys.createKey", json!({ "apiId": own })).await;
        let refused = kw.v2_as(&root_key, "keys.createKey", json!({ "apiId": other })).await;

        made.data();
        refused.assert_error(404, "api_not_found");
    }

    async fn a_number_past_the_64_bit_range_is_refused(kw) {
        let api = kw.create_api().await;
        for number in ["9223372036854775808", "9223372036854775808.0", "1e19", "1e400"] {
            let body = format!(r#"{{"apiId":"{api}","credits":{{"remaining":{number}}}}}"#);
            let request =
                post("keys.createKey").header("authorization", format!("Bearer {}", kw.root_key));

            let reply = kw.send(request.body(Body::from(body)).unwrap()).await;

            reply.assert_error(400, "invalid_input");
        }
        assert_nothing_made(&kw).await;
    }
}

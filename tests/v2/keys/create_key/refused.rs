//! What is refused, and leaves nothing behind.

use axum::body::Body;
use serde_json::{Value, json};

use crate::on_both_stacks;
use crate::support::{Keyward, post};

/// Fails unless nothing at all was made by a refused request.
async fn assert_nothing_made(kw: &Keyward) {
    for table in ["keys", "identities", "ratelimits", "key_permissions", "key_roles"] {
        assert_eq!(kw.count_rows(table).await, 0, "{table}");
    }
}

on_both_stacks! {
    async fn a_missing_role_or_permission_is_named_and_nothing_is_made(kw) {
        let api = kw.create_api().await;
        kw.create_role("editor", []).await;
        kw.create_permission("documents.read").await;
        let creator = kw.create_root_key(["api.*.create_key"]).await;
        let request = |roles: &[&str], permissions: &[&str]| json!({
            "apiId": api, "externalId": "user_1", "roles": roles, "permissions": permissions,
            "ratelimits": [{ "name": "requests", "limit": 1, "duration": 1000 }],
        });
        for (root_key, request, status, error, named) in [
            (&kw.root_key, request(&["writer", "editor", "Editor"], &[]), 404, "role_not_found", &["writer", "Editor"][..]),
            (&creator, request(&[], &["documents.write", "documents.read"]), 403, "insufficient_permissions", &["rbac.*.create_permission"]),
            // A missing role leaves missing permissions uncreated.
            (&kw.root_key, request(&["writer"], &["documents.new"]), 404, "role_not_found", &["writer"]),
            (&creator, request(&["writer"], &["documents.new"]), 404, "role_not_found", &["writer"]),
        ] {
            let reply = kw.v2_as(root_key, "keys.createKey", request).await;
            reply.assert_error_about(status, error, named);
            assert!(!reply.body["error"]["detail"].as_str().unwrap().contains("editor"), "{reply}");
        }
        assert_nothing_made(&kw).await;
        assert_eq!(kw.count_rows("permissions").await, 1);
    }

    async fn fields_that_make_no_sense_or_that_nobody_knows_are_refused(kw) {
        let api = kw.create_api().await;
        let refill = "/properties/credits/properties/refill";
        let (day, unknown) = (format!("{refill}/properties/refillDay"), format!("{refill}/additionalProperties"));
        let credits = |remaining: Value, refill: Value| json!({ "credits": { "remaining": remaining, "refill": refill } });
        for (fields, location, named) in [
            (json!({ "credits": {} }), "/properties/credits/required", "remaining"),
            (credits(json!(null), json!({ "interval": "daily", "amount": 1 })), refill, ""),
            (credits(json!(1), json!({ "interval": "monthly", "amount": 1 })), &day, ""),
            (credits(json!(1), json!({ "interval": "daily", "amount": 1, "refillDay": 1 })), &day, ""),
            (json!({ "credits": { "remaining": 1, "surprise": 1 } }), "/properties/credits/additionalProperties", "surprise"),
            (credits(json!(1), json!({ "interval": "daily", "amount": 1, "surprise": 1 })), &unknown, "surprise"),
            // Fields of version 1.
            (json!({ "ownerId": "user_1" }), "/additionalProperties", "ownerId"),
            (json!({ "remaining": 1 }), "/additionalProperties", "remaining"),
            (json!({ "refill": { "interval": "daily", "amount": 1 } }), "/additionalProperties", "refill"),
            (json!({ "ratelimit": { "limit": 1, "duration": 1000 } }), "/additionalProperties", "ratelimit"),
            (json!({ "environment": "live" }), "/additionalProperties", "environment"),
        ] {
            let mut request = fields;
            request["apiId"] = json!(api);
            kw.v2("keys.createKey", request).await.assert_field_error_about(location, &[named]);
        }
        for number in ["9223372036854775808", "9223372036854775808.0", "1e19", "1e400"] {
            let body = format!(r#"{{"apiId":"{api}","credits":{{"remaining":{number}}}}}"#);
            let request = post("keys.createKey").header("authorization", format!("Bearer {}", kw.root_key));
            kw.send(request.body(Body::from(body)).unwrap()).await.assert_error(400, "invalid_input");
        }
        assert_nothing_made(&kw).await;
    }

    async fn a_missing_api_is_told_before_a_missing_vault_and_that_before_a_missing_role(kw) {
        let api = kw.create_api().await;
        for (api, roles, status, error) in [
            ("api_nowhere", json!(["nobody"]), 404, "api_not_found"), (&api, json!(["nobody"]), 412, "precondition_failed"),
            (&api, json!([]), 412, "precondition_failed"),
        ] {
            let request = json!({ "apiId": api, "recoverable": true, "roles": roles });
            kw.v2("keys.createKey", request).await.assert_error(status, error);
        }
        assert_nothing_made(&kw).await;
    }
}

use serde_json::json;

use super::create;
use crate::on_both_stacks;

on_both_stacks! {
    async fn policy_is_returned_as_it_was_created(kw) {
        let created = create(&kw, json!({
            "keyFrom": ["query:api_key", "header:X-Key"],
            "rules": [{
                "methods": ["GET"], "path": "/a/**", "permissions": "a.read OR admin", "cost": 2,
                "ratelimits": [{ "name": "heavy", "limit": 5, "duration": 60_000 }], "tags": ["t"],
            }],
            "identityHeaders": { "headers": ["Keyward-Key-Id"], "meta": ["plan"], "signed": false },
            "onFailure": "text",
            "allowFrom": ["10.1.2.3/8", "::1"],
            "namespaces": [{
                "namespace": "edge", "defaultLimit": { "limit": 9, "duration": 1000 }, "mode": "shadow",
                "countRefused": true,
            }],
        })).await;
        let id = created.text_of("policyId");
        assert!(id.starts_with("gwp_"), "{id}");
        assert!(created.text_of("secret").starts_with("keyward_gateway_"));

        for named in [id.as_str(), "edge"] {
            let found = kw.v2("gateways.getPolicy", json!({ "policyId": named })).await;
            let mut found = found.data().clone();
            assert_eq!(found["policyId"], *id);
            assert!(found["createdAt"].is_i64());
            let fields = found.as_object_mut().unwrap();
            for known in ["policyId", "createdAt", "apiIds"] {
                fields.remove(known);
            }
            assert_eq!(found, json!({
                "name": "edge",
                "keyFrom": ["query:api_key", "header:x-key"],
                "rules": [{
                    "methods": ["GET"], "path": "/a/**", "permissions": "a.read OR admin", "cost": 2,
                    "ratelimits": [{ "name": "heavy", "limit": 5, "duration": 60_000 }], "tags": ["t"],
                }],
                "identityHeaders": { "headers": ["Keyward-Key-Id"], "meta": ["plan"], "signed": false },
                "onFailure": "text",
                "allowFrom": ["10.0.0.0/8", "::1/128"],
                "namespaces": [{
                    "namespace": "edge", "defaultLimit": { "limit": 9, "duration": 1000 }, "mode": "shadow",
                "countRefused": true,
                }],
            }));
        }
    }

    async fn policy_of_another_workspace_does_not_exist(kw) {
        create(&kw, json!({})).await.data();
        let other = kw.create_other_workspace().await;

        for operation in ["getPolicy", "updatePolicy", "deletePolicy", "rotateSecret"] {
            let request = json!({ "policyId": "edge" });
            kw.v2_as(&other, &format!("gateways.{operation}"), request)
                .await
                .assert_error(404, "gateway_policy_not_found");
        }
    }
}

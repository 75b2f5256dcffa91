use serde_json::json;

use super::create;
use crate::on_both_stacks;
use crate::support::{Keyward, Stack};

on_both_stacks! {
    async fn policy_has_defaults(kw) {
        create(&kw, json!({})).await.data();

        let found = kw.v2("gateways.getPolicy", json!({ "policyId": "edge" })).await;

        let found = found.data();
        assert_eq!(found["keyFrom"], json!(["authorization:bearer", "header:x-api-key"]));
        assert_eq!(found["onFailure"], "problem+json");
        for empty in ["rules", "allowFrom", "namespaces"] {
            assert_eq!(found[empty], json!([]), "{empty}");
        }
    }

    async fn policy_is_rejected_when_a_field_is_invalid(kw) {
        for (fields, location) in [
            (json!({ "name": "a b" }), "/properties/name"),
            (json!({ "name": "gwp_x" }), "/properties/name"),
            (json!({ "apiIds": [] }), "/properties/apiIds/minItems"),
            (json!({ "keyFrom": ["body:key"] }), "/properties/keyFrom/items"),
            (json!({ "rules": [{ "path": "a" }] }), "/properties/rules/items/properties/path"),
            (json!({ "rules": [{ "paths": "/a" }] }), "/properties/rules/items/additionalProperties"),
            (
                json!({ "rules": [{ "permissions": "a AND" }] }),
                "/properties/rules/items/properties/permissions",
            ),
            (json!({ "onFailure": "html" }), "/properties/onFailure/enum"),
            (json!({ "resource": "http://a.example" }), "/properties/resource"),
            (
                json!({ "authorizationServers": ["a.example"] }),
                "/properties/authorizationServers/items",
            ),
            (json!({ "allowFrom": ["here"] }), "/properties/allowFrom/items"),
            (json!({ "allowFrom": ["10.0.0.1,10.0.0.2"] }), "/properties/allowFrom/items"),
            (
                json!({ "identityHeaders": { "headers": ["X-Name"] } }),
                "/properties/identityHeaders/properties/headers",
            ),
        ] {
            create(&kw, fields).await.assert_field_error(location);
        }
        assert_eq!(kw.count_rows("gateway_policies").await, 0);
    }

    async fn policy_is_rejected_when_its_name_is_in_use_or_its_api_does_not_exist(kw) {
        create(&kw, json!({})).await.data();
        create(&kw, json!({})).await.assert_error(409, "gateway_policy_already_exists");
        create(&kw, json!({ "name": "other", "apiIds": ["api_unknown"] }))
            .await
            .assert_error(404, "api_not_found");
        create(&kw, json!({ "name": "other" })).await.data();
        kw.v2("gateways.updatePolicy", json!({ "policyId": "other", "name": "edge" }))
            .await
            .assert_error(409, "gateway_policy_already_exists");
    }

    async fn policy_is_forbidden_when_it_would_grant_more_than_the_caller_has(kw) {
        let (mine, foreign) = (kw.create_api().await, kw.create_api().await);
        let tuples = [
            "gateway.*.create_policy".to_owned(), "gateway.*.update_policy".to_owned(),
            format!("api.{mine}.verify_key"),
        ];
        let root_key = kw.create_root_key_with(tuples.to_vec()).await;
        let request = |name: &str, api: &str| json!({ "name": name, "apiIds": [api] });

        kw.v2_as(&root_key, "gateways.createPolicy", request("a", &mine)).await.data();
        kw.v2_as(&root_key, "gateways.createPolicy", request("b", &foreign))
            .await
            .assert_error(403, "insufficient_permissions");
        let change = json!({ "policyId": "a", "apiIds": [mine, foreign] });
        kw.v2_as(&root_key, "gateways.updatePolicy", change)
            .await
            .assert_error(403, "insufficient_permissions");
        let change = json!({ "policyId": "a", "namespaces": [{ "namespace": "n" }] });
        kw.v2_as(&root_key, "gateways.updatePolicy", change)
            .await
            .assert_error(403, "insufficient_permissions");
    }

    async fn namespaces_of_a_policy_are_created(kw) {
        create(&kw, json!({ "namespaces": [{ "namespace": "edge" }] })).await.data();

        assert_eq!(kw.list_texts("namespaces", "name").await, ["edge"]);
    }

    async fn policy_is_rejected_when_it_lists_a_namespace_by_its_name_and_its_id(kw) {
        create(&kw, json!({ "namespaces": [{ "namespace": "edge" }] })).await.data();
        let id = &kw.list_texts("namespaces", "id").await[0];

        let twice = json!([{ "namespace": "edge" }, { "namespace": id }]);
        create(&kw, json!({ "name": "other", "namespaces": twice }))
            .await
            .assert_field_error("/properties/namespaces/items");
        create(&kw, json!({ "name": "other", "namespaces": [{ "namespace": id }] })).await.data();
    }
}

#[tokio::test]
async fn secret_is_never_stored() {
    let kw = Keyward::start(Stack::Embedded).await;
    let secret = create(&kw, json!({})).await.text_of("secret");

    let hashes = kw.list_texts("gateway_policies", "secret_hash").await;

    assert!(!hashes[0].contains(&secret) && hashes[0].len() == 44, "{hashes:?}");
}

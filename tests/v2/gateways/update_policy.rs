use serde_json::{Value, json};

use super::create;
use crate::on_both_stacks;
use crate::support::seed::merge_fields;

on_both_stacks! {
    async fn update_replaces_only_the_fields_that_it_names(kw) {
        create(&kw, json!({ "rules": [{ "path": "/a" }], "onFailure": "empty" })).await.data();

        let change = json!({ "policyId": "edge", "name": "gate", "rules": [{ "path": "/b" }] });
        let updated = kw.v2("gateways.updatePolicy", change).await;

        let updated = updated.data();
        assert_eq!(updated["name"], "gate");
        assert_eq!(updated["rules"], json!([{ "path": "/b" }]));
        assert_eq!(updated["onFailure"], "empty");
        assert!(updated["updatedAt"].is_i64());
    }

    async fn policy_gets_no_name_that_is_like_an_id(kw) {
        let id = create(&kw, json!({})).await.text_of("policyId");
        let update = async |fields: Value| {
            kw.v2("gateways.updatePolicy", merge_fields(json!({ "policyId": id }), fields)).await
        };
        let rule = ["must not begin with `gwp_`"];

        update(json!({ "name": "gwp_x" })).await.assert_field_error_about("/properties/name", &rule);
        // A name that was stored before the rule must be replaced with the next change.
        kw.execute_sql("UPDATE gateway_policies SET name = 'gwp_x'".into()).await;
        let refused = update(json!({ "onFailure": "text" })).await;
        refused.assert_field_error_about("/properties/name", &rule);
        let updated = update(json!({ "onFailure": "text", "name": "edge" })).await;
        assert_eq!(updated.data()["name"], "edge");
    }
}

use serde_json::json;

use super::create;
use crate::on_both_stacks;

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
}

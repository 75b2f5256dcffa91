use serde_json::json;

use crate::on_both_stacks;

on_both_stacks! {
    async fn keys_can_be_made_in_it_at_once(kw) {
        let reply = kw.v1("apis.createApi", json!({ "name": "payments" })).await;
        let made = kw.v1("keys.createKey", json!({ "apiId": reply.v1_body()["apiId"] })).await;
        kw.verify_v1(made.v1_body()["key"].as_str().unwrap(), json!({})).await.assert_v1_code("VALID");
    }
}

use serde_json::json;

use super::create;
use crate::on_both_stacks;

on_both_stacks! {
    async fn list_returns_pages_of_policies(kw) {
        for name in ["orders", "payments", "users"] {
            create(&kw, json!({ "name": name })).await.data();
        }

        let all = kw.list_all_pages("gateways.listPolicies", json!({ "limit": 2 })).await;

        let mut names: Vec<_> = all.iter().map(|policy| policy["name"].as_str().unwrap()).collect();
        names.sort_unstable();
        assert_eq!(names, ["orders", "payments", "users"]);
        let found = kw.list_all_pages("gateways.listPolicies", json!({ "search": "PAYMENT" })).await;
        assert_eq!((found.len(), &found[0]["name"]), (1, &json!("payments")));
    }
}

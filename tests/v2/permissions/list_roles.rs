use serde_json::{Value, json};

use crate::on_both_stacks;
use crate::support::Keyward;

async fn found(kw: &Keyward, search: &str) -> Vec<String> {
    let page = kw.v2("permissions.listRoles", json!({ "search": search })).await;
    let name = |item: &Value| item["name"].as_str().unwrap().to_owned();
    let mut names: Vec<_> = page.data().as_array().unwrap().iter().map(name).collect();
    names.sort();
    names
}

on_both_stacks! {
    async fn a_search_looks_through_every_text_in_whatever_case(kw) {
        let request = json!({ "name": "Chief Editor", "description": "Signs off" });
        let id = kw.v2("permissions.createRole", request).await.text_of("roleId");
        kw.create_role("reader", ["docs.read"]).await;

        assert_eq!(found(&kw, "chief e").await, ["Chief Editor"]);
        assert_eq!(found(&kw, "SIGNS").await, ["Chief Editor"]);
        assert_eq!(found(&kw, &id.to_lowercase()).await, ["Chief Editor"]);
        assert_eq!(found(&kw, "e").await, ["Chief Editor", "reader"]);
        let reader = kw.v2("permissions.listRoles", json!({ "search": "reader" })).await;
        assert_eq!(reader.data()[0]["permissions"][0]["slug"], "docs.read");
        assert!(found(&kw, "docs.read").await.is_empty());
    }
}

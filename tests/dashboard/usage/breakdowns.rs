//! How requests are divided by outcome and API.

use serde_json::json;

use super::super::{Browser, between, workspace_path};
use super::TwoMonths;
use crate::on_every_event_store;

on_every_event_store! {
    async fn requests_are_divided_by_outcome_and_api(kw) {
        let TwoMonths { api, other_api, key } = TwoMonths::create(&kw).await;
        let mut owner = Browser::sign_in_owner(&kw).await;
        kw.v2("apis.deleteApi", json!({ "apiId": other_api })).await.data();

        let page = owner.get(&workspace_path("/analytics?range=this-month")).await.text;
        let filtered = owner.get(&workspace_path(&format!("/analytics?range=this-month&key={}", key.id))).await.text;

        let rows = |page: &str, title: &str| {
            let table = between(page, &format!("aria-label=\"{title}\"><table>"), "</table>").to_owned();
            let row = |row: &str| {
                let texts = row.split('<').filter_map(|tag| tag.split_once('>')).map(|(_, text)| text.trim());
                texts.filter(|text| !text.is_empty()).collect::<Vec<_>>().join("|")
            };
            table.split("<tr><th scope=\"row\">").skip(1).map(row).collect::<Vec<_>>()
        };
        assert_eq!(rows(&page, "Outcomes"), [
            "Valid|3|75.0%|−2 (−40.0%) from 5", "Credits exhausted|1|25.0%|+1 from 0",
        ]);
        let names = kw.v2("apis.getApi", json!({ "apiId": api })).await.text_of("name");
        let divided = rows(&page, "APIs");
        assert_eq!(divided.len(), 2, "{divided:?}");
        assert!(divided[0].starts_with(&names) && divided[0].contains("|15|"), "{divided:?}");
        for (value, link) in [("outcome", "USAGE_EXCEEDED"), ("only", &api), ("only", &other_api)] {
            assert!(page.contains(&format!("/analytics?range=this-month&#38;{value}={link}\"")), "{page}");
        }
        assert!(!filtered.contains("aria-label=\"APIs\""), "{filtered}");
        assert_eq!(rows(&filtered, "Outcomes"), ["Valid|1|100.0%|−1 (−50.0%) from 2"]);
        let mut lines = async |query: &str| {
            let file = owner.get(&workspace_path(&format!("/analytics.csv?range=this-month&{query}"))).await;
            assert_eq!(file.status, 200, "{query}");
            file.text.lines().map(str::to_owned).collect::<Vec<_>>()
        };
        let outcomes = lines("table=outcomes").await;
        assert_eq!(outcomes[..3], ["outcome,total,total_before", "VALID,3,5", "RATE_LIMITED,0,0"]);
        assert_eq!(outcomes.len(), 9);
        let apis = lines("table=apis").await;
        assert_eq!(apis[0], "name,api_id,total,total_before,spent_credits");
        assert!(apis[1].contains(&format!(",{api},")) && apis[1].ends_with(",15"), "{apis:?}");
        assert_eq!(lines("table=namespaces&of=limits").await, ["name,namespace_id,total,total_before"]);
    }
}

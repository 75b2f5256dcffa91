//! What the lists of top keys and identities are sorted by, and the figure of an outcome.

use serde_json::json;

use super::super::{Browser, between, workspace_path};
use super::figures;
use crate::on_every_event_store;

on_every_event_store! {
    async fn keys_and_identities_are_sorted_by_requests_rejections_or_credits(kw) {
        let mut owner = Browser::sign_in_owner(&kw).await;
        let key = async |name: &str, credits: u32| {
            let request = json!({ "name": name, "externalId": name, "credits": { "remaining": credits } });
            kw.create_key(request).await
        };
        let (busy, dear, poor) = (key("busy", 100).await, key("dear", 100).await, key("poor", 0).await);
        for _ in 0..4 {
            kw.v2("keys.verifyKey", json!({ "key": busy.key, "credits": { "cost": 1 } })).await.data();
        }
        kw.v2("keys.verifyKey", json!({ "key": dear.key, "credits": { "cost": 50 } })).await.data();
        for _ in 0..3 {
            kw.verify(&poor.key).await.assert_code("USAGE_EXCEEDED");
        }
        kw.write_events().await;

        for (query, head, expected) in [
            ("", "Requests", ["busy", "poor", "dear"]),
            ("&sort=none", "Requests", ["busy", "poor", "dear"]),
            ("&sort=rejected", "Rejected", ["poor", "busy", "dear"]),
            ("&sort=credits", "Credits spent", ["dear", "busy", "poor"]),
        ] {
            let page = owner.get(&workspace_path(&format!("/analytics?range=hour{query}"))).await.text;
            for (title, table, column) in [("Top keys", "keys", 1), ("Top identities", "identities", 0)] {
                let list = between(&page, &format!("<h2>{title}</h2>"), "</section>");
                let rows: Vec<_> = list.split("<th scope=\"row\">").skip(1).map(|row| between(row, ">", "</a>")).collect();
                assert_eq!(rows[0], expected[0], "{query}: {list}");
                let current = between(list, "aria-sort=\"descending\"><a href=\"", "</a>");
                assert!(current.ends_with(&format!(">{head}")), "{current}");
                let path = workspace_path(&format!("/analytics.csv?range=hour&table={table}{query}"));
                let file = owner.get(&path).await.text;
                let names: Vec<_> = file.lines().skip(1).map(|line| line.split(',').nth(column).unwrap()).collect();
                assert_eq!(names[0], expected[0], "{query}: {file}");
                assert_eq!((rows.len(), names.len()), (3, 3), "{query}");
            }
        }
        let path = workspace_path("/analytics.csv?range=hour&table=keys&sort=credits&outcome=USAGE_EXCEEDED");
        let file = owner.get(&path).await.text;
        assert!(file.lines().count() == 2 && file.contains(",poor,"), "{file}");
        let page = owner.get(&workspace_path("/analytics?range=hour&sort=credits")).await.text;
        assert!(page.contains("<input type=\"hidden\" name=\"sort\" value=\"credits\">"), "{page}");
    }

    async fn an_outcome_has_a_figure_of_its_own(kw) {
        let mut owner = Browser::sign_in_owner(&kw).await;
        let key = kw.create_key(json!({ "credits": { "remaining": 1 } })).await;
        for code in ["VALID", "USAGE_EXCEEDED", "USAGE_EXCEEDED"] {
            kw.verify(&key.key).await.assert_code(code);
        }
        kw.write_events().await;

        let page = owner.get(&workspace_path("/analytics?range=hour&outcome=USAGE_EXCEEDED")).await.text;
        assert_eq!(figures(&page)[..2], ["3", "2"]);
        assert!(page.contains("<dt>Credits exhausted</dt>"), "{page}");
        assert!(page.contains(" The other figures include all outcomes."), "{page}");
        let page = owner.get(&workspace_path("/analytics?range=hour")).await.text;
        assert!(!page.contains("include all outcomes"), "{page}");
    }
}
